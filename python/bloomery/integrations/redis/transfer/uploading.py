"""Bytes from here into the strings of a filter: a string beside each is filled, chunk by chunk, and
then takes its place or is merged into it.

    {name:3}:load:<id>        what came of the fourth shard so far: as long as it will be from the
                              start, with the byte behind its bits that every string has
    {name:3}:load:<id>:done   how many bytes of it; `in` once it has taken its place

Both end by themselves a day after the last chunk, so what was interrupted can go on for a day and
leaves nothing behind for ever. A chunk is written and counted by one script: what is counted is
there, whoever dies. Several that upload the same bytes under one id help each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bloomery.errors import CorruptData
from bloomery.integrations.redis.bits.scripts import MARGIN
from bloomery.integrations.redis.transfer.reading import Chunk, portions
from bloomery.integrations.redis.wire.flow import Ask, Flow, command, replies_to

if TYPE_CHECKING:
    from bloomery.integrations.redis.bits.strings import BitStrings

LIFE = 24 * 3600 * 1000  # milliseconds

# KEYS: the string, its count. ARGV: where the chunk begins, the chunk, how many bytes there are to
# be, how long the string is, LIFE. Answers with how many bytes are there now.
_CHUNK = """
local at = redis.call('GET', KEYS[2])
if at == 'in' then return tonumber(ARGV[3]) end
at = tonumber(at or '0')
if redis.call('STRLEN', KEYS[1]) ~= tonumber(ARGV[4]) then
  redis.call('UNLINK', KEYS[1], KEYS[2])
  at = 0
end
if at ~= tonumber(ARGV[1]) then return at end
if at == 0 then redis.call('SETRANGE', KEYS[1], ARGV[4] - 1, '\\0') end
redis.call('SETRANGE', KEYS[1], at, ARGV[2])
at = at + #ARGV[2]
redis.call('SET', KEYS[2], string.format('%d', at), 'PX', ARGV[5])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return at
"""

# KEYS as before. ARGV: how many bytes there are to be, how long the string is.
_BEGUN = """
local at = redis.call('GET', KEYS[2])
if at == 'in' then return tonumber(ARGV[1]) end
if redis.call('STRLEN', KEYS[1]) ~= tonumber(ARGV[2]) then return 0 end
return tonumber(at or '0')
"""

# KEYS: the string, its count, the filter's. ARGV: bytes, length, LIFE, the filter's own life.
# 1: it is the filter's now. 0: it is not whole.
_PLACE = """
local at = redis.call('GET', KEYS[2])
if at == 'in' then
  return redis.call('STRLEN', KEYS[3]) == tonumber(ARGV[2]) and 1 or 0
end
if at ~= ARGV[1] or redis.call('STRLEN', KEYS[1]) ~= tonumber(ARGV[2]) then return 0 end
redis.call('RENAME', KEYS[1], KEYS[3])
if ARGV[4] == '' then redis.call('PERSIST', KEYS[3])
else redis.call('PEXPIRE', KEYS[3], ARGV[4]) end
redis.call('SET', KEYS[2], 'in', 'PX', ARGV[3])
return 1
"""

# KEYS and answers as before; 2: the filter's own string is not whole. May be done twice.
_MERGE = """
local whole = tonumber(ARGV[2])
if redis.call('STRLEN', KEYS[3]) ~= whole then return 2 end
if redis.call('GET', KEYS[2]) ~= ARGV[1] or redis.call('STRLEN', KEYS[1]) ~= whole then return 0 end
redis.call('BITOP', 'OR', KEYS[3], KEYS[3], KEYS[1])
return 1
"""


class StringUpload:
    """An upload of bytes into the strings of a filter, which can be resumed by its id."""

    def __init__(self, strings: BitStrings, id: str) -> None:
        self.strings = strings
        tail = f"load:{id}".encode()
        self.loads = [name.removesuffix(b"bits") + tail for name in strings.names]
        self.counts = [name + b":done" for name in self.loads]
        self.at = [0] * len(self.loads)

    @property
    def done(self) -> int:
        """Bytes that Redis has so far."""
        return sum(self.at)

    @property
    def total(self) -> int:
        """Bytes that Redis will have."""
        return sum(self.strings.sizes)

    def resume(self) -> Flow[None]:
        """Ask Redis what it has already, of an upload that was interrupted."""
        asks = []
        for shard, load in enumerate(self.loads):
            words = (load, self.counts[shard], *self._sizes(shard))
            asks.append(command(load, "EVAL", _BEGUN, 2, *words))
        self._note(range(len(asks)), (yield from replies_to(asks)))

    def _sizes(self, shard: int) -> tuple[int, int]:
        return self.strings.sizes[shard], self.strings.lengths[shard]

    def wanted(self) -> list[Chunk]:
        """Return the chunks of the next round trip; none: Redis has everything."""
        return next(portions(self.strings.sizes, self.at), [])

    def put(self, chunks: Sequence[Chunk], contents: Sequence[bytes]) -> Flow[bool]:
        """Send these chunks; False if Redis has lost some that came before."""
        asks, shards = [], []
        for (shard, start, _), data in zip(chunks, contents, strict=True):
            load = self.loads[shard]
            words = (load, self.counts[shard], start, data, *self._sizes(shard), LIFE)
            asks.append(command(load, "EVAL", _CHUNK, 2, *words))
            shards.append(shard)
        before = list(self.at)
        self._note(shards, (yield from replies_to(asks)))
        return all(now >= then for now, then in zip(self.at, before, strict=True))

    def _note(self, shards: Sequence[int], replies: list[list[object]]) -> None:
        for shard, [at] in zip(shards, replies, strict=True):
            if not isinstance(at, int) or not 0 <= at <= self.strings.sizes[shard]:
                raise CorruptData("Redis answered to a script of ours with what it never returns")
            self.at[shard] = at

    def place(self, life: int | None) -> Flow[bool]:
        """Give the strings their final names, with a TTL of so many milliseconds (and MARGIN, by
        which strings outlive the configuration); False if one is not complete."""
        return 0 not in (yield from self._end(_PLACE, "" if life is None else life + MARGIN))

    def merge(self) -> Flow[bool]:
        """Merge them into the filter's; False if one is not whole, UnknownFilter if the filter is
        not. Redis does nothing else while it merges a string."""
        results = yield from self._end(_MERGE, "")
        if 2 in results:
            yield from self.strings.raise_lost(results.index(2))
        return 0 not in results

    def _end(self, script: str, life: int | str) -> Flow[list[object]]:
        asks = []
        for shard, name in enumerate(self.strings.names):
            load = self.loads[shard]
            words = (load, self.counts[shard], name, *self._sizes(shard), LIFE, life)
            asks.append(command(load, "EVAL", script, 3, *words))
        return [result for [result] in (yield from replies_to(asks))]

    def forget(self) -> Flow[None]:
        """Take away what is not needed any more; what cannot be now ends by itself."""
        asks: list[Ask] = []
        for load, count in zip(self.loads, self.counts, strict=True):
            asks.append(command(load, "UNLINK", load, count))
        yield asks
