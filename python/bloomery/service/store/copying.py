"""Bits between Redis and the memory of a node."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable

from bloomery import BloomFilter, _native, errors
from bloomery.filters import memory
from bloomery.integrations.redis.failures import checked
from bloomery.integrations.redis.flows import Strings, create
from bloomery.integrations.redis.link import Link
from bloomery.integrations.redis.trips import Flow, command, commands
from bloomery.service.store.catalogue import Catalogue, Changed, Listed
from bloomery.service.store.shared import Shared
from bloomery.storage.operations import Op

__all__ = ["empty", "loaded", "merged", "restored"]

_CHUNK = 1 << 20  # bytes of one command
_DEPTH = 8  # commands of one round trip
_TEMPORARY = 600  # seconds that what is being brought stays, if nobody ends it

Take = Callable[[int, bytes], object]  # an offset, and the bytes there


def empty(listed: Listed) -> BloomFilter:
    """Return a filter of ours that is made like one in Redis."""
    memory.check(listed.nbytes)
    return BloomFilter._open(listed.header, _native.Memory(listed.nbytes))


def loaded(link: Link, listed: Listed) -> BloomFilter:
    """Return it with all its bits."""
    memory.check(listed.nbytes)
    held = _native.Memory(listed.nbytes)
    link.run(_bits(Shared.of(listed, 0).strings, held.write))
    return BloomFilter._open(listed.header, held)


def merged(link: Link, shared: Shared, filter: BloomFilter) -> None:
    """Give a filter that is in use the bits that it lacks."""
    link.run(_bits(shared.strings, filter._or_bytes))


def _bits(strings: Strings, take: Take) -> Flow[None]:
    start = 0
    for shard, name in enumerate(strings.names):
        size = strings.places.shard_bytes(shard)
        for first in range(0, size, _CHUNK * _DEPTH):
            ranges = [
                (at, min(at + _CHUNK, size) - 1)
                for at in range(first, min(first + _CHUNK * _DEPTH, size), _CHUNK)
            ]
            words = [("GETRANGE", name, at, end) for at, end in ranges]
            [some] = yield [commands(name, *words)]
            for (at, end), data in zip(ranges, checked(some), strict=True):
                if not isinstance(data, bytes) or len(data) != end + 1 - at:
                    raise errors.UnknownFilter(
                        f"filter {strings.keys.name!r} is not whole in Redis: {name!r} is too short"
                    )
                take(start + at, data)
        start += size


def restored(
    link: Link, catalogue: Catalogue, shared: Shared, filter: BloomFilter, lost: bool
) -> None:
    """Give Redis back what it has lost of a filter; `lost`: the catalogue too may have lost it."""
    listed = shared.listed
    found = link.run(catalogue.find(listed.name))
    if found is None:
        if not lost:
            return  # somebody has dropped it
        listed = Listed(**{**listed.__dict__, "dropped_at": None})
    elif found.uid != listed.uid or found.dropped_at is not None:
        return
    whole = link.run(_lengths(shared.strings))
    if not whole:
        link.run(create(shared.strings.keys, listed.config, None))
        link.run(_ored(shared.strings, filter))
    if found is None:
        with contextlib.suppress(Changed):  # another node was quicker
            link.run(catalogue.change(listed.name, None, listed, [listed.record(Op.CREATE)]))
    if listed.expires_at is not None:
        left = max(0.001, listed.expires_at - time.time()) + 60
        link.run(shared.strings.expire(left))


def _lengths(strings: Strings) -> Flow[bool]:
    """Whether every string is as long as it must be."""
    replies = yield [command(name, "STRLEN", name) for name in strings.names]
    found = [checked(some)[0] for some in replies]
    return found == [strings.places.shard_bytes(shard) for shard in range(len(found))]


def _ored(strings: Strings, filter: BloomFilter) -> Flow[None]:
    """Set the bits of a filter in Redis too: others may be setting theirs there meanwhile."""
    held, start = memoryview(filter).cast("B"), 0
    for shard, name in enumerate(strings.names):
        size = strings.places.shard_bytes(shard)
        tag, _, _ = name.rpartition(b":")
        aside = b"%b:restore:%b" % (tag, secrets.token_hex(8).encode())
        for at in range(0, size, _CHUNK * _DEPTH):
            part = bytes(held[start + at : start + min(at + _CHUNK * _DEPTH, size)])
            [some] = yield [
                commands(aside, ("SETRANGE", aside, at, part), ("EXPIRE", aside, _TEMPORARY))
            ]
            checked(some)
        [some] = yield [commands(aside, ("BITOP", "OR", name, name, aside), ("UNLINK", aside))]
        checked(some)
        start += size
