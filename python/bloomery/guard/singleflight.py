"""Single-flight: many callers who ask for the same key at once share one look-up of it.

A caller joins a look-up that began after it asked. One that began earlier may have read the source
before a row was committed that the caller knows of, so the caller waits for the look-up that
follows: it begins when the earlier one has ended, and the first caller in need of it leads it.

A write spoils the look-ups of its key: they may have read what was there before. They still answer
the callers they have, but nobody joins them any more, and they put nothing into the cache. Keys of
a batch that are in the cache are answered at once: their callers do not wait for the source, nor
hear that it is down.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any


class LookupInterrupted(Exception):
    """The caller who led this look-up was stopped: those who joined look the key up themselves."""


class Flight:
    """One look-up of several keys: some it looks up itself, for others it waits for somebody."""

    __slots__ = (
        *("_flights", "ended", "following", "landed", "leads", "mine", "number"),
        *("spoiled", "storing", "theirs"),
    )

    def __init__(self, flights: Flights) -> None:
        self._flights = flights
        self.number = math.inf  # in the order in which they begin; inf: not yet
        self.ended = False
        self.following: dict[bytes, Flight] = {}  # what begins when this has landed
        # Made when somebody waits: a future for each key took half of a look-up in a warm cache.
        self.landed: Future[Mapping[bytes, Any]] | None = None
        self.mine: dict[bytes, Any] = {}  # by canonical key: the key as it was given
        self.theirs: dict[Future[Mapping[bytes, Any]], list[bytes]] = {}
        # Those that whoever has this one leads too, each with what it begins after.
        self.leads: list[tuple[Future[Mapping[bytes, Any]], Flight]] = []
        self.spoiled: set[bytes] = set()  # keys that were written meanwhile
        self.storing = False  # is it putting its answers into the cache?

    def store(self) -> set[bytes]:
        """Begin to put answers into the cache: of these keys, which nobody has written. Whoever
        writes one from now on waits until it has landed."""
        with self._flights.lock:
            self.storing = True
            return self.mine.keys() - self.spoiled

    def begin(self, keys: Iterable[bytes]) -> dict[bytes, Any]:
        """Begin to look up these of its keys: what it follows has ended. A key that another looks
        up by now is not cached by this one, since a write spoils only that other."""
        with self._flights.lock:
            self._flights.number(self)
            for key in keys:
                if self._flights.table.setdefault(key, self) is not self:
                    self.spoiled.add(key)
            return {key: self.mine[key] for key in keys}

    def join(self) -> Future[Mapping[bytes, Any]]:
        """A future of its answers. The caller holds the lock."""
        if self.landed is None:
            self.landed = Future()
        return self.landed

    def land_some(self, answers: Mapping[bytes, Any]) -> None:
        """Answer those who wait for these keys; those who wait for its other keys go on waiting."""
        with self._flights.lock:
            self._release(answers)
            landed, self.landed = self.landed, None
            if landed is None:
                return
            rest = self.join()
        landed.set_result(PartialAnswers(answers, rest))

    def land(self, answers: Mapping[bytes, Any]) -> None:
        """End with these answers, and hand them to those who joined."""
        self._leave()
        if self.landed is None:
            return
        if self.mine.keys() <= answers.keys():
            self.landed.set_result(answers)
        else:
            self.landed.set_exception(LookupInterrupted())

    def crash(self, problem: BaseException) -> None:
        """End without answers: those who joined get the problem, or look the keys up themselves."""
        self._leave()
        if self.landed is not None:
            # Ctrl-C here, or a task that was cancelled, is no problem of theirs.
            theirs = problem if isinstance(problem, Exception) else LookupInterrupted()
            self.landed.set_exception(theirs)

    def _leave(self) -> None:
        """Let nobody join from here on."""
        with self._flights.lock:
            self.ended = True
            self._release(self.mine)

    def _release(self, keys: Iterable[bytes]) -> None:
        table, following = self._flights.table, self.following
        for key in keys:
            if table.get(key) is self:
                if key in following and following[key].waits:
                    table[key] = following[key]
                else:
                    del table[key]

    @property
    def waits(self) -> bool:
        """Whether it has yet to begin."""
        return self.number == math.inf and not self.ended


class PartialAnswers(dict[bytes, Any]):
    """Answers for some of the keys; `rest` is for the others."""

    def __init__(self, answers: Mapping[bytes, Any], rest: Future[Mapping[bytes, Any]]) -> None:
        super().__init__(answers)
        self.rest = rest


class Flights:
    """All look-ups of a guard that are under way, by canonical key."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.table: dict[bytes, Flight] = {}
        self.begun = 0  # how many look-ups have
        self._watching: list[Flight] = []

    def claim(self, keys: Mapping[bytes, Any], since: int = 0) -> Flight:
        """Begin to look up these keys, and join the look-ups of those that are under way. `since`
        is what `begun` was when the caller asked."""
        flight = Flight(self)
        with self.lock:
            self.number(flight)
            for key, given in keys.items():
                under_way = self.table.get(key)
                if under_way is None:
                    flight.mine[key] = given
                    self.table[key] = flight
                elif under_way.number > since:
                    flight.theirs.setdefault(under_way.join(), []).append(key)
                else:
                    self._follow(flight, under_way, key, given)
        return flight

    def _follow(self, flight: Flight, before: Flight, key: bytes, given: Any) -> None:
        """Look a key up, or let another do it, when the look-up that has it now has ended."""
        following = before.following.get(key)
        if following is not None and following.waits:
            flight.theirs.setdefault(following.join(), []).append(key)
            return
        landed = before.join()
        if not flight.leads or flight.leads[-1][0] is not landed:
            flight.leads.append((landed, Flight(self)))
        following = before.following[key] = flight.leads[-1][1]
        following.mine[key] = given

    def number(self, flight: Flight) -> None:
        """Number a look-up as it begins. The caller holds the lock."""
        self.begun += 1
        flight.number = self.begun

    @contextmanager
    def watch(self, keys: Iterable[bytes]) -> Iterator[Flight]:
        """A look-up that no other caller joins, and that a write to one of its keys makes void."""
        flight = Flight(self)
        flight.mine = dict.fromkeys(keys)
        with self.lock:
            self._watching.append(flight)
        try:
            yield flight
        finally:
            with self.lock:
                self._watching.remove(flight)
            flight.crash(LookupInterrupted())  # whoever waits only waits for the end

    def spoil(self, key: bytes) -> list[Future[Mapping[bytes, Any]]]:
        """A key was written; what to wait for before it is deleted from the cache."""
        with self.lock:
            under_way = self.table.pop(key, None)
            flights = [flight for flight in self._watching if key in flight.mine]
            if under_way is not None:
                flights.append(under_way)
            for flight in flights:
                flight.spoiled.add(key)
            return [flight.join() for flight in flights if flight.storing]
