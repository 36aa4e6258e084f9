"""Counters in a string of Redis: the bytes of a `CountingBloomFilter`.

They lie in one string. A key is taken out by a script, which first looks whether all of its
counters are above zero: two that remove the same key at once must not take another's share.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bloomery import _native, sizing
from bloomery.errors import CorruptData, InvalidParameter, StoreRefused
from bloomery.filters.hashers import check_hasher
from bloomery.integrations.redis.bits.strings import BitStrings
from bloomery.integrations.redis.config import LONGEST_STRING, Config
from bloomery.integrations.redis.header import CountingHeader
from bloomery.integrations.redis.wire.failures import checked
from bloomery.integrations.redis.wire.flow import Ask, Flow, reply_to

if TYPE_CHECKING:
    from bloomery.integrations.redis.naming import Keys
    from bloomery.types import Batch, Hasher, Key, Mask

ABSENT, REMOVED, KEPT, _GONE = range(4)  # kept: each of its counters is full, and stays so
_SOME = 1_000  # keys a round trip: a script takes Redis three times as long as a command

# KEYS: the string. ARGV: the width of a counter, then where those of the key are.
_REMOVE = b"""
if redis.call('STRLEN', KEYS[1]) == 0 then return 3 end
local kind, full = 'u' .. ARGV[1], 2 ^ tonumber(ARGV[1]) - 1
local get = {}
for i = 2, #ARGV do
  get[#get + 1] = 'GET'
  get[#get + 1] = kind
  get[#get + 1] = ARGV[i]
end
local counts = redis.call('BITFIELD', KEYS[1], unpack(get))
local down = {}
for i, value in ipairs(counts) do
  if value == 0 then return 0 end
  if value < full then
    down[#down + 1] = 'INCRBY'
    down[#down + 1] = kind
    down[#down + 1] = ARGV[i + 1]
    down[#down + 1] = '-1'
  end
end
if #down == 0 then return 2 end
redis.call('BITFIELD', KEYS[1], unpack(down))
return 1
"""
_SHA = hashlib.sha1(_REMOVE, usedforsecurity=False).hexdigest().encode()


def planned_counters(
    capacity: int, error_rate: float | str, counter_bits: int, hasher: Hasher, seed: int
) -> Config:
    """The configuration of a counting filter of this size."""
    plan = sizing.counting_plan(capacity, error_rate, counter_bits=counter_bits)
    if plan.nbytes > LONGEST_STRING:
        raise InvalidParameter(
            f"{plan.capacity:,} keys need {plan.nbytes:,} bytes of counters, and they lie in one "
            f"string of Redis, which has {LONGEST_STRING:,} at most: take a smaller capacity or a "
            "larger error_rate, or several filters"
        )
    header = _native.make_header(
        "counting",
        plan.capacity,
        plan.error_rate,
        hasher,
        check_hasher(hasher, seed),
        lines_per_key=plan.lines_per_key,
        num_hashes=plan.num_hashes,
        num_bits=plan.num_bits,
        nbytes=plan.nbytes,
        extra=(sizing.LINE_BITS // plan.line_cells,),
    )
    return Config("counting", header)


def counters_of(keys: Keys, config: Flow[Config]) -> Flow[Counters]:
    """Return the counters of the filter whose configuration a flow makes or reads."""
    return Counters(keys, (yield from config))


class Counters(BitStrings):
    """The string of a counting filter."""

    kind = "counting"

    def info(self) -> Flow[dict[str, Any]]:
        """What it was made for. Redis counts bits, not counters: how full it is takes a copy."""
        header = CountingHeader.of(self.config.header)
        return {
            "kind": self.kind,
            **asdict(header),
            "nbytes": self.sizes[0],
            "bits_per_key": self.sizes[0] * 8 / header.capacity,
            "ttl": (yield from self.ttl()),
        }

    def count(self, key: Key) -> Flow[int]:
        """The least of the key's counters."""
        hashes, _ = self.places.hashes([key])
        return (yield from self.contains_hashes(hashes))[0]

    def remove(self, keys: Batch) -> Flow[tuple[bytes, bool]]:
        """Take one copy of each key out. Return ABSENT, REMOVED or KEPT for each, and whether a
        mask of these keys is an array."""
        hashes, array = self.places.hashes(keys)
        return (yield from self.remove_hashes(hashes)), array

    def remove_mask(self, keys: Batch) -> Flow[Mask]:
        """Take one copy of each key out; True where there was one that could be."""
        outcomes, array = yield from self.remove(keys)
        return _native.mask(bytes(outcome == REMOVED for outcome in outcomes), array)

    def remove_hashes(self, hashes: bytes) -> Flow[bytes]:
        """Take keys out by their hashes."""
        outcomes = b""
        for start in range(0, len(hashes), 8 * _SOME):
            outcomes += yield from self._remove(hashes[start : start + 8 * _SOME])
        return outcomes

    def _remove(self, hashes: bytes) -> Flow[bytes]:
        outcomes: list[Any] = [None] * (len(hashes) // 8)
        left = list(range(len(outcomes)))
        for _ in range(5):
            batch = b"".join(hashes[8 * i : 8 * i + 8] for i in left)
            answers = yield from self._call(batch)
            for i, answer in zip(left, answers, strict=True):
                outcomes[i] = answer
            # What Redis did not know the script for it has not done.
            left = [i for i in left if outcomes[i] is None]
            if not left:
                return bytes(outcomes)
            yield from reply_to(self.names[0], "SCRIPT", "LOAD", _REMOVE)
        raise StoreRefused("Redis forgets the script that removes keys: who calls SCRIPT FLUSH?")

    def _call(self, hashes: bytes) -> Flow[list[int | None]]:
        from redis.exceptions import NoScriptError

        sent = self.places.remove(hashes, self.names, _SHA)
        [(shard, data, count)] = sent.parts
        [replies] = yield [Ask(self.names[shard], data, count, again=False)]
        known = [None if isinstance(reply, NoScriptError) else reply for reply in replies]
        length, *answers = checked(known)
        if length != self.lengths[0] or _GONE in answers:
            yield from self.raise_lost(0)
        right = all(reply is None or reply in (ABSENT, REMOVED, KEPT) for reply in answers)
        if not right or None in replies:
            raise CorruptData("Redis answered to a script of ours with what it never returns")
        return answers
