"""Keys that come as a stream: added, asked for or removed as they come, in constant memory.

    body ──> batches of keys ──> commands ──> logged ──> the next

The response comes after the last key: a client that sends everything before it reads anything would
else never end. Other clients have their turn after each batch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from starlette.datastructures import QueryParams
from starlette.responses import Response, StreamingResponse

from bloomery import errors
from bloomery.service.commands import NO_ROOM
from bloomery.service.http import limits, problems
from bloomery.service.http.body import arrow, bodies, ndjson
from bloomery.service.http.body.bodies import ARROW, JSON, NDJSON
from bloomery.service.http.body.key_schemas import ANSWER_FIELDS
from bloomery.service.http.login import reauthorize
from bloomery.service.http.validation import consistency
from bloomery.service.network.input_budget import RESERVED, Charge, patience
from bloomery.service.parts import Parts
from bloomery.service.slices import Slice

__all__ = ["ARROW", "NDJSON", "answer"]


class KeyReader(Protocol):
    """Bytes of a stream to batches of keys."""

    @property
    def pending(self) -> int:
        """Bytes that are buffered until more comes."""

    def feed(self, data: bytes) -> Iterator[Any]:
        """Take received bytes; return the batches of keys that are complete."""

    def end(self) -> Iterator[Any]:
        """Return the last batches; raise if the stream may not end here."""


class _ArrowReader:
    """An Arrow IPC stream as batches."""

    def __init__(self, most: int, column: str | None) -> None:
        self._messages = arrow.Messages(most)
        self._column = arrow.Column(column, most)

    @property
    def pending(self) -> int:
        return self._messages.pending

    def feed(self, data: bytes) -> Iterator[Any]:
        for message in self._messages.feed(data):
            yield from self._column.take(*message)

    def end(self) -> Iterator[Any]:
        self._messages.end()
        return iter(())


@dataclass(slots=True)
class StreamResult:
    """The counts and answers of a stream's keys so far."""

    keys: int = 0
    hits: int = 0
    answers: bytearray = field(default_factory=bytearray)  # a byte each, if they are wanted

    def count(self, done: bytes) -> None:
        """Count the answers of some more keys."""
        self.keys += len(done)
        self.hits += done.count(1)
        self.answers += done


async def answer(context: Parts, operation: str, name: bytes, scope: Any, receive: Any) -> Response:
    """Do an operation with every key of a request's body; the response."""
    media = bodies.media_type(scope)
    body = bodies.parts(receive)
    taken = StreamResult()
    try:
        accept = _accepted(scope)
        reader, budget = _reader(context, media, scope), StreamBudget(context, taken)
        check = partial(reauthorize, context, scope, operation, name)
        batches = _batches(body, reader, check, budget)
        keep, strong = accept in _FORMS, consistency(scope)
        await _take(context, operation, name, batches, taken, keep=keep, strong=strong)
    except errors.MissingExtra as problem:
        status, document = problems.document(problem.code, str(problem), 415)
        return Response(document, status, media_type=problems.MEDIA)
    except errors.BloomeryError as problem:
        # The client may take its time: what was kept of its stream, its frames have too.
        taken.answers = bytearray()
        problem.__traceback__ = problem.__context__ = None
        if not isinstance(problem, PermissionError):
            await _discard(body)
        if taken.keys:
            problem.args = (f"{problem}; {taken.keys} keys before it were done",)
        return problems.response(problem, done=taken.keys)
    if accept in _FORMS:
        return StreamingResponse(_FORMS[accept](bytes(taken.answers)), media_type=accept)
    summary = b'{"keys":%d,"%s":%d}' % (taken.keys, ANSWER_FIELDS[operation].encode(), taken.hits)
    return Response(summary, media_type=JSON)


_FORMS: dict[str, Callable[[bytes], Iterator[bytes]]] = {
    ARROW: arrow.answers,
    NDJSON: ndjson.answers,
}


def _accepted(scope: Any) -> str:
    """How the client wants its answers; "" for a summary."""
    accept = (bodies.header(scope, b"accept") or b"").decode("latin-1").lower()
    return next((form for form in _FORMS if form in accept), "")


def _reader(context: Parts, media: str, scope: Any) -> KeyReader:
    """What reads a stream of this type."""
    if media == ARROW:
        wanted = QueryParams(scope["query_string"]).get("column")
        return _ArrowReader(
            min(context.settings.max_request_bytes, limits.MAX_ARROW_MESSAGE), wanted
        )
    if media == NDJSON:
        return ndjson.NdjsonReader(min(context.settings.proto_max_bulk_len, limits.MAX_JSON_KEY))
    raise bodies.other_media_type(scope, f"{JSON}, {NDJSON} or {ARROW}")


async def _discard(body: AsyncIterator[bytes]) -> None:
    """Read the rest of a body for a while: a client reads no response while it sends."""
    left = limits.MAX_DISCARDED
    async for data in body:
        left -= len(data)
        if left < 0:
            return


async def _take(
    context: Parts,
    operation: str,
    name: bytes,
    batches: AsyncIterable[Any],
    taken: StreamResult,
    *,
    keep: bool,
    strong: bool | None,
) -> None:
    """Do an operation with every key of some batches; `keep`: the answers are wanted."""
    work: _Queries | _Writes
    commands = context.commands
    if operation == "contains":
        await commands.discover(name)
        await commands.read(name, [], False)  # UnknownFilter, before a client sends all its keys
        work = _Queries(context, name, taken, strong)
    else:
        await commands.prepare(operation, name)
        commands.find(name)
        work = _Writes(context, operation, name, taken)
    most = context.settings.http_max_answers if keep else None
    asked = 0
    async for batch in batches:
        asked += len(batch)
        if most is not None and asked > most:
            raise errors.RequestTooLarge(
                f"more than {most} answers (http-max-answers): send the keys in several "
                "requests, or ask for a summary (Accept: application/json)"
            )
        if len(batch):
            await work.take(batch)
            if not keep:
                taken.answers.clear()
    if asked == 0 and operation == "contains":
        await commands.read(name, [], strong)  # UnknownFilter, also without keys


async def _batches(
    body: AsyncIterable[bytes], reader: KeyReader, check: Callable[[], None], budget: StreamBudget
) -> AsyncIterator[Any]:
    share = Slice()
    with budget.charge:
        async for data in body:
            check()
            for batch in reader.feed(data):
                yield batch
                await share.rest()
            budget.weigh(reader.pending)
        for batch in reader.end():
            yield batch
            await share.rest()


class StreamBudget:
    """What a stream makes the server keep: a line or a message that is not yet whole, answers."""

    def __init__(self, context: Parts, taken: StreamResult) -> None:
        self._seconds = context.settings.http_body_seconds
        self._taken = taken
        self.charge = Charge(context.input_budget)
        self._since = time.monotonic()

    def weigh(self, pending: int) -> None:
        """Count it; ServerUnavailable if there is no room, a 408 if it comes too slowly."""
        self.charge.weigh(pending + len(self._taken.answers))
        now = time.monotonic()
        if pending <= RESERVED:
            self._since = now
        elif now - self._since > patience(self._seconds, pending):
            raise problems.Refused("a line or a message of the stream came too slowly", 408)


class _Queries:
    """Keys that are asked for."""

    def __init__(
        self, context: Parts, name: bytes, taken: StreamResult, strong: bool | None
    ) -> None:
        self._context, self._name, self._taken = context, name, taken
        self._strong = strong  # must the copy be current?

    async def take(self, keys: Any) -> None:
        """Ask for these keys."""
        self._taken.count(await self._context.commands.read(self._name, keys, self._strong))
        await asyncio.sleep(0)


class _Writes:
    """Keys that are added or removed."""

    def __init__(self, context: Parts, operation: str, name: bytes, taken: StreamResult) -> None:
        self._context, self._name, self._taken = context, name, taken
        self._operation = getattr(context.commands, operation)

    async def take(self, keys: Any) -> None:
        """Add or remove these keys; raises at a key that is refused."""
        commands = self._context.commands
        operation = partial(self._operation, self._name, keys)  # one batch of the log
        done, refusal = await commands.run([self._name], operation)
        missing = done.find(NO_ROOM)
        if missing >= 0:
            done, refusal = done[:missing], ("not-enough-memory", "there is no memory for this key")
        self._taken.count(done)
        if refusal is not None:
            raise errors.of_code(*commands.explain(self._name, refusal))
