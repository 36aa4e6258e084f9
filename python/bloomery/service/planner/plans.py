"""A plan with all that a page shows beside it: curves, other kinds, cost, nodes, what was measured.

What is computed is bounded: some 40 sizes a curve, whatever is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from bloomery.errors import InvalidParameter
from bloomery.service.planner import measured
from bloomery.service.planner.creation import creation
from bloomery.sizing.cluster import plan_cluster
from bloomery.sizing.family import FamilyPlan, plan_kind, solve_kind

# Error rates of the curve of memory: the same for all plans, since their shapes are kept.
_RATES = [0.5, *(float(f"{10 ** (-step / 2):.4g}") for step in range(1, 18)), 1e-9]
_STEPS = 60  # of the curve of error rates
_OVERFULL = 2.0  # times the capacity: how far that goes

# What can be done with each kind, in words.
TRAITS: dict[str, dict[str, str]] = {
    "bloom": {"grows": "no", "removes": "no", "note": "the fastest; classic: fewest bits"},
    "scalable": {"grows": "yes", "removes": "no", "note": "keeps its error rate at any size"},
    "counting": {"grows": "no", "removes": "yes", "note": "counts up to 15 copies, or 255"},
    "deletable": {"grows": "no", "removes": "most", "note": "says which keys it can remove"},
    "cuckoo": {"grows": "if asked", "removes": "yes", "note": "full is full, unless it grows"},
    "rotating": {"grows": "yes", "removes": "by age", "note": "forgets what is too old"},
    "static": {"grows": "no", "removes": "no", "note": "made of all keys at once"},
    "bank": {"grows": "yes", "removes": "whole users", "note": "a filter for each user"},
    "redisbloom": {"grows": "yes", "removes": "no", "note": "RedisBloom's BF, bit for bit"},
    "rediscuckoo": {"grows": "yes", "removes": "yes", "note": "RedisBloom's CF, bit for bit"},
}
# The kinds that are compared: each with its options.
_COMPARED: list[tuple[str, dict[str, Any]]] = [
    ("bloom", {"layout": "blocked"}),
    ("bloom", {"layout": "classic"}),
    ("static", {}),
    ("cuckoo", {}),
    ("cuckoo", {"grow": True}),
    ("deletable", {}),
    ("counting", {}),
    ("scalable", {}),
    ("rotating", {}),
    ("bank", {}),
    ("redisbloom", {}),
    ("rediscuckoo", {}),
]


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for; None: it is to be found, or nobody asked."""

    kind: str = "bloom"
    options: dict[str, Any] = field(default_factory=dict)
    capacity: int | None = None
    error_rate: float | None = None
    memory: int | None = None
    num_hashes: int | None = None
    window: str | None = None
    price: float | None = None  # of a gigabyte for a month, in whatever money
    checks: int = 0  # keys a second
    writes: int = 0
    batch: int = 1


def planned(wish: Wish) -> dict[str, Any]:
    """The plan and all beside it, ready for JSON; InvalidParameter if there is none."""
    plan = solve_kind(
        wish.kind,
        capacity=wish.capacity,
        error_rate=wish.error_rate,
        memory=wish.memory,
        num_hashes=wish.num_hashes,
        **wish.options,
    )
    return {
        "plan": plan.as_dict(),
        "create": creation(plan, wish.window),
        "curves": {"memory": memory_curve(plan), "rates": rate_curve(plan)},
        "kinds": other_kinds(plan, wish.price),
        "compared": compared(plan),
        "measured": measured.SOURCE,
        "cost": None if wish.price is None else cost(plan.nbytes, wish.price),
        "nodes": _nodes(plan, wish),
    }


def memory_curve(plan: FamilyPlan) -> list[list[float]]:
    """How many bytes as many keys take at other error rates: pairs of rate and bytes."""
    options = {name: v for name, v in plan.options.items() if name != "users"}
    return [list(pair) for pair in _memory_curve(plan.kind, tuple(options.items()), plan.capacity)]


@lru_cache(maxsize=64)
def _memory_curve(
    kind: str, options: tuple[tuple[str, Any], ...], capacity: int
) -> tuple[tuple[float, int], ...]:
    points = []
    for rate in _RATES:
        try:
            points.append((rate, plan_kind(kind, capacity, rate, **dict(options)).nbytes))
        except InvalidParameter:  # it cannot be so good, or not for so many keys
            continue
    return tuple(points)


def rate_curve(plan: FamilyPlan) -> list[list[float | None]]:
    """How often it errs as it fills, and past its capacity: pairs of keys and rate; None where it
    takes no more keys."""
    points: list[list[float | None]] = []
    for step in range(_STEPS + 1):
        count = round(plan.capacity * _OVERFULL * step / _STEPS)
        points.append([count, plan.rate_after(count)])
    return points


def other_kinds(plan: FamilyPlan, price: float | None) -> list[dict[str, Any]]:
    """The same capacity and error rate in every kind and layout."""
    rows = []
    for kind, options in _COMPARED:
        row: dict[str, Any] = {"kind": kind, "options": options, **TRAITS[kind]}
        try:
            other = plan_kind(kind, plan.capacity, plan.error_rate, **options)
        except InvalidParameter as problem:
            row |= {"nbytes": None, "problem": str(problem)}
        else:
            row |= {
                "nbytes": other.nbytes,
                "bits_per_key": other.bits_per_key,
                "expected_error_rate": other.expected_error_rate,
                "estimate": other.estimate,
                "cost": None if price is None else cost(other.nbytes, price),
            }
        rows.append(row)
    return rows


def compared(plan: FamilyPlan) -> list[dict[str, Any]]:
    """What else people use, as measured, for as many keys as the plan has."""
    rows = [
        {**row.as_dict(), "nbytes": round(row.bytes_a_key * plan.capacity)} for row in measured.ROWS
    ]
    own = {
        "what": "this plan",
        "nbytes": plan.nbytes,
        "bytes_a_key": plan.nbytes / plan.capacity,
        "wrong_maybes": plan.expected_error_rate,
    }
    return [own, *rows]


def cost(nbytes: int, price: float) -> float:
    """What so much memory costs a month, at a price of a gigabyte (10⁹ bytes) for a month."""
    return nbytes / 1e9 * price


def _nodes(plan: FamilyPlan, wish: Wish) -> dict[str, Any] | None:
    """How many servers so many requests take; None if nobody asked."""
    if not wish.checks and not wish.writes:
        return None
    layout = plan.options.get("layout", "blocked")
    cluster = plan_cluster(
        plan.capacity,
        plan.error_rate,
        checks=wish.checks,
        writes=wish.writes,
        batch=wish.batch,
        layout=layout,
    )
    return {**cluster.as_dict(), "kind": "bloom"}
