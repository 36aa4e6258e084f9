"""Which of two a filter in Redis is: strings of ours (`bits`), or a server's BF.* (`bf`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from bloomery.errors import InvalidParameter, StoreRefused, UnknownFilter
from bloomery.integrations.redis import bf_making, bf_replies, flows
from bloomery.integrations.redis.bf import BfFilter
from bloomery.integrations.redis.config import Config
from bloomery.integrations.redis.failures import checked
from bloomery.integrations.redis.flows import Strings
from bloomery.integrations.redis.planning import planned
from bloomery.integrations.redis.trips import Ask, Flow, command, packed

if TYPE_CHECKING:
    from bloomery.integrations.redis.naming import Keys
    from bloomery.types import Hasher, Layout

__all__ = ["BackendChoice", "Wish", "create", "opened", "store_of", "wished"]

BackendChoice = Literal["bits", "auto", "bf"]


class Wish(NamedTuple):
    """What a user asks for, as either."""

    bits: Config | None
    bf: Config | None


def wished(
    capacity: int,
    error_rate: float,
    layout: Layout,
    hasher: Hasher,
    seed: int,
    shards: int | Literal["auto"],
    backend: BackendChoice,
) -> Wish:
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
        bf = bf_making.planned_bf(capacity, error_rate, shards)
    return Wish(bits, bf)


def create(keys: Keys, wish: Wish, ttl: float | None) -> Flow[Config]:
    """Make a filter unless there is just such a one; FilterExists if there is another."""
    bits, bf = wish
    if bits is not None and bf is not None:
        bf = bf if (yield from _has_bf(keys)) else None
    if bf is not None:
        return (yield from bf_making.create(keys, bf, ttl))
    assert bits is not None
    try:
        return (yield from flows.create(keys, bits, ttl))
    except StoreRefused as problem:
        if bf_replies.unknown(problem.__cause__):
            raise StoreRefused(
                "this server has no strings to keep bits in: if it has BF.*, take backend='bf'"
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
    if bf_replies.unknown(held):
        return True  # no strings: if anything, it has BF.*
    checked([held])
    return not bf_replies.unknown(reply) and not bf_replies.says(reply, "permission")


def opened(keys: Keys) -> Flow[Config]:
    """Find out what a filter is that is there; UnknownFilter if it is not."""
    try:
        return (yield from flows.opened(keys))
    except (UnknownFilter, StoreRefused) as problem:
        if isinstance(problem, StoreRefused) and not bf_replies.unknown(problem.__cause__):
            raise
    # Without a configuration it may be one of BF.*, which tells what it is.
    return (yield from bf_making.described(keys))


def store_of(keys: Keys, config: Config) -> Strings | BfFilter:
    """What does the work of a filter."""
    return BfFilter(keys, config) if config.backend == "bf" else Strings(keys, config)
