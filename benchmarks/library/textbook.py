"""The Bloom filters of the textbooks and the tutorials, as people write them in Python."""

from __future__ import annotations

import hashlib
import importlib
import math
from collections.abc import Iterator
from typing import Any


def textbook_size(capacity: int, error_rate: float) -> tuple[int, int]:
    """m = -n ln p / ln(2)^2 bits and k = m/n ln 2 hashes."""
    num_bits = math.ceil(-capacity * math.log(error_rate) / math.log(2) ** 2)
    return num_bits, max(1, round(num_bits / capacity * math.log(2)))


class TextbookFilter:
    """Nothing but the standard library: a bytearray and k SHA-256 digests a key."""

    def __init__(self, capacity: int, error_rate: float) -> None:
        self.num_bits, self.num_hashes = textbook_size(capacity, error_rate)
        self.bits = bytearray((self.num_bits + 7) // 8)

    def _positions(self, key: object) -> Iterator[int]:
        text = key if isinstance(key, bytes) else str(key).encode()
        for i in range(self.num_hashes):
            digest = hashlib.sha256(b"%d:%b" % (i, text)).digest()
            yield int.from_bytes(digest[:8], "little") % self.num_bits

    def add(self, key: object) -> None:
        for position in self._positions(key):
            self.bits[position >> 3] |= 1 << (position & 7)

    def __contains__(self, key: object) -> bool:
        return all(
            self.bits[position >> 3] >> (position & 7) & 1 for position in self._positions(key)
        )


class TextbookFilterMmh3:
    """The other one that the tutorials have: a bitarray, and murmur3 with the seeds 0 to k-1."""

    def __init__(self, capacity: int, error_rate: float) -> None:
        self.num_bits, self.num_hashes = textbook_size(capacity, error_rate)
        self.bits: Any = importlib.import_module("bitarray").bitarray(self.num_bits)
        self.bits.setall(0)
        self._hash: Any = importlib.import_module("mmh3").hash

    def add(self, key: object) -> None:
        # mmh3 takes str and bytes alone, so an int goes in as its digits, as the tutorials have it.
        text = key if isinstance(key, str | bytes) else str(key)
        for i in range(self.num_hashes):
            self.bits[self._hash(text, i) % self.num_bits] = 1

    def __contains__(self, key: object) -> bool:
        text = key if isinstance(key, str | bytes) else str(key)
        return all(self.bits[self._hash(text, i) % self.num_bits] for i in range(self.num_hashes))
