"""Look-ups under way: whoever asks for a key that somebody is looking up waits for that answer.

A write spoils the look-ups of its key: they may have read what was there before. They still answer
those who asked before the write, but nobody joins them any more, and they leave nothing in the
cache.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from bloomery.errors import SourceUnavailable

__all__ = ["Flight", "Flights"]


class Flight:
    """The keys that one look-up takes upon itself, and those that others are looking up."""

    __slots__ = ("_flights", "mine", "spoiled", "storing", "theirs")

    def __init__(self, flights: Flights) -> None:
        self._flights = flights
        self.mine: dict[bytes, Future[Any]] = {}
        self.theirs: dict[bytes, Future[Any]] = {}
        self.spoiled: set[bytes] = set()  # keys that were written meanwhile
        self.storing = False  # is it putting its answers into the cache?

    def store(self) -> set[bytes]:
        """Begin to put answers into the cache: of these keys, which nobody has written. Whoever
        writes one from now on waits until it has landed."""
        with self._flights.lock:
            self.storing = True
            return self.mine.keys() - self.spoiled

    def land(self, answers: Mapping[bytes, Any]) -> None:
        """Give those who wait their answers."""
        self._leave()
        for key, future in self.mine.items():
            if key in answers:
                future.set_result(answers[key])
            else:
                future.set_exception(SourceUnavailable("the look-up was interrupted: ask again"))

    def crash(self, problem: BaseException) -> None:
        """Tell them that there are none."""
        self._leave()
        if not isinstance(problem, Exception):  # Ctrl-C here, or a task cancelled: not theirs
            problem = SourceUnavailable("the look-up was interrupted: ask again")
        for future in self.mine.values():
            future.set_exception(problem)

    def _leave(self) -> None:
        with self._flights.lock:
            for key, future in self.mine.items():
                held = self._flights.table.get(key)
                if held is not None and held[1] is future:
                    del self._flights.table[key]


class Flights:
    """All look-ups of a guard that are under way, by canonical key."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.table: dict[bytes, tuple[Flight, Future[Any]]] = {}

    def claim(self, keys: Iterable[bytes]) -> Flight:
        """Begin to look up these keys, but for those that others have begun with."""
        flight = Flight(self)
        with self.lock:
            for key in keys:
                held = self.table.get(key)
                if held is not None:
                    flight.theirs[key] = held[1]
                else:
                    future: Future[Any] = Future()
                    flight.mine[key] = future
                    self.table[key] = (flight, future)
        return flight

    def spoil(self, key: bytes) -> Future[Any] | None:
        """A key was written; what to wait for before it is deleted from the cache."""
        with self.lock:
            held = self.table.pop(key, None)
            if held is None:
                return None
            held[0].spoiled.add(key)
            return held[1] if held[0].storing else None
