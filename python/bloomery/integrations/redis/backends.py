"""Which of two a filter in Redis is: strings of ours (`bits`), or a server's BF.* (`bf`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bloomery.errors import InvalidParameter, StoreRefused, UnknownFilter
from bloomery.filters.redisbloom import RedisBloomFilter
from bloomery.integrations.redis.bf import parse
from bloomery.integrations.redis.bf.copy import BfCopy, copy_bf, push_bf
from bloomery.integrations.redis.bf.create import create_bf, describe_bf, planned_bf
from bloomery.integrations.redis.bf.filter import BfFilter
from bloomery.integrations.redis.bits import strings
from bloomery.integrations.redis.bits.strings import Strings
from bloomery.integrations.redis.config import Config
from bloomery.integrations.redis.planning import planned
from bloomery.integrations.redis.transfer.pushing import LocalFilter, pushing
from bloomery.integrations.redis.transfer.reading import copying
from bloomery.integrations.redis.wire.failures import checked
from bloomery.integrations.redis.wire.flow import Ask, Flow, command, packed

if TYPE_CHECKING:
    from bloomery.filters import BloomFilter
    from bloomery.integrations.redis.naming import Keys
    from bloomery.integrations.redis.transfer.reading import Progress
    from bloomery.types import Hasher, Layout

__all__ = [
    "BackendChoice",
    "Plans",
    "copy_filter",
    "create_filter",
    "open_filter",
    "plan_backends",
    "push_filter",
]

BackendChoice = Literal["bits", "auto", "bf"]


class Plans(NamedTuple):
    """What a user asks for, as either."""

    bits: Config | None
    bf: Config | None


def plan_backends(
    capacity: int,
    error_rate: float,
    layout: Layout,
    hasher: Hasher,
    seed: int,
    shards: int | Literal["auto"],
    backend: BackendChoice,
) -> Plans:
    """Check what a user asks for. With a layout, hasher or seed of its own, `auto` is `bits`."""
    if backend not in ("bits", "auto", "bf"):
        raise InvalidParameter(f"backend is {backend!r}, must be 'bits', 'auto' or 'bf'")
    own = (layout, hasher, seed) != ("blocked", "xxh3", 0)
    if own and backend == "bf":
        raise InvalidParameter(
            "backend is 'bf', where the server has its own layout and hash function: leave layout, "
            "hasher and seed out, or take 'bits'"
        )
    bits = bf = None
    if backend != "bf":
        bits = planned(capacity, error_rate, layout, hasher, seed, shards)
    if backend != "bits" and not own:
        bf = planned_bf(capacity, error_rate, shards)
    return Plans(bits, bf)


def create_filter(keys: Keys, plans: Plans, ttl: float | None) -> Flow[Strings | BfFilter]:
    """Make a filter unless there is just such a one; FilterExists if there is another."""
    return _store(keys, (yield from _create(keys, plans, ttl)))


def _create(keys: Keys, plans: Plans, ttl: float | None) -> Flow[Config]:
    bits, bf = plans
    if bits is not None and bf is not None:
        bf = bf if (yield from _has_bf(keys)) else None
    if bf is not None:
        return (yield from create_bf(keys, bf, ttl))
    assert bits is not None
    return (yield from _with_strings(strings.create(keys, bits, ttl), "take backend='bf'"))


def _with_strings(flow: Flow[Config], instead: str) -> Flow[Config]:
    """What needs strings, where a server may have none."""
    try:
        return (yield from flow)
    except StoreRefused as problem:
        if parse.unknown(problem.__cause__):
            raise StoreRefused(
                f"this server has no strings to keep bits in: if it has BF.*, {instead}"
            ) from problem
        raise


def _has_bf(keys: Keys) -> Flow[bool]:
    """Is it to be BF.*? As the configuration says; without one, if the server has them.

    The command itself is tried: Kvrocks does not tell about one by COMMAND INFO as Redis does, and
    a user who may not call it is told so.
    """
    [bits] = keys.bits(1)
    tried = packed(("BF.EXISTS", bits, "a"))
    [[held], [reply]] = yield [command(keys.config, "GET", keys.config), Ask(bits, tried, 1)]
    if isinstance(held, bytes):
        return Config.from_json(keys.name, held).backend == "bf"
    if parse.unknown(held):
        return True  # no strings: if anything, it has BF.*
    checked([held])
    return not parse.unknown(reply) and not parse.says(reply, "permission")


def open_filter(keys: Keys) -> Flow[Strings | BfFilter]:
    """Find out what a filter is that is there; UnknownFilter if it is not."""
    try:
        return _store(keys, (yield from strings.open_config(keys)))
    except (UnknownFilter, StoreRefused) as problem:
        if isinstance(problem, StoreRefused) and not parse.unknown(problem.__cause__):
            raise
        first = problem
    # Without a configuration it may be one of BF.*, which tells what it is.
    try:
        return _store(keys, (yield from describe_bf(keys)))
    except UnknownFilter:
        if isinstance(first, UnknownFilter):
            raise first from None  # which may say more: it is still on its way
        raise


def push_filter(
    keys: Keys,
    local: BloomFilter | RedisBloomFilter | BfCopy,
    shards: int | Literal["auto"],
    ttl: float | None,
    progress: Progress | None,
) -> Flow[Strings | BfFilter]:
    """Make a filter of a local one: of bits, if that is of ours; else one of BF.*."""
    if isinstance(local, RedisBloomFilter | BfCopy):
        if shards not in ("auto", 1):
            raise InvalidParameter(
                f"shards is {shards!r}, must be 1: a {type(local).__name__} becomes one filter of "
                "BF.*"
            )
        return _store(keys, (yield from push_bf(keys, local, ttl, progress)))
    flow = pushing(keys, LocalFilter.of(local, "bloom"), shards, ttl, progress)
    return _store(keys, (yield from _with_strings(flow, "add the keys to a filter of it")))


def copy_filter(store: Strings | BfFilter, progress: Progress | None) -> Flow[Any]:
    """Copy it: a `BloomFilter`, or a `BfCopy` of one of BF.*."""
    if isinstance(store, BfFilter):
        return (yield from copy_bf(store, progress))
    return (yield from copying(store, progress))


def _store(keys: Keys, config: Config) -> Strings | BfFilter:
    """What does the work of a filter."""
    return BfFilter(keys, config) if config.backend == "bf" else Strings(keys, config)
