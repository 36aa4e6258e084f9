"""The two backends of a filter in Redis: strings of bits (`bits`), or a server's BF.* (`bf`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bloomery.errors import InvalidParameter, StoreRefused, UnknownFilter
from bloomery.filters.redisbloom import RedisBloomFilter
from bloomery.integrations.redis.bf import parse
from bloomery.integrations.redis.bf.copy import BfCopy, copy_bf, push_bf
from bloomery.integrations.redis.bf.create import create_bf, describe_bf, planned_bf
from bloomery.integrations.redis.bf.filter import BfFilter
from bloomery.integrations.redis.bits import strings
from bloomery.integrations.redis.bits.strings import BitStrings
from bloomery.integrations.redis.config import Config, planned
from bloomery.integrations.redis.transfer.pushing import LocalFilter, pushing
from bloomery.integrations.redis.transfer.reading import copying
from bloomery.integrations.redis.wire.failures import checked
from bloomery.integrations.redis.wire.flow import Ask, Flow, command, packed

if TYPE_CHECKING:
    from bloomery.filters import BloomFilter
    from bloomery.integrations.redis.naming import Keys
    from bloomery.integrations.redis.transfer.reading import Progress
    from bloomery.types import Hasher, Layout

BackendChoice = Literal["bits", "auto", "bf"]


class Plans(NamedTuple):
    """The configuration that a user asks for, for each backend that it can have."""

    bits: Config | None
    bf: Config | None


def plan_backends(
    capacity: int,
    error_rate: float | str,
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


def create_filter(keys: Keys, plans: Plans, ttl: float | None) -> Flow[BitStrings | BfFilter]:
    """Make a filter, or leave an identical one as it is; FilterExists if there is another."""
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
    """Run a flow that needs strings; StoreRefused with a hint if the server keeps none."""
    try:
        return (yield from flow)
    except StoreRefused as problem:
        if parse.unknown(problem.__cause__):
            raise StoreRefused(
                f"this server has no strings to keep bits in: if it has BF.*, {instead}"
            ) from problem
        raise


def _has_bf(keys: Keys) -> Flow[bool]:
    """Whether it is to be BF.*: as the configuration says; without one, if the server has them.

    The command itself is tried: Kvrocks does not tell about one by COMMAND INFO as Redis does, and
    a user who may not call it is told so.
    """
    [bits] = keys.bits(1)
    probe = packed(("BF.EXISTS", bits, "a"))
    [[stored], [reply]] = yield [command(keys.config, "GET", keys.config), Ask(bits, probe, 1)]
    if isinstance(stored, bytes):
        return Config.from_json(keys.name, stored).backend == "bf"
    if parse.unknown(stored):
        return True  # no strings: if anything, it has BF.*
    checked([stored])
    return not parse.unknown(reply) and not parse.says(reply, "permission")


def open_filter(keys: Keys) -> Flow[BitStrings | BfFilter]:
    """Open a filter of either backend; UnknownFilter if there is none."""
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
) -> Flow[BitStrings | BfFilter]:
    """Make a filter from a local one: of bits, or of BF.* if the local one is RedisBloom's."""
    if isinstance(local, RedisBloomFilter | BfCopy):
        if shards not in ("auto", 1):
            raise InvalidParameter(
                f"shards is {shards!r}, must be 1: a {type(local).__name__} becomes one filter of "
                "BF.*"
            )
        return _store(keys, (yield from push_bf(keys, local, ttl, progress)))
    flow = pushing(keys, LocalFilter.of(local, "bloom"), shards, ttl, progress)
    return _store(keys, (yield from _with_strings(flow, "add the keys to a filter of it")))


def copy_filter(store: BitStrings | BfFilter, progress: Progress | None) -> Flow[Any]:
    """Copy it: a `BloomFilter`, or a `BfCopy` of one of BF.*."""
    if isinstance(store, BfFilter):
        return (yield from copy_bf(store, progress))
    return (yield from copying(store, progress))


def _store(keys: Keys, config: Config) -> BitStrings | BfFilter:
    """Return the store of a filter."""
    return BfFilter(keys, config) if config.backend == "bf" else BitStrings(keys, config)
