"""BF.INFO and the other BF.* about a whole filter: its bytes, and what is done to all of it."""

from __future__ import annotations

import asyncio
from typing import Any

from bloomery import errors
from bloomery.service.domain.entry import Entry
from bloomery.service.domain.operations import LARGE
from bloomery.service.resp import authorize, limits
from bloomery.service.resp.arguments import integer, option, options
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.handlers.bf_reserve import POLICY, policy_value
from bloomery.service.resp.handlers.membership import existing_filter, filter_at
from bloomery.service.resp.replies import NOT_FOUND, OK, Failure
from bloomery.service.resp.scaling import REDISBLOOM_TIGHTENING, max_scaled_capacity, memory_limit
from bloomery.service.resp.table import command, wrong_arity
from bloomery.storage import files


@command("BF.CARD", "key", does="info")
async def card(client: ClientState, words: list[bytes]) -> int:
    """Tell how many distinct keys were added, as far as the filter could tell them apart."""
    entry = filter_at(client, words[0], "bf")
    return 0 if entry is None else entry.items


def facts_of(entry: Entry) -> dict[str, Any]:
    """The five figures of BF.INFO."""
    settings = entry.settings
    if entry.filter is not None and entry.filter.kind == "redisbloom":
        chain = entry.filter
        capacity = sum(int(layer["capacity"]) for layer in chain.layers())
        size, number, expansion = chain.redis_size, chain.num_layers, chain.expansion
    else:
        capacity = settings.get("capacity", getattr(entry.filter, "capacity", 0))
        fixed = entry.filter is not None and entry.filter.kind == "bloom"
        capacity = capacity if fixed else max(capacity, entry.items)
        size = 0 if entry.filter is None else entry.filter.nbytes
        number = settings.get("generations", 1)
        expansion = None if fixed else settings.get("expansion", 2)
    return {
        "Capacity": capacity,
        "Size": size,
        "Number of filters": number,
        "Number of items inserted": entry.items,
        "Expansion rate": expansion,
    }


_FIELDS = {
    "CAPACITY": "Capacity",
    "SIZE": "Size",
    "FILTERS": "Number of filters",
    "ITEMS": "Number of items inserted",
    "EXPANSION": "Expansion rate",
}


def _scaling_facts(client: ClientState, entry: Entry, capacity: int) -> dict[str, Any]:
    """The fields that valkey-bloom has in addition: of all filters, and of those that grow."""
    redisbloom = entry.filter is not None and entry.filter.kind == "redisbloom"
    rate: Any
    if redisbloom:
        first = entry.filter.layers()[0]
        rate, capacity = entry.settings.get("error_rate"), int(first["capacity"])
        expansion = entry.filter.expansion
        grows = expansion is not None
        if rate is None:  # it was loaded
            rate = first["error_rate"] / (REDISBLOOM_TIGHTENING if grows else 1)
    else:
        kind = entry.settings.get("kind") if entry.filter is None else entry.filter.kind
        grows, expansion = kind == "scalable", entry.settings.get("expansion", 2)
        rate = getattr(entry.filter, "error_rate", entry.settings.get("error_rate"))
    facts: dict[str, Any] = {"ERROR": repr(rate).encode()}
    if grows:
        limit = memory_limit(client.context.settings)
        kind_of = "redisbloom" if redisbloom else None
        ratio = entry.settings.get("tightening", REDISBLOOM_TIGHTENING)
        facts["TIGHTENING"] = repr(ratio).encode()
        facts["MAXSCALEDCAPACITY"] = max_scaled_capacity(
            kind_of, capacity, rate, expansion or 1, limit
        )
    return facts


_SCALING_FIELDS = {
    "ERROR": "Error rate",
    "TIGHTENING": "Tightening ratio",
    "MAXSCALEDCAPACITY": "Max scaled capacity",
}


@command(
    "BF.INFO",
    "key [CAPACITY|SIZE|FILTERS|ITEMS|EXPANSION|ERROR|TIGHTENING|MAXSCALEDCAPACITY]",
    does="info",
)
async def info(client: ClientState, words: list[bytes]) -> Any:
    """Tell what a filter was made for and what it holds."""
    entry = existing_filter(client, words[0], "bf")
    facts = facts_of(entry)
    if len(words) == 1:
        return facts
    which = option(words[1])
    field = _FIELDS.get(which)
    if which in _SCALING_FIELDS:
        field = _SCALING_FIELDS[which]
        facts = {
            _SCALING_FIELDS[name]: fact
            for name, fact in _scaling_facts(client, entry, facts["Capacity"]).items()
        }
    if field is None or field not in facts:
        raise Failure("Invalid information value")
    return {field: facts[field]} if client.protocol == 3 else [facts[field]]


# What BF.DEBUG tells of a filter that is not RedisBloom's, of what INFO knows: how it is built and
# what it holds, which is the same once it was dumped and loaded.
_BUILT = (
    *("kind", "capacity", "error_rate", "hasher", "layout", "num_bits", "num_hashes", "nbytes"),
    *("fill_ratio", "estimated_count", "estimated_error_rate"),
)


def _layer(layer: dict[str, float], hash_width: int) -> str:
    """A layer in RedisBloom's words."""
    bits = int(layer["num_bits"])
    return (
        f"bytes:{bits // 8} bits:{bits} hashes:{int(layer['num_hashes'])} hashwidth:{hash_width} "
        f"capacity:{int(layer['capacity'])} size:{int(layer['keys'])} ratio:{layer['error_rate']:g}"
    )


@command("BF.DEBUG", "key", does="info")
async def debug(client: ClientState, words: list[bytes]) -> Any:
    """Tell how a filter is built."""
    entry = existing_filter(client, words[0], "bf")
    lines = [f"size:{entry.items}"]
    if entry.filter is not None and entry.filter.kind == "redisbloom":
        width = entry.filter.hash_width
        lines += [_layer(layer, width) for layer in entry.filter.layers()]
    elif entry.filter is not None and entry.filter.nbytes > LARGE:
        return await _debug_large(entry)
    elif entry.filter is not None:
        lines += _described(entry.filter.info())
    return [line.encode("utf-8", "replace") for line in lines]


def _described(about: dict[str, Any]) -> list[str]:
    return [f"{name}:{about[name]}" for name in _BUILT if name in about]


async def _debug_large(entry: Entry) -> list[bytes]:
    """Describe a large filter, whose bits take long to count, in a thread."""
    items, about = entry.items, await asyncio.to_thread(entry.filter.info)
    lines = [f"size:{items}", *_described(about)]
    return [line.encode("utf-8", "replace") for line in lines]


@command("BF.SCANDUMP", "key iterator", does="export")
async def scandump(client: ClientState, words: list[bytes]) -> Any:
    """Return a filter in parts: the next iterator and bytes; from 0 until it is 0 again."""
    name, iterator = words[0], integer(words[1])
    entry = existing_filter(client, name, "bf")
    if iterator is None:
        raise Failure("Second argument must be numeric")
    if iterator < 0:
        return [0, b""]
    authorize.check_export(client, name, "bf.scandump", entry.filter, begins=iterator == 0)
    commands = client.context.commands
    if entry.filter is not None and entry.filter.kind == "redisbloom":
        return list(entry.filter.chunk(iterator))
    if iterator == 0:
        return [1, await commands.export_head(name)]
    data = commands.export(name, iterator - 1)
    return [iterator + len(data) if data else 0, data]


@command("BF.LOADCHUNK", "key iterator data", write=True, does="import")
async def loadchunk(client: ClientState, words: list[bytes]) -> Any:
    """Take a part of a filter as SCANDUMP gave it, with the iterator that came with it."""
    name, iterator, data = words[0], integer(words[1]), words[2]
    if iterator is None:
        raise Failure("ERR Second argument must be numeric")
    entry = filter_at(client, name, "bf")
    commands = client.context.commands
    if entry is None:
        if iterator != 1:
            raise NOT_FOUND
        own = files.is_head(data)
        try:
            await commands.load(name, 1, data, form="bloomery" if own else "redisbloom")
        except errors.CorruptData as problem:
            raise Failure(
                f"ERR received bad data: {problem}" if own else "ERR received bad data"
            ) from None
        return OK
    if iterator <= 0 or iterator < len(data):
        raise Failure("ERR received bad data")
    if entry.filter is not None and entry.filter.kind == "redisbloom":
        try:
            await commands.load(name, iterator, data)
        except errors.CorruptData as problem:
            raise Failure(str(problem)) from None  # RedisBloom's texts
    elif entry.filter is None:
        position = iterator - len(data) + files.HEADER_BYTES
        if len(data) > limits.LOAD_PIECE_BYTES and not client.executing:
            return await _load_pieces(client, name, position, data)
        await commands.load(name, position, data)
    else:
        raise Failure("ERR invalid offset - no link found")
    return OK


async def _load_pieces(client: ClientState, name: bytes, position: int, data: bytes) -> str:
    """Take a large part in pieces: each is copied several times, and others wait."""
    commands = client.context.commands
    loading = commands.find(name).loading
    # Some of it is there if it failed half-way, and is sent again.
    there = 0 if loading is None else min(max(loading.received - (position - 1), 0), len(data) - 1)
    for start in range(there, len(data), limits.LOAD_PIECE_BYTES):
        piece = data[start : start + limits.LOAD_PIECE_BYTES]
        await client.context.engine.locks.unlocked(name)
        await commands.load(name, position + start, piece)
        await asyncio.sleep(0)
    return OK


@command("BF.MERGE", "key source [source ...]", write=True, keys=(1, -1, 1), does="change")
async def merge(client: ClientState, words: list[bytes]) -> str:
    """Add every key of the sources, which must be made alike, to a filter."""
    for name in words:
        existing_filter(client, name, "bf")
    await client.context.commands.merge(words[0], *words[1:])
    return OK


@command("BF.CLEAR", "key", write=True, does="clear")
async def clear(client: ClientState, words: list[bytes]) -> str:
    """Forget every key of a filter."""
    existing_filter(client, words[0], "bf")
    await client.context.commands.clear(words[0])
    return OK


@command(
    "BF.POLICY",
    "key [ONFULL grow|rotate|reject|alert] [FULLAT share] [WARNAT share] [WARNWITHIN time] "
    "[GRACE time]",
    most=None,
    write=True,
    does="change",
)
async def policy(client: ClientState, words: list[bytes]) -> dict[str, Any]:
    """Tell what happens when a filter is full, after changing what is given."""
    name, rest = words[0], words[1:]
    existing_filter(client, name, "bf")
    if len(rest) % 2:
        raise wrong_arity("BF.POLICY")
    given, _ = options(rest, POLICY)
    changes = {POLICY[word]: policy_value(value or b"") for word, value in given.items()}
    commands = client.context.commands
    if changes:
        await commands.adjust(name, **changes)
    fields = commands.policy(name).as_dict()
    return {
        name: f"{value:g}" if isinstance(value, float) else value for name, value in fields.items()
    }


@command("BF.ROTATE", "key", write=True, does="change")
async def rotate(client: ClientState, words: list[bytes]) -> str:
    """Let a rotating filter begin a new generation now."""
    existing_filter(client, words[0], "bf")
    await client.context.commands.rotate(words[0])
    return OK
