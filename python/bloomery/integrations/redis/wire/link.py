"""Round trips to Redis in the caller's thread: as `baselink`, and a single ask by a shorter way."""

from __future__ import annotations

import os
import weakref
from typing import Any

from bloomery.integrations.redis.wire.baselink import BaseLink
from bloomery.integrations.redis.wire.failures import (
    nonsense,
    refused,
    reply_failures,
    troubles,
    unavailable,
)
from bloomery.integrations.redis.wire.flow import Ask
from bloomery.integrations.redis.wire.redis_internals import KeptConnection
from bloomery.integrations.redis.wire.retry import RoundTrip


class SpareConnection:
    """At most one connection, of one pool, for the next round trip; threads may share it."""

    def __init__(self) -> None:
        self.kept: list[KeptConnection] = []

    def take(self, pool: Any) -> KeptConnection | None:
        """Return the connection that was kept; None if there is none, or it is of no use."""
        try:
            kept = self.kept.pop()
        except IndexError:
            return None
        if kept.pid != os.getpid():  # it is our parent's
            return None
        if kept.pool is pool and kept.is_idle():
            return kept
        kept.discard()
        return None

    def keep(self, kept: KeptConnection) -> None:
        """Keep a connection for the next, or let the pool have it."""
        if self.kept:
            kept.pool.release(kept.connection)
        else:
            self.kept.append(kept)

    def close(self) -> None:
        """Let the pool have it."""
        while self.kept:
            kept = self.kept.pop()
            if kept.pid == os.getpid():
                try:
                    kept.pool.release(kept.connection)
                except troubles():
                    continue


class Link(BaseLink):
    """A client of redis-py that is given packed commands. Threads may share it."""

    def __init__(self, redis: Any, *, timeout: float = 5.0) -> None:
        super().__init__(redis, timeout=timeout)
        self.spare = SpareConnection()
        weakref.finalize(self, self.spare.close)

    def identity(self) -> tuple[object, str]:
        """Return which servers these are, which changes with a restart and a failover, and what
        they do when they are full."""
        from redis.exceptions import AuthenticationError, ResponseError

        try:
            nodes = self.client.get_primaries() if self.redis.cluster else [None]
            servers, policy = [], ""
            for node in nodes:
                where = {} if node is None else {"target_nodes": node}
                info = self.client.info(**where)
                servers.append((str(info.get("run_id")), str(info.get("master_replid"))))
                policy = str(info.get("maxmemory_policy", ""))
        except (AuthenticationError, ResponseError) as problem:
            raise refused(problem) from problem
        except troubles() as problem:
            raise unavailable(problem, self.place) from problem
        return sorted(servers), policy

    def close(self) -> None:
        """Close what was made here; a client that was given is its owner's."""
        self.spare.close()
        super().close()

    def exchange(self, asks: list[Ask]) -> list[list[Any]]:
        """Send everything, then read the replies to each; retry where that may help."""
        if len(asks) != 1 or not asks[0].again:
            return super().exchange(asks)
        try:
            sent = self._exchange_at_once(asks[0])
        except reply_failures()[0] as problem:
            trip = RoundTrip(asks, self.timeout, self.place)
            trip.lost(trip.left, problem)
            return self._retry(trip)
        if sent is None:
            return super().exchange(asks)
        replies, errors = sent
        if not errors:
            return [replies]
        trip = RoundTrip(asks, self.timeout, self.place)
        trip.refused(trip.left[0], replies, self.redis.routing)
        return self._retry(trip)

    def _exchange_at_once(self, ask: Ask) -> tuple[list[Any], bool] | None:
        """The usual trip of one key, by the connection that is kept: with all that is for other
        cases it took a fifth more of a single `add`. Return the replies, and whether some are
        errors; None: nothing was sent."""
        kept = self.spare.take(self.client.connection_pool) if self._keeps else None
        if kept is None:
            return None
        if not kept.direct:
            self.spare.keep(kept)
            return None
        sent, usual = None, False
        try:
            sent = kept.exchange(ask.data, ask.replies)
            usual = sent is not None and not sent[1]
        except reply_failures()[0]:
            raise
        except Exception as problem:
            raise nonsense(problem, self.place) from problem
        finally:
            if usual:
                self.spare.keep(kept)
            else:  # the next one may lead elsewhere
                kept.discard()
        return sent

    @property
    def _keeps(self) -> bool:
        """Whether a connection is kept. None is of others' pools, which may be small, nor where
        Sentinels are asked each time who the master is, or a cluster has several."""
        return self.redis.own and self.redis.routing in ("single", "maybe")

    def _take(self, pool: Any) -> Any:
        kept = self.spare.take(pool) if self._keeps else None
        return pool.get_connection() if kept is None else kept.connection

    def _give_back(self, pool: Any, connection: Any) -> None:
        if self._keeps:
            self.spare.keep(KeptConnection(pool, connection))
        else:
            pool.release(connection)
