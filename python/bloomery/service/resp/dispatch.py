"""Dispatch the commands that native code did not do: find each in the table, authorize it, run it
or queue it for EXEC, and reply."""

from __future__ import annotations

from typing import Any

from bloomery.service.resp import authorize, table
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.handlers import (
    acl,
    bf,
    bf_lookup,
    bf_maintenance,
    bf_reserve,
    cf,
    config,
    diagnostics,
    info,
    introspection,
    keyspace,
    nodes,
    restore,
    session,
    transactions,
)
from bloomery.service.resp.invoke import error_reply, invoke
from bloomery.service.resp.replies import Failure, encode
from bloomery.service.resp.table import Command

# Importing them has entered their commands into the table.
HANDLERS = (
    *(bf, bf_lookup, bf_reserve, bf_maintenance, introspection, cf, session, config, info),
    *(keyspace, nodes, restore, transactions, acl, diagnostics),
)


async def dispatch(client: ClientState, words: list[bytes]) -> None:
    """Run a command, or queue it for EXEC, and reply."""
    client.clients.python_commands += 1
    command = None
    value: Any = None
    try:
        command = table.find(words)
        client.command = command.full_name
        authorize.check(client, command, words)
        if client.queue is not None and command.name not in transactions.AT_ONCE:
            value = transactions.enqueue(client, command, words)
        else:
            await _prepare(client, command, words)
            value = await invoke(client, command, words)
    except Exception as problem:  # noqa: BLE001  # a client must not stop the server
        value = error_reply(client.context, problem)
        refused = isinstance(value, Failure) and value.text.startswith(("NOAUTH", "NOPERM"))
        client.spoiled |= client.queue is not None and (command is None or refused)
    _reply(client, value)


def _reply(client: ClientState, value: Any) -> None:
    if client.takes_no_reply():
        return
    try:
        data = encode(value, client.session.protocol)
    except Exception as problem:  # noqa: BLE001  # the client gets an error, and does not wait
        data = encode(error_reply(client.context, problem), client.session.protocol)
    client.session.reply(data)


async def _prepare(client: ClientState, command: Command, words: list[bytes]) -> None:
    """Return when the filters of a command are recent enough, and no thread works on them. EXEC
    does this itself, for its commands."""
    commands, names = client.context.commands, command.names(words)
    if command.name != "EXEC":
        if command.write:
            await commands.prepare(command.does, *names)
        elif names and client.waits_for_others:
            await commands.current(client.strong)
    await client.context.engine.locks.unlocked(*names)
    client.context.sequencer.join()
