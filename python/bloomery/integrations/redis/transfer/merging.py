"""Merging one filter into another in Redis: by BITOP where both lie in one slot; else the other is
read, written beside the first, and merged from there."""

from __future__ import annotations

import secrets
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bloomery.errors import IncompatibleFilters, StoreRefused
from bloomery.filters import BloomFilter
from bloomery.filters.internals import header
from bloomery.integrations.redis.bf.filter import BfFilter
from bloomery.integrations.redis.header import PlainHeader
from bloomery.integrations.redis.transfer.pushing import LocalFilter, merged
from bloomery.integrations.redis.transfer.reading import Chunk, Progress, reading
from bloomery.integrations.redis.transfer.uploading import StringUpload
from bloomery.integrations.redis.wire.flow import Flow, command, replies_to

if TYPE_CHECKING:
    from bloomery.integrations.redis.bits.strings import BitStrings
    from bloomery.integrations.redis.config import Backend, Config

_SHAPE = ("layout", "num_bits", "num_hashes", "lines_per_key", "hasher", "seed")

# KEYS: the filter's string, the other's. ARGV: how long both are. 2: the other is not whole.
_JOIN = """
local whole = tonumber(ARGV[1])
if redis.call('STRLEN', KEYS[1]) ~= whole then return 0 end
if redis.call('STRLEN', KEYS[2]) ~= whole then return 2 end
redis.call('BITOP', 'OR', KEYS[1], KEYS[1], KEYS[2])
return 1
"""


def merging(into: Any, other: Any, progress: Progress | None) -> Flow[None] | Relay:
    """Return what merges a filter, in Redis or here, into one in Redis: a flow where Redis itself
    can do it, else a `Relay` by way of this process."""
    mine, link = into.store, into.link
    if isinstance(other, BloomFilter):
        _require_backends(mine.config, "bits")
        _require_mergeable(mine.config, header(other))
        return merged(mine, LocalFilter.of(other, "bloom"), progress)
    config = getattr(getattr(other, "store", None), "config", None)
    if config is not None:
        _require_backends(mine.config, config.backend)
    if config is None or config.kind != "bloom":
        raise IncompatibleFilters(
            f"merge takes another such filter in Redis or a BloomFilter, not {type(other).__name__}"
        )
    _require_mergeable(mine.config, config.header)
    if type(other.link) is not type(link):
        raise IncompatibleFilters(
            "one of the filters is for threads and the other for asyncio: open both alike"
        )
    theirs, same_client = other.store, link.client is other.link.client
    if isinstance(mine, BfFilter):
        return mine.merge(theirs, same_client)
    if same_client and together(link.client, mine, theirs):
        return joined(mine, theirs)
    return Relay(mine, theirs, other.link, progress)


def _require_backends(mine: Config, theirs: Backend) -> None:
    """Raise IncompatibleFilters if one filter is of bits, and the other a server's own."""
    if mine.backend != theirs:
        raise IncompatibleFilters(
            "one of the filters is a server's own (BF.*), which hashes keys in another way: add "
            "the keys of both to one"
        )


def _require_mergeable(mine: Config, header: bytes) -> None:
    """Raise IncompatibleFilters, with what differs, unless the bits of both mean the same."""
    for name, (ours, theirs) in _differences(mine.header, header).items():
        raise IncompatibleFilters(
            f"merge needs filters of the same {name}: this one has {ours}, the other {theirs}; "
            "make both with the same capacity, error_rate, layout, hasher and seed"
        )


def _differences(mine: bytes, other: bytes) -> dict[str, tuple[Any, Any]]:
    ours, theirs = asdict(PlainHeader.of(mine)), asdict(PlainHeader.of(other))
    differ: dict[str, tuple[Any, Any]] = {
        name: (ours[name], theirs[name]) for name in _SHAPE if ours[name] != theirs[name]
    }
    if "seed" in differ and "siphash" in (ours["hasher"], theirs["hasher"]):
        differ["seed"] = ("one", "another")  # a secret
    return differ


def together(client: Any, strings: BitStrings, other: BitStrings) -> bool:
    """Whether Redis itself can merge each string of one into that of the other."""
    if strings.sizes != other.sizes:
        return False
    if not hasattr(client, "nodes_manager"):  # no cluster
        return True
    from redis.crc import key_slot

    pairs = zip(strings.names, other.names, strict=True)
    return all(key_slot(first) == key_slot(second) for first, second in pairs)


def joined(strings: BitStrings, other: BitStrings) -> Flow[None]:
    """Merge strings of the same slots."""
    asks = [
        command(mine, "EVAL", _JOIN, 2, mine, theirs, size)
        for mine, theirs, size in zip(strings.names, other.names, strings.lengths, strict=True)
    ]
    results = [result for [result] in (yield from replies_to(asks))]
    for shard, result in enumerate(results):
        if result != 1:
            yield from (other if result == 2 else strings).raise_lost(shard)


class Relay:
    """Merges a filter of another Redis, or slot: reads it chunk by chunk, and uploads each chunk.

    The string that is filled has a name of its own, and ends by itself if this does.
    """

    def __init__(
        self, strings: BitStrings, other: BitStrings, other_link: Any, progress: Progress | None
    ) -> None:
        self.upload = StringUpload(strings, secrets.token_hex(8))
        self.other_link = other_link
        self._other, self._progress = other, progress

    def wanted(self) -> list[Chunk]:
        """Return the chunks to be read and written next; none: all are."""
        if self._progress is not None:
            self._progress(self.upload.done, self.upload.total)
        return self.upload.wanted()

    def read(self, chunks: list[Chunk]) -> Flow[list[bytes]]:
        """Read these chunks from the other filter, whose strings may be cut in other places."""
        ranges = [self._other.chunks(*self.upload.strings.span(chunk)) for chunk in chunks]
        flat = [part for parts in ranges for part in parts]
        data = iter((yield from reading(self._other, flat)))
        return [b"".join(next(data) for _ in parts) for parts in ranges]

    def write(self, chunks: list[Chunk], contents: list[bytes]) -> Flow[None]:
        """Upload these chunks."""
        if not (yield from self.upload.put(chunks, contents)):
            raise self._lost()

    def end(self) -> Flow[None]:
        """Merge what was uploaded into the filter."""
        if not (yield from self.upload.merge()):
            raise self._lost()
        yield from self.upload.forget()

    def _lost(self) -> StoreRefused:
        return StoreRefused(
            f"Redis lost what was to be merged into filter {self.upload.strings.keys.name!r}: see "
            "that it has the memory for it and evicts nothing, and merge again"
        )
