"""Reading the strings of a filter into memory: in chunks, several to a round trip.

Measured with 1 GiB in two strings of a redis-server beside it, best of four, in MB/s: chunks of
512 KiB and eight a trip 1,168; of 1 MiB and four 1,112, eight 1,140, sixteen 679; of 2 MiB and
eight 318; of 4 MiB and four 336. What one trip brings should fit into the cache.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from bloomery import _native
from bloomery.errors import CorruptData
from bloomery.filters import BloomFilter, CountingBloomFilter
from bloomery.filters.internals import open_filter
from bloomery.integrations.redis.wire.flow import Flow, commands, replies_to
from bloomery.storage import memory

if TYPE_CHECKING:
    from bloomery.integrations.redis.bits.strings import BitStrings

Progress: TypeAlias = "Callable[[int, int], object]"
Chunk: TypeAlias = "tuple[int, int, int]"  # a shard, where in its string, how many bytes

CHUNK = 1 << 20
TOGETHER = 8  # chunks a round trip: Redis prepares the next while we read one


def portions(sizes: Sequence[int], begun: Iterable[int] | None = None) -> Iterator[list[Chunk]]:
    """The chunks of strings of these sizes, as round trips have them.

    They take turns: the strings may lie on several nodes, which then work at the same time.
    """
    at = list(begun or [0] * len(sizes))
    waiting: list[Chunk] = []
    left = [shard for shard in range(len(sizes)) if at[shard] < sizes[shard]]
    while left:
        for shard in left:
            count = min(CHUNK, sizes[shard] - at[shard])
            waiting.append((shard, at[shard], count))
            at[shard] += count
            if len(waiting) == TOGETHER:
                yield waiting
                waiting = []
        left = [shard for shard in left if at[shard] < sizes[shard]]
    if waiting:
        yield waiting


def reading(strings: BitStrings, chunks: Sequence[Chunk]) -> Flow[list[bytes]]:
    """Read these chunks; UnknownFilter if a string is gone or too short.

    Its length is asked for behind them: what somebody's adding has made in the place of one that
    was lost is shorter than the whole.
    """
    names = strings.names
    shards = list(dict.fromkeys(shard for shard, _, _ in chunks))
    asks = []
    for own in shards:
        words = [
            ("GETRANGE", names[own], start, start + count - 1)
            for shard, start, count in chunks
            if shard == own
        ]
        asks.append(commands(names[own], *words, ("STRLEN", names[own])))
    replies = yield from replies_to(asks)
    for shard, answers in zip(shards, replies, strict=True):
        if answers.pop() != strings.lengths[shard]:
            yield from strings.raise_lost(shard)
    iterators = [iter(answers) for answers in replies]
    contents = [next(iterators[shards.index(shard)]) for shard, _, _ in chunks]
    for (_, _, count), data in zip(chunks, contents, strict=True):
        if not isinstance(data, bytes) or len(data) != count:
            raise CorruptData("Redis answered to GETRANGE with what it was not asked for")
    return contents


def filling(
    strings: BitStrings,
    write: Callable[[int, bytes], object],
    progress: Progress | None = None,
) -> Flow[None]:
    """Hand the strings over, one behind the other: `write(offset, data)` for each chunk."""
    sizes = strings.sizes
    starts, total, done = [0], sum(sizes), 0
    for size in sizes:
        starts.append(starts[-1] + size)
    if progress is not None:
        progress(0, total)
    for chunks in portions(sizes):
        contents = yield from reading(strings, chunks)
        for (shard, start, count), data in zip(chunks, contents, strict=True):
            write(starts[shard] + start, data)
            done += count
        if progress is not None:
            progress(done, total)


def copying(strings: BitStrings, progress: Progress | None = None) -> Flow[Any]:
    """Make the local filter of these strings.

    Bits are only ever set, and counters raised, by who adds: a copy that is made meanwhile holds
    all that was acknowledged before it began and was not removed since.
    """
    nbytes = sum(strings.sizes)
    memory.check(nbytes)
    body = _native.Memory(nbytes)
    # New memory comes page by page as it is written, which took longer than to read what is written
    # (1.1 of 2 s for 1 GiB): beside the reading it costs hardly anything.
    toucher = threading.Thread(target=body.touch, args=(0, nbytes), daemon=True)
    toucher.start()
    yield from filling(strings, body.write, progress)
    toucher.join()
    kind: Any = CountingBloomFilter if strings.config.kind == "counting" else BloomFilter
    return open_filter(kind, strings.config.header, body)
