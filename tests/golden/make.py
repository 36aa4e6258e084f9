"""Writes the golden files: `python tests/golden/make.py`.

They freeze what may never change within a format version: the hash of every kind of key, where its
bits go in each layout, the bytes of a saved filter, and which absent keys are a maybe. Run it only
when the format's version changes on purpose, and say so in CHANGELOG.md: a filter that someone
saved last year must still answer the same.
"""

from __future__ import annotations

import json
from collections import namedtuple
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple, cast
from uuid import UUID

from bloomery import BloomFilter
from bloomery.types import Hasher, Layout
from privates import bloom_of

FOLDER = Path(__file__).resolve().parent
ANSWERS = FOLDER / "golden.json"

Point = namedtuple("Point", "x y")
UTC = timezone.utc
# Every kind of key by the name it has in golden.json: never rename or change one, only add.
KEYS: dict[str, Any] = {
    "empty str": "",
    "a": "a",
    "eight": "12345678",
    "sixteen": "0123456789abcdef",
    "seventeen": "0123456789abcdef!",
    "url": "https://example.org/a/rather/long/path?with=a&query=string#and-a-fragment",
    "240 characters": "x" * 240,
    "241 characters": "x" * 241,
    "1025 characters": "y" * 1025,
    "latin": "café",
    "wide": "東京 😀",
    "NUL": b"\0",
    "a NUL": b"a\0",
    "all bytes": bytes(range(256)),
    "0": 0,
    "1": 1,
    "-1": -1,
    "-2": -2,
    "97": 97,
    "2**31": 2**31,
    "2**61": 2**61,
    "2**63-1": 2**63 - 1,
    "2**63": 2**63,
    "2**64-1": 2**64 - 1,
    "2**64": 2**64,
    "-2**63": -(2**63),
    "-2**63-1": -(2**63) - 1,
    "2**200": 2**200,
    "-2**200": -(2**200),
    "True": True,
    "empty tuple": (),
    "ab, c": ("ab", "c"),
    "a, bc": ("a", "bc"),
    "1, 2": (1, 2),
    "nested": (1, ("two", (b"three", ())), 2**70),
    "namedtuple": Point(1, "y"),
    "uuid": UUID("12345678-1234-5678-1234-567812345678"),
    "uuid in a tuple": (UUID(int=1), "x"),
    "naive": datetime(2024, 2, 29, 12, 30, 45, 678901),
    "utc": datetime(2024, 2, 29, 12, 30, 45, 678901, tzinfo=UTC),
    "zoned": datetime(2024, 2, 29, 14, 30, 45, 678901, tzinfo=timezone(timedelta(hours=2))),
    "before 1970": datetime(1900, 1, 1, tzinfo=UTC),
    "first": datetime.min,
    "last": datetime.max,
}
HASHERS: tuple[Hasher, ...] = ("xxh3", "murmur3", "fnv1a", "siphash")
SEEDS = {"xxh3": 2**64 - 2, "murmur3": 12345, "fnv1a": 2**40 + 1, "siphash": 2**127 + 2**64 + 3}
# Absent keys that are asked for in every golden filter.
ABSENT = [f"absent {i}" for i in range(4000)]


class Case(NamedTuple):
    """One golden filter."""

    layout: Layout
    error_rate: float
    hasher: Hasher
    capacity: int

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.layout}-{self.error_rate:g}-{self.hasher}.bloom"

    def build(self) -> BloomFilter:
        """The filter, built here and now."""
        seed = SEEDS[self.hasher]
        if self.layout == "classic":
            # The textbook's size, which small filters had when these files were made.
            shape = {0.01: (1918, 7), 1e-9: (2588, 30)}[self.error_rate]
            made = (self.capacity, self.error_rate, self.layout, *shape, 0, self.hasher, seed)
            filter = bloom_of(*made)
        else:
            filter = BloomFilter(self.capacity, self.error_rate, hasher=self.hasher, seed=seed)
        filter.update(KEYS.values())
        filter.update(range(self.capacity - len(KEYS)))
        return filter


def cases() -> Iterator[Case]:
    """One line a key and two, few hashes and many, both layouts, every hasher."""
    for hasher in HASHERS:
        yield Case("blocked", 0.3, hasher, 300)
        yield Case("blocked", 0.01, hasher, 200)
        yield Case("blocked", 1e-5, hasher, 100)
        yield Case("classic", 0.01, hasher, 200)
        yield Case("classic", 1e-9, hasher, 60)


def hashes(hasher: Hasher, seed: int) -> dict[str, str]:
    """The hash of every key, as hexadecimal digits: JSON's numbers end at 2**53 elsewhere."""
    filter = BloomFilter(1, hasher=hasher, seed=seed)
    return {name: f"{filter.hash_of(key):016x}" for name, key in KEYS.items()}


def false_positives(filter: BloomFilter) -> list[int]:
    """Which of the absent keys are a maybe."""
    maybe = cast("list[bool]", filter.contains_many(ABSENT))
    return [i for i, answer in enumerate(maybe) if answer][:40]


def main() -> None:
    """Write all of them."""
    answers: dict[str, Any] = {"hashes": {}, "false_positives": {}}
    for hasher in HASHERS:
        for seed in (0, SEEDS[hasher]):
            answers["hashes"][f"{hasher} {seed}"] = hashes(hasher, seed)
    for case in cases():
        filter = case.build()
        filter.save(case.path)
        answers["false_positives"][case.path.name] = false_positives(filter)
    text = json.dumps(answers, indent=0, separators=(",", ":"))
    ANSWERS.write_text(text + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
