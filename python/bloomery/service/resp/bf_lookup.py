"""BF.LOOKUP and what goes with it: exact answers, of filters that are bound to a source."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from bloomery.service import answers
from bloomery.service.resp.client import Client
from bloomery.service.resp.replies import OK
from bloomery.service.resp.table import command

_NAME = (1, 1, 1)


@command("BF.LOOKUP", "key item [item ...]", least=2, most=None, keys=_NAME, does="lookup")
def lookup(client: Client, words: list[bytes]) -> Awaitable[list[Any]]:
    """Look keys up: for each whether it is there (1 or 0), its value, and who says so."""
    return _looked_up(client, words)


async def _looked_up(client: Client, words: list[bytes]) -> list[Any]:
    name, *keys = words
    client.server.turns.join()
    found = await client.server.commands.lookup(name, keys)
    return [answers.for_resp(answer) for answer in found]


@command("BF.BIND", "key source", least=2, write=True, keys=_NAME, does="change")
def bind(client: Client, words: list[bytes]) -> str:
    """Let keys of a filter be looked up in a source of the server's configuration."""
    client.server.commands.bind(words[0], words[1].decode("utf-8", "replace"))
    return OK


@command("BF.UNBIND", "key", least=1, write=True, keys=_NAME, does="change")
def unbind(client: Client, words: list[bytes]) -> str:
    """Let keys of a filter be looked up nowhere."""
    client.server.commands.bind(words[0], None)
    return OK
