"""CF.*: RedisBloom's cuckoo filter, bit for bit. The usual cases of ADD, ADDNX, EXISTS, MEXISTS,
DEL and COUNT never come here: native code answers them (`_native.Session`)."""

from __future__ import annotations

from functools import partial
from typing import Any

from bloomery import errors
from bloomery.service.commands import AT_ONCE, NO_ROOM, repeat, until_refused
from bloomery.service.resp import limits
from bloomery.service.resp.arguments import integer, options
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.handlers import membership
from bloomery.service.resp.handlers.membership import (
    contains,
    contains_many,
    existing_filter,
    filter_at,
)
from bloomery.service.resp.replies import EXISTS, NOT_FOUND, OK, ArrayReply, Failure, Raw, refusal
from bloomery.service.resp.table import command, wrong_arity
from bloomery.service.slices import batches


def _settings(client: ClientState, capacity: int, **chosen: int) -> dict[str, Any]:
    """Return the settings of a filter that CF commands create."""
    settings = client.context.settings
    default = {
        "bucket_size": settings.cf_bucket_size,
        "max_iterations": settings.cf_max_iterations,
        "expansion": settings.cf_expansion_factor,
    }
    return {"kind": "rediscuckoo", "capacity": capacity, **default, **chosen}


_OPTIONS = {
    "MAXITERATIONS": ("max_iterations", 1, 65535),
    "BUCKETSIZE": ("bucket_size", 1, 255),
    "EXPANSION": ("expansion", 0, limits.MAX_EXPANSION),
}


@command(
    "CF.RESERVE",
    "key capacity [BUCKETSIZE n] [MAXITERATIONS n] [EXPANSION n]",
    most=None,
    write=True,
    does="create",
)
async def reserve(client: ClientState, words: list[bytes]) -> str:
    """Make an empty cuckoo filter."""
    if len(words) % 2:
        raise wrong_arity("CF.RESERVE")
    capacity = integer(words[1])
    if capacity is None:
        raise Failure("Bad capacity")
    given, _ = options(words[2:], _OPTIONS)
    chosen: dict[str, int] = {}
    for word, (name, low, high) in _OPTIONS.items():
        if word in given:
            number = integer(given[word] or b"")
            if number is None:
                raise Failure(f"Couldn't parse {word}")
            if not low <= number <= high:
                raise Failure(f"{word}: value must be in the range [{low}, {high}]")
            chosen[name] = number
    bucket = chosen.get("bucket_size", client.context.settings.cf_bucket_size)
    if not 2 * bucket <= capacity <= limits.MAX_CAPACITY:
        raise Failure(f"Capacity must be in the range [2 * BUCKETSIZE, {limits.MAX_CAPACITY}]")
    if filter_at(client, words[0], "cf") is not None:
        raise EXISTS
    await client.context.commands.create(words[0], **_settings(client, capacity, **chosen))
    return OK


_FULL = "Filter is full"


async def _insert_many(
    client: ClientState, name: bytes, keys: list[bytes], settings: dict[str, Any], new: bool
) -> Raw:
    """As `_insert`, in slices between which other clients are served; the reply."""
    replies = ArrayReply(client.protocol)
    async for batch in batches(keys, AT_ONCE):
        await client.context.engine.locks.unlocked(name)
        done = await repeat(partial(_insert, client, name, list(batch), settings, new))
        replies.extend(_as_replies(client, done, new))
    return replies.encoded()


def _check_layers(client: ClientState, name: bytes) -> None:
    """Refuse a filter that has grown as often as it may: as RedisBloom does, before the first item
    of a command, and not before each."""
    entry = filter_at(client, name, "cf")
    grown: int = 0 if entry is None or entry.filter is None else entry.filter.num_layers
    if grown >= client.context.settings.cf_max_expansions:
        raise Failure("Maximum expansions reached")


async def _insert(
    client: ClientState, name: bytes, keys: list[bytes], settings: dict[str, Any], new: bool
) -> list[int]:
    """Add keys, with `new` only those that are definitely new: 1, 0, or -1 where there is no
    room."""
    done, refused = await membership.add(client, name, "cf", keys, settings, only_new=new)
    if refused is not None:
        failure = refusal("cf", refused)
        if failure.text != _FULL:
            raise failure
    return [answer if answer <= 1 else -1 for answer in done]


async def _add_one(client: ClientState, words: list[bytes], new: bool) -> bool:
    name, *keys = words
    settings = _settings(client, client.context.settings.cf_initial_size)
    _check_layers(client, name)
    outcome = await membership.add(client, name, "cf", keys, settings, only_new=new)
    done, refused = until_refused(outcome)
    if refused is not None:
        raise refusal("cf", refused)
    if done[0] == NO_ROOM:
        entry = filter_at(client, name, "cf")
        grows = entry is not None and entry.filter.expansion
        raise refusal("cf", ("not-enough-memory", "")) if grows else Failure(_FULL)
    return bool(done[0])


@command("CF.ADD", "key item", write=True, does="add")
async def add(client: ClientState, words: list[bytes]) -> bool:
    """Add a key, once more if it is there."""
    return await _add_one(client, words, new=False)


@command("CF.ADDNX", "key item", write=True, does="add")
async def addnx(client: ClientState, words: list[bytes]) -> bool:
    """Add a key if it is definitely not there."""
    return await _add_one(client, words, new=True)


async def _insert_words(client: ClientState, words: list[bytes], name: str) -> Any:
    """What becomes of each key, or what is to be waited for."""
    settings = client.context.settings
    capacity = settings.cf_initial_size
    given, keys = options(words[1:], ("CAPACITY",), ("NOCREATE",), last="ITEMS")
    if not keys:
        raise wrong_arity(name)
    if (value := given.get("CAPACITY")) is not None:
        number = integer(value)
        if number is None:
            raise Failure("Bad capacity")
        if not 2 * settings.cf_bucket_size <= number <= limits.MAX_CAPACITY:
            raise Failure(
                f"Capacity must be in the range [cf-bucket-size * 2, {limits.MAX_CAPACITY}]"
            )
        capacity = number
    if "NOCREATE" in given:
        existing_filter(client, words[0], "cf")
    _check_layers(client, words[0])
    new, chosen = name == "CF.INSERTNX", _settings(client, capacity)
    if client.slices(keys):
        return await _insert_many(client, words[0], keys, chosen, new)
    return _as_replies(client, await _insert(client, words[0], keys, chosen, new), new)


def _as_replies(client: ClientState, replies: list[int], new: bool) -> list[Any]:
    if not new and client.protocol == 3:
        return [reply == 1 for reply in replies]
    return list(replies)


@command("CF.INSERT", "key [CAPACITY n] [NOCREATE] ITEMS item [item ...]", write=True, does="add")
async def insert(client: ClientState, words: list[bytes]) -> Any:
    """Add keys, and make the filter if there is none: 1 each, -1 where it is full."""
    return await _insert_words(client, words, "CF.INSERT")


@command("CF.INSERTNX", "key [CAPACITY n] [NOCREATE] ITEMS item [item ...]", write=True, does="add")
async def insertnx(client: ClientState, words: list[bytes]) -> Any:
    """Add those keys that are definitely not there: 1 added, 0 may be there, -1 full."""
    return await _insert_words(client, words, "CF.INSERTNX")


@command("CF.EXISTS", "key item", does="contains")
async def exists(client: ClientState, words: list[bytes]) -> bool:
    """Tell whether a key may have been added: 0 is certain."""
    return contains(client, words, "cf")[0]


@command("CF.MEXISTS", "key item [item ...]", does="contains")
async def mexists(client: ClientState, words: list[bytes]) -> Any:
    """Tell of each key whether it may have been added: 0 is certain."""
    return await contains_many(client, words, "cf")


@command("CF.COUNT", "key item", does="contains")
async def count(client: ClientState, words: list[bytes]) -> int:
    """Tell how often a key was added, at most."""
    if filter_at(client, words[0], "cf") is None:
        return 0
    return client.context.commands.count(words[0], words[1])


@command("CF.DEL", "key item", write=True, does="remove")
async def delete(client: ClientState, words: list[bytes]) -> bool:
    """Take one copy of a key out: 1 if there was one."""
    if filter_at(client, words[0], "cf") is None:
        raise Failure("Not found")
    done, _ = await client.context.commands.remove(words[0], words[1:])
    return bool(done[0])


@command("CF.INFO", "key", does="info")
async def info(client: ClientState, words: list[bytes]) -> dict[str, int]:
    """Tell how a filter is built and what it holds."""
    entry = existing_filter(client, words[0], "cf")
    cuckoo = entry.filter
    return {
        "Size": cuckoo.redis_size,
        "Number of buckets": cuckoo.num_buckets,
        "Number of filters": cuckoo.num_layers,
        "Number of items inserted": cuckoo.estimated_count,
        "Number of items deleted": cuckoo.num_removed,
        "Bucket size": cuckoo.bucket_size,
        "Expansion rate": cuckoo.expansion,
        "Max iterations": cuckoo.max_iterations,
    }


@command("CF.DEBUG", "key", does="info")
async def debug(client: ClientState, words: list[bytes]) -> bytes:
    """Tell how a filter is built, in one line."""
    entry = existing_filter(client, words[0], "cf")
    cuckoo = entry.filter
    return (
        f"bktsize:{cuckoo.bucket_size} buckets:{cuckoo.num_buckets} items:{cuckoo.estimated_count} "
        f"deletes:{cuckoo.num_removed} filters:{cuckoo.num_layers} "
        f"max_iterations:{cuckoo.max_iterations} expansion:{cuckoo.expansion}"
    ).encode()


@command("CF.COMPACT", "key", write=True, does="change")
async def compact(client: ClientState, words: list[bytes]) -> str:
    """Move keys from newer parts of a filter into older ones, where there is room."""
    if filter_at(client, words[0], "cf") is None:
        raise Failure("Cuckoo filter was not found")
    await client.context.commands.compact(words[0])
    return OK


@command("CF.SCANDUMP", "key iterator", does="export")
async def scandump(client: ClientState, words: list[bytes]) -> list[Any]:
    """Return a filter in parts: the next iterator and bytes; from 0 until it is 0 again."""
    iterator = integer(words[1])
    if iterator is None or iterator < 0:
        raise Failure("Invalid position")
    entry = existing_filter(client, words[0], "cf")
    following, data = entry.filter.chunk(iterator)
    return [following, data or None]


@command("CF.LOADCHUNK", "key iterator data", write=True, does="import")
async def loadchunk(client: ClientState, words: list[bytes]) -> str:
    """Take a part of a filter as SCANDUMP gave it, with the iterator that came with it."""
    name, iterator, data = words[0], integer(words[1]), words[2]
    if iterator is None or iterator == 0:
        raise Failure("Invalid position")
    entry = filter_at(client, name, "cf")
    if iterator == 1:
        if entry is not None:
            raise EXISTS
        try:
            await client.context.commands.load(name, 1, data, form="rediscuckoo")
        except errors.CorruptData as problem:
            wrong = "Invalid header" if len(data) != 38 else "Couldn't create filter!"
            raise Failure(wrong) from problem
        return OK
    if entry is None:
        raise NOT_FOUND
    try:
        if iterator < 0:
            raise errors.CorruptData("no chunk has a negative position")
        await client.context.commands.load(name, iterator, data)
    except errors.CorruptData as problem:
        raise Failure("Couldn't load chunk!") from problem
    return OK
