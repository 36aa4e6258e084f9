"""Replies to BF.* of either protocol; what is none is told, and never taken for a "no"."""

from typing import Any

import pytest

from bloomery.errors import CorruptData, FilterExists, FilterFull, StoreRefused, UnknownFilter
from bloomery.integrations.redis.bf import parse

INFO = [b"Capacity", 100, b"Size", 240, b"Number of filters", 1, b"Number of items inserted", 3]


def test_answers_of_both_protocols() -> None:
    """Integers or booleans."""
    assert parse.answers("a", [1, 0], 2) == b"\1\0"
    assert parse.answers("a", [True, False], 2) == b"\1\0"


@pytest.mark.parametrize(
    "reply", [None, 1, b"OK", [1], [1, 2], [1, -1], [1, None], [1, b"0"], [1, 0.0], {}, [[1, 0]]]
)
def test_what_is_no_answer_to_two_keys(reply: Any) -> None:
    """Too few, too many, not 0 or 1."""
    with pytest.raises(CorruptData):
        parse.answers("a", reply, 2)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("ERR not found", UnknownFilter),
        ("not found", UnknownFilter),
        ("ERR item exists", FilterExists),
        ("non scaling filter is full", FilterFull),
        ("ERR problem inserting into filter", StoreRefused),
        ("WRONGTYPE Operation against a key", StoreRefused),
    ],
)
def test_errors(text: str, error: type[Exception]) -> None:
    """In RedisBloom's words, alone or as the last element of an array."""
    for reply in (Exception(text), [1, Exception(text)]):
        with pytest.raises(error):
            parse.answers("a", reply, 3)


def test_figures_of_both_protocols() -> None:
    """A flat list or a map; more fields than RedisBloom's are let through."""
    flat = parse.info("a", [*INFO, b"Expansion rate", None, b"Error rate", b"0.01"])
    assert flat["Capacity"] == 100
    assert flat["Expansion rate"] is None
    pairs = dict(zip(INFO[::2], INFO[1::2], strict=True))
    assert parse.info("a", pairs)["Size"] == 240
    wrong: list[Any] = [None, 5, [1], INFO[:-1], INFO[2:], [*INFO[:-1], b"3"], [*INFO[:-1], -3], {}]
    for reply in wrong:
        with pytest.raises(CorruptData):
            parse.info("a", reply)


def test_capacity_of_both_protocols() -> None:
    """A list of one, a map of one, or a number."""
    right: list[Any] = [[100], {b"Capacity": 100}, 100, [b"Capacity", 100]]
    for reply in right:
        assert parse.capacity("a", reply) == 100
    wrong: list[Any] = [None, [], b"100", [True], [None], {}]
    for reply in wrong:
        with pytest.raises(CorruptData):
            parse.capacity("a", reply)
