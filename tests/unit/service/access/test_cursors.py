"""Cursors that tell nothing of the numbers in them."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery import errors
from bloomery.service.access.cursors import Cursors

CURSORS = Cursors()
LAST = 1 << 62


@given(st.integers(0, LAST - 1))
def test_there_and_back(number: int) -> None:
    """A cursor is opened to the number it was made of, and fits a cursor of Redis's."""
    sealed = CURSORS.seal(number)
    assert 0 <= sealed < LAST
    assert CURSORS.open(sealed, LAST) == number
    assert (sealed == 0) is (number == 0)


def test_neighbours_are_no_neighbours() -> None:
    """Numbers in order have cursors in none, spread over all there are."""
    sealed = [CURSORS.seal(number) for number in range(1, 1001)]
    assert len(set(sealed)) == 1000
    assert 400 < sum(one > LAST // 2 for one in sealed) < 600
    assert 400 < sum(a < b for a, b in itertools.pairwise(sealed)) < 600


@given(st.integers(1, (1 << 63) - 1))
def test_what_is_no_cursor(cursor: int) -> None:
    """Numbers, and cursors of before a restart, are refused: filters would else be left out."""
    with pytest.raises(errors.InvalidParameter, match="begin with 0"):
        CURSORS.open(cursor, below=1000)
