"""All that the planner's page shows is what `bloomery.sizing` says."""

import json
import re
from itertools import product
from typing import Any

import pytest

from bloomery import sizing
from bloomery.errors import InvalidParameter
from bloomery.service.planner import measured
from bloomery.service.planner.choice import choose
from bloomery.service.planner.plans import Wish, planned
from bloomery.sizing.cluster import plan_cluster
from bloomery.sizing.family import KINDS, plan_kind, solve_kind


def test_the_plain_filters_numbers_are_those_of_sizing() -> None:
    """For many capacities, rates, memories and hashes, in both layouts, and what cannot be is
    refused alike."""
    capacities, rates = (None, 999, 10**9), (None, 0.3, 0.01, 1e-6)
    memories, hashes = (None, 10**6), (None, 4, 7)
    for values in product(capacities, rates, memories, hashes, ("blocked", "classic")):
        capacity, rate, memory, k, layout = values
        given: dict[str, Any] = {"capacity": capacity, "error_rate": rate, "memory": memory}
        given["num_hashes"] = k
        try:
            expected = sizing.solve(**given, layout=layout)
        except InvalidParameter as problem:
            with pytest.raises(InvalidParameter, match=re.escape(str(problem))):
                planned(Wish("bloom", {"layout": layout}, **given))
            continue
        shown = planned(Wish("bloom", {"layout": layout}, **given))["plan"]
        for name, value in expected.as_dict().items():
            if name != "layout":
                assert shown[name] == value, (values, name)
        assert shown["options"] == {"layout": layout}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind(kind: str) -> None:
    """The plan, the curves and the other kinds are those of sizing, ready for JSON."""
    found = planned(Wish(kind, capacity=20_000, error_rate=0.02, price=4.0))
    json.dumps(found, allow_nan=False)
    plan = solve_kind(kind, capacity=20_000, error_rate=0.02)
    assert found["plan"] == plan.as_dict()
    assert found["cost"] == plan.nbytes / 1e9 * 4.0
    rates = [rate for rate, _ in found["curves"]["memory"]]
    assert rates == sorted(rates, reverse=True)
    assert (kind == "rediscuckoo") == (rates[-1] > 1e-9)
    options = {name: value for name, value in plan.options.items() if name != "users"}
    for rate, nbytes in found["curves"]["memory"][:6]:
        assert nbytes == plan_kind(kind, 20_000, rate, **options).nbytes
    curve = dict(found["curves"]["rates"])
    assert curve[0] == 0.0
    assert curve[20_000] == plan.expected_error_rate
    last = curve[40_000]
    if plan.full_at is not None:
        assert last is None
    elif plan.grows:
        assert last <= plan.error_rate
    else:
        assert last == plan.rate_at(40_000) > plan.error_rate
    for row in found["kinds"]:
        if row["nbytes"] is not None:
            other = plan_kind(row["kind"], 20_000, 0.02, **row["options"])
            assert row["nbytes"] == other.nbytes
            assert row["cost"] == other.nbytes / 1e9 * 4.0
    assert {row["kind"] for row in found["kinds"]} == set(KINDS)


def test_what_else_people_use_is_what_was_measured() -> None:
    """For as many keys as the plan has, from the rows that `make figures` writes."""
    rows = planned(Wish(capacity=10**7, error_rate=0.01))["compared"]
    assert rows[0]["what"] == "this plan"
    assert [row["what"] for row in rows[1:]] == [row.what for row in measured.ROWS]
    by_name = {row["what"]: row for row in rows}
    assert by_name["Python set"]["nbytes"] == by_name["Python set"]["bytes_a_key"] * 10**7
    ours = by_name["BloomFilter, 1%"]["nbytes"]
    assert rows[0]["nbytes"] == pytest.approx(ours, rel=0.01)


def test_nodes_are_those_of_the_cluster_plan() -> None:
    """None unless requests are said; else what `plan_cluster` says."""
    assert planned(Wish(capacity=1000, error_rate=0.01))["nodes"] is None
    wish = Wish(capacity=10**8, error_rate=0.001, checks=10**6, writes=1000, batch=10)
    expected = plan_cluster(10**8, 0.001, checks=10**6, writes=1000, batch=10)
    found = planned(wish)["nodes"]
    assert found.pop("kind") == "bloom"
    assert found == expected.as_dict()


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ({}, "bloom"),
        ({"grow": True}, "scalable"),
        ({"known": True}, "static"),
        ({"known": True, "grow": True}, "scalable"),
        ({"remove": "all"}, "cuckoo"),
        ({"remove": "most"}, "deletable"),
        ({"remove": "most", "grow": True}, "cuckoo"),
        ({"remove": "count"}, "counting"),
        ({"forget": True}, "rotating"),
        ({"forget": True, "remove": "all"}, "rotating"),
        ({"users": True, "forget": True}, "bank"),
    ],
)
def test_the_questions_choose_a_kind(answers: dict[str, Any], kind: str) -> None:
    """The kind that docs/family.md would take, with reasons, and what it cannot do."""
    chosen = choose(**answers)
    assert chosen.kind == kind
    assert all(chosen.why)
    plan_kind(chosen.kind, 1000, chosen.error_rate, **chosen.options)
    grows = plan_kind(chosen.kind, 1000, chosen.error_rate, **chosen.options).grows
    if answers.get("grow"):
        assert grows or chosen.beware
    if answers.get("remove", "no") != "no" and kind in ("rotating", "bank"):
        assert chosen.beware


def test_a_dear_maybe_takes_a_lower_rate() -> None:
    """The worse a wrong maybe is, the rarer it is to be."""
    rates = [choose(wrong=wrong).error_rate for wrong in ("little", "lookup", "dear")]
    assert rates == sorted(rates, reverse=True)
    assert len(set(rates)) == 3
