"""Dispatch the commands that native code did not do: find each in the table, authorize it, run it
or queue it for EXEC, and reply."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from bloomery.service.resp import authorize, table
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.handlers import (
    bf,
    bf_lookup,
    bf_maintenance,
    bf_reserve,
    cf,
    config,
    info,
    introspection,
    keyspace,
    nodes,
    restore,
    session,
    transactions,
)
from bloomery.service.resp.invoke import error_reply, invoke, start
from bloomery.service.resp.replies import Failure, encode
from bloomery.service.resp.table import Command

# Importing them has entered their commands into the table.
HANDLERS = (
    *(bf, bf_lookup, bf_reserve, bf_maintenance, introspection, cf, session, config, info),
    *(keyspace, nodes, restore, transactions),
)


def dispatch(client: ClientState, words: list[bytes]) -> Awaitable[None] | None:
    """Run a command and reply, or return what is to be waited for, which replies."""
    client.clients.python_commands += 1
    write, command = False, None
    value: Any = None
    try:
        command = table.find(words)
        client.command = command.full_name
        authorize.check(client, command, words)
        if client.queue is not None and command.name not in transactions.AT_ONCE:
            value = transactions.enqueue(client, command, words)
        else:
            write = command.write
            names = _names(client, command, words)
            if _waits(client, command, names) or client.context.background.is_locked(names):
                value = _when_free(names, client, command, words)
            else:
                value = invoke(client, command, words)
    except Exception as problem:  # noqa: BLE001  # a client must not end the others' server
        value = error_reply(client.context, problem)
        refused = isinstance(value, Failure) and value.text.startswith(("NOAUTH", "NOPERM"))
        client.spoiled |= client.queue is not None and (command is None or refused)
    if isinstance(value, Awaitable):
        assert command is not None
        return _later(client, command, words, value)
    _reply(client, value, write)
    return None


def _reply(client: ClientState, value: Any, write: bool) -> None:
    """Reply to a command. On a node one that Python has done ends when the log has what it wrote:
    no other entry of the log answers it."""
    try:
        data = encode(value, client.session.protocol)
    except Exception as problem:  # noqa: BLE001  # who asked is told, and not left waiting
        data = encode(error_reply(client.context, problem), client.session.protocol)
    client.session.reply(data, write and client.context.engine.shared is None)


def _names(client: ClientState, command: Command, words: list[bytes]) -> list[bytes]:
    """The names of filters that a command is about; of EXEC, those of its commands."""
    if command.name != "EXEC" or client.queue is None:
        return command.names(words)
    return [name for queued in client.queue for name in table.find(queued).names(queued)]


def _waits(client: ClientState, command: Command, names: list[bytes]) -> bool:
    """On a node: must its copy be made current before this command is run?"""
    if command.write:
        return client.context.engine.shared is not None and command.name != "EXEC"
    return bool(names) and client.waits_for_others


async def _when_free(
    names: list[bytes], client: ClientState, command: Command, words: list[bytes]
) -> Any:
    """Run a command when nobody works on its filters, and a node's copy is as recent as it needs
    it."""
    if command.write:
        await client.context.commands.prepare(command.does, *names)
    elif _waits(client, command, names):
        await client.context.commands.current(client.strong)
    await client.context.background.unlocked(*names)
    client.context.group_commit.join()
    value = start(client, command, words)
    return await value if isinstance(value, Awaitable) else value


async def _later(
    client: ClientState, command: Command, words: list[bytes], value: Awaitable[Any]
) -> None:
    """Reply with what a command that takes long comes to."""
    try:
        reply = await value
        authorize.note(client, command, words, "done")
    except Exception as problem:  # noqa: BLE001  # as above
        reply = error_reply(client.context, problem)
        authorize.note(client, command, words, "failed")
    _reply(client, reply, command.write)
