"""Arguments as numbers and words, as strictly as Redis reads them."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches

from bloomery.service.resp import limits
from bloomery.service.resp.replies import Failure

_INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,18}")
# As C's strtod reads them; what is no number there ("nan", blanks) is none for Redis either.
_DECIMAL = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEX = re.compile(rb"[+-]?0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(?:p[+-]?[0-9]+)?", re.IGNORECASE)
_INFINITE = re.compile(rb"[+-]?inf(?:inity)?", re.IGNORECASE)
_ZERO = re.compile(rb"[+-]?[0.]+(?:[eE].*)?|[+-]?0x[0.]+(?:p.*)?", re.IGNORECASE)


def integer(word: bytes) -> int | None:
    """Return a word as a 64-bit integer; None if it is not one."""
    if not _INTEGER.fullmatch(word):
        return None
    value = int(word)
    return value if -(1 << 63) <= value < 1 << 63 else None


def parse_integer(word: bytes) -> int:
    """Return a word as a 64-bit integer; raise Redis's error if it is not one."""
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


def options(
    words: list[bytes], valued: Collection[str], flags: Collection[str] = (), last: str = ""
) -> tuple[dict[str, bytes | None], list[bytes]]:
    """Read options: the value of each, by its word in upper case (None: it has none), and what
    stands behind the word `last`.

    A word that is none of them, or comes twice, is refused. RedisBloom ignores some and knows
    others by their first letters; but what was meant by a slip is not what would be done.
    """
    options: dict[str, bytes | None] = {}
    at = 0
    while at < len(words):
        word = option(words[at])
        at += 1
        if word == last:
            return options, words[at:]
        if word not in valued and word not in flags:
            raise unknown(words[at - 1], [*valued, *flags, *filter(None, [last])])
        if word in options:
            raise Failure(f"ERR {word} comes twice")
        options[word] = None
        if word in valued and at < len(words):
            options[word] = words[at]
            at += 1
    return options, []


def unknown(word: bytes, known: Iterable[str]) -> Failure:
    """The error for a word that is none of those, in RedisBloom's words and with the near one."""
    near = get_close_matches(option(word[:40]), [*known], 1)
    right = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    return Failure(f"Unknown argument received: {word[:40].decode('utf-8', 'replace')!r}, {right}")
