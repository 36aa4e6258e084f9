"""Run the handler of a command: authorized, after long work on its filters, and audited."""

from __future__ import annotations

import time
from typing import Any

from bloomery import errors
from bloomery.service.commands import repeat
from bloomery.service.parts import Parts
from bloomery.service.resp import authorize, table
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.replies import Failure, failure_of
from bloomery.service.resp.table import Command


async def invoke(client: ClientState, command: Command, words: list[bytes]) -> Any:
    """Run a command that the client may run, and return its value. Administrative commands are
    audited. A write runs again if another command changed its filter first. A command that took
    long is noted in the slow log, with the time that it waited and that others were served."""
    rest, clients, started = words[command.words :], client.clients, time.monotonic()
    if not command.write:
        clients.count_lookups(command.names(words))
    try:
        if command.write:
            value = await repeat(lambda: command.handler(client, rest))
        else:
            value = await command.handler(client, rest)
    except Exception:
        authorize.note(client, command, words, "failed")
        raise
    finally:
        _note_if_slow(client, command, words, time.monotonic() - started)
    authorize.note(client, command, words, "done")
    return value


def _note_if_slow(
    client: ClientState, command: Command, words: list[bytes], seconds: float
) -> None:
    log = client.clients.slow_log
    if log.is_slow(seconds) and command.does != "session":
        shown = [*command.name.encode().split(), *command.names(words)]
        log.note(seconds, shown, len(words) - len(shown), client.address, client.name)


async def invoke_queued(client: ClientState, words: list[bytes]) -> Any:
    """Run a command of a transaction, or one in conflict; return its value or its error."""
    try:
        command = table.find(words)
        authorize.check(client, command, words)  # again: permissions can change before EXEC
        return await invoke(client, command, words)
    except Exception as problem:  # noqa: BLE001  # a client must not stop the server
        return error_reply(client.context, problem)


def error_reply(context: Parts, problem: Exception) -> Failure:
    """Return the error reply for a problem; an unexpected one is logged too."""
    if isinstance(problem, Failure):
        # Some are raised many times: each time would keep the frames of one more call.
        return problem.with_traceback(None)
    if isinstance(problem, (errors.BloomeryError, MemoryError)):
        return failure_of(problem.with_traceback(None))
    context.say("a command failed unexpectedly", level="error", problem=problem)
    return Failure(f"ERR internal error: {type(problem).__name__}; the server has printed more")
