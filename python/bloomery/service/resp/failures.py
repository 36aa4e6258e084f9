"""Errors of the catalogue (`bloomery.errors`) as replies, in RedisBloom's words if it has some."""

from __future__ import annotations

from bloomery import errors
from bloomery.service.resp.replies import Failure

__all__ = ["EXISTS", "NOT_FOUND", "WRONG_TYPE", "failure_of", "refusal"]

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
    known = _TEXTS.get(type(problem))  # type: ignore[arg-type]
    if known is not None:
        return known
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
