"""docs/format.md is exact for banks: a reader written from it gives bloomery's answers."""

import struct
from pathlib import Path

import pytest

from bloomery import FilterBank
from bloomery.types import Hasher
from docs import reader_bank

# (keys planned, error rate): pages of one line and of many, tags of few bits and of many.
SIZES = [(1, 0.5), (10, 0.01), (100, 0.001), (1000, 0.01), (50, 1e-9)]
OTHERS = range(10**6, 10**6 + 50)


@pytest.mark.parametrize(("planned", "error_rate"), SIZES)
def test_keys_of_users(planned: int, error_rate: float) -> None:
    """For users of no keys, of a few and of many more than planned, the answers are bloomery's."""
    bank = FilterBank(error_rate, planned)
    sizes = {user: planned * user // 4 + user for user in range(12)}
    for user, keys in sizes.items():
        bank.update(user, list(range(keys)))
    saved = reader_bank.read(bank.to_bytes())
    assert max(len(list(saved.layers(bank.hash_of(user)))) for user in sizes) > 1
    for user, keys in sizes.items():
        for key in [*range(0, keys, 1 + keys // 50), *OTHERS]:
            assert saved.seen(user, key) == bank.contains(user, key)
        assert sum(one.keys for one in saved.layers(bank.hash_of(user))) == bank.count(user)
    assert not any(saved.seen(99, key) for key in OTHERS)
    assert saved.word(22) == len(bank)
    assert saved.word(27) == bank.estimated_count


def test_pages_of_numbers() -> None:
    """A user of so many pages that a record cannot name them has pages of numbers."""
    bank = FilterBank(0.01, 10_000)
    bank.update(5, list(range(70_000)))
    saved = reader_bank.read(bank.to_bytes())
    assert max(one.pages for one in saved.layers(bank.hash_of(5))) > 10
    for key in [*range(0, 70_000, 700), *OTHERS]:
        assert saved.seen(5, key) == bank.contains(5, key)


@pytest.mark.parametrize(
    ("hasher", "seed"), [("xxh3", 3), ("murmur3", 2**63), ("fnv1a", 0), ("siphash", 2**100)]
)
def test_users_are_hashed_as_keys(hasher: Hasher, seed: int) -> None:
    """A user has the hash that the same key has; one that was dropped is not there."""
    bank = FilterBank(0.01, 10, hasher=hasher, seed=seed)
    users = list(range(-300, 300))
    bank.update(users, users)
    for user in users[::3]:
        assert bank.drop(user)
    saved = reader_bank.read(bank.to_bytes())
    for user in users:
        assert saved.seen(user, user) == bank.contains(user, user) == ((user + 300) % 3 != 0)


def test_a_bank_in_its_file(tmp_path: Path) -> None:
    """A file that a bank lived in is read like one that was saved."""
    with FilterBank(0.01, 20, path=tmp_path / "bank") as bank:
        bank.update([n % 7 for n in range(400)], list(range(400)))
    saved = reader_bank.read((tmp_path / "bank").read_bytes())
    assert all(saved.seen(n % 7, n) for n in range(400))
    assert sum(saved.seen((n + 1) % 7, n) for n in range(400)) < 30


@pytest.mark.parametrize("planned", [5, 300])
def test_a_bank_that_was_not_closed(planned: int, tmp_path: Path) -> None:
    """Repaired by the page it answers as when bloomery repairs it: after a kill all keys are there,
    after a power cut those of the last flush."""
    path = tmp_path / "bank"
    bank = FilterBank(0.001, planned, path=path)
    before = [(n % 20, n) for n in range(1000)]
    after = [(n % 60, n) for n in range(1000, 3000)]  # old users and new, and a larger directory
    bank.add_many(*map(list, zip(*before, strict=True)))
    bank.flush()
    bank.add_many(*map(list, zip(*after, strict=True)))
    cut = path.read_bytes()
    flushes = [struct.unpack_from("<Q", cut, 8 * word)[0] for word in (18, 21)]
    assert flushes[1] > flushes[0], "the directory grew since"
    boot = struct.unpack_from("<Q", cut, 8 * 17)[0]
    bank.close()
    for now in {boot, boot ^ 1, 0}:  # 0: nobody knows, so it counts as another
        (tmp_path / "copy").write_bytes(cut[: 8 * 17] + struct.pack("<Q", now) + cut[8 * 18 :])
        saved = reader_bank.read(reader_bank.repaired((tmp_path / "copy").read_bytes(), boot))
        with FilterBank.open(tmp_path / "copy") as opened:
            for user, key in before + after[::10]:
                assert saved.seen(user, key) == opened.contains(user, key)
        assert all(saved.seen(user, key) for user, key in before)
        there = sum(saved.seen(user, key) for user, key in after)
        assert there == len(after) if now == boot != 0 else there < 20
