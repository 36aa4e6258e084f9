"""A connection at hand for the next round trip: to take one from the pool of redis-py and to give
it back was a third of the processor time of a single `add`."""

from __future__ import annotations

import os
import select
import socket
from typing import Any

from bloomery.integrations.redis.wire.failures import troubles

__all__ = ["Held", "Spare"]


class Held:
    """A connection that is kept, and what is needed to see that it can be used."""

    __slots__ = ("_reader", "_sock", "_watch", "connection", "pid", "pool")

    def __init__(self, pool: Any, connection: Any) -> None:
        self.pool, self.connection, self.pid = pool, connection, os.getpid()
        self._sock: Any = getattr(connection, "_sock", None)
        self._reader: Any = getattr(getattr(connection, "_parser", None), "_reader", None)
        self._watch: Any = None
        plain = type(self._sock) is socket.socket and hasattr(self._reader, "has_data")
        if plain and hasattr(select, "poll"):
            self._watch = select.poll()
            self._watch.register(self._sock, select.POLLIN)

    def is_quiet(self) -> bool:
        """Whether it is open, and nothing came that nobody asked for: as the pool looks, which
        takes longer where it is hiredis's and not encrypted."""
        if self._watch is not None:
            if self.connection._sock is not self._sock:
                return False
            return not self._reader.has_data() and not self._watch.poll(0)
        try:
            return not self.connection.can_read()
        except troubles():
            return False

    def end(self) -> None:
        """Let the pool have it, closed: with RESP3 the pool would hand it out again as it is, since
        what is there may be a message."""
        self.connection.disconnect()
        self.pool.release(self.connection)


class Spare:
    """At most one connection, of one pool; several threads may use it."""

    def __init__(self) -> None:
        self._held: list[Held] = []

    def take(self, pool: Any) -> Any:
        """Return a connection, of which nobody else has the use and nothing is left to be read."""
        held = self.at_hand(pool)
        return pool.get_connection() if held is None else held.connection

    def at_hand(self, pool: Any) -> Held | None:
        """Return the one that was kept; None if there is none, or it is of no use any more."""
        try:
            held = self._held.pop()
        except IndexError:
            return None
        if held.pid != os.getpid():  # it is our parent's
            return None
        if held.pool is pool and held.is_quiet():
            return held
        held.end()
        return None

    def keep(self, held: Held) -> None:
        """Keep a connection for the next, or let the pool have it."""
        if self._held:
            held.pool.release(held.connection)
        else:
            self._held.append(held)

    def close(self) -> None:
        """Let the pool have it."""
        while self._held:
            held = self._held.pop()
            if held.pid == os.getpid():
                try:
                    held.pool.release(held.connection)
                except troubles():
                    continue
