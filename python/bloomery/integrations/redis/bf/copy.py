"""Filters of BF.* copied to here by BF.SCANDUMP, and from here to a server by BF.LOADCHUNK.

A part is up to 16 MiB, as the server cuts it. What goes in comes under a name beside the filter's,
which ends by itself after an hour, and takes its place when it is whole: nobody asks half a filter.
An upload that was interrupted begins anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bloomery import _native
from bloomery.errors import CorruptData, FilterExists, IncompatibleFilters, StoreRefused
from bloomery.filters import saved
from bloomery.filters.files import Loading
from bloomery.filters.redisbloom import RedisBloomFilter
from bloomery.integrations.redis.bf import parse
from bloomery.integrations.redis.bf.create import planned_bf
from bloomery.integrations.redis.bf.encoding import encoded, rows
from bloomery.integrations.redis.bf.filter import BfFilter, beside
from bloomery.integrations.redis.config import Config
from bloomery.integrations.redis.store import expire_command, milliseconds
from bloomery.integrations.redis.transfer.reading import Progress
from bloomery.integrations.redis.wire.failures import checked
from bloomery.integrations.redis.wire.flow import Ask, Flow, command, commands, packed
from bloomery.storage import files

if TYPE_CHECKING:
    from bloomery.integrations.redis.naming import Keys
    from bloomery.types import Batch, Key, Mask

_HOUR = 3600 * 1000
_PART = 16 << 20


class BfCopy:
    """A copy of a filter of BF.*, asked with the same keys.

    `filters` are the server's own, one a shard: their keys are the bytes that were sent, so that an
    int asked of one directly would be denied.
    """

    __slots__ = ("_places", "filters")

    def __init__(self, places: _native.Places, filters: list[Any]) -> None:
        self._places, self.filters = places, filters

    def contains(self, key: Key) -> bool:
        """False: definitely not added. True: maybe."""
        return bool(self.contains_many([key])[0])

    __contains__ = contains

    def contains_many(self, keys: Batch) -> Mask:
        """Ask for every key: False is certain, True is maybe."""
        batch, hashes, array = rows(self._places, keys)
        answers = bytearray()
        for at, key in enumerate(batch):
            number = int.from_bytes(hashes[8 * at : 8 * at + 8], "little")
            answers.append(encoded(key) in self.filters[number % len(self.filters)])
        return _native.mask(bytes(answers), array)


def copy_bf(store: BfFilter, progress: Progress | None = None) -> Flow[BfCopy]:
    """Make a local copy, with all that was acknowledged before it began."""
    copies: list[Any] = []
    for name in store.names:
        copies += [(yield from _dumped(store.keys.name, name, progress or _silent))]
    return BfCopy(store.places, copies)


def _silent(done: int, total: int) -> None: ...


def _dumped(name: str, key: bytes, progress: Progress) -> Flow[Any]:
    _, head = yield from _part(name, key, 0)
    if not files.is_head(head):
        return (yield from _redisbloom(name, key, head, progress))
    # A kind of `bloomery serve` has a checksum, which no longer holds once somebody adds.
    still = beside(key, "copy")
    [[copied, _]] = yield [commands(key, ("COPY", key, still), ("PEXPIRE", still, _HOUR))]
    if copied != 1:
        return (yield from _own(name, key, progress))
    try:
        local = yield from _own(name, still, progress)
    except Exception:
        yield [command(still, "UNLINK", still)]
        raise
    yield [command(still, "UNLINK", still)]
    return local


def _redisbloom(name: str, key: bytes, head: bytes, progress: Progress) -> Flow[Any]:
    local = RedisBloomFilter.from_dump(head)
    # A layer that comes while we read is not in the header, and has nothing that came before it.
    total = sum(int(layer["num_bits"]) // 8 for layer in local.layers())
    iterator = 1
    while iterator <= total:
        following, data = yield from _part(name, key, iterator)
        if not data or following != iterator + len(data):
            raise CorruptData(f"filter {name!r}: the dump ends at byte {iterator - 1} of {total}")
        local.load_chunk(following, data)
        iterator = following
        progress(min(total, iterator - 1), total)
    return local


def _own(name: str, key: bytes, progress: Progress) -> Flow[Any]:
    _, head = yield from _part(name, key, 0)
    loading = Loading()
    _, total, _ = saved.expect(head)
    local = loading.take(0, head)
    while local is None:
        _, data = yield from _part(name, key, loading.received - files.HEADER_BYTES + 1)
        if not data:
            raise CorruptData(f"filter {name!r}: the dump ends after {loading.received} bytes")
        local = loading.take(loading.received, data)
        progress(loading.received - files.HEADER_BYTES, total)
    return local


def _part(name: str, key: bytes, iterator: int) -> Flow[tuple[int, bytes]]:
    [[reply]] = yield [command(key, "BF.SCANDUMP", key, iterator)]
    if isinstance(reply, Exception):
        raise parse.failure(name, reply) from reply
    if isinstance(reply, list) and len(reply) == 2:
        following, data = reply
        if type(following) is int and isinstance(data, bytes):
            return following, data
    raise CorruptData(f"filter {name!r}: the server's reply is no part of a dump: {reply!r:.80}")


def push_bf(
    keys: Keys,
    local: RedisBloomFilter | BfCopy,
    ttl: float | None = None,
    progress: Progress | None = None,
) -> Flow[Config]:
    """Make a filter of BF.* from a local one; FilterExists if there is one already."""
    source, life = _source(local), milliseconds(ttl)
    config = planned_bf(source.capacity, source.error_rate, 1).settled()
    [name] = keys.bits(1)
    [[stored], [exists]] = yield [
        command(keys.config, "GET", keys.config),
        command(name, "EXISTS", name),
    ]
    if isinstance(stored, bytes) or exists == 1:
        raise FilterExists(f"there is a filter {keys.name!r} already: delete it, or take another")
    coming = beside(name, "push")
    done = 0
    for iterator, data in _parts_of(source):
        words = packed(("BF.LOADCHUNK", coming, iterator, data))
        words += packed(("PEXPIRE", coming, _HOUR))
        # A head must not come twice, nor a part of ours.
        again = iterator > 1 and isinstance(source, RedisBloomFilter)
        [[reply, _]] = yield [Ask(coming, words, 2, again)]
        if isinstance(reply, Exception):
            yield [command(coming, "UNLINK", coming)]
            raise _not_taken(keys.name, source, reply) from reply
        if iterator > 1:
            done += len(data)
            (progress or _silent)(done, source.nbytes)
    # Its own end comes before its name: nobody has a filter that ends in an hour.
    placed = commands(name, expire_command(coming, life), ("RENAMENX", coming, name))
    [replies] = yield [Ask(placed.key, placed.data, placed.replies, again=False)]
    if checked(replies)[1] != 1:
        yield [command(coming, "UNLINK", coming)]
        raise FilterExists(f"there is a filter {keys.name!r} now: delete it, or take another name")
    end = () if life is None else ("PX", life)
    [[kept]] = yield [command(keys.config, "SET", keys.config, config.to_json(), "NX", *end)]
    checked([] if parse.unknown(kept) else [kept])
    return config


def _source(local: Any) -> Any:
    if isinstance(local, BfCopy):
        if len(local.filters) != 1:
            raise IncompatibleFilters(
                f"a copy of {len(local.filters)} shards cannot be pushed: push each of its filters"
            )
        return local.filters[0]
    if isinstance(local, RedisBloomFilter):
        return local
    raise IncompatibleFilters(
        f"a {type(local).__name__} cannot be pushed to BF.*: a server there hashes bytes, and "
        "would deny the ints and tuples that were added here; push it where Redis keeps strings, "
        "or add its keys anew"
    )


def _parts_of(source: Any) -> Iterator[tuple[int, bytes]]:
    """What BF.LOADCHUNK takes, one after the other, each with its iterator."""
    if isinstance(source, RedisBloomFilter):
        iterator, data = source.chunk(0)
        while iterator:
            yield iterator, data
            iterator, data = source.chunk(iterator)
        return
    yield 1, saved.head(source)
    at = 0
    while data := saved.part(source, at, _PART):
        at += len(data)
        yield 1 + at, data


def _not_taken(name: str, source: Any, reply: Exception) -> Exception:
    if parse.unknown(reply) or parse.says(reply, "bad data"):
        return StoreRefused(
            f"this server does not take a {type(source).__name__} by BF.LOADCHUNK ({reply!s:.200})"
        )
    return parse.failure(name, reply)
