"""Round trips to Redis, in the caller's thread."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeVar

from bloomery.errors import CorruptData
from bloomery.flow import drive
from bloomery.integrations.redis.wire.clients import Given, given, watchers
from bloomery.integrations.redis.wire.failures import (
    failures_of_a_reply,
    refused,
    troubles,
    unavailable,
)
from bloomery.integrations.redis.wire.flow import Ask, Flow
from bloomery.integrations.redis.wire.pool import Held, Spare
from bloomery.integrations.redis.wire.replies import (
    can_exchange,
    exchanged,
    filled_by,
    parsed_by,
    taken,
)
from bloomery.integrations.redis.wire.retry import Part, Round

__all__ = ["Link"]

T = TypeVar("T")


class Link:
    """A client of redis-py that is given packed commands: packing each in Python took most of the
    time of a pipeline. Threads may share it."""

    def __init__(self, redis: Any, *, timeout: float = 5.0) -> None:
        self._given = given(redis, for_asyncio=False, timeout=timeout)
        self.timeout = timeout
        self._client: Any = None
        self._lock = threading.RLock()
        self._mine: list[Any] = []
        self._spare = Spare()
        self._quick: bool | None = None  # can a single ask be sent at once? None: not known yet
        weakref.finalize(self, self._spare.close)

    @property
    def client(self) -> Any:
        """The client; one of a cluster that was given as a URL connects when it is made."""
        if self._client is None:
            with self._lock:
                if self._client is None:
                    self._use(self._given)
        return self._client

    @property
    def _keeps(self) -> bool:
        return self._given.own and self._given.kind == "single"

    @property
    def one_connection(self) -> bool:
        """Does all that is sent together go the same way, in order?"""
        return self._given.kind != "cluster"

    def identity(self) -> tuple[object, str]:
        """Which servers these are: others after each restart, and after a failover. And what they
        do when they are full."""
        from redis.exceptions import AuthenticationError, ResponseError

        try:
            nodes = self.client.get_primaries() if self._given.kind == "cluster" else [None]
            found, policy = [], ""
            for node in nodes:
                where = {} if node is None else {"target_nodes": node}
                info = self.client.info(**where)
                found.append((str(info.get("run_id")), str(info.get("master_replid"))))
                policy = str(info.get("maxmemory_policy", ""))
        except (AuthenticationError, ResponseError) as problem:
            raise refused(problem) from problem
        except troubles() as problem:
            raise unavailable(problem, self._given.place) from problem
        return sorted(found), policy

    @property
    def place(self) -> str:
        """Where Redis is, without secrets."""
        return self._given.place

    def _use(self, found: Given) -> None:
        client = found.make()
        if found.own:
            self._mine.append(client)
        self._given, self._client = found, client

    def close(self) -> None:
        """Close what was made here; a client that was given is its owner's."""
        self._spare.close()
        with self._lock:
            mine, self._mine, self._client = self._mine, [], None
        for client in mine:
            for one in (client, *watchers(client)):
                one.close()

    def run(self, flow: Flow[T]) -> T:
        """Make the round trips of a flow."""
        return drive(flow, self.exchange)

    def exchange(self, asks: list[Ask]) -> list[list[Any]]:
        """Send everything, then read the replies to each; try again where that may help."""
        trip = None
        if len(asks) == 1 and self._quick is not False and asks[0].again:
            try:
                sent = self._sent_at_once(asks[0])
            except failures_of_a_reply()[0] as problem:
                trip = self._round(asks)
                trip.lost(trip.left, problem)
            else:
                if sent is not None:
                    found, bad = sent
                    if not bad:
                        return [found]
                    trip = self._round(asks)
                    trip.read(trip.left[0], found, self._given.routing)
        if trip is None:
            trip = self._round(asks)
            self._attempt(trip)
        while (pause := trip.pause()) is not None:
            time.sleep(pause)
            self._refresh(trip)
            self._attempt(trip)
        return trip.replies

    def _round(self, asks: list[Ask]) -> Round:
        return Round(asks, self.timeout, self._given.place)

    def _sent_at_once(self, ask: Ask) -> tuple[list[Any], bool] | None:
        """The usual trip of one key, by the connection at hand: with all that is for other cases it
        took a fifth more of a single `add`. Replies, and whether some are errors; None: nothing was
        sent."""
        held = self._spare.at_hand(self.client.connection_pool) if self._keeps else None
        if held is None:
            return None
        if self._quick is None:
            self._quick = can_exchange(held.connection)
        if not self._quick:
            self._spare.keep(held)
            return None
        sent, usual = None, False
        try:
            sent = exchanged(held.connection, ask.data, ask.replies)
            usual = sent is not None and not sent[1]
        except failures_of_a_reply()[0]:
            raise
        except Exception as problem:
            raise self._no_answer(problem) from problem
        finally:
            if usual:
                self._spare.keep(held)
            else:  # the next one may lead elsewhere
                held.end()
        return sent

    def _attempt(self, trip: Round) -> None:
        waiting: list[tuple[Any, Any, list[Part]]] = []
        try:
            for pool, parts in self._routed(trip):
                try:
                    connection = self._taken(pool)
                except troubles() as problem:
                    trip.unsent(parts, problem)
                    continue
                waiting.append((pool, connection, parts))
                try:
                    connection.send_packed_command([b"".join([part.data for part in parts])])
                except troubles() as problem:
                    trip.lost(parts, problem)
                    waiting.pop()
                    connection.disconnect()
                    pool.release(connection)
            while waiting:
                pool, connection, parts = waiting[0]
                self._read(trip, connection, parts)
                del waiting[0]
                self._let_go(pool, connection)
        finally:
            # Somebody else's question must not be answered by what was not read.
            for pool, connection, _ in waiting:
                connection.disconnect()
                pool.release(connection)

    def _taken(self, pool: Any) -> Any:
        """A connection. None is kept of others' pools, which may be small, nor where Sentinels are
        asked each time who the master is, or a cluster has several."""
        if not self._keeps:
            return pool.get_connection()
        return self._spare.take(pool)

    def _let_go(self, pool: Any, connection: Any) -> None:
        if self._keeps:
            self._spare.keep(Held(pool, connection))
        else:
            pool.release(connection)

    def _routed(self, trip: Round) -> Iterable[tuple[Any, list[Part]]]:
        """Which parts go where."""
        if self._given.kind != "cluster":
            return [(self.client.connection_pool, trip.left)]
        try:
            cluster = self.client
        except troubles() as problem:
            trip.unsent(trip.left, problem)
            return []
        nodes: dict[str, tuple[Any, list[Part]]] = {}
        for part in trip.left:
            try:
                node = cluster.get_node(*part.asked) if part.asked else None
                node = node or cluster.get_node_from_key(trip.asks[part.index].key)
                pool = cluster.get_redis_connection(node).connection_pool
            except troubles() as problem:
                trip.unsent([part], problem)
            else:
                nodes.setdefault(node.name, (pool, []))[1].append(part)
        return nodes.values()

    def _read(self, trip: Round, connection: Any, parts: list[Part]) -> None:
        cut_off, said_no = failures_of_a_reply()
        read, gets = connection.read_response, parsed_by(connection)
        quick = gets is not None and not connection.health_check_interval
        fill = filled_by(connection) if quick else None
        wrong = False
        for number, part in enumerate(parts):
            found: list[Any] = []
            bad = False
            there = number > 0  # may something have come already?
            while len(found) < part.count:
                try:
                    if fill is None:
                        found.append(read(disable_decoding=True))
                    elif not there:
                        fill()
                    there = False
                    if gets is not None:
                        errors, told = taken(gets, found, part.count)
                        bad |= errors
                        for message in told:
                            connection._parser.handle_push_response(message)
                except said_no as problem:
                    found.append(problem)
                    bad = True
                except cut_off as problem:
                    connection.disconnect()
                    trip.lost(parts[number:], problem)
                    return
                except Exception as problem:
                    raise self._no_answer(problem) from problem
            if not bad:
                trip.answered(part, found)
            else:
                wrong |= trip.read(part, found, self._given.routing)
        if wrong:  # the next connection may lead elsewhere
            connection.disconnect()

    def _no_answer(self, problem: Exception) -> CorruptData:
        return CorruptData(
            f"Redis at {self._given.place} answered what is no answer of Redis: "
            f"{type(problem).__name__}"
        )

    def _refresh(self, trip: Round) -> None:
        """Ask anew who is who."""
        from redis.exceptions import AskError

        if not trip.moved:
            return
        trip.moved = False
        with suppress(*troubles()):
            if self._given.kind == "cluster":
                self.client.nodes_manager.initialize()
            elif isinstance(trip.problem, AskError) and self._given.as_cluster is not None:
                with self._lock:
                    if self._given.as_cluster is not None:
                        self._use(self._given.as_cluster())
            else:
                self.client.connection_pool.disconnect(inuse_connections=False)
