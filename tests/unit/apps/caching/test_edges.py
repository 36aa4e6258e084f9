"""Edges know by summaries which neighbour may hold a key, and stop believing bad ones."""

import random
from typing import Any, cast

import pytest

from bloomery import BloomFilter, CuckooFilter, errors
from bloomery.apps import EdgeSummaries, edge_summary
from unit.clocks import Clock


def test_holders_are_never_missed() -> None:
    """Whatever a neighbour held when it published, it is named for; at most 1% of the rest."""
    summaries = EdgeSummaries(most=2)
    held = {edge: [f"{edge}/{n}" for n in range(5000)] for edge in ("a", "b")}
    for edge, keys in held.items():
        summaries.receive(edge, edge_summary(keys))
    for edge, keys in held.items():
        assert all(edge in summaries.holders(key) for key in keys)
    absent = [f"none/{n}" for n in range(20_000)]
    assert sum(len(summaries.holders(key)) for key in absent) < 2 * 0.013 * len(absent)


def test_a_summary_is_replaced_and_grows_old() -> None:
    """The last summary counts; one that was received too long ago says nothing."""
    clock = Clock()
    summaries = EdgeSummaries(max_age=60, clock=clock)
    summaries.receive("a", edge_summary(["old"]))
    summaries.receive("a", edge_summary(iter(["new"])))
    assert summaries.holders("old") == []
    clock.now = 60
    assert summaries.holders("new") == ["a"]
    clock.now = 60.5
    assert summaries.holders("new") == []
    assert summaries.info()["edges"]["a"]["age"] == 60.5
    summaries.receive("a", edge_summary([]))
    summaries.forget("a")
    summaries.forget("never there")
    assert summaries.info()["edges"] == {}


def test_a_neighbour_that_lies_is_left_alone() -> None:
    """After a few hundred requests in vain a neighbour is asked no more; those that answer come
    first, and one that mends is asked again after it was forgotten."""
    summaries = EdgeSummaries(most=2)
    for edge in ("liar", "good"):
        summaries.receive(edge, edge_summary(["k"]))
    asked = 0
    while "liar" in (holders := summaries.holders("k")) and asked < 1000:
        asked += 1
        for edge in holders:
            summaries.report(edge, held=edge == "good")
    assert 100 < asked < 400
    assert summaries.holders("k") == ["good"]
    assert summaries.info()["wasted"] == asked
    summaries.receive("liar", edge_summary(["k"]))  # not by a new summary alone
    assert summaries.holders("k") == ["good"]
    summaries.forget("liar")
    summaries.receive("liar", edge_summary(["k"]))
    assert summaries.holders("k") == ["good", "liar"]


def test_hostile_summaries() -> None:
    """What is no filter, another kind, too large, or says maybe to everything is refused, and the
    last good summary stays."""
    summaries = EdgeSummaries(max_bytes=10_000)
    summaries.receive("a", good := edge_summary(["k"]))
    full = BloomFilter(1000, 0.01)
    full.update(range(50_000))
    rng = random.Random(1)
    damaged = bytearray(good)
    damaged[rng.randrange(100, len(good))] ^= 1
    for bad, problem in (
        (b"", errors.CorruptData),
        (bytes(damaged), errors.CorruptData),
        (good[:-1], errors.CorruptData),
        (CuckooFilter(100).to_bytes(), errors.IncompatibleFilters),
        (full.to_bytes(), errors.InvalidParameter),
        (edge_summary(range(20_000)), errors.InvalidParameter),
    ):
        with pytest.raises(problem):
            summaries.receive("a", bad)
    assert summaries.holders("k") == ["a"]


@pytest.mark.parametrize("name", ["max_age", "most", "max_bytes"])
def test_parameters(name: str) -> None:
    """Numbers are above 0."""
    with pytest.raises(errors.InvalidParameter, match=f"{name} is 0"):
        EdgeSummaries(**cast("Any", {name: 0}))
