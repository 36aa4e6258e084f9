"""Keys that come as a stream: added, asked for or removed as they come, in constant memory.

    body ──> batches of keys ──> commands ──> logged ──> the next

What is answered is answered after the last key: a client that sends everything before it reads
anything would else never end. Other clients have their turn after each batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from bloomery import errors
from bloomery.service.commands import NO_ROOM
from bloomery.service.http import arrow, ndjson

if TYPE_CHECKING:
    from bloomery.service.server import Server

__all__ = ["ARROW", "NDJSON", "WORDS", "Taken", "rendered", "take"]

ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"
# What a key of each operation may have been.
WORDS = {"add": "new", "contains": "maybe", "remove": "removed"}


class Reader(Protocol):
    """Bytes of a stream to batches of keys."""

    def feed(self, data: bytes) -> Iterator[Any]:
        """Take what came; the batches that are whole now."""

    def end(self) -> Iterator[Any]:
        """The rest; raises if the stream may not end here."""


class _ArrowReader:
    """An Arrow IPC stream as batches."""

    def __init__(self, most: int, column: str | None) -> None:
        self._messages = arrow.Messages(most)
        self._column = arrow.Column(column)

    def feed(self, data: bytes) -> Iterator[Any]:
        for message in self._messages.feed(data):
            yield from self._column.take(*message)

    def end(self) -> Iterator[Any]:
        self._messages.end()
        return iter(())


@dataclass(slots=True)
class Taken:
    """What became of a stream's keys so far."""

    keys: int = 0
    hits: int = 0
    answers: bytearray = field(default_factory=bytearray)  # a byte each, if they are wanted


def reader_of(server: Server, content_type: str, column: str | None) -> Reader:
    """Return what reads a stream of this type."""
    if content_type == ARROW:
        return _ArrowReader(server.settings.max_request_bytes, column)
    return ndjson.Lines(server.settings.proto_max_bulk_len)


async def take(
    server: Server,
    operation: str,
    name: bytes,
    body: AsyncIterable[bytes],
    reader: Reader,
    *,
    keep: bool,
) -> Taken:
    """Do an operation with every key of a body; `keep`: the answers are wanted.

    What is wrong in mid-stream is raised with how many keys were done before it.
    """
    taken = Taken()
    work = _asking if operation == "contains" else _writing
    server.commands.find(name)
    try:
        async for batch in _batches(body, reader):
            if len(batch):
                await work(server, operation, name, batch, taken)
                if keep:
                    _check_room(server, taken)
                else:
                    taken.answers.clear()
    except errors.BloomeryError as problem:
        problem.args = (f"{problem}; {taken.keys} keys before it were done",)
        problem.done = taken.keys  # type: ignore[attr-defined]
        raise
    return taken


async def _batches(body: AsyncIterable[bytes], reader: Reader) -> AsyncIterator[Any]:
    async for data in body:
        for batch in reader.feed(data):
            yield batch
    for batch in reader.end():
        yield batch


async def _asking(server: Server, operation: str, name: bytes, keys: Any, taken: Taken) -> None:
    server.turns.join()
    _count(taken, server.commands.contains(name, keys))
    await asyncio.sleep(0)


async def _writing(server: Server, operation: str, name: bytes, keys: Any, taken: Taken) -> None:
    done, refusal = getattr(server.commands, operation)(name, keys)
    missing = done.find(NO_ROOM)
    if missing >= 0:
        done, refusal = done[:missing], ("not-enough-memory", "there is no memory for this key")
    await server.turns.logged()
    _count(taken, done)
    if refusal is not None:
        raise errors.of_code(*refusal)


def _count(taken: Taken, done: bytes) -> None:
    taken.keys += len(done)
    taken.hits += done.count(1)
    taken.answers += done


def _check_room(server: Server, taken: Taken) -> None:
    most = server.settings.http_max_answers
    if taken.keys > most:
        raise errors.RequestTooLarge(
            f"more than {most} answers (http-max-answers): send the keys in several requests, or "
            "ask for a summary (Accept: application/json)"
        )


def rendered(operation: str, taken: Taken, accept: str) -> tuple[str, Iterator[bytes]]:
    """The media type and the bytes of the answer, as the client wants it."""
    forms: dict[str, Callable[[bytes], Iterator[bytes]]] = {
        ARROW: arrow.answers,
        NDJSON: ndjson.answers,
    }
    given = bytes(taken.answers)
    if accept in forms:
        return accept, forms[accept](given)
    summary = f'{{"keys":{taken.keys},"{WORDS[operation]}":{taken.hits}}}'
    return "application/json", iter([summary.encode()])
