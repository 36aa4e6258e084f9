"""BF.*, about keys. Each handler's docstring is what it does; its grammar stands in the table. The
usual cases of ADD, MADD, EXISTS, MEXISTS and DEL never come here: native code answers them
(`_native.Session`)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from bloomery.errors import FilterExists
from bloomery.service.commands import NO_ROOM, until_refused
from bloomery.service.engine import Outcome
from bloomery.service.resp import limits
from bloomery.service.resp.arguments import decimal, integer, option, options
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.handlers import membership
from bloomery.service.resp.handlers.bf_reserve import default_settings, settings_of
from bloomery.service.resp.handlers.membership import (
    contains,
    contains_many,
    existing_filter,
    filter_at,
)
from bloomery.service.resp.replies import ArrayReply, Failure, Raw, refusal
from bloomery.service.resp.scaling import REDISBLOOM_TIGHTENING, check_scale, memory_limit
from bloomery.service.resp.table import command, wrong_arity
from bloomery.service.slices import batches


def _replies(outcome: Outcome) -> list[Any]:
    """Return the replies to keys that were added; the one that was refused is the last."""
    done, refused = outcome
    no_room = refusal("bf", ("not-enough-memory", ""))
    replies: list[Any] = [no_room if answer == NO_ROOM else answer == 1 for answer in done]
    return replies if refused is None else [*replies, refusal("bf", refused)]


@command("BF.ADD", "key item", write=True, does="add")
async def add(client: ClientState, words: list[bytes]) -> Any:
    """Add a key: 1 if it is definitely new, 0 if it may have been there."""
    (answer,) = await _write_few(client, words)
    if isinstance(answer, Failure):
        raise answer
    return answer


@command("BF.MADD", "key item [item ...]", write=True, does="add")
async def madd(client: ClientState, words: list[bytes]) -> Any:
    """Add keys: for each, 1 if it is definitely new, 0 if it may have been there."""
    if client.slices(words):
        return await _write_many(client, words)
    return await _write_few(client, words)


async def _write_few(
    client: ClientState, words: list[bytes], settings: Mapping[str, Any] | None = None
) -> list[Any]:
    name, *keys = words
    return _replies(await _add(client, settings, name, keys))


async def _add(
    client: ClientState, settings: Mapping[str, Any] | None, name: bytes, keys: Any
) -> Outcome:
    chosen = default_settings(client) if settings is None else settings
    return until_refused(await membership.add(client, name, "bf", keys, chosen))


async def _write_many(
    client: ClientState, words: list[bytes], settings: Mapping[str, Any] | None = None
) -> Raw:
    name, *keys = words
    write = partial(_add, client, settings)
    done, refused = await client.context.commands.change(write, name, keys)
    replies = ArrayReply(client.protocol)
    async for part in batches(done):
        replies.extend(_replies((bytes(part), None)))
    if refused is not None:
        replies.extend([refusal("bf", refused)])
    return replies.encoded()


_VALUED = ("CAPACITY", "ERROR", "EXPANSION", "TIGHTENING", "SEED", "VALIDATESCALETO")
_FLAGS = ("NOCREATE", "NONSCALING")
_SEED_BYTES = 32


@command(
    "BF.INSERT",
    "key [CAPACITY n] [ERROR rate] [EXPANSION n] [NOCREATE] [NONSCALING] [TIGHTENING ratio] "
    "[SEED seed] [VALIDATESCALETO n] [ITEMS item [item ...]]",
    write=True,
    does="add",
)
async def insert(client: ClientState, words: list[bytes]) -> Any:
    """Add keys, and create the filter with these settings if it does not exist; without ITEMS only
    that."""
    name = words[0]
    given, keys = options(words[1:], _VALUED, _FLAGS, last="ITEMS")
    if None in [given[word] for word in _VALUED if word in given]:
        raise wrong_arity("BF.INSERT")
    if not keys and option(words[-1]) == "ITEMS":
        raise wrong_arity("BF.INSERT")
    chosen = _insert_settings(client, given)
    if "NOCREATE" in given:
        existing_filter(client, name, "bf")
    if not keys:
        return await _create(client, name, chosen)
    write = _write_many if client.slices(keys) else _write_few
    return await write(client, [name, *keys], chosen)


async def _create(client: ClientState, name: bytes, chosen: Mapping[str, Any]) -> list[Any]:
    """Create the filter unless it exists; there are no keys to reply to."""
    commands = client.context.commands
    if filter_at(client, name, "bf") is None:
        await commands.discover(name)  # another node can have created it
    if filter_at(client, name, "bf") is None:
        with suppress(FilterExists):  # another client was faster
            await commands.create(name, **chosen)
    return []


def _insert_settings(client: ClientState, given: Mapping[str, bytes | None]) -> dict[str, Any]:
    """Return the settings of the filter that BF.INSERT creates, from its options."""
    settings = client.context.settings
    rate, capacity = settings.bf_error_rate, settings.bf_initial_size
    expansion, more = settings.bf_expansion_factor, dict[str, Any]()
    if (value := given.get("CAPACITY")) is not None:
        number = integer(value)
        if number is None or not 1 <= number <= limits.MAX_CAPACITY:
            raise Failure("Bad capacity")
        capacity = number
    if (value := given.get("ERROR")) is not None:
        error_rate = decimal(value)
        if error_rate is None or not 0 < error_rate < 1:
            raise Failure("Bad error rate")
        rate = error_rate
    if (value := given.get("EXPANSION")) is not None:
        number = integer(value)
        if number is None or not 0 <= number <= limits.MAX_EXPANSION:
            raise Failure("Bad expansion")
        expansion = number
    if (value := given.get("TIGHTENING")) is not None:
        more["tightening"] = _tightening(value)
    if (value := given.get("SEED")) is not None:
        more["seed"] = _seed(value)
    nonscaling = "NONSCALING" in given
    chosen = settings_of(client, rate, capacity, expansion, nonscaling=nonscaling, **more)
    tightening = more.get("tightening", REDISBLOOM_TIGHTENING)
    if chosen["kind"] == "redisbloom" and tightening != REDISBLOOM_TIGHTENING:
        raise Failure(
            f"ERR TIGHTENING is {tightening:g}, must be {REDISBLOOM_TIGHTENING:g} in RedisBloom's "
            "layout"
        )
    if (value := given.get("VALIDATESCALETO")) is not None:
        number = integer(value)
        if number is None or number < 1:
            raise Failure("ERR bad capacity")
        if nonscaling or not expansion:
            raise Failure("ERR cannot use NONSCALING and VALIDATESCALETO options together")
        growth = (capacity, chosen["error_rate"], expansion)
        check_scale(number, chosen["kind"], *growth, memory_limit(settings))
    return chosen


def _tightening(word: bytes) -> float:
    """Read a ratio. A filter that grows in one table needs none: its error rate holds at any size.
    BF.INFO shows what was given."""
    ratio = decimal(word)
    if ratio is None:
        raise Failure("ERR bad tightening ratio")
    if not 0 < ratio < 1:
        raise Failure("ERR (0 < tightening ratio range < 1)")
    return ratio


def _seed(word: bytes) -> int:
    """Return the seed of bloomery's hash for one of valkey-bloom, which has 32 bytes."""
    if len(word) != _SEED_BYTES:
        raise Failure("ERR invalid seed")
    return int.from_bytes(hashlib.sha256(word).digest()[:8], "little")


@command("BF.EXISTS", "key item", does="contains")
async def exists(client: ClientState, words: list[bytes]) -> bool:
    """Tell whether a key may have been added: 0 is certain."""
    return contains(client, words, "bf")[0]


@command("BF.MEXISTS", "key item [item ...]", does="contains")
async def mexists(client: ClientState, words: list[bytes]) -> Any:
    """Tell of each key whether it may have been added: 0 is certain."""
    return await contains_many(client, words, "bf")


@command("BF.DEL", "key item", write=True, does="remove")
async def delete(client: ClientState, words: list[bytes]) -> bool:
    """Take one copy of a key out, of a counting, deletable or cuckoo filter: 1 if there was one."""
    name, key = words
    existing_filter(client, name, "bf")
    done, refused = await client.context.commands.remove(name, [key])
    if refused is not None:
        raise refusal("bf", refused)
    return bool(done[0])
