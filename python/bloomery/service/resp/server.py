"""The server of the Redis protocol. Workers (native threads) own the connections, answer reads and
collect writes. This module accepts connections, runs the commands that workers hand over, and
drains when the server stops.

    accept ──> worker ──commands──> dispatch ──resume──> worker ──> replies
                      └─conflicts─> run again ──answer──> worker ──> replies
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Coroutine
from typing import Any

from bloomery import _native, errors
from bloomery.service.domain.operations import Conflict
from bloomery.service.network.listening import Acceptor
from bloomery.service.network.tls import Certificate, Tls
from bloomery.service.parts import Parts
from bloomery.service.resp import limits
from bloomery.service.resp.client import Clients, ClientState
from bloomery.service.resp.dispatch import dispatch
from bloomery.service.resp.invoke import invoke_queued
from bloomery.service.resp.replies import encode, failure_of
from bloomery.service.slices import Slice

_LOG_SECONDS = 5.0  # to write the last batches to the log when the server stops
_POLL = 0.005  # seconds between two looks at a client that does not accept replies
_MAX_HANDSHAKES = 1000  # for one more, the oldest is disconnected


def outcomes_of(results: list[Any]) -> _native.Outcomes:
    """Return the results of a batch for native sessions: an error as its reply, None for a
    conflict."""
    return _native.Outcomes([_outcome_of(result) for result in results])


def _outcome_of(result: Any) -> Any:
    if isinstance(result, Conflict):
        return None
    return encode(failure_of(result), 2) if isinstance(result, errors.BloomeryError) else result


def _result_of(result: Any) -> Any:
    """Return the result of a record, also if a thread applied it."""
    if not isinstance(result, asyncio.Future):
        return result
    return result.exception() or result.result()


def default_threads() -> int:
    """Return the number of cores that the process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


class RespServer:
    """Serves clients of the Redis protocol."""

    # Set by open().
    workers: _native.Workers

    def __init__(self, context: Parts) -> None:
        self.context = context
        self.clients = Clients(context)
        self._wake: socket.socket | None = None
        self._handshakes: dict[int, ClientState] = {}  # oldest first

    async def open(self, hosts: list[str], port: int, tls: Tls | None) -> Acceptor:
        """Accept connections from now on."""
        context, settings = self.context, self.context.settings
        self._wake, wake = socket.socketpair()
        for end in (self._wake, wake):
            end.setblocking(False)
        self.workers = _native.Workers(
            context.engine.shelf,
            settings.threads or default_threads(),
            wake.detach(),
            context.input_budget.native,
            self._limits(),
            None if tls is None else tls.pem,
            None if context.file_log is None else context.file_log.for_workers,
        )
        self.clients.workers = self.workers
        context.sequencer.serve(self)
        context.live.on_change.subscribe(self._follow_settings)
        asyncio.get_running_loop().add_reader(self._wake.fileno(), self._woken)
        if tls is not None:
            tls.on_change.subscribe(self._replace_certificate)
        context.sequencer.join()  # publishes due times before the first client
        self._uses_tls = tls is not None
        acceptor = Acceptor(self._accepted, self._make_room)
        acceptor.open(hosts, port)
        return acceptor

    def _limits(self) -> tuple[float, float, float, float, int]:
        settings = self.context.settings
        return (
            settings.timeout,
            settings.slow_client_seconds,
            settings.request_seconds,
            settings.tls_handshake_seconds,
            settings.client_output_limit,
        )

    def _follow_settings(self) -> None:
        self.workers.configure(self._limits())
        self.context.input_budget.follow_settings()

    def _replace_certificate(self, certificate: Certificate) -> None:
        self.workers.replace_certificate(*certificate.pem)

    # Connections.

    def _accepted(self, connection: socket.socket) -> None:
        client = self.clients.welcome(connection)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._uses_tls:
            self._handshakes[client.id] = client
            if len(self._handshakes) > _MAX_HANDSHAKES:
                self._make_room()
        try:
            self.workers.open(connection.detach(), client.session, client.closing)
        except errors.BloomeryError:
            self._handshakes.pop(client.id, None)
            self.clients.farewell(client.id)
            raise

    def _make_room(self) -> None:
        """Disconnect the client whose handshake has taken longest, if there is one."""
        if self._handshakes:
            self._handshakes.pop(next(iter(self._handshakes))).abort()

    # Events of the workers.

    def _woken(self) -> None:
        assert self._wake is not None
        with contextlib.suppress(BlockingIOError):
            self._wake.recv(4096)
        batch, events = self.workers.take_events()
        if batch is not None and self.context.file_log is not None:
            self.context.file_log.take_over(*batch)
        self.context.sequencer.join()
        for kind, number, commands, outcomes in events:
            client = self.clients.connections.get(number)
            if kind == "closed":
                self._handshakes.pop(number, None)
                self.clients.farewell(number)
            elif client is None:
                continue  # it was closed
            elif kind == "greeted":
                self._handshakes.pop(number, None)
            elif commands is not None and outcomes is not None:  # conflicts
                self._start(client, self._run_again(client, commands, outcomes))
            elif commands is not None:
                client.busy = True
                self._start(client, self._serve(client, commands))

    def _start(self, client: ClientState, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(self._guard(client, work))
        self.clients.tasks.add(task)
        task.add_done_callback(self.clients.tasks.discard)

    async def _guard(self, client: ClientState, work: Coroutine[Any, Any, None]) -> None:
        """Close the connection if its work fails: the client would wait without end."""
        try:
            await work
        except BaseException:
            client.abort()
            raise

    async def _serve(self, client: ClientState, commands: list[list[bytes]]) -> None:
        """Run the commands that workers leave to Python, one after another."""
        share = Slice()
        for words in commands:
            await dispatch(client, words)
            if client.closing or client.id not in self.clients.connections:
                break
            if client.session.pending > limits.MAX_PENDING_REPLIES:
                await self._accepts_replies(client)
            await share.rest()
        client.busy = False
        self.workers.resume(client.session, client.closing)

    async def _accepts_replies(self, client: ClientState) -> None:
        """Return when the client has accepted most of its replies, or has disconnected. A
        worker disconnects a client that accepts no replies."""
        self.workers.flush(client.session)
        while client.session.pending > limits.MAX_PENDING_REPLIES:
            if client.id not in self.clients.connections:
                return
            await asyncio.sleep(_POLL)

    async def _run_again(
        self, client: ClientState, commands: list[list[bytes]], outcomes: _native.Outcomes
    ) -> None:
        """Run commands again whose filter another command changed first; then answer."""
        values = []
        for words in commands:
            await self.context.engine.locks.unlocked(*words[1:2])
            values.append(await invoke_queued(client, words))
        replies = [encode(value, client.protocol) for value in values]
        self.workers.answer_again(client.session, outcomes, replies)

    # As the clients of the sequencer.

    def answer(self, batch: int, results: list[Any], waiters: _native.Waiters) -> None:
        """Reply with the results of a batch; where a thread still applies a record, later."""
        self.workers.answer(batch, outcomes_of(results), waiters)
        pending = [result for result in results if isinstance(result, asyncio.Future)]
        if pending:
            task = asyncio.ensure_future(self._answer_rest(batch, results, pending))
            self.clients.tasks.add(task)
            task.add_done_callback(self.clients.tasks.discard)

    async def _answer_rest(
        self, batch: int, results: list[Any], pending: list[asyncio.Future[Any]]
    ) -> None:
        await asyncio.wait(pending)
        self.workers.answer_rest(batch, outcomes_of([_result_of(result) for result in results]))

    def fail(self, problem: errors.BloomeryError, waiters: _native.Waiters) -> None:
        """Reply with an error to the writes of a batch."""
        self.workers.fail(encode(failure_of(problem), 2), waiters)

    # Each second, and at the end.

    def sweep(self) -> None:
        """Each second: measure the rate of commands, and disconnect clients that do not log in.
        Workers disconnect slow ones."""
        self.clients.sample()
        now = time.monotonic()
        for client in list(self.clients.connections.values()):
            if client.login_is_over(now):
                client.abort()

    def follow_users(self) -> None:
        """Apply a change of the users to the clients that are connected."""
        for client in list(self.clients.connections.values()):
            if not client.follow_users():
                client.abort()

    async def drain(self, until: float) -> None:
        """Let commands that have started finish, and send their replies; not past a time."""
        clients = self.clients
        while clients.tasks and time.monotonic() < until:
            await asyncio.sleep(0.01)
        self.workers.drain()
        # Writes are answered once they are in the log, which a thread may be busy with.
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.context.sequencer.close(), _LOG_SECONDS)
        self.workers.close_all()
        while clients.connections and time.monotonic() < until:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(self.workers.stop)
        if self._wake is not None:
            asyncio.get_running_loop().remove_reader(self._wake.fileno())
            self._wake.close()
