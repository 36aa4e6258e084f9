"""A rotating filter in Redis: a string for each generation, which ends by itself.

    {name}:generations     a hash: which were made; and the field `made`, which is always there
    {name}:bits:<number>   one; its number is Redis's own time, divided by how long one lasts. It is
                           a byte longer than its bits: adding makes a string where none is, and it
                           must not be taken for a whole one

Keys are added to the current generation, and asked for in it and in as many before it as make up
the window. Every batch brings Redis's time with it: if that is in another generation than was
guessed, the batch is sent again, so clients whose clocks are wrong agree. What the hash names and
is not there was evicted, and is UnknownFilter: keys would be denied without it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from bloomery import _native, sizing
from bloomery.errors import CorruptData, InvalidParameter, StoreUnavailable, UnknownFilter
from bloomery.filters.rotating import parse_window
from bloomery.integrations.redis.bits.rotation_clock import KnownGenerations, RotationSchedule
from bloomery.integrations.redis.bits.scripts import (
    CLEAR_GENERATIONS,
    LOST_GENERATION,
    MAKE_GENERATION,
    MARGIN,
)
from bloomery.integrations.redis.bits.strings import create, open_config
from bloomery.integrations.redis.config import LONGEST_STRING, MAX_GENERATIONS, Config, planned
from bloomery.integrations.redis.store import FilterStore, expire_command, milliseconds
from bloomery.integrations.redis.wire.flow import (
    Ask,
    Flow,
    commands,
    packed,
    replies_to,
    reply_to,
)

if TYPE_CHECKING:
    from bloomery.integrations.redis.naming import Keys
    from bloomery.types import Batch, Hasher, Layout, Mask

_SOME = 10_000  # keys a round trip, over all generations
_TRIES = 20

_ANY, _NOT = bytes([0] + [1] * 255), bytes([1] + [0] * 255)


@dataclass
class _PendingBatch:
    """Keys that are being added or asked for, and what the generations said of each."""

    hashes: bytes
    maybe: bytes  # 1 where a generation may have had it
    asked: set[int] = field(default_factory=set)  # generations whose answers are in `maybe`
    written: set[int] = field(default_factory=set)

    def note(self, answers: bytes, *, new: bool) -> None:
        """Add what one generation answered: a count, or with `new` 1 where it had not the key."""
        maybe = answers.translate(_NOT if new else _ANY)
        both = int.from_bytes(maybe, "little") | int.from_bytes(self.maybe, "little")
        self.maybe = both.to_bytes(len(maybe), "little")


def planned_rotating(
    capacity: int,
    error_rate: float | str,
    window: str | float | timedelta,
    generations: int,
    per_generation: int | None,
    layout: Layout,
    hasher: Hasher,
    seed: int,
) -> Config:
    """Return the configuration. A wrong maybe of any generation is one of the filter, so each has a
    share of the error rate."""
    if window is None:
        raise InvalidParameter("window is None, must be a time: a filter in Redis rotates by that")
    seconds = parse_window(window)
    if type(generations) is not int or not 1 <= generations <= MAX_GENERATIONS:
        raise InvalidParameter(
            f"generations is {sizing.show(generations)}, must be an int from 1 to {MAX_GENERATIONS}"
        )
    most, whole = sizing.check_sizes(capacity, error_rate)
    rate = whole / (generations + 1)
    each = most if per_generation is None else sizing.check_capacity(per_generation)
    nbytes = sizing.plan(min(each, most), rate, layout=layout).nbytes
    if nbytes > LONGEST_STRING:
        raise InvalidParameter(
            f"{min(each, most):,} keys of one generation need {nbytes:,} bytes, and a string of "
            f"Redis has {LONGEST_STRING:,} at most: take a smaller capacity or per_generation"
        )
    config = planned(min(each, most), rate, layout, hasher, seed, 1)
    return replace(config, kind="rotating", window=seconds, generations=generations, capacity=most)


class Generations(FilterStore):
    """The strings of a rotating filter."""

    def __init__(self, keys: Keys, config: Config) -> None:
        config.require_kind(keys.name, "rotating")
        if not config.window or not config.generations:
            raise CorruptData(f"the configuration of filter {keys.name!r} in Redis has no window")
        super().__init__(keys, config)
        _, self.nbytes, _ = _native.read_header(config.header, None)
        self.places = _native.Places(config.header, self.nbytes)
        self.count = config.generations
        self.error_rate = _native.parse_header(config.header, None)[1] * (self.count + 1)
        self.schedule = RotationSchedule(config.window / config.generations, config.generations)
        self.hash = keys.beside("generations")
        self.known: KnownGenerations | None = None

    def name_of(self, number: int) -> bytes:
        """Return the name of a generation's string in Redis."""
        return self.keys.beside(f"bits:{number}")

    def _gone(self) -> UnknownFilter:
        return UnknownFilter(
            f"filter {self.keys.name!r} is no longer whole in this Redis: it was deleted, or a "
            "generation of it was evicted; delete and create it again, and add its keys, or wait "
            "until that generation is over"
        )

    # ---- flows

    def prepare(self) -> Flow[None]:
        """Make the hash of the generations, which lives as long as the configuration."""
        rest = yield from self.ttl()
        life = None if rest is None else max(1, round(rest * 1000))
        words = ("HSET", self.hash, "made", 1), expire_command(self.hash, life, MARGIN)
        yield from replies_to([commands(self.hash, *words)])

    def _learn(self) -> Flow[KnownGenerations]:
        """Learn the time and which generations there are; UnknownFilter if there is no filter."""
        return self._learned((yield from self._clock()))

    def _clock(self) -> Flow[list[Any]]:
        """Ask for Redis's time, and which generations the hash names."""
        return (yield from replies_to([commands(self.hash, ("TIME",), ("HKEYS", self.hash))]))[0]

    def _learned(self, replies: list[object]) -> KnownGenerations:
        known = KnownGenerations.from_replies(self.schedule, *replies)
        if known is None:
            raise self._gone()
        self.known = known
        return known

    def _make(self, number: int) -> Flow[None]:
        """Make a generation, unless another has."""
        name, times = self.name_of(number), (self.schedule.end(number), self.schedule.start(number))
        words = (name, self.hash, number, self.nbytes + 1, *times, number - self.count)
        if (yield from reply_to(name, "EVAL", MAKE_GENERATION, 2, *words)) == 0:
            raise self._gone()
        yield from self._learn()

    def contains(self, keys: Batch) -> Flow[Mask]:
        """Ask for keys; False is certain."""
        hashes, array = self.places.hashes(keys)
        return _native.mask((yield from self._maybe(hashes, add=False)), array)

    def add(self, keys: Batch) -> Flow[Mask]:
        """Add keys; True where one is definitely in no generation of the window."""
        hashes, array = self.places.hashes(keys)
        return _native.mask((yield from self._maybe(hashes, add=True)).translate(_NOT), array)

    def _maybe(self, hashes: bytes, *, add: bool) -> Flow[bytes]:
        maybe, step = b"", 8 * max(1, _SOME // (self.count + 1))
        for start in range(0, len(hashes), step):
            part = hashes[start : start + step]
            batch = _PendingBatch(part, bytes(len(part) // 8))
            yield from self._settled(batch, add=add)
            maybe += batch.maybe
        return maybe

    def _settled(self, batch: _PendingBatch, *, add: bool) -> Flow[None]:
        """Add or ask, again until it was done in the generation that Redis's time is in."""
        if self.known is None:
            yield from self._learn()
        for _ in range(_TRIES):
            known = self.known
            assert known is not None
            current = known.guess_current(self.schedule)
            if add and current not in known.made:
                yield from self._make(current)
                continue
            asked = known.live(self.schedule, current) - ({current} if add else set())
            latest = yield from self._trip(batch, asked, current if add else None)
            # One that was made meanwhile may hold a key that was there before we asked.
            missing = latest.live(self.schedule, latest.now) - batch.asked - batch.written
            if add and latest.now == current and current in batch.written:
                if missing:
                    batch.maybe = b"\1" * len(batch.maybe)
                return
            if not add and not missing:
                return
        raise StoreUnavailable(
            f"generations of filter {self.keys.name!r} pass faster, in {self.schedule.each:g} s "
            "each, than Redis answers: take a longer window, or fewer generations"
        )

    def _trip(
        self, batch: _PendingBatch, asked: set[int], add: int | None
    ) -> Flow[KnownGenerations]:
        """Make a round trip: ask in these generations, add to one; return which ones there are."""
        # Time comes first if we ask, so that what was added before is in a generation that is known
        # then; and last if we add: the key must not be in a generation that is over.
        clock = packed(("TIME",)) + packed(("HKEYS", self.hash))
        order = sorted(asked) if add is None else [*sorted(asked), add]
        sent = []
        for number in order:
            call = self.places.add if number == add else self.places.contains
            sent.append(call(batch.hashes, [self.name_of(number)]))
        body, counts = b"", []
        for number, request in zip(order, sent, strict=True):
            _, data, count = request.parts[0]
            # Its length comes first, and again: what goes away in between would be zeros.
            body += data + packed(("STRLEN", self.name_of(number)))
            counts.append(count + 1)
        data = clock + body if add is None else body + clock
        [replies] = yield from replies_to([Ask(self.hash, data, 2 + sum(counts))])
        split = 2 if add is None else len(replies) - 2
        first, last = replies[:split], replies[split:]
        clocked, answered = (first, last) if add is None else (last, first)
        known = self._learned(clocked)
        live = known.live(self.schedule, known.now)
        for number, request, count in zip(order, sent, counts, strict=True):
            [length, *own, after], answered = answered[:count], answered[count:]
            if not length == after == self.nbytes + 1:
                yield from self._missed(number)
                continue
            request.feed(0, [self.nbytes, *own])
            if number in live and number not in batch.written:
                batch.note(request.answers, new=number == add)
                batch.asked.add(number)
            if number == add:
                batch.written.add(number)
        return known

    def _missed(self, number: int) -> Flow[None]:
        """Raise UnknownFilter if a generation whose string is not whole has not just ended."""
        name = self.name_of(number)
        words = (name, self.hash, number, self.nbytes + 1, self.schedule.end(number))
        if (yield from reply_to(name, "EVAL", LOST_GENERATION, 2, *words)) == 1:
            raise self._gone()

    def _numbers(self) -> Flow[list[int]]:
        """Return the numbers of the generations that exist; none if there is no filter."""
        clock, fields = yield from self._clock()
        names = [b"made", *fields] if isinstance(fields, list) else fields
        known = KnownGenerations.from_replies(self.schedule, clock, names)
        return [] if known is None else sorted(known.made)

    def clear(self) -> Flow[None]:
        """Forget every key, in one step. Who adds meanwhile finds no generation, and makes one."""
        numbers = yield from self._numbers()
        names = [self.name_of(number) for number in numbers]
        words: tuple[bytes | int, ...] = (1 + len(names), self.hash, *names, *numbers)
        if (yield from reply_to(self.hash, "EVAL", CLEAR_GENERATIONS, *words)) != 1:
            raise self._gone()

    def delete(self) -> Flow[None]:
        """Take the filter away."""
        strings = [self.name_of(number) for number in (yield from self._numbers())]
        yield from reply_to(self.hash, "UNLINK", self.keys.config, self.hash, *strings)

    def expire(self, seconds: float | None) -> Flow[None]:
        """Let it end in so many seconds, or never. Generations end by themselves."""
        life = milliseconds(seconds, "seconds")
        config = self.keys.config
        words = expire_command(config, life), expire_command(self.hash, life, MARGIN)
        yield from replies_to([commands(config, *words)])

    def info(self) -> Flow[dict[str, Any]]:
        """What it was made for, and which generations there are."""
        ttl, known = (yield from self.ttl()), (yield from self._learn())
        live = known.live(self.schedule, known.now)
        return {
            "kind": "rotating",
            "capacity": self.config.capacity,
            "error_rate": self.error_rate,
            "window": self.config.window,
            "generations": self.count,
            "generation": known.now,
            "live_generations": len(live),
            "nbytes": self.nbytes * len(live),
            "ttl": ttl,
        }


def create_rotating(keys: Keys, config: Config, ttl: float | None) -> Flow[Generations]:
    """Create a rotating filter, or open it if an identical one is there."""
    stored = yield from create(keys, config, ttl)
    generations = Generations(keys, stored)
    if not stored.made:
        # From now on a hash that is not there was lost, and nobody makes another.
        yield from generations.prepare()
        settled = stored.settled().to_json()
        yield from reply_to(keys.config, "SET", keys.config, settled, "XX", "KEEPTTL")
    return generations


def open_rotating(keys: Keys) -> Flow[Generations]:
    """Open a rotating filter; UnknownFilter if there is none."""
    return Generations(keys, (yield from open_config(keys)))
