"""A filter of every kind, for the tests of what they have in common."""

from __future__ import annotations

import time
from typing import Any

import pytest

from bloomery.filters import COMMON_KINDS, RemovingFilter

NOW = time.time()
KEYS = [f"key {n}" for n in range(300)]
FAMILY = [kind for kind in COMMON_KINDS if kind != "bloom"]
# Those to which keys can be added.
OPEN = [kind for kind in FAMILY if not hasattr(COMMON_KINDS[kind], "build")]
REMOVING = [kind for kind in FAMILY if issubclass(COMMON_KINDS[kind], RemovingFilter)]

every_kind = pytest.mark.parametrize("kind", COMMON_KINDS)
every_other = pytest.mark.parametrize("kind", FAMILY)
every_open = pytest.mark.parametrize("kind", OPEN)


def made(kind: str, capacity: int = 1000, error_rate: float = 1e-6, **options: Any) -> Any:
    """A filter of this kind that holds KEYS."""
    one: Any = COMMON_KINDS[kind]
    if hasattr(one, "build"):
        return one.build(KEYS, error_rate, **options)
    if kind == "rotating":
        options["clock"] = lambda: NOW  # two made one after the other are equal
    filter = one(capacity, error_rate, **options)
    filter.update(KEYS)
    return filter
