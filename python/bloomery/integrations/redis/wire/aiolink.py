"""Round trips to Redis on an event loop: sends packed commands, reads replies, retries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeVar

from bloomery.flow import drive_async
from bloomery.integrations.redis.wire.failures import nonsense, reply_failures, troubles
from bloomery.integrations.redis.wire.flow import Ask, Flow
from bloomery.integrations.redis.wire.redis_internals import AsyncNodePool, AsyncReplyReader
from bloomery.integrations.redis.wire.retry import RoundTrip, Sending
from bloomery.redis_client import redis_client

T = TypeVar("T")
_NOWAIT = True  # a connection that is given up is not waited for


class AsyncLink:
    """A client of redis-py that is given packed commands: packing each in Python took most of the
    time of a pipeline. Tasks of one loop may share it."""

    def __init__(self, redis: Any, *, timeout: float = 5.0) -> None:
        # Retries of redis-py's own would come on top of those of `RoundTrip`, for each of them.
        self.redis = redis_client(redis, "filter", for_asyncio=True, timeout=timeout, retries=0)
        self.timeout = timeout

    @property
    def client(self) -> Any:
        """The client of redis-py."""
        return self.redis.client

    @property
    def place(self) -> str:
        """Where Redis is, without secrets."""
        return self.redis.place

    async def close(self) -> None:
        """Close what was made here; a client that was given is its owner's."""
        await self.redis.aclose()

    async def run(self, flow: Flow[T]) -> T:
        """Make the round trips of a flow."""
        return await drive_async(flow, self.exchange)

    async def exchange(self, asks: list[Ask]) -> list[list[Any]]:
        """Send everything, then read the replies to each; retry where that may help."""
        trip = RoundTrip(asks, self.timeout, self.place)
        await self._attempt(trip)
        return await self._retry(trip)

    async def _retry(self, trip: RoundTrip) -> list[list[Any]]:
        """Attempt it again until every ask is answered; return the replies to each."""
        while (pause := trip.pause()) is not None:
            await asyncio.sleep(pause)
            await self._refresh(trip)
            await self._attempt(trip)
        return trip.replies

    async def _attempt(self, trip: RoundTrip) -> None:
        waiting: list[tuple[Any, Any, list[Sending]]] = []
        try:
            for pool, sendings in await self._routes(trip):
                try:
                    connection = await self._take(pool)
                except troubles() as problem:
                    trip.unsent(sendings, problem)
                    continue
                waiting.append((pool, connection, sendings))
                try:
                    data = b"".join([sending.data for sending in sendings])
                    await connection.send_packed_command([data])
                except troubles() as problem:
                    trip.lost(sendings, problem)
                    waiting.pop()
                    await connection.disconnect(_NOWAIT)
                    await pool.release(connection)
            while waiting:
                pool, connection, sendings = waiting[0]
                await self._read(trip, connection, sendings)
                del waiting[0]
                await self._give_back(pool, connection)
        finally:
            # Replies that were not read must not answer the next question on this connection: an
            # error, or a task that is cancelled, may have come in between.
            for pool, connection, _ in waiting:
                await connection.disconnect(_NOWAIT)
                await pool.release(connection)

    async def _take(self, pool: Any) -> Any:
        return await pool.get_connection()

    async def _give_back(self, pool: Any, connection: Any) -> None:
        await pool.release(connection)

    async def _routes(self, trip: RoundTrip) -> Iterable[tuple[Any, list[Sending]]]:
        """Return which pools of connections what is left goes through: one of each node."""
        if not self.redis.cluster:
            return [(self.client.connection_pool, trip.left)]
        try:
            cluster = self.client
            await cluster.initialize()
        except troubles() as problem:
            trip.unsent(trip.left, problem)
            return []
        nodes: dict[str, tuple[Any, list[Sending]]] = {}
        for sending in trip.left:
            try:
                node = cluster.get_node(*sending.redirect) if sending.redirect else None
                node = node or cluster.get_node_from_key(trip.asks[sending.index].key)
                pool = AsyncNodePool(node)
            except troubles() as problem:
                trip.unsent([sending], problem)
            else:
                nodes.setdefault(node.name, (pool, []))[1].append(sending)
        return nodes.values()

    async def _read(self, trip: RoundTrip, connection: Any, sendings: list[Sending]) -> None:
        reader = AsyncReplyReader(connection)
        moved = False
        for number, sending in enumerate(sendings):
            try:
                replies, errors = await reader.read(sending.count)
            except reply_failures()[0] as problem:
                await connection.disconnect(_NOWAIT)
                trip.lost(sendings[number:], problem)
                return
            except Exception as problem:
                raise nonsense(problem, self.place) from problem
            if not errors:
                trip.answered(sending, replies)
            else:
                moved |= trip.refused(sending, replies, self.redis.routing)
        if moved:  # the next connection may lead elsewhere
            await connection.disconnect(_NOWAIT)

    async def _refresh(self, trip: RoundTrip) -> None:
        """Find out anew which servers there are, after a failover or when slots have moved."""
        from redis.exceptions import AskError

        if not trip.moved:
            return
        trip.moved = False
        with suppress(*troubles()):
            if self.redis.cluster:
                await self.client.nodes_manager.initialize()
            elif isinstance(trip.problem, AskError) and self.redis.switch_to_cluster():
                return
            else:
                await self.client.connection_pool.disconnect(inuse_connections=False)
