"""The stream: what nodes tell one another, by way of Redis.

    entry    w   who wrote it: 8 random bytes of a node or of a program; one more (AGAIN) if it was
                 there before, and Redis may have lost it
             d   records, one behind the other:
                 uid (8 bytes) | operation (1) | length (4) | hashes, or what the catalogue has

An entry of an operation that makes, changes or drops a filter has one record; one of adds has those
of a whole turn. Adding is idempotent: to read an entry twice changes nothing. MERGE says that bits
were set of which there are no hashes: they are loaded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from bloomery.errors import CorruptData
from bloomery.integrations.redis.wire import change_feed
from bloomery.service.domain.operations import Op

START = b"0-0"
AGAIN = b"a"
_OPS = (Op.ADD, Op.CREATE, Op.DROP, Op.EXPIRE, Op.ADJUST, Op.MERGE)


class Record(NamedTuple):
    """What was done to the filter of this number, which no other ever has."""

    uid: int
    op: int
    data: bytes


class StreamEntry(NamedTuple):
    """One entry of the stream."""

    id: bytes
    writer: bytes
    records: list[Record]

    @property
    def again(self) -> bool:
        """Was it there before? Who keeps it once more would have twice as much each time."""
        return len(self.writer) > 8 and self.writer.endswith(AGAIN)

    @property
    def seconds(self) -> float:
        """When Redis took it, as Unix time."""
        return int(self.id.partition(b"-")[0]) / 1000


def packed_records(records: Iterable[Record]) -> bytes:
    """Return records as an entry has them."""
    return b"".join(change_feed.HEAD.pack(uid, op, len(data)) + data for uid, op, data in records)


def later(one: bytes, other: bytes) -> bool:
    """Whether an entry's number comes after another."""
    return order(one) > order(other)


def order(number: bytes) -> tuple[int, int]:
    """Return what an entry's number is compared by."""
    first, _, second = number.partition(b"-")
    return int(first), int(second or 0)


def entries_in(reply: Any, *, skip: bool = False) -> list[StreamEntry]:
    """Return the entries of a stream in a reply to XREAD; CorruptData if they are none of ours.
    `skip`: those have no records, for who does not need to know all of them."""
    if not reply:
        return []
    found = reply.values() if isinstance(reply, dict) else [pair[1] for pair in reply]
    try:
        return [_entry(number, values, skip) for some in found for number, values in _flat(some)]
    except (TypeError, ValueError, KeyError, struct.error):
        raise CorruptData("the stream of nodes in Redis has entries that cannot be read") from None


def _flat(some: Any) -> Iterator[tuple[bytes, Any]]:
    for pair in some:
        if len(pair) == 2 and isinstance(pair[0], bytes):
            yield pair
        else:  # one more list around the entries, as redis-py has it for RESP3
            yield from _flat(pair)


def _entry(number: bytes, values: Any, skip: bool) -> StreamEntry:
    try:
        fields = values if isinstance(values, dict) else dict(zip(*[iter(values)] * 2, strict=True))
        return StreamEntry(number, fields[b"w"], list(_records(fields[b"d"])))
    except (TypeError, ValueError, KeyError, struct.error):
        if not skip:
            raise
        return StreamEntry(number, b"", [])


def _records(data: bytes) -> Iterator[Record]:
    at = 0
    while at < len(data):
        uid, op, length = change_feed.HEAD.unpack_from(data, at)
        at += change_feed.HEAD.size + length
        if op not in _OPS or at > len(data):
            raise ValueError
        yield Record(uid, op, data[at - length : at])
