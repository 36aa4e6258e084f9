"""docs/format.md is exact for banks: a reader written from it gives bloomery's answers."""

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
