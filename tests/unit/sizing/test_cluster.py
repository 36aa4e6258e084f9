"""How many machines: the model keeps its own limits, and grows as what it is asked for."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery import sizing
from bloomery.errors import InvalidParameter
from bloomery.sizing.cluster import STREAM_BYTES, plan_cluster
from bloomery.sizing.cluster_figures import FIGURES, SOURCES, Figures

RATES = st.just(0.0) | st.floats(0.01, 1e8)


def test_a_billion_keys_fit_every_node() -> None:
    """10**9 keys at 1% are 1.24 GB: one group, with a node to spare."""
    made = plan_cluster(1e9, 0.01, checks=1_000_000, writes=1_000)
    assert made.nbytes == sizing.plan(1e9, 0.01).nbytes
    assert made.groups == 1
    needed = 1_000_000 * FIGURES.check_us(1) / (FIGURES.busy * 1e6)
    assert needed < made.nodes - 1 < 1.1 * needed + 1
    assert made.all_nodes == made.nodes


def test_a_trillion_keys_are_split() -> None:
    """10**12 keys fit no node of 64 GB: groups of nodes have a part each."""
    made = plan_cluster(1e12, 0.01, checks=1_000_000)
    assert made.groups >= made.nbytes / 64e9
    assert made.node_nbytes <= 64e9
    assert made.groups * made.group_nbytes >= made.nbytes
    assert made.all_nodes == made.groups * made.nodes


@given(
    keys=st.integers(1_000, 10**12),
    checks=RATES,
    writes=st.floats(0, 1e6),
    batch=st.sampled_from([1, 10, 1000]),
)
def test_every_plan_keeps_its_limits(keys: int, checks: float, writes: float, batch: int) -> None:
    """Whatever is asked for: no limit is passed, nodes and Redis bear what they are given, and the
    log keeps what comes while a node loads."""
    made = plan_cluster(keys, 0.01, checks=checks, writes=writes, batch=batch)
    assert all(limit.share <= 1 for limit in made.limits)
    core = FIGURES.busy * 1e6
    own = writes / made.groups
    following = own * FIGURES.follow_us(batch)
    asked = checks / made.groups * FIGURES.check_us(batch)
    assert asked / (made.nodes - 1) + following <= core * 1.001 if asked else made.nodes >= 1
    assert own * FIGURES.redis_us(batch) <= core * 1.001
    assert made.redis_nbytes >= 2 * (made.group_nbytes + made.stream_bytes)
    written = own * FIGURES.stream_key_bytes * made.load_all_seconds
    assert made.stream_bytes >= max(STREAM_BYTES, made.group_nbytes // 2, int(written))


def test_what_the_log_cannot_bear_is_split() -> None:
    """More writes than one Redis takes, or more snapshots than it holds, take several groups; keys
    that come together, or a larger Redis, take fewer."""
    writes = 2 * FIGURES.busy * 1e6 / FIGURES.redis_us(1)
    assert plan_cluster(1e6, writes=writes).groups > 1
    assert plan_cluster(1e6, writes=writes, batch=100).groups == 1
    assert plan_cluster(2e10).groups > plan_cluster(2e10, memory_per_master=1e12).groups == 1


@given(checks=RATES, more=st.floats(1, 100))
def test_more_checks_take_no_fewer_nodes(checks: float, more: float) -> None:
    """What is asked for more takes as much or more."""
    less = plan_cluster(10**9, checks=checks, writes=100)
    assert plan_cluster(10**9, checks=checks * more, writes=100).all_nodes >= less.all_nodes


def test_batches_and_faster_cores_take_fewer_nodes() -> None:
    """Keys that come together cost less; a figure of one's own counts instead of ours."""
    singly = plan_cluster(10**9, checks=10**7)
    assert plan_cluster(10**9, checks=10**7, batch=100).nodes < singly.nodes / 10
    faster = replace(FIGURES, request_us=1.0)
    assert plan_cluster(10**9, checks=10**7, figures=faster).nodes < singly.nodes / 5


def test_it_is_ready_for_json() -> None:
    """Every figure has its name, and the limits their share."""
    found = json.loads(json.dumps(plan_cluster(10**6, checks=1).as_dict()))
    assert found["capacity"] == 10**6
    assert {"what", "used", "most", "then", "share"} == set(found["limits"][0])


def test_every_figure_says_where_it_is_from() -> None:
    """No constant without what it is and what measured it."""
    assert set(SOURCES) == {one.name for one in fields(Figures)}
    assert all(what and source for what, source in SOURCES.values())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"checks": -1}, "checks must be a number from 0 up, not -1"),
        ({"batch": 0}, "batch must be a number from 1 up, not 0"),
        ({"writes": float("inf")}, "writes must be a number from 0 up, not inf"),
        ({"network": "10G"}, "network must be a number from 1 up"),
        ({"memory_per_node": 10**6}, "memory_per_node is 1,000,000 bytes"),
        ({"error_rate": 2}, "error_rate must be"),
    ],
)
def test_nonsense_is_refused(wrong: dict[str, Any], message: str) -> None:
    """One error for each, with what was given and what is right."""
    with pytest.raises(InvalidParameter, match=message):
        plan_cluster(10**6, **wrong)
