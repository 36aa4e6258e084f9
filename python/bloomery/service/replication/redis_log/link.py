"""A connection to Redis on an event loop that sends nothing twice.

redis-py finds the server (Sentinel, cluster), connects, and says who we are (TLS, user, database).
From then on bytes are exchanged here: an append took the node 73 µs of processor time by redis-py's
client, 35 by its connection, and 12 so. Nor does a client of redis-py promise to send once: it
tries again after an error, and an entry must not be appended twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from bloomery.redis_client import RedisClient

Command: TypeAlias = tuple[bytes | int, ...]


class LinkLost(Exception):
    """No answer: nobody knows whether it was done."""


class _LogQuestion(NamedTuple):
    """Commands that were sent at once."""

    expected: int
    replies: list[Any]
    answered: asyncio.Future[list[Any]]


class _LogExchange(asyncio.Protocol):
    """Questions on a connection, answered in their order."""

    def __init__(self, writer: asyncio.StreamWriter, reader: Any) -> None:
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_LogQuestion] = deque()
        self._writer = writer  # closes the transport when it is collected
        self._transport: Any = writer.transport
        self.ended = False
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.heard = 0.0  # when something came, by the loop's clock
        self._transport.set_protocol(self)

    def ask(self, data: bytes, question: _LogQuestion) -> None:
        """Send packed commands."""
        self._waiting.append(question)
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        import hiredis

        self.heard = self._loop.time()
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                question = self._waiting[0]
                question.replies.append(reply)
                if len(question.replies) == question.expected:
                    self._waiting.popleft()
                    if not question.answered.done():
                        question.answered.set_result(question.replies)
        except (hiredis.ProtocolError, IndexError):
            self.end("Redis answered what is no answer")

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self.end("the connection ended")
        if not self.closed.done():
            self.closed.set_result(None)

    def overdue(self, question: _LogQuestion, seconds: float) -> None:
        """End it, unless the answer is coming: a long one by a slow network takes its time, and
        would not be shorter the next time."""
        if question.answered.done():
            return
        left = self.heard + seconds - self._loop.time()
        if left > 0:
            self._loop.call_later(left, self.overdue, question, seconds)
        else:
            self.end(f"no answer within {seconds:g} s")

    def end(self, why: str) -> None:
        """Close it; all who wait are told why."""
        if self.ended:
            return
        self.ended = True
        self._transport.abort()
        while self._waiting:
            answered = self._waiting.popleft().answered
            if not answered.done():
                answered.set_exception(LinkLost(why))


class LogLink:
    """One connection, made when it is first used and again after each loss."""

    def __init__(self, redis: RedisClient, key: bytes, timeout: float) -> None:
        """`key`: in a cluster, the node that has it is asked. `timeout`: seconds for an answer."""
        import hiredis

        self._redis, self._key, self._timeout = redis, key.decode(), timeout
        self._pack: Callable[[Any], bytes] = hiredis.pack_command
        self._parser = hiredis.Reader
        self._exchange: _LogExchange | None = None
        self._again = False  # was a connection tried before?
        self._connecting = asyncio.Lock()

    @property
    def is_connected(self) -> bool:
        """Is there a connection, as far as is known?"""
        return self._exchange is not None and not self._exchange.ended

    async def ask(self, *commands: Command, longer: float = 0.0) -> list[Any]:
        """Send commands at once and return the reply to each, errors among them; LinkLost if they
        do not come in time (`longer`: beyond the usual). Then, or if this is cancelled, the
        connection is closed, for all who wait for it."""
        exchange = self._exchange
        if exchange is None or exchange.ended:
            exchange = await self._connected()
        loop = asyncio.get_running_loop()
        question = _LogQuestion(len(commands), [], loop.create_future())
        data = [self._pack(command) for command in commands]
        exchange.ask(data[0] if len(data) == 1 else b"".join(data), question)
        seconds = self._timeout + longer
        timer = loop.call_later(seconds, exchange.overdue, question, seconds)
        try:
            return await question.answered
        except asyncio.CancelledError:
            exchange.end("given up")
            raise
        finally:
            timer.cancel()

    async def _connected(self) -> _LogExchange:
        async with self._connecting:
            exchange = self._exchange
            if exchange is None or exchange.ended:
                try:
                    exchange = await asyncio.wait_for(self._connect(), self._timeout)
                except self._redis.failures as problem:
                    raise LinkLost(self._describe(problem)) from problem
                except RuntimeError as problem:  # of uvloop: the connection ended while it was made
                    raise LinkLost("the connection ended") from problem
                self._exchange = exchange
            return exchange

    async def _connect(self) -> _LogExchange:
        client, again = self._redis.client, self._again
        self._again = True
        if self._redis.cluster:
            await client.initialize()
            if again:  # slots may have moved
                await client.nodes_manager.initialize()
            node = client.get_node_from_key(self._key)
            connection = node.connection_class(**node.connection_kwargs)
        else:
            connection = client.connection_pool.make_connection()
        try:
            await connection.connect()
            # redis-py has no public name for them; these are in all versions that pyproject.toml
            # allows. tests/integration/redis_log fails when they are gone.
            writer = connection._writer
            connection._reader = connection._writer = None
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return _LogExchange(writer, self._parser())

    def _describe(self, problem: Exception) -> str:
        return self._redis.describe(problem).removeprefix(f"Redis at {self._redis.place}: ")

    async def aclose(self) -> None:
        """End the connection for good; return when the event loop has let go of it."""
        self.close("closed")
        if self._exchange is not None:
            await asyncio.wait([self._exchange.closed], timeout=self._timeout)

    def close(self, why: str) -> None:
        """End the connection; the next question makes another, perhaps to another server."""
        if self._exchange is not None:
            self._exchange.end(why)
