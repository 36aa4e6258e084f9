"""Python values as RESP2 or RESP3 writes them.

None null · bool 0/1 or #f/#t · int · float · str +simple · bytes $bulk · list array · dict map
frozenset set · Failure -error · TextReply bulk that RESP3 marks as text · Raw is encoded already
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bloomery import errors

OK = "OK"
_LONG = 1 << 16


@dataclass(frozen=True, slots=True)
class Failure(Exception):
    """An error reply: its text as the client sees it. It may be raised, or stand in an array."""

    text: str


@dataclass(frozen=True, slots=True)
class TextReply:
    """Lines for a person (INFO)."""

    text: str


@dataclass(frozen=True, slots=True)
class Raw:
    """A reply that is encoded already."""

    data: bytes


class ArrayReply:
    """An array's reply that is put together in parts, as its items become known."""

    def __init__(self, protocol: int) -> None:
        self._resp3 = protocol == 3
        self._count = 0
        self._out = bytearray()

    def extend(self, items: Sequence[Any]) -> None:
        """Take some more items."""
        self._count += len(items)
        for item in items:
            _append(self._out, item, self._resp3)

    def encoded(self) -> Raw:
        """The reply, as it is sent."""
        return Raw(b"*%d\r\n" % self._count + self._out)


NO_LIST = Raw(b"*-1\r\n")  # RESP2's null in place of an array; in RESP3 all nulls are None


def encode(value: Any, protocol: int) -> bytes:
    """Return the reply for a value."""
    out = bytearray()
    _append(out, value, protocol == 3)
    return bytes(out)


def _append(out: bytearray, value: Any, resp3: bool) -> None:
    if isinstance(value, bytes):
        if len(value) < _LONG:
            out += b"$%d\r\n%b\r\n" % (len(value), value)
        else:  # without one more copy
            out += b"$%d\r\n" % len(value)
            out += value
            out += b"\r\n"
    elif isinstance(value, str):
        out += b"+%b\r\n" % _line(value)
    elif value is None:
        out += b"_\r\n" if resp3 else b"$-1\r\n"
    elif isinstance(value, bool):
        out += (b"#t\r\n" if value else b"#f\r\n") if resp3 else b":%d\r\n" % value
    elif isinstance(value, int):  # a loaded header may say more than clients can read: 64 bits
        out += b":%d\r\n" % min(value, 2**63 - 1)
    elif isinstance(value, float):
        text = f"{value:.17g}".encode()
        out += b",%b\r\n" % text if resp3 else b"$%d\r\n%b\r\n" % (len(text), text)
    elif isinstance(value, (list, tuple)):
        out += b"*%d\r\n" % len(value)
        for item in value:
            _append(out, item, resp3)
    elif isinstance(value, dict):
        out += b"%%%d\r\n" % len(value) if resp3 else b"*%d\r\n" % (2 * len(value))
        for key, item in value.items():
            _append(out, key, resp3)
            _append(out, item, resp3)
    elif isinstance(value, frozenset):
        out += (b"~%d\r\n" if resp3 else b"*%d\r\n") % len(value)
        for item in sorted(value):
            _append(out, item, resp3)
    elif isinstance(value, Raw):
        out += value.data
    elif isinstance(value, Failure):
        out += b"-%b\r\n" % _line(value.text)
    elif isinstance(value, TextReply):
        raw = value.text.encode()
        # Text in RESP3 has three letters of format before it.
        out += (
            b"=%d\r\ntxt:%b\r\n" % (len(raw) + 4, raw)
            if resp3
            else b"$%d\r\n%b\r\n" % (len(raw), raw)
        )
    else:
        raise TypeError(f"no reply can be made of {type(value).__name__}")


def _line(text: str) -> bytes:
    """One line: whatever a client sent, it cannot end the reply early."""
    return text.replace("\r", " ").replace("\n", " ").encode("utf-8", "replace")


# Errors of the catalogue (`bloomery.errors`) as replies, in RedisBloom's words if it has some.

NOT_FOUND = Failure("ERR not found")
EXISTS = Failure("ERR item exists")
WRONG_TYPE = Failure("WRONGTYPE Operation against a key holding the wrong kind of value")

_TEXTS = {
    errors.UnknownFilter: NOT_FOUND,
    errors.FilterExists: EXISTS,
    errors.NotLoggedIn: Failure("WRONGPASS invalid username-password pair or user is disabled."),
    errors.NotEnoughMemory: Failure("ERR Insufficient memory to create filter"),
}


def failure_of(problem: errors.BloomeryError | MemoryError) -> Failure:
    """Return the error reply."""
    for kind, text in _TEXTS.items():
        if isinstance(problem, kind):
            return text
    if isinstance(problem, MemoryError):
        return Failure("OOM command not allowed when used memory > 'maxmemory'.")
    if isinstance(problem, errors.LogUnavailable):
        return Failure(f"MISCONF the log cannot be written, so writes are refused: {problem}")
    return Failure(f"ERR {problem}")


def refusal(family: str, refused: tuple[str, str]) -> Failure:
    """Return the error for a key that a BF or CF command was refused (its code and message)."""
    code, message = refused
    if code == "not-enough-memory":
        bf = "ERR problem inserting into filter"
        return Failure(bf if family == "bf" else "ERR Insufficient memory")
    full = code in ("filter-full", "too-many-copies")
    return Failure(message if family == "cf" and full else f"ERR {message}")
