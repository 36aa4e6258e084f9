"""Run the handler of a command: authorized, beside long work on its filters, and audited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from bloomery import errors
from bloomery.service.parts import Parts
from bloomery.service.resp import authorize, table
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.replies import Failure, failure_of
from bloomery.service.resp.table import Command


def invoke(client: ClientState, command: Command, words: list[bytes], now: bool = False) -> Any:
    """Run a command that the client may run: its value, or what is to be waited for. What is
    administrative is audited, here or by who waits. `now`: what takes long is not begun."""
    try:
        value = start(client, command, words, now)
    except Exception:
        authorize.note(client, command, words, "failed")
        raise
    if not isinstance(value, Awaitable):
        authorize.note(client, command, words, "done")
    return value


def start(client: ClientState, command: Command, words: list[bytes], now: bool = False) -> Any:
    """As `invoke`, without the audit log."""
    operation: Callable[[], Any] = partial(command.handler, client, words[command.words :])
    names = command.names(words)
    return client.context.commands.start(names, operation, now, write=command.write)


def invoke_queued(client: ClientState, words: list[bytes]) -> Any:
    """Run a command of a transaction: its value, or its error; on a node, what is to be waited
    for."""
    try:
        command = table.find(words)
        authorize.check(client, command, words)  # again: what one may can change before EXEC
        value = invoke(client, command, words, now=True)
    except Exception as problem:  # noqa: BLE001  # a client must not end the others' server
        return error_reply(client.context, problem)
    if isinstance(value, Awaitable) and client.context.engine.shared is not None:
        return _awaited(client, command, words, value)
    if isinstance(value, Awaitable):
        authorize.note(client, command, words, "failed")
        getattr(value, "close", lambda: None)()
        return Failure("ERR Command not allowed inside a transaction: it takes long")
    return value


async def _awaited(
    client: ClientState, command: Command, words: list[bytes], value: Awaitable[Any]
) -> Any:
    try:
        reply = await value
    except Exception as problem:  # noqa: BLE001  # as above
        authorize.note(client, command, words, "failed")
        return error_reply(client.context, problem)
    authorize.note(client, command, words, "done")
    return reply


def error_reply(context: Parts, problem: Exception) -> Failure:
    """The error reply for a problem; one that nobody expected is logged too."""
    if isinstance(problem, Failure):
        # Some are raised again and again: with each time they would keep one more call's frames
        # and arguments.
        return problem.with_traceback(None)
    if isinstance(problem, (errors.BloomeryError, MemoryError)):
        return failure_of(problem.with_traceback(None))
    context.say("a command failed in a way of its own", level="error", problem=problem)
    return Failure(f"ERR internal error: {type(problem).__name__}; the server has printed more")
