"""Amounts as people write them: `1e9`, `10M`, `1_000_000` keys, `1.2GB` of memory; and back again.

Read as decimals, so `1e9` is exactly a thousand million and `0.3M` is exactly 300,000. Ranges (a
capacity of 0) are the business of `limits`, which says what would be right.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decimal import Decimal

_COUNT = {"": 0, "k": 3, "m": 6, "g": 9, "b": 9, "t": 12}
_MEMORY = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
_AMOUNT = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9_]*)?|\.[0-9]+)(e[+-]?[0-9]+)?\s*([a-z%]*)\s*")
# 10**30 keys fit nowhere; without a bound, 1e999999999 would take minutes to become an int.
_MAX_DIGITS = 30


def parse_count(text: str) -> int | None:
    """A whole number of keys or hashes: 1000, 1_000_000, 1,000,000, 1e9, 10M, 2.5G; None if it is
    none."""
    parts = _split(text)
    if parts is not None and parts[1] in _COUNT:
        number = parts[0].scaleb(_COUNT[parts[1]])
        if number == number.to_integral_value():
            return int(number)
    return None


def parse_memory(text: str) -> int | None:
    """A number of bytes: 64MB, 1.5GB (powers of ten), 1GiB (powers of two), 4096; None if it is
    none."""
    parts = _split(text)
    if parts is None or parts[1].removesuffix("b") not in _MEMORY:
        return None
    return int(parts[0] * _MEMORY[parts[1].removesuffix("b")])


def _split(text: str) -> tuple[Decimal, str] | None:
    from decimal import Decimal, InvalidOperation

    match = _AMOUNT.fullmatch(text.lower())
    if match is None:
        return None
    digits, exponent, unit = match.groups()
    try:
        number = Decimal(digits.replace("_", "").replace(",", "") + (exponent or ""))
    except InvalidOperation:
        return None
    return (number, unit) if number.adjusted() <= _MAX_DIGITS else None


def show_memory(nbytes: float) -> str:
    """1234567 -> 1.23 MB; powers of ten, as disks and networks count."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= 0.9995 * scale:
            size = nbytes / scale
            return f"{size:.{2 if size < 9.995 else 1 if size < 99.95 else 0}f} {unit}"
    return f"{nbytes:.0f} bytes"


def show_rate(rate: float) -> str:
    """0.01 -> 1%; below a hundredth of a percent as a power of ten, which reads more easily."""
    return f"{rate:.3g}" if 0 < rate < 1e-4 else f"{rate * 100:.3g}%"
