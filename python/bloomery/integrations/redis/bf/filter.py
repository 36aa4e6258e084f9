"""A filter behind a server's own BF.*: RedisBloom, Valkey, Kvrocks, `bloomery serve`.

It has the methods of `BitStrings`, but keys are sent, not places: the server hashes them.

Keys are added by BF.INSERT with NOCREATE and not by BF.MADD, which makes a filter for 100 keys
where one was lost, and so denies every key that was in it. BF.MEXISTS has no such word: it is
followed by a BF.INFO, which tells a filter that is gone, or another in its place. `bloomery serve`
takes 2 million keys a second by BF.INSERT, in thousands, and 5 million by BF.MADD; packing them
here takes as long.
"""

from __future__ import annotations

import math
import secrets
import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bloomery import _native
from bloomery.errors import IncompatibleFilters, UnknownFilter
from bloomery.integrations.redis.bf import parse
from bloomery.integrations.redis.bf.encoding import encoded, rows
from bloomery.integrations.redis.store import FilterStore, expire_command, milliseconds
from bloomery.integrations.redis.wire.flow import (
    Ask,
    Flow,
    command,
    commands,
    packed,
    replies_to,
)

if TYPE_CHECKING:
    from bloomery.integrations.redis.config import Config
    from bloomery.integrations.redis.naming import Keys
    from bloomery.types import Batch, Mask

# A filter that is not to grow (NONSCALING) refuses keys once it is full; the local one takes them
# and errs more often. One that grows twofold takes them, keeps its error rate, and has few layers.
EXPANSION = 2
_TRIP = 10_000  # keys a round trip
_TRIP_BYTES = 16 << 20  # or this much, of long ones
_COMMAND = 1_000  # keys a command: the server does nothing else while it answers one
_COMMAND_BYTES = 1 << 20  # as before


def share(capacity: int, shards: int) -> int:
    """Keys that one shard is made for: hashes do not split evenly, and one that is over its
    capacity grows threefold. Four deviations more are passed once in 30,000 shards."""
    if shards == 1:
        return capacity
    even = capacity / shards
    return math.ceil(even + 4 * math.sqrt(even))


def reserve(name: bytes, capacity: int, error_rate: float) -> tuple[bytes | str | int, ...]:
    """Return the BF.RESERVE that makes a shard."""
    return ("BF.RESERVE", name, f"{error_rate:.17g}", capacity, "EXPANSION", EXPANSION)


def beside(name: bytes, what: str) -> bytes:
    """Return a new name in the slot of a shard."""
    return b"%b:%b:%b" % (name.removesuffix(b":bits"), what.encode(), secrets.token_hex(8).encode())


class BfFilter(FilterStore):
    """A filter's shards, each a filter of the server's."""

    def __init__(self, keys: Keys, config: Config) -> None:
        super().__init__(keys, config)
        self.names = keys.bits(config.shards)
        # Shards are chosen by our hash, so that a batch is split as everybody splits it.
        self.places = _native.Places(config.header, 64)
        self.capacity, self.error_rate = _native.parse_header(config.header, None)[:2]

    def add(self, keys: Batch) -> Flow[Mask]:
        """Add keys; True where one is definitely new."""
        return (yield from self._each(keys, ("BF.INSERT",), ("NOCREATE", "ITEMS")))

    def contains(self, keys: Batch) -> Flow[Mask]:
        """Ask for keys; False is certain."""
        return (yield from self._each(keys, ("BF.MEXISTS",), ()))

    def _each(self, keys: Batch, before: tuple[str], after: tuple[str, ...]) -> Flow[Mask]:
        batch, hashes, array = rows(self.places, keys)
        answers = bytearray()
        while (at := len(answers)) < len(batch):
            part = _fitting([encoded(key) for key in batch[at : at + _TRIP]])
            part_hashes = hashes[8 * at : 8 * (at + len(part))]
            answers += yield from self._trip(part, part_hashes, before, after)
        return _native.mask(bytes(answers), array)

    def _trip(
        self, batch: list[bytes], hashes: bytes, before: tuple[str], after: tuple[str, ...]
    ) -> Flow[bytes]:
        asks, counts = [], []
        order: list[int] = []
        for shard, which in self._split(len(batch), hashes):
            name = self.names[shard]
            parts = list(_cut([batch[row] for row in which]))
            data = [_packed((*before, name, *after), part) for part in parts]
            data.append(packed(("BF.INFO", name, "CAPACITY")))
            # What is added twice is there once, so all of it may be sent again.
            asks.append(Ask(name, b"".join(data), len(data)))
            counts.append([len(part) for part in parts])
            order += which
        answers = bytearray()
        for replies, sizes in zip((yield asks), counts, strict=True):
            for reply, size in zip(replies, sizes, strict=False):
                answers += parse.answers(self.keys.name, reply, size)
            self._check_made(replies[-1])
        if len(asks) == 1:
            return bytes(answers)
        placed = bytearray(len(batch))
        for row, answer in zip(order, answers, strict=True):
            placed[row] = answer
        return bytes(placed)

    def _split(self, count: int, hashes: bytes) -> list[tuple[int, Sequence[int]]]:
        """Return the shards that are asked, each with the rows of its keys."""
        shards = len(self.names)
        if shards == 1:
            return [(0, range(count))]
        by_shard: dict[int, list[int]] = {}
        for row, number in enumerate(struct.unpack(f"<{count}Q", hashes)):
            by_shard.setdefault(number % shards, []).append(row)
        return sorted(by_shard.items())

    def _check_made(self, reply: Any) -> None:
        """Raise UnknownFilter unless this is the filter that was made."""
        capacity = parse.capacity(self.keys.name, reply)
        if capacity < share(self.capacity, len(self.names)):
            raise UnknownFilter(
                f"filter {self.keys.name!r} was lost, and another is in its place, for {capacity} "
                "keys: delete it, create it again, and add its keys"
            )

    def info(self) -> Flow[dict[str, Any]]:
        """What it was made for, and what the server counts in it."""
        ttl = yield from self.ttl()
        asks = [command(name, "BF.INFO", name) for name in self.names]
        infos = [parse.info(self.keys.name, reply) for [reply] in (yield asks)]
        return {
            "kind": self.config.kind,
            "backend": "bf",
            "capacity": self.capacity,
            "error_rate": self.error_rate,
            "shards": len(self.names),
            "nbytes": sum(info["Size"] for info in infos),
            "num_layers": max(info["Number of filters"] for info in infos),
            "estimated_count": sum(info["Number of items inserted"] for info in infos),
            "ttl": ttl,
        }

    def ttl(self) -> Flow[float | None]:
        """Seconds that are left, or None; UnknownFilter if it is gone."""
        remaining = yield from self._remaining()
        ends = [rest for rest in remaining if isinstance(rest, int) and rest >= 0]
        return min(ends) / 1000 if ends else None

    def _remaining(self) -> Flow[list[Any]]:
        """What PTTL says of each shard; UnknownFilter if one is gone."""
        replies = yield from replies_to([command(name, "PTTL", name) for name in self.names])
        if [-2] in replies:
            raise UnknownFilter(f"there is no filter {self.keys.name!r} in this Redis")
        return [reply for [reply] in replies]

    def delete(self) -> Flow[None]:
        """Take the filter away."""
        names = [self.keys.config, *self.names]
        yield from replies_to([command(name, "UNLINK", name) for name in names])

    def expire(self, seconds: float | None) -> Flow[None]:
        """Let it end in so many seconds, or never."""
        life = milliseconds(seconds, "seconds")
        names = [self.keys.config, *self.names]
        yield from replies_to([command(name, *expire_command(name, life)) for name in names])

    def clear(self) -> Flow[None]:
        """Forget every key: an empty filter takes the place of each shard; its end stays.

        By RENAME and not in a transaction, which a cluster that moves a slot breaks off.
        """
        asks = []
        size = share(self.capacity, len(self.names))
        for name, life in zip(self.names, (yield from self._remaining()), strict=True):
            empty = beside(name, "clear")
            end = [("PEXPIRE", empty, life)] if isinstance(life, int) and life > 0 else []
            create = reserve(empty, size, self.error_rate)
            asks.append(commands(name, create, *end, ("RENAME", empty, name)))
        yield from replies_to(asks)

    def merge(self, other: BfFilter, same_client: bool) -> Flow[None]:
        """Add every key of another filter of this server, where that has BF.MERGE and neither
        filter grows by itself, as those do that are made here. Both must have the same client."""
        if not same_client:
            raise IncompatibleFilters(
                "filters of BF.* are merged by their server: open both with the same client of it"
            )
        if (len(self.names), self.error_rate) != (len(other.names), other.error_rate):
            raise IncompatibleFilters(
                f"filter {self.keys.name!r} has {len(self.names)} shards and error rate "
                f"{self.error_rate}, filter {other.keys.name!r} {len(other.names)} and "
                f"{other.error_rate}: these must be equal"
            )
        asks = [
            command(mine, "BF.MERGE", mine, theirs)
            for mine, theirs in zip(self.names, other.names, strict=True)
        ]
        for [reply] in (yield asks):
            if parse.says(reply, "not found"):
                raise parse.failure(self.keys.name, reply) from reply
            if isinstance(reply, Exception):
                raise IncompatibleFilters(
                    "filters of BF.* that grow by themselves have layers of their own, and cannot "
                    "be merged: add the keys to one filter, or make both with backend='bits' (the "
                    f"server says: {reply!s:.200})"
                ) from reply


def _packed(words: tuple[bytes | str, ...], keys: list[bytes]) -> bytes:
    """Return a command with these keys at its end: `packed` takes twice the time for them."""
    _, _, first = packed(words).partition(b"\r\n")
    rest = [b"$%d\r\n%b\r\n" % (len(key), key) for key in keys]
    return b"*%d\r\n%b%b" % (len(words) + len(keys), first, b"".join(rest))


def _fitting(keys: list[bytes]) -> list[bytes]:
    """Return as many as a round trip takes, and one at least."""
    if sum(map(len, keys)) <= _TRIP_BYTES:
        return keys
    size = 0
    for count, key in enumerate(keys):
        size += len(key)
        if count and size > _TRIP_BYTES:
            return keys[:count]
    return keys


def _cut(keys: list[bytes]) -> Iterator[list[bytes]]:
    """Cut keys into commands."""
    part: list[bytes] = []
    size = 0
    for key in keys:
        if part and (len(part) == _COMMAND or size + len(key) > _COMMAND_BYTES):
            yield part
            part, size = [], 0
        part.append(key)
        size += len(key)
    if part:
        yield part
