"""Forged bytes for the tests of hostile input: fields replaced, checksums made to fit."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bloomery import BloomFilter, _native

HEAD, SUMMED = _native.HEADER_BYTES, 112
KEYS = list(range(60))
# Field by field: where it is and how it is packed.
FIELDS = {
    "magic": (0, "<8s"),
    "version": (8, "<H"),
    "kind": (10, "<B"),
    "layout": (11, "<B"),
    "hasher": (12, "<B"),
    "lines_per_key": (13, "<B"),
    "num_hashes": (14, "<H"),
    "num_bits": (16, "<Q"),
    "capacity": (24, "<Q"),
    "error_rate": (32, "<d"),
    "seed": (40, "<Q"),
    "seed_high": (48, "<Q"),
    "body": (56, "<Q"),
    **{f"extra_{i}": (64 + 8 * i, "<Q") for i in range(6)},
}


def saved(error_rate: float = 0.01, layout: Any = "blocked") -> bytearray:
    """The bytes of a small filter that holds KEYS."""
    filter = BloomFilter(100, error_rate, layout=layout)
    filter.update(KEYS)
    return bytearray(filter.to_bytes())


def signed(raw: bytes | bytearray, body: bool = False) -> bytes:
    """The bytes with a header checksum that fits, and if asked one that fits the bits."""
    raw = bytearray(raw)
    if body:
        raw[120:128] = _native.checksum(bytes(raw[HEAD:])).to_bytes(8, "little")
    raw[112:120] = _native.checksum(bytes(raw[:SUMMED]), 0).to_bytes(8, "little")
    return bytes(raw)


def forged(raw: bytes | bytearray, **fields: Any) -> bytes:
    """The bytes with fields replaced and the header signed anew."""
    raw = bytearray(raw)
    for name, value in fields.items():
        at, form = FIELDS[name]
        struct.pack_into(form, raw, at, value)
    return signed(raw)


def doors(folder: Path, one: Any = BloomFilter) -> dict[str, Callable[[bytes], Any]]:
    """Every way in for the bytes of a filter of this class."""

    def by_path(data: bytes, **how: bool) -> Any:
        path = folder / "hostile.bloom"
        path.write_bytes(data)
        return one.load(path, **how)

    return {
        "from_bytes": one.from_bytes,
        "memoryview": lambda data: one.from_bytes(memoryview(data)),
        # What pickle would call, with other bytes in it.
        "pickle": lambda data: pickle.loads(pickle.dumps(_Reduced(one.from_bytes, data))),
        "load": by_path,
        "mmap": lambda data: by_path(data, mmap=True),
        "mmap-verify": lambda data: by_path(data, mmap=True, verify=True),
        "mmap-writable": lambda data: by_path(data, mmap=True, writable=True),
    }


class _Reduced:
    def __init__(self, rebuild: Any, data: bytes) -> None:
        self.parts = (rebuild, (data,))

    def __reduce__(self) -> Any:
        return self.parts
