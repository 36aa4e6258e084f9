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

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bloomery import _native
from bloomery.errors import CorruptData, StoreUnavailable, UnknownFilter
from bloomery.integrations.redis.bits.rotation_clock import KnownGenerations, RotationSchedule
from bloomery.integrations.redis.bits.scripts import (
    CLEAR_GENERATIONS,
    LOST_GENERATION,
    MAKE_GENERATION,
    MARGIN,
)
from bloomery.integrations.redis.expiry import expire_command, milliseconds, time_left
from bloomery.integrations.redis.wire.failures import checked
from bloomery.integrations.redis.wire.flow import Ask, Flow, command, commands, packed

if TYPE_CHECKING:
    from bloomery.integrations.redis.config import Config
    from bloomery.integrations.redis.naming import Keys
    from bloomery.types import Batch, Key, Mask

__all__ = ["Generations"]

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


class Generations:
    """The strings of a rotating filter."""

    def __init__(self, keys: Keys, config: Config) -> None:
        config.require_kind(keys.name, "rotating")
        if not config.window or not config.generations:
            raise CorruptData(f"the configuration of filter {keys.name!r} in Redis has no window")
        self.keys, self.config = keys, config
        _, self.nbytes, _ = _native.read_header(config.header, None)
        self.places = _native.Places(config.header, self.nbytes)
        self.count = config.generations
        self.error_rate = _native.parse_header(config.header, None)[1] * (self.count + 1)
        self.schedule = RotationSchedule(config.window / config.generations, config.generations)
        self.hash = keys.other("generations")
        self.known: KnownGenerations | None = None

    def name_of(self, number: int) -> bytes:
        """The string of a generation."""
        return self.keys.other(f"bits:{number}")

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
        checked((yield [commands(self.hash, *words)])[0])

    def _learn(self) -> Flow[KnownGenerations]:
        """Learn the time and which generations there are; UnknownFilter if there is no filter."""
        [replies] = yield [commands(self.hash, ("TIME",), ("HKEYS", self.hash))]
        return self._learned(checked(replies))

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
        [replies] = yield [command(name, "EVAL", MAKE_GENERATION, 2, *words)]
        if checked(replies) == [0]:
            raise self._gone()
        yield from self._learn()

    def single_ask(self, key: Key, *, write: bool) -> None:
        """None: a single key may take more than one round trip."""

    def single_answer(self, sent: Any, replies: list[Any]) -> None:
        """None, since there is no such ask."""

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
        [replies] = yield [Ask(self.hash, data, 2 + sum(counts))]
        checked(replies)
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
        [replies] = yield [command(name, "EVAL", LOST_GENERATION, 2, *words)]
        if checked(replies) == [1]:
            raise self._gone()

    def _numbers(self) -> Flow[list[int]]:
        """Return the numbers of the generations that exist; none if there is no filter."""
        [replies] = yield [commands(self.hash, ("TIME",), ("HKEYS", self.hash))]
        clock, fields = checked(replies)
        names = [b"made", *fields] if isinstance(fields, list) else fields
        known = KnownGenerations.from_replies(self.schedule, clock, names)
        return [] if known is None else sorted(known.made)

    def clear(self) -> Flow[None]:
        """Forget every key, in one step. Who adds meanwhile finds no generation, and makes one."""
        numbers = yield from self._numbers()
        names = [self.name_of(number) for number in numbers]
        words: tuple[bytes | int, ...] = (1 + len(names), self.hash, *names, *numbers)
        [replies] = yield [command(self.hash, "EVAL", CLEAR_GENERATIONS, *words)]
        if checked(replies) != [1]:
            raise self._gone()

    def delete(self) -> Flow[None]:
        """Take the filter away."""
        strings = [self.name_of(number) for number in (yield from self._numbers())]
        [replies] = yield [command(self.hash, "UNLINK", self.keys.config, self.hash, *strings)]
        checked(replies)

    def expire(self, seconds: float | None) -> Flow[None]:
        """Let it end in so many seconds, or never. Generations end by themselves."""
        life = milliseconds(seconds, "seconds")
        config = self.keys.config
        words = expire_command(config, life), expire_command(self.hash, life, MARGIN)
        checked((yield [commands(config, *words)])[0])

    def ttl(self) -> Flow[float | None]:
        """Seconds that are left, or None; UnknownFilter if it is gone."""
        return time_left(self.keys)

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
