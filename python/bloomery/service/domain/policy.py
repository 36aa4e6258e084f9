"""A filter's policy: what happens when it is full, and when an alert is raised before that.

| on_full | when the filter holds `full_at` of its capacity | kinds |
|---|---|---|
| grow | it grows, and the error rate holds | scalable, cuckoo, rotating, bank |
| rotate | a new generation begins, once the last one is `grace` old | rotating |
| reject | new keys are refused | bloom, counting, deletable, cuckoo, scalable |
| alert | nothing, but the alert is out before | bloom, counting, deletable, cuckoo, scalable |

The fields are settings of a filter (`Entry.settings`): CREATE gives them, ADJUST changes them.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bloomery import errors
from bloomery.filters.internals import facts as filter_facts
from bloomery.filters.rotating import MAX_WINDOW, parse_window
from bloomery.service.domain.entry import Entry

FIELDS = ("on_full", "full_at", "warn_at", "warn_within", "grace")
ON_FULL = ("grow", "rotate", "reject", "alert")
# The kind that is made where none is named.
_KINDS = {"grow": "scalable", "rotate": "rotating", "reject": "bloom", "alert": "bloom"}
_MOST_KEYS = 2**64 - 1  # that are counted; the head of a filter that was loaded may say any number
# Which fields mean something beside which policy.
_THRESHOLDS = {
    "grow": (),
    "rotate": ("full_at", "grace"),
    "reject": ("full_at", "warn_at", "warn_within"),
    "alert": ("full_at", "warn_at", "warn_within"),
}


@dataclass(frozen=True, slots=True)
class FilterPolicy:
    """The policy of one filter."""

    on_full: str | None  # None: it never changes
    full_at: float = 1.0  # share of the capacity at which on_full acts
    warn_at: float = 0.8  # share of the capacity from which on there is an alert; 0: never
    warn_within: float = 3600.0  # seconds: an alert if it is full so soon at this rate; 0: never
    grace: float = 3600.0  # seconds for which a generation stays at least, with rotate

    def as_dict(self) -> dict[str, Any]:
        """The fields that mean something, ready for JSON."""
        named = ("on_full", *_THRESHOLDS.get(self.on_full or "", ()))
        return {name: value for name, value in asdict(self).items() if name in named}


def policy_of(entry: Entry) -> FilterPolicy:
    """Return the policy of a filter: its settings, and defaults that go by its kind."""
    given = {name: entry.settings[name] for name in FIELDS if name in entry.settings}
    if "on_full" not in given:
        possible = _possible(entry.settings | _facts_of(entry))
        given["on_full"] = possible[0] if possible else None
    return FilterPolicy(**given)


def capacity_of(entry: Entry) -> int:
    """How many keys a filter was made for."""
    capacity = getattr(entry.filter, "capacity", None)
    return int(entry.settings.get("capacity", 0) if capacity is None else capacity)


def generation_of(entry: Entry) -> tuple[int, float]:
    """How many keys the current generation of a rotating filter has, and when it began."""
    facts = filter_facts(entry.filter)
    return int(facts["generation_count"]), float(facts["generation_started"])


def limit_and_threshold(entry: Entry) -> tuple[int | None, int | None]:
    """Return how many keys a filter takes at most (None: any number), and the number of keys at
    which its policy is looked at next (None: never)."""
    if entry.filter is None:
        return None, None
    policy, capacity = policy_of(entry), capacity_of(entry)
    full = part_of(policy.full_at, capacity)
    if policy.on_full == "rotate":
        left = full - generation_of(entry)[0]
        return None, min(entry.items + left, _MOST_KEYS) if left > 0 else None
    if policy.on_full not in ("reject", "alert"):
        return None, None
    thresholds = [part_of(policy.warn_at, capacity), full] if policy.warn_at else [full]
    # RedisBloom's own kinds refuse by themselves.
    limited = policy.on_full == "reject" and not entry.filter.kind.startswith("redis")
    following = min((at for at in thresholds if at > entry.items), default=None)
    return full if limited else None, following


def refusal(entry: Entry) -> str:
    """Why a full filter refuses a new key: what follows its name in the message."""
    policy, capacity = policy_of(entry), capacity_of(entry)
    limit = part_of(policy.full_at, capacity)
    full = "its capacity" if limit == capacity else f"full_at of its capacity of {capacity:,}"
    return (
        f"holds {limit:,} keys, {full}, and its policy is reject: make a larger one, or one that "
        "grows"
    )


def part_of(share: float, capacity: int) -> int:
    """How many keys that share of a capacity is."""
    # As a float, a capacity of 2**64 - 1 is 2**64, which no count of keys can be.
    return max(1, min(capacity, math.floor(share * capacity + 1e-9)))


def chosen(kind: str | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a new filter, its kind among them: the one that is named, or that
    on_full asks for; else it grows. InvalidParameter if the two do not go together."""
    policy = _parse({name: value for name, value in settings.items() if name in FIELDS})
    parameters = {name: value for name, value in settings.items() if name not in FIELDS}
    on_full = policy.get("on_full")
    parameters["kind"] = kind = kind or _KINDS[on_full or "grow"]
    if kind == "cuckoo" and on_full is not None:
        parameters.setdefault("grow", on_full == "grow")
    if kind == "rotating" and on_full is None and settings.get("window", "7d") is None:
        policy["on_full"] = on_full = "rotate"
    if kind == "rotating" and on_full == "rotate":
        parameters.update(_rotation_by_keys(settings))
    _require_compatible(parameters, policy, policy)
    return parameters | policy


def adjusted(entry: Entry, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a policy that change; None: back to the default."""
    if not given:
        raise errors.InvalidParameter(f"nothing is to change: give {_one_of(FIELDS)}")
    changes = {name: None for name, value in given.items() if value is None}
    changes |= _parse({name: value for name, value in given.items() if value is not None})
    _check_names(given)
    settings = entry.settings | _facts_of(entry)
    before = {name: value for name, value in settings.items() if name in FIELDS}
    after = {name: value for name, value in (before | changes).items() if value is not None}
    _require_compatible(settings, after, [name for name in given if given[name] is not None])
    return changes


def _facts_of(entry: Entry) -> dict[str, Any]:
    """What a filter is, that its settings may not say: it may come from a file."""
    kind = getattr(entry.filter, "kind", entry.settings.get("kind", "bloom"))
    facts: dict[str, Any] = {"kind": kind}
    if kind == "rotating" and entry.filter is not None:
        facts["window"] = entry.filter.window
    if kind == "cuckoo" and "grow" not in entry.settings and entry.filter is not None:
        facts["grow"] = bool(filter_facts(entry.filter)["grow"])
    if kind.startswith("redis") and entry.filter is not None:
        facts["expansion"] = entry.filter.expansion
    return facts


def _possible(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """What a filter of these settings can do when it is full; the first is its default."""
    kind = settings["kind"]
    if kind in ("bloom", "counting", "deletable"):
        return ("reject", "alert")
    if kind == "scalable" or (kind == "cuckoo" and settings.get("grow")):
        return ("grow", "reject", "alert")
    if kind in ("redisbloom", "rediscuckoo"):
        grows = settings.get("expansion") and not settings.get("nonscaling")
        return ("grow",) if grows else ("reject",)
    if kind == "rotating":
        window = settings.get("window", "7d")
        if window is None:  # it turns over by itself
            return ()
        return ("grow", "rotate") if window == MAX_WINDOW else ("grow",)
    return {"cuckoo": ("reject",), "bank": ("grow",)}.get(kind, ())


def _require_compatible(
    parameters: Mapping[str, Any], policy: Mapping[str, Any], named: Iterable[str]
) -> None:
    """Raise unless a filter that is made so can do what its policy says, and unless each of the
    fields that are named means something there."""
    possible = _possible(parameters)
    on_full = policy.get("on_full", possible[0] if possible else None)
    if on_full is not None and on_full not in possible:
        can = f"can {_one_of(possible)}" if possible else "is never full"
        raise errors.InvalidParameter(
            f"on_full is {on_full!r}, but this {parameters['kind']} filter {can}; make one of kind "
            f"{_one_of(_CAN[on_full])} for {on_full!r}"
        )
    useful = _THRESHOLDS.get(on_full or "", ())
    for name in named:
        if name != "on_full" and name not in useful:
            right = [policy for policy in ON_FULL if name in _THRESHOLDS[policy]]
            raise errors.InvalidParameter(
                f"{name} means nothing where on_full is {on_full!r}: it goes with {_one_of(right)}"
            )


_CAN = {
    "grow": ("scalable", "cuckoo"),
    "rotate": ("rotating",),
    "reject": ("bloom", "counting", "deletable", "cuckoo", "scalable"),
    "alert": ("bloom", "counting", "deletable", "scalable"),
}


def _rotation_by_keys(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A rotating filter that time never turns over, so that its policy does. It grows meanwhile."""
    for name, right in (("window", None), ("generations", 1)):
        if settings.get(name, right) != right:
            raise errors.InvalidParameter(
                f"{name} is {settings[name]!r}, but with on_full 'rotate' keys and not time turn "
                f"generations over: leave {name} out, or on_full"
            )
    return {"window": MAX_WINDOW, "generations": 1}


def _parse(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields, each in its range."""
    _check_names(given)
    return {name: _PARSERS[name](name, value) for name, value in given.items() if value is not None}


def _check_names(given: Iterable[str]) -> None:
    for name in given:
        if name not in FIELDS:
            near = difflib.get_close_matches(name, FIELDS, 1)
            meant = f"did you mean {near[0]!r}?" if near else f"there are {_one_of(FIELDS)}"
            raise errors.InvalidParameter(f"a policy has no {name[:60]!r}: {meant}")


def _on_full(name: str, value: Any) -> str:
    if isinstance(value, str) and value.lower() in ON_FULL:
        return value.lower()
    near = difflib.get_close_matches(str(value).lower(), ON_FULL, 1)
    meant = f": did you mean {near[0]!r}?" if near else ""
    raise errors.InvalidParameter(
        f"{name} is {str(value)[:60]!r}, must be {_one_of(ON_FULL)}{meant}"
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _share(name: str, value: Any) -> float:
    if _is_number(value) and (0 < value <= 1 or (value == 0 and name == "warn_at")):
        return float(value)
    least = "from 0 (off)" if name == "warn_at" else "above 0 and"
    raise errors.InvalidParameter(
        f"{name} is {str(value)[:60]!r}, must be a share of the capacity, {least} up to 1"
    )


def _seconds(name: str, value: Any) -> float:
    try:
        return 0.0 if _is_number(value) and value == 0 else parse_window(value)
    except errors.InvalidParameter:
        raise errors.InvalidParameter(
            f"{name} is {str(value)[:60]!r}, must be seconds (0 or more), or text such as '15min', "
            "'12h' or '7d'"
        ) from None


_PARSERS = {
    "on_full": _on_full,
    "full_at": _share,
    "warn_at": _share,
    "warn_within": _seconds,
    "grace": _seconds,
}


def _one_of(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last
