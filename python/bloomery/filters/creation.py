"""From the settings that a filter was created with to the filter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bloomery import errors
from bloomery.filters.bank import FilterBank
from bloomery.filters.saved import KINDS

_HASHING = ("hasher", "seed")
# What of the settings each kind is made with; the others are the service's own.
PARAMETERS = {
    "bloom": ("capacity", "error_rate", "layout", *_HASHING),
    "scalable": ("initial_capacity", "error_rate", "growth", *_HASHING),
    "counting": ("capacity", "error_rate", "counter_bits", *_HASHING),
    "deletable": ("capacity", "error_rate", "regions", *_HASHING),
    "cuckoo": ("capacity", "error_rate", "grow", *_HASHING),
    "rotating": ("capacity", "error_rate", "window", "generations", *_HASHING),
    "bank": ("keys_per_filter", "error_rate", *_HASHING),
    "redisbloom": ("error_rate", "capacity", "expansion", "nonscaling"),
    "rediscuckoo": ("capacity", "bucket_size", "max_iterations", "expansion"),
}
# What a capacity is called where it is not that of the whole filter.
_CAPACITY = {"scalable": "initial_capacity", "bank": "keys_per_filter"}


def class_of(kind: str) -> Any:
    """Return the class of a kind."""
    if kind in KINDS:
        return KINDS[kind]
    if kind == FilterBank.kind:
        return FilterBank
    known = ", ".join([*PARAMETERS, "static"])
    raise errors.InvalidParameter(f"kind is {kind!r}, must be one of {known}")


def create(settings: Mapping[str, Any], clock: Callable[[], float]) -> Any:
    """Make the empty filter that the settings describe; one that forgets goes by this clock."""
    kind = settings.get("kind", "bloom")
    cls = class_of(kind)
    if kind not in PARAMETERS:
        raise errors.InvalidParameter(f"a {kind} filter cannot be created empty: load a saved one")
    if kind in _CAPACITY and "capacity" in settings:
        settings = {_CAPACITY[kind]: settings["capacity"], **settings}
    chosen = {name: settings[name] for name in PARAMETERS[kind] if name in settings}
    if kind == "rotating":
        chosen["clock"] = clock
    return cls(**chosen)
