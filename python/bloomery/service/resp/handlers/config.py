"""CONFIG: the settings (`service/config/settings.py`), and those of Redis that tools ask for."""

from __future__ import annotations

from dataclasses import replace

from bloomery import errors
from bloomery.service.access.glob import glob
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.replies import OK, Failure
from bloomery.service.resp.table import command, help_command


def _fixed(client: ClientState) -> dict[str, str]:
    """Settings of Redis that cannot be set here, as they are."""
    host, _, port = client.context.resp_address.rpartition(":")
    return {
        "appendonly": "yes",
        "bind": host.strip("[]"),
        "databases": "1",
        "dir": str(client.context.data),
        "maxmemory-policy": "noeviction",
        "port": port,
        "save": "",
    }


@command("CONFIG GET", "parameter [parameter ...]", group="server", does="server")
async def get(client: ClientState, words: list[bytes]) -> dict[bytes, bytes]:
    """Tell the settings whose names match."""
    matches = [glob(word.lower()) for word in words]
    settings = client.context.settings
    known = {name: settings.get(name) for name in settings.names()} | _fixed(client)
    return {
        name.encode(): value.encode()
        for name, value in sorted(known.items())
        if any(match(name.encode()) for match in matches)
    }


@command("CONFIG SET", "parameter value [parameter value ...]", group="server", does="server")
async def set_(client: ClientState, words: list[bytes]) -> str:
    """Change settings: all of them, or none if one is wrong."""
    if len(words) % 2:
        raise Failure("ERR syntax error")
    settings = client.context.settings
    tried, seen = replace(settings), set[str]()
    for word, value in zip(words[::2], words[1::2], strict=True):
        name = word[:128].decode("utf-8", "replace")
        key = name.lower()
        if key in _fixed(client):
            raise _failed(name, "can't set immutable config")
        if key not in settings.names():
            raise Failure(f"ERR Unknown option or number of arguments for CONFIG SET - '{name}'")
        if key in seen:
            raise _failed(name, "duplicate parameter")
        seen.add(key)
        try:
            tried.set(key, value.decode("utf-8", "replace"))
        except errors.InvalidParameter as problem:
            raise _failed(name, str(problem)) from None
    for name, why in tried.conflicts():
        raise _failed(name, why)
    client.context.live.apply(tried)
    return OK


def _failed(name: str, why: str) -> Failure:
    return Failure(f"ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")


@command("CONFIG RESETSTAT", group="server", does="server")
async def resetstat(client: ClientState, words: list[bytes]) -> str:
    """Count connections and commands from 0."""
    client.clients.forget_figures()
    return OK


@command("CONFIG REWRITE", group="server", does="server")
async def rewrite(client: ClientState, words: list[bytes]) -> str:
    """Write what CONFIG SET has changed into the configuration file, which keeps its comments."""
    live = client.context.live
    if live.file is None:
        raise Failure("ERR The server is running without a config file")
    try:
        await live.rewrite()
    except (OSError, errors.InvalidParameter) as problem:
        why = problem.strerror if isinstance(problem, OSError) else problem
        raise Failure(f"ERR Rewriting config file: {why}") from None
    return OK


help_command("CONFIG", "server")
