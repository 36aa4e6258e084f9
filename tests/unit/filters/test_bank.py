"""FilterBank: a filter for each user, in memory and in a file."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bloomery
from bloomery import BloomFilter, FilterBank, errors
from conftest import require
from privates import verify


@pytest.fixture
def bank() -> FilterBank:
    """A small bank with a few users of very different sizes."""
    made = FilterBank(0.01, 50)
    for user, count in (("ada", 3), ("ben", 60), (7, 2000)):
        made.update(user, [f"key {n}" for n in range(count)])
    return made


def test_each_user_has_a_filter_of_its_own() -> None:
    """What one user had says nothing about another."""
    bank = FilterBank()
    assert bank.add("ada", "x")
    assert not bank.add("ada", "x")
    assert bank.contains("ada", "x")
    assert not bank.contains("ben", "x")
    assert ("ada" in bank, "ben" in bank) == (True, False)
    assert (len(bank), bank.users, bank.count("ada"), bank.count("ben")) == (1, 1, 1, 0)


@pytest.mark.parametrize("user", ["ada", b"ada", 7, -1, 2**80, uuid.UUID(int=3), ("a", 1)])
def test_whatever_can_be_a_key_can_be_a_user(user: Any) -> None:
    """Users are hashed as keys are: str, bytes, int, UUID and tuples of them."""
    bank = FilterBank()
    assert bank.add_many(user, [1, 2]) == [True, True]
    assert user in bank
    assert bank.contains_many(user, [1, 2, 3]) == [True, True, False]


def test_str_and_bytes_are_one_user() -> None:
    """As with keys, a str is its UTF-8."""
    bank = FilterBank()
    bank.add("ada", 1)
    assert bank.contains(b"ada", 1)
    assert bank.hash_of("ada") == bank.hash_of(b"ada") == BloomFilter(1).hash_of("ada")


def test_batches_take_one_user_or_one_each() -> None:
    """Users and keys side by side, as lists, arrays or columns, are what single adds would be."""
    pairs = [(n % 7, n * n % 50) for n in range(400)]
    users, keys = [u for u, _ in pairs], [k for _, k in pairs]
    one_by_one = FilterBank(0.01, 20)
    expected = [one_by_one.add(u, k) for u, k in pairs]
    for form in (list, iter, np.array, lambda rows: np.array(rows, "uint16")):
        bank = FilterBank(0.01, 20)
        mask = bank.add_many(form(users), form(keys))
        assert list(mask) == expected
        assert isinstance(mask, np.ndarray) == isinstance(form([1]), np.ndarray)
        assert bank == one_by_one
        assert all(bank.contains_many(form(users), form(keys)))


def test_columns_of_arrow_and_polars() -> None:
    """Columns are read where they lie, and what is unseen comes back as a column."""
    arrow, polars = require("pyarrow"), require("polars")
    bank = FilterBank()
    users, keys = arrow.array(["a", "b", "a"]), arrow.array([1, 1, 2])
    assert bank.add_many(users, keys).tolist() == [True, True, True]  # type: ignore[union-attr]
    assert bank.unseen("a", arrow.array([1, 2, 3])).to_pylist() == [3]
    assert bank.unseen("b", polars.Series([1, 2, 3])).to_list() == [2, 3]
    assert bank.unseen("b", arrow.chunked_array([[1, 2], [3]])).to_pylist() == [2, 3]


def test_unseen_gives_the_same_objects_in_order(bank: FilterBank) -> None:
    """The candidates themselves come back: a list for objects, an array for an array."""
    fresh = [f"new {n}" for n in range(20)]
    candidates = [x for pair in zip(fresh, ["key 0", "key 1"] * 10, strict=True) for x in pair]
    for form in (list, tuple, iter):
        unseen = bank.unseen("ada", form(candidates))
        assert isinstance(unseen, list)
        assert all(a is b for a, b in zip(unseen, fresh, strict=True))
    assert bank.unseen("nobody", candidates) == candidates
    assert bank.unseen("ada", []) == []
    bank.update("eve", np.arange(10))
    left = bank.unseen("eve", np.arange(8, 13, dtype="int32"))
    assert left.dtype == np.int32
    assert left.tolist() == [10, 11, 12]
    pandas = require("pandas")
    assert bank.unseen("eve", pandas.Series([9, 10])).tolist() == [10]


def test_a_dropped_user_is_forgotten_and_may_come_back(bank: FilterBank) -> None:
    """`drop` forgets one user, `clear` all of them; both leave the rest as it was."""
    assert bank.drop("ben")
    assert not bank.drop("ben")
    assert "ben" not in bank
    assert not bank.contains("ben", "key 0")
    assert bank.contains("ada", "key 2")
    bank.add("ben", "other")
    assert (bank.count("ben"), len(bank)) == (1, 3)
    bank.clear()
    assert (len(bank), bank.estimated_count) == (0, 0)
    assert not bank.contains("ada", "key 0")


def test_memory_that_is_given_back_is_used_again() -> None:
    """Users who come and go do not make the bank grow."""
    bank = FilterBank(0.01, 100)
    for turn in range(3):
        for user in range(200):
            bank.update(user, np.arange(turn, turn + 90))
        size = bank.nbytes
        for user in range(200):
            bank.drop(user)
    assert bank.nbytes <= size
    bank.update(5, np.arange(90))
    assert bank.nbytes == size


def test_info_is_ready_for_json(bank: FilterBank) -> None:
    """The bank's figures and one user's; a user that is not there is a KeyError."""
    facts = bank.info()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["kind"] == "bank"
    assert (facts["users"], facts["keys_per_filter"]) == (3, 50)
    assert facts["estimated_count"] == sum(bank.count(user) for user in ("ada", "ben", 7))
    assert facts["bits_per_key"] == 8 * bank.nbytes / facts["estimated_count"]
    one = bank.info(7)
    assert json.loads(json.dumps(one)) == one
    assert one["layers"] == 3
    assert 1900 < one["keys"] <= 2000
    assert 0 < one["estimated_error_rate"] <= 0.01
    with pytest.raises(KeyError):
        bank.info("nobody")
    assert "3 users" in repr(bank)


def test_a_siphash_seed_is_not_shown() -> None:
    """The key of a keyed hash stays out of `info` and repr."""
    bank = FilterBank(hasher="siphash", seed=12345678901234567890)
    assert bank.info()["seed"] == "secret"
    assert "1234567890" not in repr(bank)
    assert bank.seed == 12345678901234567890


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"error_rate": 0}, "error_rate"),
        ({"error_rate": 1.5}, "error_rate"),
        ({"keys_per_filter": 0}, "keys_per_filter"),
        ({"keys_per_filter": "many"}, "keys_per_filter"),
        ({"keys_per_filter": 2**40, "error_rate": 1e-9}, "keys_per_filter"),
        ({"hasher": "md5"}, "hasher"),
        ({"seed": -1}, "seed"),
    ],
)
def test_a_wrong_parameter_is_named(wrong: dict[str, Any], says: str) -> None:
    """One clear error: the parameter, what was given, what is right."""
    with pytest.raises(errors.InvalidParameter, match=says):
        FilterBank(**wrong)


def test_a_wrong_batch_changes_nothing(bank: FilterBank) -> None:
    """Unequal lengths, nulls and what cannot be a key are refused before anything is added."""
    before = bank.copy()
    with pytest.raises(errors.InvalidParameter, match="2 users for 3 keys"):
        bank.add_many(["a", "b"], [1, 2, 3])
    with pytest.raises(errors.NullKey):
        bank.add_many(["a", None], [1, 2])  # type: ignore[list-item]
    with pytest.raises(errors.NullKey):
        bank.add_many("a", [1, None])  # type: ignore[list-item]
    with pytest.raises(errors.UnsupportedKey):
        bank.add_many("a", [1, 2.5])  # type: ignore[list-item]
    with pytest.raises(errors.UnsupportedKey):
        bank.add(1.5, 1)  # type: ignore[arg-type]
    with pytest.raises(errors.UnsupportedBatch):
        bank.contains_many("a", "one key")
    assert bank == before


def test_banks_are_not_merged(bank: FilterBank) -> None:
    """Union and intersection say why not, and what to do."""
    with pytest.raises(errors.IncompatibleFilters, match="add the keys of both"):
        bank.union(bank)
    with pytest.raises(errors.IncompatibleFilters):
        bank | bank
    with pytest.raises(errors.IncompatibleFilters):
        bank & bank


def test_copies_are_equal_and_apart(bank: FilterBank, tmp_path: Path) -> None:
    """Copy, pickle, bytes and a saved file hold the same, and change on their own."""
    path = tmp_path / "saved.bank"
    bank.save(path)
    for other in (
        bank.copy(),
        copy.copy(bank),
        copy.deepcopy(bank),
        pickle.loads(pickle.dumps(bank)),
        FilterBank.from_bytes(bank.to_bytes()),
        FilterBank.from_bytes(path.read_bytes()),
        FilterBank.load(path),
        FilterBank.load(path, verify=True),
        FilterBank.open(path, mode="r"),
        bloomery.open(path),
    ):
        assert isinstance(other, FilterBank)
        assert other == bank
        assert other.contains_many(7, [f"key {n}" for n in range(2000)]) == [True] * 2000
        if not other.read_only:
            other.add("ada", "another")
            assert other != bank
    assert bank != FilterBank(0.01, 51)
    assert bank != "bank"


def test_a_bank_lives_in_its_file(tmp_path: Path) -> None:
    """What was added is there when the file is opened again, and grows on."""
    path = tmp_path / "users.bank"
    with FilterBank(0.01, 100, path=path) as bank:
        bank.update(np.arange(30).repeat(200), np.tile(np.arange(200), 30))
        assert bank.path == str(path)
    assert bank.closed
    with FilterBank.open(path) as bank:
        assert len(bank) == 30
        assert all(all(bank.contains_many(u, np.arange(200))) for u in range(30))
        bank.add("late", 1)
        bank.flush()
        assert path.stat().st_size >= bank.nbytes
    with FilterBank.open(path, mode="r", verify=True) as bank:
        assert bank.contains("late", 1)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    """To make a bank where a file is says to open it instead."""
    path = tmp_path / "users.bank"
    path.write_bytes(b"precious")
    with pytest.raises(FileExistsError, match=r"FilterBank\.open"):
        FilterBank(path=path)
    assert path.read_bytes() == b"precious"
    with pytest.raises(FileNotFoundError):
        FilterBank.open(tmp_path / "none.bank")
    with pytest.raises(FileNotFoundError):
        FilterBank(path=tmp_path / "no folder" / "users.bank")


def test_a_closed_bank_says_so(tmp_path: Path) -> None:
    """Nothing can be asked of a closed bank; closing it again is nothing."""
    bank = FilterBank(path=tmp_path / "users.bank")
    bank.close()
    bank.close()
    for ask in (
        lambda: bank.add(1, 1),
        lambda: bank.contains(1, 1),
        lambda: len(bank),
        bank.flush,
        bank.info,
        bank.to_bytes,
    ):
        with pytest.raises(errors.InvalidParameter, match="closed"):
            ask()
    assert "closed" in repr(bank)


def test_what_is_opened_to_be_read_is_not_changed(tmp_path: Path) -> None:
    """`mode="r"` answers and refuses to add, drop or clear."""
    path = tmp_path / "users.bank"
    with FilterBank(path=path) as bank:
        bank.add("ada", 1)
    before = path.read_bytes()
    with FilterBank.open(path, mode="r") as bank, FilterBank.open(path, mode="r") as again:
        assert bank.read_only
        assert bank.contains("ada", 1)
        assert again.contains("ada", 1)
        for change in (lambda: bank.add(1, 1), lambda: bank.drop("ada"), bank.clear, bank.flush):
            with pytest.raises(errors.ReadOnlyFilter, match=r"r\+"):
                change()
    assert path.read_bytes() == before
    with pytest.raises(errors.InvalidParameter, match="mode is 'w'"):
        FilterBank.open(path, mode="w")  # type: ignore[arg-type]


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    """Who opens a bank that another writes gets an error that names the file."""
    path = tmp_path / "users.bank"
    with FilterBank(path=path) as bank:
        bank.add(1, 1)
        for mode in ("r", "r+"):
            with pytest.raises(BlockingIOError, match=r"another process .*users\.bank"):
                FilterBank.open(path, mode=mode)
    FilterBank.open(path).close()


def test_a_bank_that_nobody_closed_is_closed(tmp_path: Path) -> None:
    """The last reference gone, the file is as after `close`: it can be opened to be read."""
    path = tmp_path / "users.bank"
    bank = FilterBank(path=path)
    bank.add("ada", 1)
    del bank
    assert FilterBank.open(path, mode="r").contains("ada", 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_leaves_the_file_alone(tmp_path: Path) -> None:
    """A child of a fork can neither ask nor harm the parent's file; a bank in memory is its own."""
    script = f"""if True:
        import os
        from bloomery import FilterBank
        bank = FilterBank(path={str(tmp_path / "users.bank")!r})
        bank.add("ada", 1)
        memory = FilterBank()
        memory.add("ada", 1)
        if (child := os.fork()) == 0:
            assert memory.add("ada", 2) and memory.contains("ada", 1)
            for ask in (lambda: bank.add("ada", 2), lambda: bank.contains("ada", 1), bank.close):
                try:
                    ask()
                except ValueError as problem:
                    assert "parent" in str(problem)
                else:
                    os._exit(1)
            del bank
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert bank.add("ada", 3)
        bank.close()
    """
    subprocess.run([sys.executable, "-c", script], check=True)
    with FilterBank.open(tmp_path / "users.bank") as bank:
        assert [key for key in (1, 2, 3) if bank.contains("ada", key)] == [1, 3]


def test_save_does_not_write_into_its_own_file(tmp_path: Path) -> None:
    """A bank in a file is saved by `flush`; `save` makes copies elsewhere."""
    path = tmp_path / "users.bank"
    with FilterBank(path=path) as bank:
        bank.add("ada", 1)
        with pytest.raises(errors.InvalidParameter, match="flush"):
            bank.save(path)
        bank.save(tmp_path / "copy.bank")
        bank.add("ada", 2)
    with FilterBank.open(tmp_path / "copy.bank") as other:
        assert other.contains("ada", 1)
        assert not other.contains("ada", 2)
        other.add("ben", 1)
    assert FilterBank.load(tmp_path / "copy.bank").contains("ben", 1)


def test_other_kinds_are_told_apart(tmp_path: Path) -> None:
    """A filter's file is no bank, and a bank's is no filter: each error names the other."""
    BloomFilter(10).save(tmp_path / "one.bloom")
    FilterBank().save(tmp_path / "many.bank")
    for read in (FilterBank.load, FilterBank.open):
        with pytest.raises(errors.IncompatibleFilters, match=r"one\.bloom.*bloom filter"):
            read(tmp_path / "one.bloom")
    with pytest.raises((errors.IncompatibleFilters, errors.CorruptData), match="bank"):
        BloomFilter.load(tmp_path / "many.bank")
    assert isinstance(bloomery.open(tmp_path / "many.bank"), FilterBank)
    assert bloomery.open(tmp_path / "many.bank", mmap=True).read_only
    opened = bloomery.open(tmp_path / "many.bank", mmap=True, writable=True)
    assert isinstance(opened, FilterBank)
    assert opened.add("ada", 1)


def test_threads_share_a_bank() -> None:
    """Threads that add and ask at once lose nothing and see only whole states."""
    bank = FilterBank(0.001, 300)
    wrong: list[str] = []

    def work(me: int) -> None:
        for turn in range(20):
            keys = np.arange(turn * 250, turn * 250 + 250) + me * 10**6
            bank.update(np.arange(250) % 5, keys)
            bank.add(f"user {me}", turn)
            if not all(bank.contains_many(np.arange(250) % 5, keys)):
                wrong.append(f"{me} lost keys of turn {turn}")
            bank.update(9, np.arange(3000) + turn)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(bank) == 10
    verify(bank)
