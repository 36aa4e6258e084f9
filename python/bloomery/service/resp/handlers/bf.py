"""BF.*, about keys. Each handler's docstring is what it does; its grammar stands in the table. The
usual cases of ADD, MADD, EXISTS, MEXISTS and DEL never come here: native code answers them
(`_native.Session`)."""

from __future__ import annotations

from typing import Any

from bloomery.errors import UnknownFilter
from bloomery.service.commands import NO_ROOM, Outcome
from bloomery.service.resp import failures
from bloomery.service.resp.arguments import decimal, integer, option
from bloomery.service.resp.client import Client
from bloomery.service.resp.handlers.bf_reserve import (
    MOST_CAPACITY,
    MOST_EXPANSION,
    adopt,
    filter_at,
    make,
    make_default,
)
from bloomery.service.resp.replies import Array, Failure, Raw
from bloomery.service.resp.table import command, wrong_arity
from bloomery.service.slices import batches

_NAME = (1, 1, 1)


def answers(outcome: Outcome, door: str) -> list[Any]:
    """Return the answers to an array's keys; the one that was refused is the last."""
    done, refused = outcome
    no_room = failures.refusal(door, ("not-enough-memory", ""))
    replies: list[Any] = [no_room if answer == NO_ROOM else answer == 1 for answer in done]
    return replies if refused is None else [*replies, failures.refusal(door, refused)]


@command("BF.ADD", "key item", least=2, write=True, keys=_NAME, does="add")
def add(client: Client, words: list[bytes]) -> Any:
    """Add a key: 1 if it is definitely new, 0 if it may have been there."""
    if client.asks_store:
        return _write_first(client, words)
    (answer,) = _write_few(client, words)
    if isinstance(answer, Failure):
        raise answer
    return answer


@command("BF.MADD", "key item [item ...]", least=2, most=None, write=True, keys=_NAME, does="add")
def madd(client: Client, words: list[bytes]) -> Any:
    """Add keys: for each, 1 if it is definitely new, 0 if it may have been there."""
    return _write_many(client, words) if client.waits(words) else _write_few(client, words)


def _write_few(client: Client, words: list[bytes]) -> list[Any]:
    name, *keys = words
    if filter_at(client, name, "bf") is None:
        make_default(client, name)
    return answers(client.server.commands.add(name, keys), "bf")


async def _write(client: Client, words: list[bytes]) -> Outcome:
    name, *keys = words
    if filter_at(client, name, "bf") is None:
        make_default(client, name)
    return await client.server.commands.write(name, keys, client.shared)


async def _write_first(client: Client, words: list[bytes]) -> Any:
    (answer,) = answers(await _write(client, words), "bf")
    return answer


async def _write_many(client: Client, words: list[bytes]) -> Raw:
    done, refused = await _write(client, words)
    replies = Array(client.protocol)
    async for part in batches(done):
        replies.extend(answers((bytes(part), None), "bf"))
    if refused is not None:
        replies.extend([failures.refusal("bf", refused)])
    return replies.whole()


@command(
    "BF.INSERT",
    "key [CAPACITY n] [ERROR rate] [EXPANSION n] [NOCREATE] [NONSCALING] ITEMS item [item ...]",
    least=3,
    most=None,
    write=True,
    keys=_NAME,
    does="add",
)
def insert(client: Client, words: list[bytes]) -> Any:
    """Add keys, and make the filter as told if there is none."""
    settings = client.server.settings
    name, rate, capacity = words[0], settings.bf_error_rate, settings.bf_initial_size
    expansion, nonscaling, create = settings.bf_expansion_factor, False, True
    at = 1
    while True:
        if at >= len(words):
            raise wrong_arity("BF.INSERT")
        word = option(words[at])
        at += 1
        # As RedisBloom does, an option is known by its first letters.
        if word.startswith("I"):
            break
        if word.startswith(("E", "C")) and at == len(words):
            raise wrong_arity("BF.INSERT")
        value = words[at] if at < len(words) else b""
        if word.startswith("ER"):
            found = decimal(value)
            if found is None or not 0 < found < 1:
                raise Failure("Bad error rate")
            rate, at = found, at + 1
        elif word.startswith("E"):
            number = integer(value)
            if number is None or not 0 <= number <= MOST_EXPANSION:
                raise Failure("Bad expansion")
            expansion, at = number, at + 1
        elif word.startswith("C"):
            number = integer(value)
            if number is None or not 1 <= number <= MOST_CAPACITY:
                raise Failure("Bad capacity")
            capacity, at = number, at + 1
        elif word.startswith("N"):
            if word[2:3] == "C":
                create = False
            else:
                nonscaling = True
        else:
            raise Failure("Unknown argument received")
    keys = words[at:]
    if not keys:
        raise wrong_arity("BF.INSERT")
    if filter_at(client, name, "bf") is None and not adopt(client, name):
        if not create:
            raise failures.NOT_FOUND
        make(client, name, rate, capacity, expansion, nonscaling=nonscaling)
    return madd(client, [name, *keys])


@command("BF.EXISTS", "key item", least=2, keys=_NAME, does="contains")
def exists(client: Client, words: list[bytes]) -> Any:
    """Tell whether a key may have been added: 0 is certain."""
    if client.asks_store:
        return _read_first(client, words)
    return _read_few(client, words)[0]


@command("BF.MEXISTS", "key item [item ...]", least=2, most=None, keys=_NAME, does="contains")
def mexists(client: Client, words: list[bytes]) -> Any:
    """Tell of each key whether it may have been added: 0 is certain."""
    return _read_many(client, words) if client.waits(words) else _read_few(client, words)


async def _read(client: Client, words: list[bytes]) -> bytes:
    name, *keys = words
    if _is_other(client, name):
        return bytes(len(keys))
    try:
        return await client.server.commands.read(name, keys, client.shared)
    except UnknownFilter:
        return bytes(len(keys))


async def _read_first(client: Client, words: list[bytes]) -> bool:
    return bool((await _read(client, words))[0])


async def _read_many(client: Client, words: list[bytes]) -> Raw:
    return await booleans(client, await _read(client, words))


async def booleans(client: Client, found: bytes) -> Raw:
    """Return the reply to an array's keys; others have their turn while it is put together."""
    replies = Array(client.protocol)
    async for part in batches(found):
        replies.extend([bool(answer) for answer in part])
    return replies.whole()


def _is_other(client: Client, name: bytes) -> bool:
    """Is there a filter of this name that answers to other commands? It holds no key of these."""
    try:
        filter_at(client, name, "bf")
    except Failure as failure:
        failure.with_traceback(None)  # see Door._failed
        return True
    return False


def _read_few(client: Client, words: list[bytes]) -> list[bool]:
    name, *keys = words
    if _is_other(client, name) or client.server.engine.find(name) is None:
        return [False] * len(keys)
    return [bool(answer) for answer in client.server.commands.contains(name, keys)]


@command("BF.DEL", "key item", least=2, write=True, keys=_NAME, does="remove")
def delete(client: Client, words: list[bytes]) -> bool:
    """Take one copy of a key out, of a counting, deletable or cuckoo filter: 1 if there was one."""
    name, key = words
    if filter_at(client, name, "bf") is None:
        raise failures.NOT_FOUND
    done, refused = client.server.commands.remove(name, [key])
    if refused is not None:
        raise failures.refusal("bf", refused)
    return bool(done[0])
