"""Keys chosen to collide: ints whose hash is any that is wanted, for xxh3 with seed 0."""

from __future__ import annotations

_MASK = 2**64 - 1
_PRIME = pow(0x9FB21C651E98DF25, -1, 2**64)


def int_of(hash: int) -> int:
    """The int64 whose hash this is: XXH3 of eight bytes, step by step back."""
    h = hash ^ hash >> 28 ^ hash >> 56
    h = h * _PRIME & _MASK
    h ^= (h >> 35) + 8
    h = h * _PRIME & _MASK
    for _ in range(63):  # the step is its own inverse when taken 64 times
        h ^= _rotated(h, 49) ^ _rotated(h, 24)
    value = _rotated(h ^ _secret(), 32)
    return value - (value >> 63 << 64)


def _rotated(h: int, bits: int) -> int:
    return (h << bits | h >> (64 - bits)) & _MASK


def _secret() -> int:
    seed = 0x9E3779B97F4A7C15  # the tag of ints
    seed ^= int.from_bytes((seed & 0xFFFFFFFF).to_bytes(4, "little"), "big") << 32
    return ((0x1CAD21F72C81017C ^ 0xDB979083E96DD4DE) - seed) & _MASK
