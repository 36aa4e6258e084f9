"""Filters as strings of Redis: created, opened, added to, asked, expired, deleted; as flows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from bloomery import _native
from bloomery.errors import CorruptData, UnknownFilter
from bloomery.integrations.redis.bits.scripts import CLEAR, MAKE, MARGIN, SETTLE, STRAY
from bloomery.integrations.redis.config import Config
from bloomery.integrations.redis.header import plain_info
from bloomery.integrations.redis.naming import Keys
from bloomery.integrations.redis.store import FilterStore, expire_command, milliseconds
from bloomery.integrations.redis.wire.failures import checked
from bloomery.integrations.redis.wire.flow import (
    Ask,
    Flow,
    command,
    commands,
    packed,
    replies_to,
    reply_to,
)

if TYPE_CHECKING:
    from bloomery.types import Batch, Key, Mask

_COUNTED = 1 << 25  # bytes whose bits one command counts: about 5 ms, and then others have a turn
_SOME = 10_000  # keys a round trip: Redis does nothing else while it answers one


def proposal(keys: Keys, wanted: Config, life: int | None) -> Ask:
    """Write the configuration unless there is one; ask for that which is there, and its life."""
    return commands(
        keys.config,
        ("SET", keys.config, wanted.to_json(), "NX", *(() if life is None else ("PX", life))),
        ("GET", keys.config),
        ("PTTL", keys.config),
    )


def create(keys: Keys, wanted: Config, ttl: float | None) -> Flow[Config]:
    """Make a filter, or leave an identical one as it is; FilterExists if there is another.

    Whoever comes first writes the configuration, and others compare. Strings are made as long as
    they will be: a Redis that is full says so now, and one that is shorter later is known to have
    lost something. Who finds a configuration without strings makes them: its creator may have
    died. A filter that is there keeps its time to live.
    """
    first = proposal(keys, wanted, milliseconds(ttl))
    [[_, stored, remaining]] = yield from replies_to([first])
    config = Config.from_json(keys.name, stored)
    config.require_same(keys.name, wanted)
    config.require_loaded(keys.name)
    if config.made or config.backend != "bits" or config.kind == "rotating":
        return config
    places = places_of(config)
    until = remaining + MARGIN if isinstance(remaining, int) and remaining >= 0 else ""
    asks = []
    for shard, name in enumerate(keys.bits(places.shards)):
        asks.append(command(name, "EVAL", MAKE, 1, name, string_length(places, shard), until))
    yield from replies_to(asks)
    before, after = config.to_json(), config.settled().to_json()
    stored = yield from reply_to(keys.config, "EVAL", SETTLE, 1, keys.config, before, after)
    if stored is None:
        raise UnknownFilter(f"filter {keys.name!r} was deleted, or has expired, while it was made")
    config = Config.from_json(keys.name, stored)
    config.require_same(keys.name, wanted)
    return config


def open_config(keys: Keys) -> Flow[Config]:
    """Read the configuration of a filter that is there; UnknownFilter if it is not."""
    stored = yield from reply_to(keys.config, "GET", keys.config)
    if stored is None:
        raise UnknownFilter(f"there is no filter {keys.name!r} in this Redis: create it first")
    config = Config.from_json(keys.name, stored)
    config.require_loaded(keys.name)
    return config


def places_of(config: Config) -> _native.Places:
    """Return what finds the bits of a key in the strings of such a filter."""
    _, nbytes, _ = _native.read_header(config.header, None)
    lines = -(-nbytes // 64)
    return _native.Places(config.header, -(-lines // config.shards) * 64)


def string_length(places: _native.Places, shard: int) -> int:
    """How long a shard's string is: its bits, and one byte behind them that only making writes.

    Adding makes a string where none is, as long as the last bit that it sets. Without that byte it
    could come to the whole length, and be an empty filter in the place of one that was lost.
    """
    return places.shard_bytes(shard) + 1


class BitStrings(FilterStore):
    """The strings of a filter, one a shard."""

    kind = "bloom"

    def __init__(self, keys: Keys, config: Config) -> None:
        super().__init__(keys, config)
        config.require_kind(keys.name, self.kind)
        self.places = places_of(config)
        self.names = keys.bits(self.places.shards)
        self.sizes = [self.places.shard_bytes(shard) for shard in range(self.places.shards)]
        self.lengths = [string_length(self.places, shard) for shard in range(self.places.shards)]
        self.again = config.kind != "counting"  # a counter that is raised twice counts twice
        # Asked for bits or counters, a string that goes away meanwhile is one of zeros: its length
        # is asked for again behind them. A line would be short.
        plain = config.kind == "bloom"
        lines = plain and _native.parse_header(config.header, None)[2] == "blocked"
        self._behind = [] if lines else [packed(("STRLEN", name)) for name in self.names]
        # Is one key one trip, that may be made again: to ask for it, to add it?
        short = plain and len(self.names) == 1
        self._short = (short and lines, short)

    def span(self, chunk: tuple[int, int, int]) -> tuple[int, int]:
        """Where a part of a shard's string begins in the whole, and how many bytes it has."""
        shard, start, count = chunk
        return sum(self.sizes[:shard]) + start, count

    def chunks(self, start: int, count: int) -> list[tuple[int, int, int]]:
        """The parts of strings in which so many bytes of the whole lie."""
        parts, before = [], 0
        for shard, size in enumerate(self.sizes):
            first, last = max(start, before), min(start + count, before + size)
            if first < last:
                parts.append((shard, first - before, last - first))
            before += size
        return parts

    def add(self, keys: Batch) -> Flow[Mask]:
        """Add keys; True where one is definitely new."""
        hashes, array = self.places.hashes(keys)
        answers = yield from self.add_hashes(hashes)
        return _native.mask(answers, array)

    def contains(self, keys: Batch) -> Flow[Mask]:
        """Ask for keys; False is certain."""
        hashes, array = self.places.hashes(keys)
        answers = yield from self.contains_hashes(hashes)
        return _native.mask(answers, array)

    def single_ask(self, key: Key, *, write: bool) -> tuple[_native.Commands, list[Ask]] | None:
        """Return the round trip of a single key, for `single_answer`; None if it takes several. A
        flow for it took a tenth of a single `add`."""
        if not self._short[write] or key is None:
            return None
        hashes, _ = self.places.hashes([key])
        sent = (self.places.add if write else self.places.contains)(hashes, self.names)
        [(shard, data, count)] = sent.parts
        return sent, [Ask(self.names[shard], data, count)]

    def single_answer(self, sent: _native.Commands, replies: list[Any]) -> bool | None:
        """Return the answer to that; None if something is wrong, and the flow is to say what."""
        [(shard, _, _)] = sent.parts
        for reply in replies:
            if isinstance(reply, Exception):
                return None
        return sent.answers != b"\0" if self.take_replies(sent, shard, replies) else None

    def add_hashes(self, hashes: bytes) -> Flow[bytes]:
        """Add keys by their hashes; 1 for each that is definitely new."""
        answers = []
        for batch in _parts(hashes):
            sent = self.places.add(batch, self.names)
            answers.append((yield from self._exchange(sent, write=True)))
        return b"".join(answers)

    def contains_hashes(self, hashes: bytes) -> Flow[bytes]:
        """Ask for keys by their hashes; 0 for each that is definitely not there."""
        answers = []
        for batch in _parts(hashes):
            sent = self.places.contains(batch, self.names)
            answers.append((yield from self._exchange(sent, write=False)))
        return b"".join(answers)

    def _exchange(self, sent: _native.Commands, *, write: bool) -> Flow[bytes]:
        parts, names, again = sent.parts, self.names, self.again or not write
        twice = bool(self._behind) and not write
        if twice:
            asks = [
                Ask(names[shard], data + self._behind[shard], count + 1, again)
                for shard, data, count in parts
            ]
        else:
            asks = [Ask(names[shard], data, count, again) for shard, data, count in parts]
        for (shard, _, _), replies in zip(parts, (yield asks), strict=True):
            checked(replies)
            if not self.take_replies(sent, shard, replies, twice=twice):
                yield from self.raise_lost(shard)
        return sent.answers

    def take_replies(
        self, sent: _native.Commands, shard: int, replies: list[Any], *, twice: bool = False
    ) -> bool:
        """Read the answers out of replies; False if the string is not whole. The first reply is the
        length of the string; with `twice` the last one is it again."""
        right = self.lengths[shard]
        last = replies.pop() if twice else right
        if type(replies[0]) is not int or type(last) is not int:
            raise CorruptData("Redis answered no length, which is no answer to what was asked")
        if replies[0] != right or last != right:
            return False
        replies[0] = self.sizes[shard]
        sent.feed(shard, replies)
        return True

    def raise_lost(self, shard: int) -> Flow[None]:
        """Raise UnknownFilter for a shard whose string is not whole.

        A string that adding has made in the place of a lost one is deleted; one that belongs to
        another filter, which has taken the name since, stays.
        """
        name = self.names[shard]
        stored = yield from reply_to(self.keys.config, "GET", self.keys.config)
        own = self.config
        current = own if stored is None else Config.from_json(self.keys.name, stored)
        if (current.header, current.shards) == (own.header, own.shards):
            yield [command(name, "EVAL", STRAY, 1, name, self.lengths[shard])]
        raise UnknownFilter(
            f"filter {self.keys.name!r} is no longer whole in this Redis: it was deleted, has "
            "expired or was evicted; `delete` what is left of it, create it again, and add its keys"
        )

    def delete(self) -> Flow[None]:
        """Delete the filter, its configuration last: if a shard cannot be reached, `delete` can be
        called again, and no bits are left for the next filter of that name."""
        for names in (self.names, [self.keys.config]):
            yield from replies_to([command(name, "UNLINK", name) for name in names])

    def expire(self, seconds: float | None) -> Flow[None]:
        """Let it end in so many seconds, or never."""
        life = milliseconds(seconds, "seconds")
        ends = [(self.keys.config, 0), *((name, MARGIN) for name in self.names)]
        yield from replies_to(
            [command(name, *expire_command(name, life, more)) for name, more in ends]
        )

    def clear(self) -> Flow[None]:
        """Empty every string, each in one step."""
        asks = []
        for shard, name in enumerate(self.names):
            asks.append(command(name, "EVAL", CLEAR, 1, name, self.lengths[shard]))
        for shard, replies in enumerate((yield from replies_to(asks))):
            if replies != [self.lengths[shard]]:
                yield from self.raise_lost(shard)

    def info(self) -> Flow[dict[str, Any]]:
        """Everything that is known about it, with what Redis counts."""
        ttl = yield from self.ttl()
        total = 0
        most = self.places.shard_bytes(0)
        for start in range(0, most, _COUNTED):
            asks = []
            for name in self.names:
                counting = ("BITCOUNT", name, start, start + _COUNTED - 1)
                asks.append(commands(name, ("STRLEN", name), counting))
            for shard, (length, bits_set) in enumerate((yield from replies_to(asks))):
                if length != self.lengths[shard]:
                    yield from self.raise_lost(shard)
                if not isinstance(bits_set, int) or not 0 <= bits_set <= _COUNTED * 8:
                    raise CorruptData("Redis counted what cannot be")
                total += bits_set
        return {
            **plain_info(self.config.header, self.config.kind, self.config.shards, total),
            "ttl": ttl,
        }


def _parts(hashes: bytes) -> Iterable[bytes]:
    size = 8 * _SOME
    if 0 < len(hashes) <= size:
        return (hashes,)
    return [hashes[start : start + size] for start in range(0, len(hashes), size)]
