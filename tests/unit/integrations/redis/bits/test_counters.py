"""Removing from counters in Redis: what is sent again, and what never is."""

import pytest

from bloomery.errors import CorruptData
from bloomery.integrations.redis.bits.counters import Counters, planned_counters
from bloomery.integrations.redis.naming import Keys
from conftest import require

redis = require("redis")


def counters() -> Counters:
    """Those of a small filter."""
    return Counters(Keys("seen"), planned_counters(1000, 0.01, 4, "xxh3", 0))


def test_only_what_was_not_done_is_sent_again() -> None:
    """A script that is forgotten in the middle of a batch is loaded, and called for the rest."""
    some = counters()
    length, gone = some.lengths[0], redis.exceptions.NoScriptError("No matching script")
    flow = some.remove(["a", "b", "c"])
    [ask] = next(flow)
    assert (ask.replies, ask.again) == (4, False)
    [load] = flow.send([[length, 1, gone, gone]])
    assert b"SCRIPT" in load.data
    [rest] = flow.send([[b"sha"]])
    assert (rest.replies, rest.again) == (3, False)
    assert rest.data.count(b"EVALSHA") == 2
    with pytest.raises(StopIteration) as end:
        flow.send([[length, 0, 2]])
    assert end.value.value == (bytes([1, 0, 2]), False)


@pytest.mark.parametrize("wrong", [4, -1, b"1", None, [1]])
def test_hostile_answers(wrong: object) -> None:
    """What the script never returns is CorruptData."""
    some = counters()
    flow = some.remove(["a"])
    next(flow)
    with pytest.raises(CorruptData):
        flow.send([[some.lengths[0], wrong]])
