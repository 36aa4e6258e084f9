"""BF.*, about keys. Each handler's docstring is what it does; its grammar stands in the table. The
usual cases of ADD, MADD, EXISTS, MEXISTS and DEL never come here: native code answers them
(`_native.Session`)."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Any

from bloomery.errors import UnknownFilter
from bloomery.service.commands import NO_ROOM
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


def answers(outcome: tuple[bytes, tuple[str, str] | None], door: str) -> list[Any]:
    """Return the answers to an array's keys; the one that was refused is the last."""
    done, refused = outcome
    no_room = failures.refusal(door, ("not-enough-memory", ""))
    replies: list[Any] = [no_room if answer == NO_ROOM else answer == 1 for answer in done]
    return replies if refused is None else [*replies, failures.refusal(door, refused)]


@command("BF.ADD", "key item", least=2, write=True, keys=_NAME, does="add")
def add(client: Client, words: list[bytes]) -> Any:
    """Add a key: 1 if it is definitely new, 0 if it may have been there."""
    if client.asks_store:
        return _first(_exactly(client, words))
    (answer,) = _few(client, words)
    if isinstance(answer, Failure):
        raise answer
    return answer


@command("BF.MADD", "key item [item ...]", least=2, most=None, write=True, keys=_NAME, does="add")
def madd(client: Client, words: list[bytes]) -> Any:
    """Add keys: for each, 1 if it is definitely new, 0 if it may have been there."""
    return _exactly(client, words) if client.asks_store else _madd(client, words)


def _madd(client: Client, words: list[bytes]) -> Any:
    return _many(client, words) if client.slices(words) else _few(client, words)


def _few(client: Client, words: list[bytes]) -> list[Any]:
    name, *keys = words
    if filter_at(client, name, "bf") is None:
        make_default(client, name)
    return answers(client.server.commands.add(name, keys), "bf")


async def _many(client: Client, words: list[bytes]) -> Raw:
    name, commands, replies = words[0], client.server.commands, Array(client.protocol)
    if filter_at(client, name, "bf") is None:
        make_default(client, name)
    async for keys in commands.batches(name, words[1:]):
        client.server.turns.join()
        done, refused = await commands.apart(name, partial(commands.add, name, list(keys)))
        replies.extend(answers((done, refused), "bf"))
        if refused is not None:
            break
    return replies.whole()


async def _exactly(client: Client, words: list[bytes]) -> list[Any]:
    """As Redis answers, for all nodes."""
    name, *keys = words
    if filter_at(client, name, "bf") is None:
        make_default(client, name)
    return answers(await client.server.commands.added(name, keys, client.shared), "bf")


async def _first(several: Awaitable[list[Any]]) -> Any:
    return (await several)[0]


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
    if client.asks_store:
        return _exactly(client, [name, *keys])
    return _madd(client, [name, *keys])


@command("BF.EXISTS", "key item", least=2, keys=_NAME, does="contains")
def exists(client: Client, words: list[bytes]) -> Any:
    """Tell whether a key may have been added: 0 is certain."""
    return _first(_everywhere(client, words)) if client.asks_store else _asked(client, words)[0]


@command("BF.MEXISTS", "key item [item ...]", least=2, most=None, keys=_NAME, does="contains")
def mexists(client: Client, words: list[bytes]) -> Any:
    """Tell of each key whether it may have been added: 0 is certain."""
    return _everywhere(client, words) if client.asks_store else _mexists(client, words)


async def _everywhere(client: Client, words: list[bytes]) -> list[bool]:
    name, *keys = words
    try:
        found = await client.server.commands.contained(name, keys, client.shared)
    except UnknownFilter:
        return [False] * len(keys)
    return [bool(answer) for answer in found]


def _mexists(client: Client, words: list[bytes]) -> Any:
    return _asked_many(client, words) if client.slices(words) else _asked(client, words)


async def _asked_many(client: Client, words: list[bytes]) -> Raw:
    replies = Array(client.protocol)
    async for keys in batches(words[1:]):
        await client.server.aside.free(words[0])
        replies.extend(_asked(client, [words[0], *keys]))
    return replies.whole()


def _asked(client: Client, words: list[bytes]) -> list[bool]:
    name, *keys = words
    try:
        if filter_at(client, name, "bf") is None:
            return [False] * len(keys)
    except Failure as failure:
        failure.with_traceback(None)  # see Door._failed
        return [False] * len(keys)  # what is no such filter holds none
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
