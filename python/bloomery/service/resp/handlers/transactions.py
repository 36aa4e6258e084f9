"""Transactions: MULTI, EXEC and WATCH. Nothing comes between the commands of one: a few are done in
one go, and while many are done nobody else may use their filters. With WATCH, EXEC does nothing if
a filter was changed before it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from bloomery.service.resp import limits
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.invoke import invoke_queued
from bloomery.service.resp.replies import NO_LIST, OK, Failure, Raw, encode
from bloomery.service.resp.table import Command, command, find
from bloomery.service.slices import Slice

# In a transaction these are done and not queued.
AT_ONCE = frozenset({"EXEC", "DISCARD", "MULTI", "WATCH", "QUIT", "RESET"})
_LONG = ("SAVE", "BF.LOOKUP", "BF.FORGET")  # they take long, and others go on meanwhile


def end(client: ClientState) -> None:
    """Forget the transaction and what is watched."""
    client.queue, client.queued_bytes, client.spoiled = None, 0, False
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
    if client.queued_bytes + nbytes > most:
        client.spoiled = True
        raise Failure(f"ERR a transaction of more than {most} bytes")
    client.queued_bytes += nbytes
    client.queue.append(words)
    return "QUEUED"


@command("MULTI", group="transactions", does="session")
def multi(client: ClientState, words: list[bytes]) -> str:
    """Begin a transaction: commands are kept until EXEC."""
    if client.queue is not None:
        raise Failure("ERR MULTI calls can not be nested")
    client.queue = []
    client.observe()
    return OK


@command("EXEC", write=True, group="transactions", does="session")
def execute(client: ClientState, words: list[bytes]) -> Any:
    """Do the commands of the transaction; null if a watched filter was changed."""
    queue = client.queue
    if queue is None:
        raise Failure("ERR EXEC without MULTI")
    spoiled, watching = client.spoiled, dict(client.watching)
    end(client)
    if spoiled:
        raise Failure("EXECABORT Transaction discarded because of previous errors.")
    if client.context.engine.shared is not None:
        return _on_node(client, queue, watching)
    if client.slices(queue):
        return _in_slices(client, queue, watching)
    if _is_changed(client, watching):
        return _nothing(client)
    replies = _TransactionReplies(client, len(queue))
    for queued in queue:
        replies.run(queued)
    return replies.encoded()


def _is_changed(client: ClientState, watching: dict[bytes, object]) -> bool:
    return any(_mark(client, name) != mark for name, mark in watching.items())


def _nothing(client: ClientState) -> Raw | None:
    return None if client.protocol == 3 else NO_LIST


async def _in_slices(
    client: ClientState, queue: list[list[bytes]], watching: dict[bytes, object]
) -> Raw | None:
    """Do many commands. Others have their turn in between; who asks for one of these filters waits
    until all are done, so that nothing comes between."""
    background = client.context.background
    names, share = set[bytes](), Slice()
    for queued in queue:
        names.update(find(queued).names(queued))
        await share.rest()
    await background.unlocked(*names)  # somebody may have come before this began
    client.context.group_commit.join()
    if _is_changed(client, watching):
        return _nothing(client)
    replies = _TransactionReplies(client, len(queue))
    with background.lock(names):
        for queued in queue:
            with client.context.engine.as_owner():
                replies.run(queued)
            if share.over:
                client.context.group_commit.join()
                await share.rest()
                client.context.group_commit.join()
    return replies.encoded()


async def _on_node(
    client: ClientState, queue: list[list[bytes]], watching: dict[bytes, object]
) -> Raw | None:
    """Do commands in order, each when the shared log has it: what other nodes write may come in
    between."""
    writes = any(find(queued).write for queued in queue)
    await client.context.commands.current(True if writes or watching else client.strong)
    client.context.group_commit.join()
    if _is_changed(client, watching):
        return _nothing(client)
    replies = _TransactionReplies(client, len(queue))
    for queued in queue:
        await replies.wait_for(queued)
    return replies.encoded()


class _TransactionReplies:
    """The replies to the commands of a transaction."""

    def __init__(self, client: ClientState, count: int) -> None:
        self._client = client
        self._out, self._fits = bytearray(b"*%d\r\n" % count), True

    def run(self, words: list[bytes]) -> None:
        """Run one command."""
        self._append(self._invoke(words))

    async def wait_for(self, words: list[bytes]) -> None:
        """Run one command that may have to wait, on a node."""
        value = self._invoke(words)
        self._append(await value if isinstance(value, Awaitable) else value)

    def _invoke(self, words: list[bytes]) -> Any:
        self._client.executing = True
        try:
            return invoke_queued(self._client, words)
        finally:
            self._client.executing = False

    def _append(self, value: Any) -> None:
        client = self._client
        reply = encode(value, client.protocol)
        most = client.context.settings.client_output_limit
        self._fits = self._fits and len(self._out) + len(reply) <= most
        if self._fits:
            self._out += reply

    def encoded(self) -> Raw:
        """The reply, as it is sent."""
        if not self._fits:  # all of it is done, but it has asked for more than may wait for it
            self._client.closing = True
            raise Failure("ERR the replies are longer than client-output-limit: closing")
        return Raw(bytes(self._out))


@command("DISCARD", group="transactions", does="session")
def discard(client: ClientState, words: list[bytes]) -> str:
    """Forget the transaction."""
    if client.queue is None:
        raise Failure("ERR DISCARD without MULTI")
    end(client)
    return OK


@command("WATCH", "key [key ...]", group="transactions", does="info")
def watch(client: ClientState, words: list[bytes]) -> str:
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
def unwatch(client: ClientState, words: list[bytes]) -> str:
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
