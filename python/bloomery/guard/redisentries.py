"""Answers as a cache in Redis holds them: the commands that write and read them, and what their
replies mean; once for threads and for asyncio.

    entry   version (1 byte) | found (1 byte) | fresh_until | keep_until (float64 each) | value
    name    prefix + canonical key; of a key above 200 bytes: prefix + "#" + its BLAKE2b

Every entry expires, so what Redis holds of ours is bounded by what is asked in that time; for a
bound in bytes give Redis a `maxmemory` and the policy `allkeys-lru` or `volatile-lru`.
"""

from __future__ import annotations

import hashlib
import logging
import math
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from bloomery.errors import CacheUnavailable, InvalidParameter, PoisonedCache
from bloomery.guard.codec import decode, encode
from bloomery.guard.parts import Cached

__all__ = ["Command", "RedisEntries", "Replies"]

Command: TypeAlias = "tuple[Any, ...]"

_LOG = logging.getLogger("bloomery.guard")
_VERSION = 1
_HEAD = struct.Struct(">BBdd")
_LONGEST_NAME = 200
_SOME = 10_000  # keys a round trip: Redis does nothing else while it answers one


class Replies(NamedTuple):
    """What was read: the entries, and the names of those that nobody of us wrote."""

    held: list[Cached | None]
    bad: list[bytes]
    why: str


class RedisEntries:
    """How one cache writes and reads."""

    def __init__(self, prefix: str, max_value_bytes: int, place: str, cluster: bool) -> None:
        if not isinstance(prefix, str):
            raise InvalidParameter(f"prefix is a {type(prefix).__name__}, must be a str")
        if type(max_value_bytes) is not int or max_value_bytes < 1:
            raise InvalidParameter(
                f"max_value_bytes is {max_value_bytes!r}, must be an int above 0"
            )
        self.place = place
        self._prefix = prefix.encode()
        self._longest = max_value_bytes
        # A cluster refuses an MGET over several slots, and one hash tag for all would put the whole
        # cache on one node: there each key has a command, and its pipeline goes to all nodes.
        self._cluster = cluster
        self._warned: set[str] = set()

    def names(self, keys: Sequence[bytes]) -> Iterator[list[bytes]]:
        """The names of these keys in Redis, some at a time."""
        for start in range(0, len(keys), _SOME):
            yield [self._name(key) for key in keys[start : start + _SOME]]

    def _name(self, key: bytes) -> bytes:
        if len(key) > _LONGEST_NAME:
            key = b"#" + hashlib.blake2b(key, digest_size=32).digest()
        return self._prefix + key

    # Commands.

    def reading(self, names: Sequence[bytes]) -> list[Command]:
        """What to send to read these."""
        return [("GET", name) for name in names] if self._cluster else [("MGET", *names)]

    def deleting(self, names: Sequence[bytes]) -> list[Command]:
        """What to send to delete these."""
        return [("UNLINK", name) for name in names] if self._cluster else [("UNLINK", *names)]

    def writing(self, entries: Sequence[tuple[bytes, Cached]]) -> Iterator[list[Command]]:
        """What to send to write these, some at a time."""
        for start in range(0, len(entries), _SOME):
            yield [self._set(key, entry) for key, entry in entries[start : start + _SOME]]

    def _set(self, key: bytes, entry: Cached) -> Command:
        # Seconds from now and not a time of day: Redis's clock may be another.
        milliseconds = int((entry.keep_until - time.time()) * 1000)
        data = self._written(entry) if milliseconds > 0 else None
        if data is None:  # nor may an older one stay
            return ("UNLINK", self._name(key))
        return ("SET", self._name(key), data, "PX", milliseconds)

    def _written(self, entry: Cached) -> bytes | None:
        try:
            value = encode(entry.value) if entry.found else b""
        except InvalidParameter as problem:
            kind = type(entry.value).__name__
            if kind not in self._warned:
                self._warned.add(kind)
                _LOG.warning("values of type %s are not cached in Redis: %s", kind, problem)
            return None
        if len(value) > self._longest:
            _LOG.debug("a value of %d bytes is not cached: above %d", len(value), self._longest)
            return None
        return _HEAD.pack(_VERSION, entry.found, entry.fresh_until, entry.keep_until) + value

    # Replies.

    def read(self, names: Sequence[bytes], replies: Sequence[Any]) -> Replies:
        """The replies to `reading` as entries."""
        if not self._cluster:
            self.check(replies)
            (replies,) = replies
        held: list[Cached | None] = []
        bad: list[bytes] = []
        why = ""
        for name, reply in zip(names, replies, strict=True):
            entry = None
            try:
                if isinstance(reply, Exception) and str(reply).startswith("WRONGTYPE"):
                    raise ValueError("it is no string")
                self.check([reply])
                entry = None if reply is None else self._entry(reply)
            except ValueError as problem:
                bad.append(name)
                why = str(problem)
            held.append(entry)
        return Replies(held, bad, why)

    def _entry(self, data: bytes) -> Cached | None:
        if len(data) > self._longest + _HEAD.size:
            return None  # written by one that may write more
        if len(data) < _HEAD.size:
            raise ValueError(f"{len(data)} bytes, must be {_HEAD.size} or more")
        version, found, fresh_until, keep_until = _HEAD.unpack_from(data)
        if version != _VERSION:
            raise ValueError(f"version {version}, must be {_VERSION}")
        if found > 1 or not (math.isfinite(fresh_until) and math.isfinite(keep_until)):
            raise ValueError("its head is damaged")
        if not found and len(data) > _HEAD.size:
            raise ValueError("a value of what is not there")
        value = decode(data[_HEAD.size :]) if found else None
        return Cached(bool(found), value, fresh_until, keep_until)

    def check(self, replies: Sequence[Any]) -> None:
        """Raise if Redis refused a command."""
        for reply in replies:
            if isinstance(reply, Exception):
                raise self.away(reply) from None

    def away(self, problem: Exception) -> CacheUnavailable:
        """The error for what a client raised, without keys and secrets."""
        said = " ".join(str(problem).split()).partition(", with args")[0]
        return CacheUnavailable(f"the cache at {self.place}: {type(problem).__name__}: {said}")

    def poisoned(self, read: Replies) -> PoisonedCache:
        """The error for entries that nobody of us wrote, and that are deleted by now."""
        return PoisonedCache(
            f"the cache at {self.place} held {len(read.bad)} entries that bloomery did not write "
            f"({read.why}); they were deleted, and the next look-up asks the source"
        )
