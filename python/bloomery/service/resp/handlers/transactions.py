"""MULTI and EXEC: commands that are done together. Nothing comes between: a few are done in one go,
and while many are done nobody else is let to their filters. WATCH tells whether something came
before."""

from __future__ import annotations

from typing import Any

from bloomery.service.resp.client import Client
from bloomery.service.resp.replies import NO_LIST, OK, Failure, Raw, encode
from bloomery.service.resp.table import Command, command, find
from bloomery.service.slices import Slice

__all__ = ["AT_ONCE", "end", "enqueue"]

# In a transaction these are done and not queued.
AT_ONCE = frozenset({"EXEC", "DISCARD", "MULTI", "WATCH", "QUIT", "RESET"})
MOST_WATCHED = 10_000
MOST_WORDS = 20_000  # of one command in a transaction: some milliseconds
_LONG = ("SAVE", "BF.LOOKUP")  # they take long, and others go on meanwhile


def end(client: Client) -> None:
    """Forget the transaction and what is watched."""
    client.queue, client.queued_bytes, client.spoiled = None, 0, False
    client.watching.clear()
    client.observe()


def enqueue(client: Client, command: Command, words: list[bytes]) -> str:
    """Keep a command until EXEC."""
    assert client.queue is not None
    if command.name in _LONG:
        client.spoiled = True
        raise Failure("ERR Command not allowed inside a transaction")
    if len(words) > MOST_WORDS:
        client.spoiled = True
        raise Failure(f"ERR a command of more than {MOST_WORDS} arguments in a transaction")
    nbytes = sum(map(len, words)) + 64 * len(words)  # about what Python needs for them
    most = client.server.settings.max_request_bytes
    if client.queued_bytes + nbytes > most:
        client.spoiled = True
        raise Failure(f"ERR a transaction of more than {most} bytes")
    client.queued_bytes += nbytes
    client.queue.append(words)
    return "QUEUED"


@command("MULTI", group="transactions", does="session")
def multi(client: Client, words: list[bytes]) -> str:
    """Begin a transaction: commands are kept until EXEC."""
    if client.queue is not None:
        raise Failure("ERR MULTI calls can not be nested")
    client.queue = []
    client.observe()
    return OK


@command("EXEC", write=True, group="transactions", does="session")
def execute(client: Client, words: list[bytes]) -> Any:
    """Do the commands of the transaction; null if a watched filter was changed."""
    queue = client.queue
    if queue is None:
        raise Failure("ERR EXEC without MULTI")
    spoiled, watching = client.spoiled, dict(client.watching)
    end(client)
    if spoiled:
        raise Failure("EXECABORT Transaction discarded because of previous errors.")
    if client.slices(queue):
        return _in_slices(client, queue, watching)
    if _is_changed(client, watching):
        return _nothing(client)
    replies = _Replies(client, len(queue))
    for queued in queue:
        replies.perform(queued)
    return replies.told()


def _is_changed(client: Client, watching: dict[bytes, object]) -> bool:
    return any(_mark(client, name) != mark for name, mark in watching.items())


def _nothing(client: Client) -> Raw | None:
    return None if client.protocol == 3 else NO_LIST


async def _in_slices(
    client: Client, queue: list[list[bytes]], watching: dict[bytes, object]
) -> Raw | None:
    """Do many commands. Others have their turn in between; who asks for one of these filters waits
    until all are done, so that nothing comes between."""
    aside = client.server.aside
    names = {name for one in queue for name in find(one).names(one)}
    await aside.free(*names)  # somebody may have come before this began
    client.server.turns.join()
    if _is_changed(client, watching):
        return _nothing(client)
    replies, share = _Replies(client, len(queue)), Slice()
    with aside.hold(names):
        for queued in queue:
            with client.server.engine.as_owner():
                replies.perform(queued)
            if share.over:
                client.server.turns.join()
                await share.rest()
                client.server.turns.join()
    return replies.told()


class _Replies:
    """The replies to the commands of a transaction."""

    def __init__(self, client: Client, count: int) -> None:
        self._client = client
        self._out, self._told = bytearray(b"*%d\r\n" % count), True

    def perform(self, words: list[bytes]) -> None:
        """Do one command."""
        client = self._client
        client.executing = True
        try:
            reply = encode(client.server.door.perform(client, words), client.protocol)
        finally:
            client.executing = False
        most = client.server.settings.client_output_limit
        self._told = self._told and len(self._out) + len(reply) <= most
        if self._told:
            self._out += reply

    def told(self) -> Raw:
        """All of them."""
        if not self._told:  # all of it is done, but it has asked for more than may wait for it
            self._client.closing = True
            raise Failure("ERR the replies are longer than client-output-limit: closing")
        return Raw(bytes(self._out))


@command("DISCARD", group="transactions", does="session")
def discard(client: Client, words: list[bytes]) -> str:
    """Forget the transaction."""
    if client.queue is None:
        raise Failure("ERR DISCARD without MULTI")
    end(client)
    return OK


@command(
    "WATCH", "key [key ...]", least=1, most=None, group="transactions", keys=(1, -1, 1), does="info"
)
def watch(client: Client, words: list[bytes]) -> str:
    """Let the next EXEC do nothing if one of these filters is changed before it."""
    if client.queue is not None:
        raise Failure("ERR WATCH inside MULTI is not allowed")
    if len(client.watching) + len(words) > MOST_WATCHED:
        raise Failure(f"ERR more than {MOST_WATCHED} names to watch")
    for name in words:
        if name not in client.watching:
            client.watching[name] = _mark(client, name)
    return OK


@command("UNWATCH", group="transactions", does="session")
def unwatch(client: Client, words: list[bytes]) -> str:
    """Watch nothing."""
    client.watching.clear()
    return OK


def _mark(client: Client, name: bytes) -> object:
    """What is another once a filter of that name was made, changed or dropped."""
    engine = client.server.engine
    entry = engine.find(name)
    if entry is None:
        return None
    return entry.id, entry.changes, entry.items, engine.figures(entry)[0]
