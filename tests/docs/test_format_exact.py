"""docs/format.md is exact for exact sets: a reader written from it gives bloomery's answers."""

import pytest

from bloomery import ExactSet
from docs import reader_family
from docs.reader_family import Exact

OTHERS = range(10**6, 10**6 + 400)


def read(data: bytes) -> Exact:
    saved = reader_family.read(data)
    assert isinstance(saved, Exact)
    return saved


@pytest.mark.parametrize("members", [0, 1, 17, 1000])
@pytest.mark.parametrize("non_members", [0, 1, 30, 3000])
@pytest.mark.parametrize("error_rate", [None, 0.3, 1e-5])
def test_sets_of_every_shape(members: int, non_members: int, error_rate: float | None) -> None:
    """Both sides are right, and other keys are answered as the page derives."""
    valid = range(-non_members, 0)
    exact = ExactSet.build(range(members), valid, error_rate=error_rate)
    saved = read(exact.to_bytes())
    assert (saved.members, saved.non_members) == (members, non_members)
    assert all(map(saved.might_contain, range(members)))
    assert not any(map(saved.might_contain, valid))
    assert [key in exact for key in OTHERS] == [saved.might_contain(key) for key in OTHERS]


@pytest.mark.parametrize(("level", "first"), [(0, 0), (1, 2**32)])
def test_a_later_attempt(level: int, first: int) -> None:
    """Where a level could not be solved at first, its attempt in the header says how it was."""
    sets = (ExactSet.build(range(200), range(-900, 0), seed=seed) for seed in range(10_000))
    saved = next(one for one in (read(s.to_bytes()) for s in sets) if one.levels[level][4] > first)
    assert all(map(saved.might_contain, range(200)))
    assert not any(map(saved.might_contain, range(-900, 0)))
