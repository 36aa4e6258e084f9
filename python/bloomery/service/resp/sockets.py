"""Connections without TLS that native code reads and answers: one call reads all sockets with data,
another sends all replies of a tick.

    epoll of these sockets ──readable──> read: parse, answer reads, note writes
                                          └──> Python, for other commands
                  end of the tick: flush ──> replies to reads
                  log has the batch: answer ──> replies to writes

Without a pipeline each request is a wake-up. With a call for each connection, through its transport
and back, a request took a third more time. All replies of a tick go out together: sent as soon as
they existed, 50 clients got 87,000 answers per second instead of 107,000 (one run of six rounds).
The transport handles what the socket does not take, the end of a connection, errors and TLS.
"""

from __future__ import annotations

import asyncio
import select
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol, TypeAlias

from bloomery import _native, errors
from bloomery.service.domain.operations import Conflict
from bloomery.service.resp.replies import encode, failure_of
from bloomery.service.sequencer import Sequencer, Writer

FeedResult: TypeAlias = list[bytes] | str | bool | None  # of `Session.feed`


def outcomes_of(results: list[Any]) -> _native.Outcomes:
    """Return the results of a batch for native sessions: an error as its reply, None for a
    conflict."""
    return _native.Outcomes([_outcome_of(result) for result in results])


def _outcome_of(result: Any) -> Any:
    if isinstance(result, Conflict):
        return None
    return encode(failure_of(result), 2) if isinstance(result, errors.BloomeryError) else result


class DirectConnection(Writer, Protocol):
    """A connection whose socket native code reads."""

    socket: int
    session: _native.Session

    def resume(self, command: FeedResult, before: int, arrived: int) -> None:
        """Continue after native code has read: this many bytes waited before, and this many
        arrived."""

    def resume_after_answer(self) -> None:
        """Send the replies that the socket did not take, and process the input that waits."""

    def run_again(self, outcomes: _native.Outcomes, conflicts: list[list[bytes]]) -> None:
        """Run commands again whose filter another command changed first; then answer."""

    def data_received(self, data: bytes) -> None:
        """Keep what arrived while the connection waits."""

    def hand_back_reading(self) -> None:
        """Let the transport read from now on."""

    def abort(self) -> None:
        """Close the connection at once."""


class Sockets:
    """The sockets that native code reads."""

    def __init__(self, sequencer: Sequencer) -> None:
        assert sys.platform == "linux"
        self._sequencer = sequencer
        self._native = _native.Sockets()
        self._epoll = select.epoll()
        self._watched: set[int] = set()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._epoll.fileno(), self._read)
        sequencer.add_group(self)

    def close(self) -> None:
        """Read no more."""
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def add(self, connection: DirectConnection) -> None:
        """Read this connection's socket, which stays open until it is removed."""
        self._native.add(connection.socket, connection.session, connection)
        self.watch(connection, True)

    def remove(self, connection: DirectConnection) -> None:
        """Stop reading it."""
        self.watch(connection, False)
        self._native.remove(connection.socket)

    def watch(self, connection: DirectConnection, wanted: bool) -> None:
        """Read the socket, or pause reading."""
        number = connection.socket
        if wanted and number not in self._watched:
            self._watched.add(number)
            self._epoll.register(number, select.EPOLLIN)
        elif not wanted and number in self._watched:
            self._watched.remove(number)
            self._epoll.unregister(number)

    def _read(self) -> None:
        """Process what arrived, in this tick."""
        ready = self._epoll.poll(0)
        self._sequencer.join()
        fed, held, ended = self._native.read(ready, time.monotonic())
        for connection, *what in fed:
            self._step(connection, partial(connection.resume, *what))
        for connection, data in held:
            self._step(connection, partial(connection.data_received, data))
        for connection in ended:
            self._step(connection, connection.hand_back_reading)

    def _step(self, connection: DirectConnection, step: Callable[[], None]) -> None:
        """Continue a connection; if that fails, close it, and serve the others."""
        try:
            step()
        except Exception as problem:  # noqa: BLE001
            self._loop.call_exception_handler(
                {"message": "a connection has failed", "exception": problem}
            )
            connection.abort()

    # As a group of the sequencer.

    def flush(self) -> None:
        """Send the replies of connections without writes, and hold the others."""
        for connection in self._native.flush():
            self._step(connection, connection.send)

    def start_batch(self) -> int:
        """Let the connections that wrote wait for this batch; return how many there are."""
        return self._native.start_batch()

    def answer(self, results: list[Any]) -> None:
        """Reply with the results of the batch."""
        outcomes = outcomes_of(results)
        left, conflicts, unfinished = self._native.answer(outcomes)
        self._resume(left)
        for connection, commands in conflicts:
            self._step(connection, partial(connection.run_again, outcomes, commands))
        for connection in unfinished:
            self._step(connection, partial(connection.answer, results))

    def fail(self, problem: errors.BloomeryError) -> None:
        """Reply with an error."""
        self._resume(self._native.fail(encode(failure_of(problem), 2)))

    def _resume(self, connections: Iterable[DirectConnection]) -> None:
        for connection in connections:
            self._step(connection, connection.resume_after_answer)

    def send(self, connection: DirectConnection) -> bool:
        """Send the replies of one connection; False if some are left."""
        return self._native.send(connection.socket)
