"""The catalogue: which filters there are, for all nodes of one prefix.

    {bloomery}:filters     a hash: a filter's name -> JSON
    {bloomery}:stream      what nodes tell one another (stream.py)

A change of the catalogue and the entry of the stream that tells of it are one step in Redis: both
keys are in one slot. So no node hears of a key before it hears of its filter.
"""

from __future__ import annotations

import json
import math
import secrets
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bloomery import _native
from bloomery.errors import BloomeryError, CorruptData
from bloomery.integrations.redis.config import Config, shards_for
from bloomery.integrations.redis.wire import change_feed
from bloomery.integrations.redis.wire.failures import checked
from bloomery.integrations.redis.wire.flow import Flow, command
from bloomery.service.domain.operations import Op, name_of, text_of
from bloomery.service.replication.stream import Record, packed_records

if TYPE_CHECKING:
    from collections.abc import Iterable

# KEYS: catalogue, stream. ARGV: name, what it must be now ("" for nothing), what it is to be (""
# for nothing), length of the stream, writer, records ("" for none). Nil if it was done, else what
# the catalogue has.
_CHANGE = """
local held = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if held ~= ARGV[2] then return held end
if ARGV[3] == '' then redis.call('HDEL', KEYS[1], ARGV[1])
else redis.call('HSET', KEYS[1], ARGV[1], ARGV[3]) end
if ARGV[6] ~= '' then
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[4], '*', 'w', ARGV[5], 'd', ARGV[6])
end
return nil
"""


@dataclass(frozen=True)
class Listed:
    """A filter as the catalogue has it."""

    uid: int  # no other filter ever has it
    name: bytes
    header: bytes  # as of a saved filter
    shards: int
    settings: dict[str, Any]  # as of a server's filter
    created_at: float
    expires_at: float | None = None
    dropped_at: float | None = None  # since when its strings are being deleted

    @property
    def strings(self) -> Config:
        """What its strings are made like."""
        return Config("bloom", self.header, self.shards)

    @property
    def nbytes(self) -> int:
        """Of its bits."""
        return _native.read_header(self.header, None)[1]

    def is_over(self, now: float) -> bool:
        """Was it dropped, or has its time come?"""
        expired = self.expires_at is not None and self.expires_at <= now
        return expired or self.dropped_at is not None

    def is_still(self, held: bytes | None) -> bool:
        """Whether the catalogue, which has this under its name, has it still."""
        if held == self._json:
            return True
        now = Listed.from_json(held) if held else None
        return now is not None and now.uid == self.uid and now.dropped_at is None

    def to_json(self) -> bytes:
        """Return it as the catalogue has it."""
        return self._json

    @cached_property
    def _json(self) -> bytes:
        fields = {name: getattr(self, name) for name in _FIELDS}
        fields |= {"name": text_of(self.name), "header": self.header.hex()}
        return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Listed:
        """Read it again; CorruptData if it is none of ours."""
        try:
            fields = json.loads(data)
            fields["name"] = name_of(fields["name"])
            fields["header"] = bytes.fromhex(fields["header"])
            found = cls(**fields)
            if not found._right():
                raise ValueError
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, BloomeryError):
            raise CorruptData("the catalogue in Redis has an entry that cannot be read") from None
        return found

    def _right(self) -> bool:
        """Whether one of us may have written this."""
        numbers = (self.created_at, self.expires_at or 0.0, self.dropped_at or 0.0)
        return (
            type(self.uid) is int
            and 0 <= self.uid < 1 << 64
            and type(self.settings) is dict
            and all(type(one) in (int, float) and math.isfinite(one) for one in numbers)
            and 0 < len(self.name) <= 1024
            and type(self.shards) is int
            and 1 <= self.shards == shards_for(self.nbytes, self.shards)
        )

    def record(self, op: Op) -> Record:
        """Return what the stream tells of it."""
        return Record(self.uid, op, self.to_json())


_FIELDS = ("uid", "shards", "settings", "created_at", "expires_at", "dropped_at")


class Catalogue:
    """The catalogue of one prefix."""

    def __init__(self, prefix: str, most_entries: int) -> None:
        tag = prefix.encode()
        self.key = b"{%b}:filters" % tag
        self.stream = b"{%b}:stream" % tag
        self.most_entries = most_entries
        self.writer = secrets.token_bytes(8)  # of this process, as long as it lives

    def config(self, listed: Listed) -> Config:
        """Return what is kept beside a filter's strings, for programs that add to it."""
        told = change_feed.told(self.stream, listed.uid, self.most_entries)
        return replace(listed.strings, told=told)

    def all(self) -> Flow[list[Listed]]:
        """Return every filter."""
        [some] = yield [command(self.key, "HVALS", self.key)]
        [held] = checked(some)
        return [Listed.from_json(value) for value in held]

    def find(self, name: bytes) -> Flow[Listed | None]:
        """Return the filter of a name."""
        [some] = yield [command(self.key, "HGET", self.key, name)]
        [held] = checked(some)
        return None if held is None else Listed.from_json(held)

    def change(
        self,
        name: bytes,
        before: Listed | None,
        after: Listed | None,
        records: Iterable[Record] = (),
    ) -> Flow[Listed | None]:
        """Put one entry in the place of another, and tell the nodes; if it is not the one that the
        catalogue has now, return that (None: there is none) as `Changed`."""
        words = (
            name,
            b"" if before is None else before.to_json(),
            b"" if after is None else after.to_json(),
            self.most_entries,
            self.writer,
            packed_records(records),
        )
        [some] = yield [command(self.key, "EVAL", _CHANGE, 2, self.key, self.stream, *words)]
        [held] = checked(some)
        if held is None:
            return after
        raise Changed(Listed.from_json(held) if held else None)


class Changed(Exception):
    """Another node changed the entry first: the optimistic lock failed."""

    def __init__(self, found: Listed | None) -> None:
        super().__init__()
        self.found = found


def dropped(listed: Listed, now: float) -> Listed:
    """Return a filter whose strings are about to be deleted."""
    return replace(listed, dropped_at=now)


def new_uid() -> int:
    """Return a number that no filter has had."""
    return secrets.randbits(63)
