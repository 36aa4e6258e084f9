"""Arguments as numbers and words, as strictly as Redis reads them."""

from __future__ import annotations

import math
import re

from bloomery.service.resp import limits
from bloomery.service.resp.replies import Failure

__all__ = ["decimal", "integer", "option", "whole"]

_INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,18}")
# As C's strtod reads them; what is no number there ("nan", blanks) is none for Redis either.
_DECIMAL = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEX = re.compile(rb"[+-]?0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(?:p[+-]?[0-9]+)?", re.IGNORECASE)
_INFINITE = re.compile(rb"[+-]?inf(?:inity)?", re.IGNORECASE)
_ZERO = re.compile(rb"[+-]?[0.]+(?:[eE].*)?|[+-]?0x[0.]+(?:p.*)?", re.IGNORECASE)


def integer(word: bytes) -> int | None:
    """Return a 64-bit integer; None if it is none."""
    if not _INTEGER.fullmatch(word):
        return None
    value = int(word)
    return value if -(1 << 63) <= value < 1 << 63 else None


def whole(word: bytes) -> int:
    """Return a 64-bit integer; Redis's error if it is none."""
    value = integer(word)
    if value is None:
        raise Failure("ERR value is not an integer or out of range")
    return value


def decimal(word: bytes) -> float | None:
    """Return a number, as Redis reads it; None if it is none, or too large or too small to be
    one."""
    if len(word) > limits.MAX_NUMBER_BYTES:
        return None
    if _INFINITE.fullmatch(word):
        return float(word)
    if _DECIMAL.fullmatch(word):
        value = float(word)
    elif _HEX.fullmatch(word):
        try:
            value = float.fromhex(word.decode())
        except OverflowError:
            return None
    else:
        return None
    if math.isinf(value) or (value == 0 and not _ZERO.fullmatch(word)):
        return None
    return value


def option(word: bytes) -> str:
    """Return a word as it is compared: in upper case."""
    return word.upper().decode("latin-1")
