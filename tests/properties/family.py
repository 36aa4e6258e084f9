"""Filters of every kind, for the properties that all of them have."""

from __future__ import annotations

from typing import Any

from bloomery.filters import COMMON_KINDS, ExactSet

CLASSES: dict[str, Any] = {**COMMON_KINDS, "exact": ExactSet}
NOW = 1_700_000_000.0


def empty(kind: str, capacity: int, error_rate: float, **options: Any) -> Any:
    """An empty filter of a kind to which keys can be added."""
    if kind == "rotating":
        options = {"clock": lambda: NOW, **options}
    one: Any = CLASSES[kind]
    return one(capacity, error_rate, **options)


def holding(kind: str, keys: Any, error_rate: float, **options: Any) -> Any:
    """A filter of any kind that holds these keys, and was made for as many."""
    one: Any = CLASSES[kind]
    if kind == "exact":
        return one.build(keys, options.pop("others"), error_rate=error_rate, **options)
    if hasattr(one, "build"):
        return one.build(keys, error_rate, **options)
    filter = empty(kind, max(1, len(keys)), error_rate, **options)
    filter.update(keys)
    return filter
