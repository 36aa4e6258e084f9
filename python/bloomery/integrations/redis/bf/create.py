"""Filters of BF.*: planned, created, and asked what they are.

The configuration is beside the filter, as for bits. `bloomery serve` keeps filters and no strings:
there the filter itself is asked what it was made for.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bloomery import _native
from bloomery.errors import (
    CorruptData,
    FilterExists,
    IncompatibleFilters,
    InvalidParameter,
    UnknownFilter,
)
from bloomery.integrations.redis.bf import parse
from bloomery.integrations.redis.bf.filter import reserve, share
from bloomery.integrations.redis.bits.strings import proposal
from bloomery.integrations.redis.config import Config, planned
from bloomery.integrations.redis.store import expire_command, milliseconds
from bloomery.integrations.redis.wire.failures import checked
from bloomery.integrations.redis.wire.flow import Ask, Flow, command, commands, packed, reply_to

if TYPE_CHECKING:
    from bloomery.integrations.redis.naming import Keys

_MOST_SHARDS = 16_384
_KINDS = ("bloom", "scalable")  # of `bloomery serve`, whose keys stay


def planned_bf(capacity: int, error_rate: float | str, shards: object) -> Config:
    """Return the configuration of a filter of this size: one shard, unless `shards` says more."""
    count = 1 if shards == "auto" else shards
    if type(count) is not int or not 1 <= count <= min(capacity, _MOST_SHARDS):
        raise InvalidParameter(
            f"shards is {shards!r}, must be 'auto' or in the range "
            f"[1, {min(capacity, _MOST_SHARDS)}] for {capacity} keys"
        )
    config = planned(capacity, error_rate, "blocked", "xxh3", 0, "auto")
    return replace(config, shards=count, backend="bf")


def create_bf(keys: Keys, wanted: Config, ttl: float | None) -> Flow[Config]:
    """Make a filter, or leave an identical one as it is; FilterExists if there is another."""
    life = milliseconds(ttl)
    [[written, stored, remaining]] = yield [proposal(keys, wanted, life)]
    if parse.unknown(stored):
        return (yield from _create_alone(keys, wanted, life))
    config = Config.from_json(keys.name, checked([written, stored, remaining])[1])
    config.require_same(keys.name, wanted)
    if config.made:
        return config
    try:
        # As long as the configuration: its creator may have died, and have wanted another end.
        ends = isinstance(remaining, int) and remaining >= 0
        yield from _reserve(keys, wanted, remaining if ends else None)
    except (FilterExists, InvalidParameter):
        # So it is for everybody, and nothing was made that the configuration could be of.
        if written is not None:
            yield [command(keys.config, "UNLINK", keys.config)]
        raise
    config = config.settled()
    yield from reply_to(keys.config, "SET", keys.config, config.to_json(), "XX", "KEEPTTL")
    return config


def _reserve(keys: Keys, wanted: Config, life: int | None) -> Flow[None]:
    """Make the shards; FilterExists if what is there was made for fewer keys."""
    size, rate = _size(wanted)
    asks = []
    for name in keys.bits(wanted.shards):
        # What remains of one that expires at this moment stays, with its keys.
        about = ("BF.INFO", name, "CAPACITY")
        asks.append(commands(name, reserve(name, size, rate), about, expire_command(name, life)))
    for name, (reply, capacity, expired) in zip(
        keys.bits(wanted.shards), (yield asks), strict=True
    ):
        _check_reserved(keys, reply)
        checked([expired])
        if parse.capacity(keys.name, capacity) < size:
            raise FilterExists(
                f"another filter is at {name.decode()!r}, made for fewer keys: delete it, or take "
                "another name"
            )


def _create_alone(keys: Keys, wanted: Config, life: int | None) -> Flow[Config]:
    """Make a filter on a server that keeps no strings, so no configuration either."""
    if wanted.shards > 1:
        raise InvalidParameter(
            f"shards is {wanted.shards}, must be 1: this server keeps no strings, so that nobody "
            "who opens the filter could know of them"
        )
    [name] = keys.bits(1)
    [[reply]] = yield [command(name, *reserve(name, *_size(wanted)))]
    _check_reserved(keys, reply)
    if isinstance(reply, Exception):
        config = yield from describe_bf(keys)
        _require_same(keys.name, config, wanted)
        return config
    if life is not None:
        yield from reply_to(name, *expire_command(name, life))
    return wanted.settled()


def _check_reserved(keys: Keys, reply: Any) -> None:
    """Raise unless the reply to BF.RESERVE says that the filter exists now, whoever made it."""
    if parse.unknown(reply):
        raise InvalidParameter(
            "backend is 'bf', and this server has no BF.* commands: take 'bits' or 'auto'"
        ) from reply
    if any(parse.says(reply, words) for words in ("capacity", "error rate")):
        raise InvalidParameter(f"the server does not make such a filter: {reply}") from reply
    if isinstance(reply, Exception) and not parse.says(reply, "item exists"):
        raise parse.failure(keys.name, reply) from reply


def _size(config: Config) -> tuple[int, float]:
    capacity, rate = _native.parse_header(config.header, None)[:2]
    return share(capacity, config.shards), rate


def _require_same(name: str, config: Config, wanted: Config) -> None:
    (capacity, rate), (wanted_capacity, wanted_rate) = _size(config), _size(wanted)
    differences = []
    if capacity != wanted_capacity:
        differences.append(f"capacity {capacity:,} and not {wanted_capacity:,}")
    # RedisBloom shows six digits of a rate, and makes one above 0.25 that.
    if not math.isclose(rate, min(wanted_rate, 0.25), rel_tol=1e-5):
        differences.append(f"error_rate {rate:g} and not {wanted_rate:g}")
    if differences:
        raise FilterExists(
            f"filter {name!r} is there, with {', '.join(differences)}: open it as it is, or take "
            "another name"
        )


def describe_bf(keys: Keys) -> Flow[Config]:
    """Ask a filter without configuration what it is; UnknownFilter if there is none."""
    [name] = keys.bits(1)
    asked = packed(("BF.INFO", name)) + packed(("BF.DEBUG", name))
    [[about, lines]] = yield [Ask(name, asked, 2)]
    missing = UnknownFilter(f"there is no filter {keys.name!r} in this Redis")
    if parse.unknown(about) or parse.unknown(lines):
        raise missing
    if parse.says(about, "not found"):
        raise missing
    grows = parse.info(keys.name, about).get("Expansion rate") is not None
    fields: dict[str, str] = {}
    for line in checked([lines])[0] if isinstance(lines, list) else []:
        text = line.decode("latin-1") if isinstance(line, bytes) else ""
        # A layer of RedisBloom's is one line; else a line is a field, and a name may have blanks.
        for field in text.split() if text.startswith("bytes:") else [text]:
            fields.setdefault(*field.partition(":")[::2])
    if fields.get("kind", "bloom") not in _KINDS:
        raise IncompatibleFilters(
            f"filter {keys.name!r} is a {fields['kind']} filter, which RedisFilter is not: use the "
            "server's own commands"
        )
    try:
        # RedisBloom gives the first layer of a filter that grows half of the rate.
        rate = fields.get("error_rate") or float(fields["ratio"]) * (2 if grows else 1)
        config = planned_bf(int(fields["capacity"]), float(rate), 1)
    except (KeyError, ValueError, OverflowError):
        raise CorruptData(
            f"filter {keys.name!r} does not tell what it was made for: {lines!r:.80}"
        ) from None
    return config.settled()
