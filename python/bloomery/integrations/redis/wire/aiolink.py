"""Round trips to Redis, on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeVar

from bloomery.errors import CorruptData
from bloomery.flow import drive_async
from bloomery.integrations.redis.wire.clients import Given, given, watchers
from bloomery.integrations.redis.wire.failures import failures_of_a_reply, troubles
from bloomery.integrations.redis.wire.flow import Ask, Flow
from bloomery.integrations.redis.wire.replies import parsed_by, taken
from bloomery.integrations.redis.wire.retry import Part, Round

__all__ = ["AsyncLink"]

T = TypeVar("T")


class _Node:
    """A node of a cluster, used as a pool of connections is: redis-py's own checks none of them."""

    def __init__(self, node: Any) -> None:
        self.node = node

    async def get_connection(self) -> Any:
        connection = self.node.acquire_connection()
        try:
            if connection.is_connected and await _stale(connection):
                await connection.disconnect(nowait=True)
            if not connection.is_connected:
                await connection.connect()
        except BaseException:
            self.node.release(connection)
            raise
        return connection

    async def release(self, connection: Any) -> None:
        self.node.release(connection)


async def _stale(connection: Any) -> bool:
    try:
        return bool(await connection.can_read())
    except Exception:  # noqa: BLE001  # whatever it is, this one is not to be used
        return True


class AsyncLink:
    """The same as `Link`, with a client of redis.asyncio. Tasks of one loop may share it."""

    def __init__(self, redis: Any, *, timeout: float = 5.0) -> None:
        self._given = given(redis, for_asyncio=True, timeout=timeout)
        self.timeout = timeout
        self._client: Any = None
        self._mine: list[Any] = []

    @property
    def client(self) -> Any:
        """The client; nothing is sent when it is made."""
        if self._client is None:
            self._use(self._given)
        return self._client

    @property
    def place(self) -> str:
        """Where Redis is, without secrets."""
        return self._given.place

    def _use(self, found: Given) -> None:
        client = found.make()
        if found.own:
            self._mine.append(client)
        self._given, self._client = found, client

    async def close(self) -> None:
        """Close what was made here; a client that was given is its owner's."""
        mine, self._mine, self._client = self._mine, [], None
        for client in mine:
            for one in (client, *watchers(client)):
                await one.aclose()

    async def run(self, flow: Flow[T]) -> T:
        """Make the round trips of a flow."""
        return await drive_async(flow, self.exchange)

    async def exchange(self, asks: list[Ask]) -> list[list[Any]]:
        """Send everything, then read the replies to each; try again where that may help."""
        trip = Round(asks, self.timeout, self._given.place)
        while True:
            await self._attempt(trip)
            pause = trip.pause()
            if pause is None:
                return trip.replies
            await asyncio.sleep(pause)
            await self._refresh(trip)

    async def _attempt(self, trip: Round) -> None:
        waiting: list[tuple[Any, Any, list[Part]]] = []
        try:
            for pool, parts in await self._routed(trip):
                try:
                    connection = await pool.get_connection()
                except troubles() as problem:
                    trip.unsent(parts, problem)
                    continue
                waiting.append((pool, connection, parts))
                try:
                    await connection.send_packed_command(b"".join([part.data for part in parts]))
                except troubles() as problem:
                    trip.lost(parts, problem)
                    waiting.pop()
                    await connection.disconnect(nowait=True)
                    await pool.release(connection)
            while waiting:
                pool, connection, parts = waiting[0]
                await self._read(trip, connection, parts)
                del waiting[0]
                await pool.release(connection)
        finally:
            # Somebody else's question must not be answered by what was not read: this task may
            # have been cancelled in the middle of it.
            for pool, connection, _ in waiting:
                await connection.disconnect(nowait=True)
                await pool.release(connection)

    async def _routed(self, trip: Round) -> Iterable[tuple[Any, list[Part]]]:
        """Which parts go where."""
        cluster = self.client
        if self._given.kind != "cluster":
            return [(cluster.connection_pool, trip.left)]
        try:
            await cluster.initialize()
        except troubles() as problem:
            trip.unsent(trip.left, problem)
            return []
        nodes: dict[str, tuple[Any, list[Part]]] = {}
        for part in trip.left:
            try:
                node = cluster.get_node(*part.asked) if part.asked else None
                node = node or cluster.get_node_from_key(trip.asks[part.index].key)
            except troubles() as problem:
                trip.unsent([part], problem)
            else:
                nodes.setdefault(node.name, (_Node(node), []))[1].append(part)
        return nodes.values()

    async def _read(self, trip: Round, connection: Any, parts: list[Part]) -> None:
        cut_off, said_no = failures_of_a_reply()
        read, gets = connection.read_response, parsed_by(connection)
        wrong = False
        for number, part in enumerate(parts):
            found: list[Any] = []
            bad = False
            while len(found) < part.count:
                try:
                    found.append(await read(disable_decoding=True))
                    if gets is not None:
                        errors, told = taken(gets, found, part.count)
                        bad |= errors
                        for message in told:
                            await connection._parser.handle_push_response(message)
                except said_no as problem:
                    found.append(problem)
                    bad = True
                except cut_off as problem:
                    await connection.disconnect(nowait=True)
                    trip.lost(parts[number:], problem)
                    return
                except Exception as problem:
                    raise CorruptData(
                        f"Redis at {self._given.place} answered what is no answer of Redis: "
                        f"{type(problem).__name__}"
                    ) from problem
            if not bad:
                trip.answered(part, found)
            else:
                wrong |= trip.read(part, found, self._given.routing)
        if wrong:  # the next connection may lead elsewhere
            await connection.disconnect(nowait=True)

    async def _refresh(self, trip: Round) -> None:
        """Ask anew who is who."""
        from redis.exceptions import AskError

        if not trip.moved:
            return
        trip.moved = False
        with suppress(*troubles()):
            if self._given.kind == "cluster":
                await self.client.nodes_manager.initialize()
            elif isinstance(trip.problem, AskError) and self._given.as_cluster is not None:
                self._use(self._given.as_cluster())
            else:
                await self.client.connection_pool.disconnect(inuse_connections=False)
