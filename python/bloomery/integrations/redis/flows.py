"""What every filter in Redis does, whatever its kind: making, opening, adding, asking, ending."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bloomery import _native
from bloomery.errors import UnknownFilter
from bloomery.integrations.redis.config import Config
from bloomery.integrations.redis.failures import checked
from bloomery.integrations.redis.naming import Keys
from bloomery.integrations.redis.trips import Ask, Flow, command, commands

if TYPE_CHECKING:
    from bloomery.types import Batch, Mask

__all__ = ["Strings", "create", "opened"]

_SOME = 10_000  # keys a round trip: Redis does nothing else while it answers one
# A string that adding has made where none was: unless it has become whole, it goes again.
_STRAY = (
    "if redis.call('STRLEN', KEYS[1]) < tonumber(ARGV[1]) then redis.call('UNLINK', KEYS[1]) end"
)


def create(keys: Keys, wanted: Config, ttl: float | None) -> Flow[Config]:
    """Make a filter unless there is just such a one; FilterExists if there is another.

    Whoever comes first writes the configuration, and others compare. Strings are made as long as
    they will be: a Redis that is full says so now, and one that is shorter later is known to have
    lost something.
    """
    life: list[str | int] = [] if ttl is None else ["PX", max(1, round(ttl * 1000))]
    first = commands(
        keys.config,
        ("SET", keys.config, wanted.to_json(), "NX", *life),
        ("GET", keys.config),
    )
    [[_, held]] = [checked(some) for some in (yield [first])]
    found = Config.from_json(keys.name, held)
    found.require_same(keys.name, wanted)
    found.require_loaded(keys.name)
    if found.made or found.backend != "bits" or found.kind == "rotating":
        return found
    places = places_of(found)
    made = []
    for shard, name in enumerate(keys.bits(found.shards)):
        last = places.shard_bytes(shard) - 1
        # Adding nothing to the last byte writes it, and changes no bit.
        words: list[tuple[bytes | str | int, ...]] = [
            ("BITFIELD", name, "OVERFLOW", "SAT", "INCRBY", "u8", last * 8, 0)
        ]
        if ttl is not None:
            words.append(("PEXPIRE", name, life[1]))
        made.append(commands(name, *words))
    for some in (yield made):
        checked(some)
    found = found.settled()
    [some] = yield [command(keys.config, "SET", keys.config, found.to_json(), "XX", "KEEPTTL")]
    checked(some)
    return found


def opened(keys: Keys) -> Flow[Config]:
    """Read the configuration of a filter that is there; UnknownFilter if it is not."""
    [some] = yield [command(keys.config, "GET", keys.config)]
    [held] = checked(some)
    if held is None:
        raise UnknownFilter(f"there is no filter {keys.name!r} in this Redis")
    found = Config.from_json(keys.name, held)
    found.require_loaded(keys.name)
    return found


def places_of(config: Config) -> _native.Places:
    """Where the keys of such a filter lie."""
    _, nbytes, _ = _native.read_header(config.header, None)
    lines = -(-nbytes // 64)
    return _native.Places(config.header, -(-lines // config.shards) * 64)


def whole(places: _native.Places, shard: int) -> int:
    """How long a shard's string is."""
    return places.shard_bytes(shard)


class Strings:
    """The strings of a filter, one a shard."""

    kind = "bloom"

    def __init__(self, keys: Keys, config: Config) -> None:
        self.keys = keys
        self.config = config
        config.require_kind(keys.name, self.kind)
        self.places = places_of(config)
        self.names = keys.bits(self.places.shards)
        self.sizes = [self.places.shard_bytes(shard) for shard in range(self.places.shards)]
        self.lengths = [whole(self.places, shard) for shard in range(self.places.shards)]
        self.again = config.kind != "counting"  # a counter that is raised twice counts twice

    def span(self, chunk: tuple[int, int, int]) -> tuple[int, int]:
        """Where a part of a shard's string begins in the whole, and how many bytes it has."""
        shard, start, count = chunk
        return sum(self.sizes[:shard]) + start, count

    def chunks(self, start: int, count: int) -> list[tuple[int, int, int]]:
        """The parts of strings that so many bytes of the whole lie in."""
        found, before = [], 0
        for shard, size in enumerate(self.sizes):
            first, last = max(start, before), min(start + count, before + size)
            if first < last:
                found.append((shard, first - before, last - first))
            before += size
        return found

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

    def add_hashes(self, hashes: bytes) -> Flow[bytes]:
        """Add keys by their hashes; 1 for each that is definitely new."""
        answers = []
        for some in _parts(hashes):
            sent = self.places.add(some, self.names)
            answers.append((yield from self._exchange(sent, write=True)))
        return b"".join(answers)

    def contains_hashes(self, hashes: bytes) -> Flow[bytes]:
        """Ask for keys by their hashes; 0 for each that is definitely not there."""
        answers = []
        for some in _parts(hashes):
            sent = self.places.contains(some, self.names)
            answers.append((yield from self._exchange(sent, write=False)))
        return b"".join(answers)

    def _exchange(self, sent: _native.Commands, *, write: bool) -> Flow[bytes]:
        parts = sent.parts
        again = self.again or not write
        asks = [Ask(self.names[shard], data, count, again) for shard, data, count in parts]
        for (shard, _, _), replies in zip(parts, (yield asks), strict=True):
            checked(replies)
            if sent.feed(shard, replies) != self.places.shard_bytes(shard):
                yield from self._lost(shard)
        return sent.answers

    def _lost(self, shard: int) -> Flow[None]:
        name, whole = self.names[shard], self.places.shard_bytes(shard)
        yield [command(name, "EVAL", _STRAY, 1, name, whole)]
        raise UnknownFilter(
            f"filter {self.keys.name!r} is no longer whole in this Redis: it was deleted, has "
            "expired or was evicted; create it again, and add its keys"
        )

    def delete(self) -> Flow[None]:
        """Take the filter away."""
        names = [self.keys.config, *self.names]
        for some in (yield [command(name, "UNLINK", name) for name in names]):
            checked(some)

    def expire(self, seconds: float | None) -> Flow[None]:
        """Let it end in so many seconds, or never."""
        asks = []
        for name in [self.keys.config, *self.names]:
            if seconds is None:
                asks.append(command(name, "PERSIST", name))
            else:
                asks.append(command(name, "PEXPIRE", name, max(1, round(seconds * 1000))))
        for some in (yield asks):
            checked(some)


def _parts(hashes: bytes) -> Iterator[bytes]:
    size = 8 * _SOME
    return (hashes[start : start + size] for start in range(0, len(hashes), size))
