"""A connection at hand for the next round trip: to take one from the pool of redis-py and to give
it back was a third of the processor time of a single `add`."""

from __future__ import annotations

import os
from typing import Any

from bloomery.integrations.redis.failures import troubles

__all__ = ["Spare"]


class Spare:
    """At most one connection, of one pool; several threads may use it."""

    def __init__(self) -> None:
        self._held: list[tuple[Any, Any]] = []

    def take(self, pool: Any) -> Any:
        """Return a connection, of which nobody else has the use and nothing is left to be read."""
        try:
            of, connection = self._held.pop()
        except IndexError:
            return pool.get_connection()
        if connection.pid != os.getpid():  # it is our parent's
            return pool.get_connection()
        if of is pool and _quiet(connection):
            return connection
        of.release(connection)
        return pool.get_connection()

    def give(self, pool: Any, connection: Any) -> None:
        """Keep a connection for the next, or let the pool have it."""
        if self._held:
            pool.release(connection)
        else:
            self._held.append((pool, connection))

    def close(self) -> None:
        """Let the pool have it."""
        while self._held:
            pool, connection = self._held.pop()
            if connection.pid == os.getpid():
                try:
                    pool.release(connection)
                except troubles():
                    continue


def _quiet(connection: Any) -> bool:
    """Whether it is open, and nothing came that nobody asked for: as the pool looks."""
    try:
        return not connection.can_read()
    except troubles():
        return False
