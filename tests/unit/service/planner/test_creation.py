"""The code and the command that the planner prints make exactly the filter of the plan."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import nursery
from bloomery import filters
from bloomery.filters.creation import create
from bloomery.service.planner.creation import creation
from bloomery.sizing.family import KINDS, FamilyPlan, solve_kind
from conftest import require

require("typer")

GIVEN: list[tuple[str, dict[str, Any]]] = [
    ("bloom", {"capacity": 10_000, "error_rate": 0.01}),
    ("bloom", {"capacity": 10_000, "error_rate": 1e-7, "layout": "classic"}),
    ("bloom", {"capacity": 10_000, "memory": 20_000}),
    ("bloom", {"memory": 20_000, "error_rate": 0.001}),
    ("bloom", {"memory": 20_001, "num_hashes": 8}),
    ("bloom", {"capacity": 10_000, "error_rate": 1e-5, "num_hashes": 8}),
    ("bloom", {"capacity": 10_000, "num_hashes": 3, "layout": "classic"}),
    ("scalable", {"capacity": 10_000, "error_rate": 0.02}),
    ("scalable", {"capacity": 10_000, "memory": 40_000}),
    ("counting", {"capacity": 10_000, "error_rate": 0.01, "counter_bits": 8}),
    ("counting", {"capacity": 10_000, "num_hashes": 5}),
    ("counting", {"memory": 50_000, "num_hashes": 4, "counter_bits": 8}),
    ("deletable", {"capacity": 10_000, "error_rate": 0.01}),
    ("deletable", {"memory": 30_000, "error_rate": 0.01, "regions": 20_000}),
    ("cuckoo", {"capacity": 10_000, "memory": 20_000}),
    ("cuckoo", {"capacity": 10_000, "error_rate": 0.001, "grow": True}),
    ("rotating", {"capacity": 10_000, "error_rate": 0.01}),
    ("rotating", {"capacity": 10_000, "error_rate": 0.01, "generations": 30}),
    ("bank", {"capacity": 10_000, "error_rate": 0.01, "keys_per_filter": 50}),
]


def same(facts: dict[str, Any], plan: FamilyPlan) -> None:
    """What a filter says of itself is what was planned."""
    assert facts["kind"] == plan.kind
    if plan.kind == "bank":
        keys = plan.options["keys_per_filter"]
        assert (facts["keys_per_filter"], facts["error_rate"]) == (keys, plan.error_rate)
        return
    assert (facts["capacity"], facts["nbytes"]) == (plan.capacity, plan.nbytes)
    for name in ("num_bits", "num_hashes", "lines_per_key"):
        if name in facts:
            assert facts[name] == getattr(plan, name)
    for name, value in plan.options.items():
        if value is not None and name != "regions":
            assert facts[name] == value
    if plan.by_shape:
        assert facts["error_rate"] == plan.expected_error_rate
    else:
        assert facts["error_rate"] == plan.error_rate


@pytest.mark.parametrize(("kind", "given"), GIVEN)
def test_what_is_printed_makes_the_filter(kind: str, given: dict[str, Any], tmp_path: Path) -> None:
    """Run as they are printed, Python and the command make what was planned; so does a server's
    request."""
    plan = solve_kind(kind, **given)
    ways = creation(plan, "12h" if kind == "rotating" else None)
    names: dict[str, Any] = {}
    exec(str(ways["python"]), names)
    same(names["seen"].info(), plan)
    words = shlex.split(str(ways["command"]))
    assert words[0] == "bloomery"
    done = nursery.run([*words[1:], "--json"], b"", tmp_path, {"NO_COLOR": "1"}, nursery.FILES)
    assert done.returncode == 0, done.stderr
    same(json.loads(done.stdout), plan)
    if kind == "rotating":
        assert names["seen"].window == 12 * 3600
    if plan.by_shape:
        assert "--data-binary @seen.bloom" in str(ways["http"])
        assert ways["redis"] is None
    else:
        body = json.loads(shlex.split(str(ways["http"]))[-1])
        made = create({key: v for key, v in body.items() if key != "name"}, lambda: 0.0)
        same(made.info(), plan)


def test_a_static_filter_is_made_of_its_keys(tmp_path: Path) -> None:
    """Its code and its command take the keys; only a file of it can be given to a server."""
    plan = solve_kind("static", capacity=3, error_rate=0.001)
    ways = creation(plan)
    names: dict[str, Any] = {}
    exec(str(ways["python"]), names)
    assert names["seen"].nbytes == plan.nbytes
    command = str(ways["command"])
    assert command.endswith(" < keys.txt")
    words = shlex.split(command.removesuffix(" < keys.txt"))[1:]
    keys = b"apple\nbanana\ncherry\n"
    done = nursery.run([*words, "--json"], keys, tmp_path, {"NO_COLOR": "1"}, nursery.FILES)
    assert json.loads(done.stdout)["nbytes"] == plan.nbytes
    assert ways["redis"] is None


def test_every_kind_can_be_made_somehow() -> None:
    """RedisBloom's two are a server's, and made by a client."""
    for kind in KINDS:
        plan = solve_kind(kind, capacity=1_000, error_rate=0.02)
        ways = creation(plan)
        assert ways["python"]
        assert ways["http"]
        if kind.startswith("redis"):
            assert f'kind="{kind}"' in str(ways["python"])
            body = json.loads(shlex.split(str(ways["http"]))[-1])
            made = create({key: v for key, v in body.items() if key != "name"}, lambda: 0.0)
            assert isinstance(made, filters.RedisBloomFilter | filters.RedisCuckooFilter)
            assert 0 <= made.nbytes - plan.nbytes <= 256


def test_redis_clamps_high_rates() -> None:
    """So for a rate above 25% there is no BF.RESERVE that would make the same."""
    assert creation(solve_kind("bloom", capacity=100, error_rate=0.3))["redis"] is None
