"""One connection of the Redis protocol: bytes in, commands in order, replies out at the end of the
tick, or when the log has the writes."""

from __future__ import annotations

import asyncio
import select
import sys
import time
from collections.abc import Coroutine
from enum import Enum, auto
from typing import Any, cast

from bloomery import _native, errors
from bloomery.service.network.input_budget import RESERVED, patience
from bloomery.service.resp import limits
from bloomery.service.resp.client import Clients
from bloomery.service.resp.dispatch import dispatch
from bloomery.service.resp.invoke import invoke_queued
from bloomery.service.resp.replies import Failure, encode, failure_of
from bloomery.service.resp.sockets import FeedResult, Sockets, outcomes_of
from bloomery.service.slices import SECONDS, Slice

# How lines of HTTP begin: any web page can let a browser send some here, with commands below them.
_HTTP = (b"POST", b"HOST:")
_TLS_HELLO = b"\x16\x03"  # how a client of TLS begins, and no command does
_WAIT = 0.005  # seconds until a locked filter is tried again


def _result_of(result: Any) -> Any:
    """Return the result of a record, also if a thread applied it."""
    if not isinstance(result, asyncio.Future):
        return result
    return result.exception() or result.result()


class Reader(Enum):
    """Who reads a connection, whenever it is read."""

    FIRST = auto()  # the transport, at least the first chunk: that may be TLS, or HTTP
    NATIVE = auto()  # native code (`Sockets`)
    TRANSPORT = auto()  # the transport, for good: with TLS, and at the end or after an error


class RespConnection(asyncio.Protocol):
    """A client's connection. It waits, unread, while a command of its own takes long and while its
    replies are not taken; the others go on."""

    __slots__ = (
        "backlog",
        "begun",
        "busy",
        "charged",
        "client",
        "clients",
        "context",
        "ended",
        "joined",
        "paused_since",
        "reader",
        "session",
        "share_ends",
        "socket",
        "transport",
    )

    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self.context = clients.context
        self.begun = time.monotonic()  # the request that is not yet whole
        self.charged = 0  # bytes of the budget of all input
        self.busy = False  # a command of its own is under way
        self.joined = False  # it is part of this turn
        self.share_ends = 0.0  # when its share of this turn's time is over
        self.paused_since: float | None = None  # it takes no replies, since then
        self.backlog: list[bytes] = []  # what came while its commands wait
        self.ended = False  # nothing more will come
        self.reader = Reader.TRANSPORT

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a new client in, or turn it away."""
        self.transport = cast("asyncio.Transport", transport)
        self.client = self.clients.welcome(self)
        self.session = self.client.session
        self.transport.set_write_buffer_limits(high=limits.MAX_PENDING_REPLIES)
        if self.clients.sockets is not None and not transport.get_extra_info("sslcontext"):
            self.reader = Reader.FIRST
            self.socket = transport.get_extra_info("socket").fileno()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client."""
        self._end_native_reading()
        self.context.input_budget.move(self.charged, 0)
        self.charged = 0
        self.clients.farewell(self.client)

    def data_received(self, data: bytes) -> None:
        """Do what the client sent."""
        waits = self._waits
        if self.joined and not waits and time.monotonic() >= self.share_ends:
            # The loop reads a socket up to 32 times before it looks at the others: not for so long.
            self._hold_back(data)
            self._later()
            return
        if waits:
            self._hold_back(data)
            self._choose_reading()
        elif not self.client.closing:
            self._take(data)
            self._weigh_if_due()
            if self.reader is Reader.FIRST:
                self._begin_native_reading()

    @property
    def _committing(self) -> bool:
        """Are its writes not yet in the log? Then native code does not do what comes, either."""
        return self.session.held

    @property
    def _waits(self) -> bool:
        """Do its commands wait?"""
        return self.busy or self.paused_since is not None or self._committing

    # Who reads.

    @property
    def _sockets(self) -> Sockets | None:
        """By which native code reads it; None: the transport does."""
        return self.clients.sockets if self.reader is Reader.NATIVE else None

    def _begin_native_reading(self) -> None:
        """Let native code read, unless something waits."""
        sockets, waits = self.clients.sockets, self._waits or self.client.closing
        if sockets is not None and not waits and not self.transport.get_write_buffer_size():
            self.transport.pause_reading()
            self.reader = Reader.NATIVE
            sockets.add(self)

    def _end_native_reading(self) -> None:
        """Let native code read and answer no more, ever."""
        sockets, self.reader = self._sockets, Reader.TRANSPORT
        if sockets is not None:
            sockets.remove(self)

    def resume(self, command: FeedResult, before: int, came: int) -> None:
        """Go on with what native code has read: so many bytes had waited, and so many came."""
        self._join()
        self._run(command)
        self._note_beginning(before, came)
        self._weigh_if_due()

    def hand_back_reading(self) -> None:
        """Let the transport read, which knows what to do at the end, and of errors."""
        self._end_native_reading()
        self._choose_reading()

    def stop_reading(self) -> None:
        """Read no more."""
        if (sockets := self._sockets) is not None:
            sockets.watch(self, False)
        elif not self.transport.is_closing():
            self.transport.pause_reading()

    def has_left(self) -> bool:
        """Whether its client has ended its side, or it is closed. While a command of its own is
        under way nobody reads, and so nobody would see that."""
        if self.transport.is_closing():
            return True
        if sys.platform != "linux":
            return False
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
        return bool(poll.poll(0))

    def abort(self) -> None:
        """End it at once: what was sent and not read is not done."""
        self.stop_reading()
        self.transport.abort()

    def _hold_back(self, data: bytes) -> None:
        self.session.arrived()
        self.backlog.append(data)

    def _choose_reading(self) -> None:
        """Read on, or let what comes wait at the client's: while its own commands take long, while
        its replies are not taken, and while much of it waits for the log."""
        paused = self.paused_since is not None
        waits = self.busy or paused or (self._committing and self._has_much())
        if self.transport.is_closing() or self.clients.draining:
            return
        if (sockets := self._sockets) is not None:
            sockets.watch(self, not waits)
        elif waits:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _has_much(self) -> bool:
        """Is there so much to do that more can wait? What a turn left undone counts too: else each
        slow commit would let in more of a long pipeline than is done before the next."""
        return len(self.backlog) > limits.MAX_UNREAD_CHUNKS or self.session.waiting > RESERVED

    def _take(self, data: bytes) -> None:
        """Do what is whole, and note when the request began that is not."""
        before = self.session.waiting
        self.work(data)
        self._note_beginning(before, len(data))

    def _note_beginning(self, before: int, came: int) -> None:
        """Note when the request began that is not yet whole: so many bytes had waited before, and
        so many came."""
        waiting = self.session.waiting
        if waiting and (not before or waiting < before + came):
            self.begun = self.session.last

    def _weigh_if_due(self) -> None:
        if self.session.waiting or self.charged or self.client.queued_bytes:
            self._weigh()

    def _weigh(self) -> None:
        """Count what came and is not yet done into the budget of all, or refuse it."""
        after = self._weight()
        if self.context.input_budget.move(self.charged, after):
            self.charged = after
        elif self.busy or self._committing:
            self.abort()
        else:
            self._refuse("too many large requests at once (max-input-bytes): try again soon")

    def _weight(self) -> int:
        """Bytes that count: of requests that are not yet done, beyond the first ones."""
        return max(self.session.waiting + self.client.queued_bytes - RESERVED, 0)

    def _give_back(self) -> None:
        """Take less of the budget, if less is left to do. More it is not: what was held while the
        log was slow is whole commands of a client that may take its replies."""
        after = self._weight()
        if after < self.charged:
            self.context.input_budget.move(self.charged, after)
            self.charged = after

    def _refuse(self, why: str) -> None:
        """Reply with an error, and close the connection."""
        self._join()
        self.session.reply(encode(Failure(f"ERR {why}"), 2))
        self.client.closing = True

    def sweep(self, now: float) -> None:
        """End it if its client was silent too long, does not take its replies, does not end its
        request or does not log in."""
        settings = self.context.settings
        idle = settings.timeout and now - self.session.last > settings.timeout
        since = self.paused_since
        slow = since is not None and now - since > settings.slow_client_seconds
        late = self._stalls(now, settings.request_seconds) or self.client.login_is_over(now)
        if slow or late or (idle and not self.busy and not self._committing):
            self.abort()

    def _stalls(self, now: float, seconds: float) -> bool:
        """Has it begun a request, and not ended it in time?"""
        waiting = self.session.waiting
        return waiting > 0 and not self._waits and now - self.begun > patience(seconds, waiting)

    def eof_received(self) -> bool:
        """Answer what was asked before; then close. People send commands with `nc` like that."""
        self.ended = True
        if not self._waits:
            self._join()
            self._close_if_done()
        # TLS has no half that stays open; to say so would make the loop warn of it.
        return self.transport.get_extra_info("sslcontext") is None

    def work(self, data: bytes) -> None:
        """Process what the client sent."""
        session = self.session
        self._join()
        if data.startswith(_TLS_HELLO) and not session.waiting:
            # The client would wait for an answer in TLS, and the server for the end of a line.
            session.reply(encode(Failure("ERR Protocol error: there is no TLS at this port"), 2))
            self.client.closing = True
            return
        self._run(session.feed(data))

    def _run(self, command: FeedResult) -> None:
        """Continue with this command, and those that follow."""
        if isinstance(command, bool):  # more follows, after other clients were served
            self._later(0.0 if command else _WAIT)
        elif command is not None:
            self.busy = True
            self._choose_reading()
            task = asyncio.ensure_future(self._serve(command))
            self.clients.tasks.add(task)
            task.add_done_callback(self.clients.tasks.discard)
        else:
            self._settle()

    def _settle(self) -> None:
        """Check what is left to do, once no command is."""
        session, client = self.session, self.client
        unauthenticated = client.user is None and not client.closing
        if unauthenticated and session.waiting > limits.MAX_STRANGER_BYTES:
            session.reply(encode(Failure("ERR Protocol error: unauthenticated bulk length"), 2))
            client.closing = True
        if self.ended:
            self._close_if_done()

    async def _serve(self, command: FeedResult) -> None:
        """Run the commands that native code leaves to Python, one after another."""
        try:
            await self._serve_each(command)
        except BaseException:  # else the connection would stay busy
            self.abort()
            raise
        if not self.transport.is_closing():
            self._join()
            self.resume_input()

    async def _serve_each(self, command: FeedResult) -> None:
        session, client, share = self.session, self.client, Slice()
        while command is not None and not client.closing and not self.transport.is_closing():
            if isinstance(command, bool):
                await asyncio.sleep(0.0 if command else _WAIT)
            elif isinstance(command, str) or command[0][:6].upper() in _HTTP:
                if not isinstance(command, str):
                    command = "this is HTTP, whose port is another"
                session.reply(encode(Failure(f"ERR Protocol error: {command}"), 2))
                client.closing = True
            else:
                await dispatch(client, command)
            if session.pending > limits.MAX_PENDING_REPLIES or share.over:
                self._join()
                await asyncio.sleep(0)  # the replies go out at the end of the tick
                await self._writable()
                share = Slice()
            self._join()
            command = None if client.closing else session.feed(b"")

    async def _writable(self) -> None:
        """Return when the client takes replies."""
        while self.paused_since is not None and not self.transport.is_closing():
            await asyncio.sleep(_WAIT)

    def _close_if_done(self) -> None:
        """Close after these replies, because nothing more arrives; after the answers to writes, if
        some wait for the log."""
        if not self.session.writing and not self.session.waiting:
            self.client.closing = True
        elif not self.session.writing and not self.busy:
            self.client.closing = True  # an incomplete request

    def _later(self, seconds: float = 0.0) -> None:
        """Continue after other clients were served, or in a moment."""
        self.busy = True
        self._choose_reading()
        loop = asyncio.get_running_loop()
        if seconds:
            loop.call_later(seconds, self.resume_input)
        else:
            loop.call_soon(self.resume_input)

    def resume_input(self) -> None:
        """Process input that waits. If that fails, close the connection, and serve the others."""
        try:
            self._resume_input()
        except Exception as problem:  # noqa: BLE001
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a connection has failed", "exception": problem}
            )
            self.abort()

    def _resume_input(self) -> None:
        self.busy = False
        if not self._waits and not self.transport.is_closing() and not self.client.closing:
            data, self.backlog = b"".join(self.backlog), []
            self.begun = time.monotonic()  # until now the server did not read
            self._take(data)
            # While it is busy, the input has complete commands, which are processed.
            if not self.busy and (self.session.waiting or self.client.queued_bytes):
                self._weigh()
        self._choose_reading()

    # As a writer of the sequencer.

    def _join(self) -> None:
        """Take part in this tick."""
        self.session.last = now = time.monotonic()
        if not self.joined:
            self.joined = True
            self.share_ends = now + SECONDS
            self.context.sequencer.join(self)

    @property
    def writing(self) -> bool:
        """Whether writes wait for the log."""
        return self.session.writing and not self.session.held

    def hold(self) -> None:
        """Process nothing more until the writes are answered."""
        self.session.held, self.joined = True, False

    def answer(self, results: list[Any]) -> None:
        """Reply with the results of what was written, and continue."""
        outcomes = outcomes_of(results)
        conflicts = self.session.answer(outcomes)
        if conflicts is None:
            self._start(self._answer_later(results))
        elif conflicts:
            self.run_again(outcomes, conflicts)
        else:
            self.resume_after_answer()

    async def _answer_later(self, results: list[Any]) -> None:
        """Reply when threads have applied all records."""
        pending = [result for result in results if isinstance(result, asyncio.Future)]
        await asyncio.wait(pending)
        self.answer([_result_of(result) for result in results])

    def run_again(self, outcomes: _native.Outcomes, conflicts: list[list[bytes]]) -> None:
        """Run commands again whose filter another command changed first; then answer."""
        self._start(self._run_again(outcomes, conflicts))

    async def _run_again(self, outcomes: _native.Outcomes, conflicts: list[list[bytes]]) -> None:
        values = []
        for words in conflicts:
            await self.context.engine.locks.unlocked(*words[1:2])
            values.append(await invoke_queued(self.client, words))
        replies = [encode(value, self.session.protocol) for value in values]
        self.session.answer(outcomes, replies)
        self.resume_after_answer()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(self._guard(work))
        self.clients.tasks.add(task)
        task.add_done_callback(self.clients.tasks.discard)

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        """Close the connection if an answer fails: it would wait without end."""
        try:
            await work
        except BaseException:
            self.abort()
            raise

    def fail(self, problem: errors.BloomeryError) -> None:
        """Reply with an error to the writes, and continue."""
        self.session.fail(encode(failure_of(problem), 2))
        self.resume_after_answer()

    def resume_after_answer(self) -> None:
        """Send the answers to writes, and process the input that waits."""
        self.session.held = False
        self.send()
        if (self.backlog or self.ended or self.session.waiting) and not self.busy:
            self.resume_input()

    def send(self) -> None:
        """Send the replies of this tick."""
        self.joined = False
        if self.transport.is_closing() or self.session.held:
            return
        if self.charged:
            self._give_back()
        # Nothing may overtake what the transport still has to send.
        sockets = None if self.transport.get_write_buffer_size() else self._sockets
        sent = sockets is not None and sockets.send(self)
        data = b"" if sent else self.session.take()
        if data:
            self.transport.write(data)
        if self.client.closing and not self.session.writing:
            self.stop_reading()
            self.transport.close()
        elif self.paused_since is not None and (
            self.transport.get_write_buffer_size() > self.context.settings.client_output_limit
        ):
            self.abort()

    def pause_writing(self) -> None:
        """Read no more: it does not take what it has asked for."""
        self.paused_since = time.monotonic()
        self._choose_reading()

    def resume_writing(self) -> None:
        """Read on."""
        self.paused_since = None
        self._choose_reading()
        if not self.busy:
            self._later()
