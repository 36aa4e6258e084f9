"""Writes the golden vectors for readers in other languages: `python tests/golden/make_browser.py`.

Hashes of keys of every type under every hasher and several seeds, in tests/golden/browser.json. A
key is a type and what JSON can carry of it: see `KEYS`. Bytes are given by their number: byte `i`
of `n` is `(131 * i + 7 * n) % 256`.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID

from bloomery import BloomFilter
from golden.make import FOLDER

ANSWERS = FOLDER / "browser.json"
SEEDS = [0, 1, 2**64 - 1, 0x123456789ABCDEF0]
HASHERS: dict[str, list[int]] = {
    "xxh3": SEEDS,
    "murmur3": SEEDS,
    "fnv1a": SEEDS,
    "siphash": [*SEEDS, 2**100 + 7],
}
# Every branch of every hasher, and the ends of XXH3's: 16, 128, 240, a stripe, a block.
LENGTHS = [*range(140), *range(235, 260), 511, 512, 513, *range(1022, 1028), 1088, 1089, 2049, 5000]
INTS = [0, 1, -1, 5, 255, 2**31, 2**32, -(2**32) - 1, 2**53 - 1, 1 - 2**53, 2**63 - 1, -(2**63)]
INTS += [2**63, -(2**63) - 1, 2**64 - 1, 10**30, -(10**30), 255**9, 1 - 2**71, -(2**71), 2**71]
TEXTS = ["", "a", "bloomery", "żelazo", "\U0001f600", "�", "a\0b", "é" * 100, "x" * 300, "ß" * 200]


def data(length: int) -> bytes:
    """So many bytes."""
    return bytes((131 * i + 7 * length) % 256 for i in range(length))


KEYS: list[tuple[str, Any, Any]] = [
    *(("data", length, data(length)) for length in LENGTHS),
    *(("int", str(value), value) for value in INTS),
    *(("number", value, value) for value in INTS if abs(value) < 2**53),
    *(("str", text, text) for text in TEXTS),
    ("tuple", [], ()),
    ("tuple", [["str", "ab"], ["str", "c"]], ("ab", "c")),
    ("tuple", [["str", "a"], ["int", "7"], ["tuple", [["str", "b"]]]], ("a", 7, ("b",))),
    ("uuid", "00000000-0000-0000-0000-000000000001", UUID(int=1)),
    ("uuid", "C0FFEE00-1234-5678-9abc-def012345678", UUID("c0ffee00-1234-5678-9abc-def012345678")),
    ("instant", "1709208000000000", datetime(2024, 2, 29, 12, tzinfo=timezone.utc)),
    ("instant", "-1", datetime(1970, 1, 1, tzinfo=timezone.utc) - timedelta(microseconds=1)),
    ("clock", "1709208000000000", datetime(2024, 2, 29, 12)),
]


def answers() -> list[dict[str, Any]]:
    """The hashes, hasher by hasher and seed by seed, in the order of the keys."""
    return [
        {
            "hasher": hasher,
            "seed": str(seed),
            "hashes": [f"{filter.hash_of(key):016x}" for _, _, key in KEYS],
        }
        for hasher, seeds in HASHERS.items()
        for seed in seeds
        for filter in [BloomFilter(10, 0.1, hasher=hasher, seed=seed)]  # type: ignore[arg-type]
    ]


def main() -> None:
    """Write the file."""
    keys = [[kind, value] for kind, value, _ in KEYS]
    text = json.dumps({"keys": keys, "answers": answers()}, separators=(",", ":"))
    ANSWERS.write_text(text + "\n", "ascii")


if __name__ == "__main__":
    main()
