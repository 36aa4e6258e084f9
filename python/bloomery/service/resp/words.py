"""Arguments as numbers and words, as strictly as Redis reads them."""

from __future__ import annotations

import re

from bloomery.service.resp.replies import Failure

__all__ = ["decimal", "integer", "option", "whole"]

_INTEGER = re.compile(rb"-?(?:0|[1-9][0-9]{0,18})")
_DECIMAL = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")


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
    """Return a number; None if it is none."""
    return float(word) if _DECIMAL.fullmatch(word) else None


def option(word: bytes) -> str:
    """Return a word as it is compared: in upper case."""
    return word.upper().decode("latin-1")
