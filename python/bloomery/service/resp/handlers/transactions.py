"""Transactions: MULTI, EXEC and WATCH. While EXEC runs, commands of others on its filters wait. Its
writes form one batch of the log, unless a command depends on one before it. With WATCH, EXEC
does nothing if a filter was changed before it."""

from __future__ import annotations

import asyncio
from typing import Any

from bloomery.service.commands import AT_ONCE as MAX_BATCH
from bloomery.service.resp import limits
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.invoke import invoke_queued
from bloomery.service.resp.replies import NO_LIST, OK, Failure, Raw, encode
from bloomery.service.resp.table import Command, command, find
from bloomery.service.slices import Slice

# In a transaction these are done and not queued.
AT_ONCE = frozenset({"EXEC", "DISCARD", "MULTI", "WATCH", "QUIT", "RESET"})
_LONG = ("SAVE", "BF.LOOKUP", "BF.FORGET")  # others must not wait for these
# Of writes in one batch. They start in one iteration of the event loop, and end in one: 16,384 keys
# are 3 ms each time.
_MAX_TASKS = 1024
_MAX_WORDS = 1 << 14  # arguments


def end(client: ClientState) -> None:
    """Forget the transaction and what is watched."""
    client.queue, client.session.queued_bytes, client.spoiled = None, 0, False
    client.watching.clear()
    client.observe()


def enqueue(client: ClientState, command: Command, words: list[bytes]) -> str:
    """Keep a command until EXEC."""
    assert client.queue is not None
    if command.name in _LONG:
        client.spoiled = True
        raise Failure("ERR Command not allowed inside a transaction")
    most_words = limits.MAX_TRANSACTION_ARGUMENTS
    if len(words) > most_words:
        client.spoiled = True
        raise Failure(f"ERR a command of more than {most_words} arguments in a transaction")
    nbytes = sum(map(len, words)) + 64 * len(words)  # about what Python needs for them
    most = client.context.settings.max_request_bytes
    if client.session.queued_bytes + nbytes > most:
        client.spoiled = True
        raise Failure(f"ERR a transaction of more than {most} bytes")
    client.session.queued_bytes += nbytes
    client.queue.append(words)
    return "QUEUED"


@command("MULTI", group="transactions", does="session")
async def multi(client: ClientState, words: list[bytes]) -> str:
    """Begin a transaction: commands are kept until EXEC."""
    if client.queue is not None:
        raise Failure("ERR MULTI calls can not be nested")
    client.queue = []
    client.observe()
    return OK


@command("EXEC", write=True, group="transactions", does="session")
async def execute(client: ClientState, words: list[bytes]) -> Any:
    """Do the commands of the transaction; null if a watched filter was changed."""
    queue = client.queue
    if queue is None:
        raise Failure("ERR EXEC without MULTI")
    spoiled, watching = client.spoiled, dict(client.watching)
    end(client)
    if spoiled:
        raise Failure("EXECABORT Transaction discarded because of previous errors.")
    context, commands = client.context, client.context.commands
    writes = any(find(queued).write for queued in queue)
    if writes or watching:
        await context.engine.batches.catch_up()
    else:
        await commands.current(client.strong)
    names, share = set[bytes](), Slice()
    for queued in queue:
        names.update(find(queued).names(queued))
        await share.rest()
    locks = context.engine.locks
    await locks.unlocked(*names, *watching)
    locks.lock(names)
    locks.own(names)
    try:
        await context.engine.settle({*names, *watching})  # what others wrote before comes first
        if any(_mark(client, name) != mark for name, mark in watching.items()):
            return None if client.protocol == 3 else NO_LIST
        return await _Transaction(client, share).run(queue)
    finally:
        locks.own(frozenset())
        locks.unlock(names)


class _Transaction:
    """The commands of a transaction under way."""

    def __init__(self, client: ClientState, share: Slice) -> None:
        self._client, self._share = client, share
        self._out, self._fits = bytearray(), True
        self._tasks: list[asyncio.Task[Any]] = []  # writes that wait for the log
        self._words = 0  # arguments of those
        self._written: set[bytes] = set()  # names that they are about
        self._changed: set[bytes] = set()  # those of them that are about whole filters

    async def run(self, queue: list[list[bytes]]) -> Raw:
        """Run the commands in order; return the reply."""
        self._client.executing = True
        try:
            for queued in queue:
                await self._start(queued)
            await self._finish()
        finally:
            self._client.executing = False
        if not self._fits:
            self._client.closing = True
            raise Failure("ERR the replies are longer than client-output-limit: closing")
        return Raw(b"*%d\r\n" % len(queue) + bytes(self._out))

    async def _start(self, words: list[bytes]) -> None:
        """Run a command. Writes of different filters, and writes of keys, do not wait for each
        other: they are one batch. Other commands run after the writes before them."""
        command = find(words)
        names = command.names(words)
        keys_only = command.does in ("add", "remove")
        depends = self._changed if keys_only else self._written
        independent = not depends.intersection(names)
        alone = len(words) > MAX_BATCH  # it is several batches
        if alone or not (command.write and independent and names):
            await self._finish()
            self._append(await invoke_queued(self._client, words))
            await self._share.rest()
        else:
            known = all(name in self._client.context.engine.state.names for name in names)
            # One that creates a filter is alone, too: commands after it need the filter.
            if not known or self._words + len(words) > _MAX_WORDS:
                await self._finish()
            self._written.update(names)
            if not keys_only:
                self._changed.update(names)
            self._tasks.append(asyncio.ensure_future(invoke_queued(self._client, words)))
            self._words += len(words)
            if not known or len(self._tasks) >= _MAX_TASKS:
                await self._finish()

    async def _finish(self) -> None:
        """Wait for the writes so far."""
        tasks, self._tasks, self._words = self._tasks, [], 0
        self._written.clear()
        self._changed.clear()
        for reply in await asyncio.gather(*tasks):
            self._append(reply)
            await self._share.rest()

    def _append(self, value: Any) -> None:
        client = self._client
        reply = encode(value, client.protocol)
        limit = client.context.settings.client_output_limit
        self._fits = self._fits and len(self._out) + len(reply) <= limit
        if self._fits:
            self._out += reply


@command("DISCARD", group="transactions", does="session")
async def discard(client: ClientState, words: list[bytes]) -> str:
    """Forget the transaction."""
    if client.queue is None:
        raise Failure("ERR DISCARD without MULTI")
    end(client)
    return OK


@command("WATCH", "key [key ...]", group="transactions", does="info")
async def watch(client: ClientState, words: list[bytes]) -> str:
    """Let the next EXEC do nothing if one of these filters is changed before it."""
    if client.queue is not None:
        raise Failure("ERR WATCH inside MULTI is not allowed")
    if len(client.watching) + len(words) > limits.MAX_WATCHED:
        raise Failure(f"ERR more than {limits.MAX_WATCHED} names to watch")
    for name in words:
        if name not in client.watching:
            client.watching[name] = _mark(client, name)
    return OK


@command("UNWATCH", group="transactions", does="session")
async def unwatch(client: ClientState, words: list[bytes]) -> str:
    """Watch nothing."""
    client.watching.clear()
    return OK


def _mark(client: ClientState, name: bytes) -> object:
    """What is another once a filter of that name was made, changed or dropped."""
    engine = client.context.engine
    entry = engine.find(name)
    if entry is None:
        return None
    return entry.id, entry.changes, entry.items, engine.figures(entry)[0]
