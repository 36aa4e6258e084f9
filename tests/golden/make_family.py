"""Writes the golden files of every kind but the plain filter: `python tests/golden/make_family.py`.

As `make.py`: they freeze the bytes of a saved filter and which absent keys are a maybe.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bloomery import (
    CountingBloomFilter,
    CuckooFilter,
    DeletableBloomFilter,
    ExactSet,
    RotatingBloomFilter,
    ScalableBloomFilter,
    StaticFilter,
)
from golden.make import ABSENT, FOLDER, KEYS

ANSWERS = FOLDER / "family.json"
NOW = 4_000_000_000.0  # in 2096: no clock of a machine is ahead of it
# What every golden filter holds in the end.
HELD = [*KEYS.values(), *range(200)]
# Added and removed again, where that can be.
GONE = [f"gone {i}" for i in range(20)]
# Known not to be there, to an exact set.
OTHERS = [f"valid {i}" for i in range(2000)]
MIXED: dict[str, Any] = {"hasher": "murmur3", "seed": 12345}


def filled(filter: Any) -> Any:
    """The filter with its keys, two of them twice."""
    filter.update(HELD)
    if hasattr(filter, "remove"):
        filter.update(GONE)
        for key in GONE:
            filter.discard(key)
        filter.update(HELD[:2])
    return filter


def rotated() -> RotatingBloomFilter:
    """Keys in three generations; the first ones are forgotten."""
    now = [NOW]
    filter = RotatingBloomFilter(300, 0.05, window="3h", generations=3, clock=lambda: now[0])
    for generation in range(5):
        filter.update([(generation, i) for i in range(60)])
        now[0] += 3600
    filter.update(HELD)
    filter.set_clock(None)
    return filter


BUILD: dict[str, Callable[[], Any]] = {
    "scalable": lambda: filled(ScalableBloomFilter(20, 0.05)),
    "scalable-siphash": lambda: filled(
        ScalableBloomFilter(500, 1e-5, growth=2.0, hasher="siphash", seed=2**100 + 7)
    ),
    "cuckoo": lambda: filled(CuckooFilter(300, 0.05)),
    "cuckoo-murmur3": lambda: filled(CuckooFilter(400, 1e-6, **MIXED)),
    "cuckoo-growing": lambda: filled(CuckooFilter(20, 0.05, grow=True)),
    "rotating": rotated,
    "rotating-by-fill": lambda: filled(RotatingBloomFilter(300, 0.05, window=None, generations=2)),
    "counting": lambda: filled(CountingBloomFilter(300, 0.05)),
    "counting-8": lambda: filled(CountingBloomFilter(200, 1e-4, counter_bits=8, **MIXED)),
    "deletable": lambda: filled(DeletableBloomFilter(300, 0.05)),
    "static": lambda: StaticFilter.build(HELD, 0.05),
    "static-murmur3": lambda: StaticFilter.build([*HELD, *HELD], 2**-16, **MIXED),
    "exact": lambda: ExactSet.build(HELD, OTHERS),
    "exact-murmur3": lambda: ExactSet.build(HELD, OTHERS, error_rate=1e-4, **MIXED),
    "exact-of-most": lambda: ExactSet.build([*HELD, *OTHERS], GONE),
    "exact-of-half": lambda: ExactSet.build(HELD, OTHERS[: len(HELD)]),
    "deletable-low": lambda: filled(DeletableBloomFilter(300, 1e-5, regions=500, **MIXED)),
}


def path_of(name: str) -> Path:
    """Where a golden filter is."""
    return FOLDER / "family" / f"{name}.bloom"


def main() -> None:
    """Write all of them."""
    answers = {}
    for name, build in BUILD.items():
        filter = build()
        filter.save(path_of(name))
        answers[name] = [i for i, key in enumerate(ABSENT) if key in filter][:40]
    ANSWERS.write_text(json.dumps(answers, separators=(",", ":")) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
