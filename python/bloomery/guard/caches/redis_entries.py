"""Answers as a cache in Redis holds them: the commands that write and read them, and what their
replies mean; once for threads and for asyncio.

    entry   version (1 byte) | token (8 bytes) | fresh until (13 digits) | found (0 or 1) | value
    leased  version (1 byte) | token (8 bytes)
    name    prefix + canonical key; of a key above 200 bytes: prefix + "#" + its BLAKE2b

A token stands for "nobody has written this key since". Who finds no entry is given one, made if
the key has none, before the source is asked; an answer is written only where its token is there
still. A deletion takes it away, and so does a Redis that has lost it: then nothing is written.
Times are milliseconds of Redis's own clock, 0 for "as long as it is there".

Every entry expires, so what Redis holds of ours is bounded by what is asked in that time; for a
bound in bytes give Redis a `maxmemory` and the policy `allkeys-lru` or `volatile-lru`.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from bloomery.boottime import boottime
from bloomery.errors import CacheUnavailable, InvalidParameter, PoisonedCache
from bloomery.guard.codec import decode, encode
from bloomery.guard.protocols import Cached
from bloomery.guard.queues.redis_scripts import Script
from bloomery.redis_client import describe

Command: TypeAlias = "tuple[Any, ...]"

_LOG = logging.getLogger("bloomery.guard")
_VERSION = 2
_HEAD = struct.Struct(">B8s13sc")
_TOKEN = struct.Struct(">8s")
_LEASED = struct.Struct(">B8s")
_LONGEST_NAME = 200
_BATCH = 10_000  # keys a round trip: Redis does nothing else while it answers one
_SCRIPTED = 500  # keys a script, which takes longer for each

# For a cluster, where each node has its own clock.
_READ = Script("""
local time = redis.call('TIME')
return {redis.call('GET', KEYS[1]), time[1], time[2]}
""")
_LEASE = Script("""
local tokens = {}
for i, key in ipairs(KEYS) do
    local held = redis.pcall('GETRANGE', key, 0, 8)
    if type(held) ~= 'string' or #held < 9 or string.byte(held) ~= 2 then
        held = '\\2' .. ARGV[2]
        redis.call('SET', key, held, 'PX', ARGV[1])
    end
    tokens[i] = string.sub(held, 2)
end
return tokens
""")
# For each key: = and its token, or ! and one to write in any case; what comes behind the time; for
# how long it is fresh, or 0; for how long it stays, or 0.
_WRITE = Script("""
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i, key in ipairs(KEYS) do
    local token, data, fresh, stays = unpack(ARGV, 4 * i - 3, 4 * i)
    local head = '\\2' .. string.sub(token, 2)
    if stays == '0' then
        redis.call('UNLINK', key)
    elseif string.sub(token, 1, 1) == '!' or redis.pcall('GETRANGE', key, 0, 8) == head then
        local until_ = fresh == '0' and 0 or now + fresh
        redis.call('SET', key, head .. string.format('%013.0f', until_) .. data, 'PX', stays)
    end
end
""")


class EntriesRead(NamedTuple):
    """What was read: an entry or None for each name; which are not bloomery's, and why."""

    entries: list[Cached | None]
    bad: list[bytes]
    why: str


class RedisEntries:
    """The commands of one cache in Redis, and how their replies are read."""

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
        """Yield the names of these keys in Redis, in batches."""
        for start in range(0, len(keys), _BATCH):
            yield [self._name(key) for key in keys[start : start + _BATCH]]

    def _name(self, key: bytes) -> bytes:
        if len(key) > _LONGEST_NAME:
            key = b"#" + hashlib.blake2b(key, digest_size=32).digest()
        return self._prefix + key

    # Commands.

    def reading(self, names: Sequence[bytes]) -> list[Command]:
        """Return the commands that read these names."""
        if self._cluster:
            return [(_READ, 1, name) for name in names]
        return [("TIME",), ("MGET", *names)]

    def leasing(self, names: Sequence[bytes], seconds: float) -> list[Command]:
        """Return the commands that give tokens for these names, valid for so many seconds."""
        token, milliseconds = os.urandom(8), max(1, int(seconds * 1000))
        return [(_LEASE, len(part), *part, milliseconds, token) for part in self._scripted(names)]

    def _scripted(self, names: Sequence[Any]) -> Iterator[Sequence[Any]]:
        size = 1 if self._cluster else _SCRIPTED
        return (names[start : start + size] for start in range(0, len(names), size))

    def deleting(self, names: Sequence[bytes]) -> list[Command]:
        """Return the commands that delete these names."""
        return [("UNLINK", name) for name in names] if self._cluster else [("UNLINK", *names)]

    def writing(self, entries: Sequence[tuple[bytes, Cached]]) -> Iterator[list[Command]]:
        """Yield the commands that write these entries, in batches."""
        now = boottime()
        for start in range(0, len(entries), _BATCH):
            commands: list[Command] = []
            for part in self._scripted(entries[start : start + _BATCH]):
                command: list[Any] = [_WRITE, len(part), *(self._name(key) for key, _ in part)]
                for _, entry in part:
                    command += self._set(entry, now)
                commands.append(tuple(command))
            yield commands

    def _set(self, entry: Cached, now: float) -> Command:
        # Seconds from now and not a time of day: Redis's clock is another.
        stays = int((entry.keep_until - now) * 1000)
        data = self._written(entry) if stays > 0 else None
        if data is None:  # nor may an older one stay
            return (b"!", b"", 0, 0)
        ends = entry.keep_until <= entry.fresh_until
        fresh = 0 if ends else max(1, int((entry.fresh_until - now) * 1000))
        token = b"!" + os.urandom(8) if entry.token is None else b"=" + entry.token
        return (token, data, fresh, stays)

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
        return (b"1" if entry.found else b"0") + value

    # Replies.

    def read(self, names: Sequence[bytes], replies: Sequence[Any]) -> EntriesRead:
        """Return the entries that the replies to `reading` hold."""
        if not self._cluster:
            self.check(replies)
            with self._nonsense():
                (second, micro), values = replies
                replies = [(value, second, micro) for value in values]
        if len(replies) != len(names):
            raise self._unavailable("it answered for other keys")
        entries: list[Cached | None] = []
        bad: list[bytes] = []
        why = ""
        for name, reply in zip(names, replies, strict=True):
            entry = None
            try:
                if isinstance(reply, Exception) and "WRONGTYPE" in str(reply):
                    raise ValueError("it is no string")
                self.check([reply])
                with self._nonsense():
                    data, second, micro = reply
                    now = int(second) + int(micro) / 1e6
                    data = None if data is None else memoryview(data).tobytes()
                if data is not None:
                    entry = self._entry(data, now)
            except ValueError as problem:
                bad.append(name)
                why = str(problem)
            entries.append(entry)
        return EntriesRead(entries, bad, why)

    def _entry(self, data: bytes, now: float) -> Cached | None:
        if len(data) > self._longest + _HEAD.size:
            return None  # written by one that may write more
        if len(data) == _LEASED.size and data[0] == _VERSION:
            return None  # somebody asks the source for it
        if len(data) < _HEAD.size:
            raise ValueError(f"{len(data)} bytes, must be {_HEAD.size} or more")
        version, _, until, flag = _HEAD.unpack_from(data)
        if version != _VERSION:
            raise ValueError(f"version {version}, must be {_VERSION}")
        if flag not in (b"0", b"1") or not until.isdigit():
            raise ValueError("its head is damaged")
        if flag == b"0" and len(data) > _HEAD.size:
            raise ValueError("a value of what is not there")
        value = decode(data[_HEAD.size :]) if flag == b"1" else None
        fresh = math.inf if int(until) == 0 else boottime() + int(until) / 1000 - now
        return Cached(flag == b"1", value, fresh, math.inf)

    def tokens(self, replies: Sequence[Any]) -> list[bytes]:
        """Return the tokens that the replies to `leasing` hold."""
        self.check(replies)
        with self._nonsense():
            return [_TOKEN.unpack(token)[0] for tokens in replies for token in tokens]

    @contextmanager
    def _nonsense(self) -> Iterator[None]:
        try:
            yield
        except (TypeError, ValueError, struct.error):
            raise self._unavailable("it answers what no Redis does") from None

    def check(self, replies: Sequence[Any]) -> None:
        """Raise if Redis refused a command."""
        for reply in replies:
            if isinstance(reply, Exception):
                raise self.unavailable(reply) from None

    def unavailable(self, problem: Exception) -> CacheUnavailable:
        """Return CacheUnavailable for what a client raised, without keys and secrets."""
        return self._unavailable(describe(problem))

    def _unavailable(self, what: str) -> CacheUnavailable:
        return CacheUnavailable(f"the cache at {self.place}: {what}")

    def poisoned(self, read: EntriesRead) -> PoisonedCache:
        """Return PoisonedCache for entries that bloomery did not write, and that were deleted."""
        return PoisonedCache(
            f"the cache at {self.place} held {len(read.bad)} entries that bloomery did not write "
            f"({read.why}); they were deleted, and the next look-up asks the source"
        )
