"""BF.LOOKUP and what goes with it: exact answers, of filters that are bound to a source."""

from __future__ import annotations

from typing import Any

from bloomery import errors
from bloomery.service.lookup import answers
from bloomery.service.policy.rebuilds import SETTLE
from bloomery.service.resp.arguments import decimal, integer, option, options
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.replies import OK, Failure
from bloomery.service.resp.table import command


@command("BF.LOOKUP", "key item [item ...]", does="lookup")
async def lookup(client: ClientState, words: list[bytes]) -> list[Any]:
    """Look keys up: for each whether it is there (1 or 0), its value, and who says so."""
    name, *keys = words
    looked_up = await client.context.commands.lookup(name, keys, client.strong)
    return [answers.for_resp(answer) for answer in looked_up]


@command("BF.FORGET", "key item [item ...]", write=True, does="forget")
async def forget(client: ClientState, words: list[bytes]) -> str:
    """Let keys be looked up anew: what caches hold of them is out of date, on all nodes."""
    name, *keys = words
    await client.context.commands.forget(name, keys)
    return OK


@command("BF.CONSISTENCY", "[LOCAL | STRONG]", most=1, does="session")
async def consistency(client: ClientState, words: list[bytes]) -> str:
    """Let this connection be answered from the node's copy (LOCAL), or from it once it has all that
    any node acknowledged before (STRONG); tell how it is."""
    if words:
        given = option(words[0])
        if given not in ("LOCAL", "STRONG"):
            raise Failure("ERR consistency must be LOCAL or STRONG")
        client.strong = given == "STRONG" and not client.context.engine.batches.exclusive
        client.observe()
    alone = client.context.engine.batches.exclusive
    return "strong" if alone or client.context.commands.is_strong(client.strong) else "local"


@command("BF.BIND", "key source", write=True, does="change")
async def bind(client: ClientState, words: list[bytes]) -> str:
    """Let keys of a filter be looked up in a source of the server's configuration."""
    await client.context.commands.bind(words[0], words[1].decode("utf-8", "replace"))
    return OK


@command("BF.UNBIND", "key", write=True, does="change")
async def unbind(client: ClientState, words: list[bytes]) -> str:
    """Let keys of a filter be looked up nowhere."""
    await client.context.commands.bind(words[0], None)
    return OK


@command(
    "BF.REBUILD",
    "key [CAPACITY n] [ERROR rate] [SETTLE seconds] | STATUS",
    least=1,
    most=7,
    write=True,
    does="change",
)
async def rebuild(client: ClientState, words: list[bytes]) -> Any:
    """Begin to build a filter anew from the source it is bound to; STATUS tells how far that is."""
    name, *rest = words
    if len(rest) == 1 and option(rest[0]) == "STATUS":
        return _status(client, name)
    capacity, error_rate, settle = None, None, SETTLE
    given, _ = options(rest, ("CAPACITY", "ERROR", "SETTLE"), ("STATUS",))
    for word, value in given.items():
        number = decimal(value or b"")
        if word == "STATUS":
            raise Failure("ERR STATUS stands alone: BF.REBUILD key STATUS")
        if word == "CAPACITY":
            capacity = integer(value or b"")
            if capacity is None or capacity < 1:
                raise Failure("ERR CAPACITY must be a number of keys above 0")
        elif word == "ERROR":
            error_rate = number
            if error_rate is None or not 0 < error_rate < 1:
                raise Failure("ERR ERROR must be a rate between 0 and 1")
        else:
            if number is None or not 0 <= number <= 3600:
                raise Failure("ERR SETTLE must be seconds, from 0 to 3600")
            settle = number
    client.context.rebuilds.start(name, capacity=capacity, error_rate=error_rate, settle=settle)
    return OK


def _status(client: ClientState, name: bytes) -> dict[str, Any]:
    state = client.context.rebuilds.of(client.context.commands.find(name))
    if state is None:
        raise errors.InvalidParameter("this filter was not rebuilt since the server started")
    return state.as_dict()
