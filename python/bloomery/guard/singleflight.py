"""Look-ups under way: whoever asks for a key that somebody is looking up waits for that answer.

If that look-up began before they asked, its answer may be older than what they know to be so: a row
that somebody committed meanwhile. Then they wait for the one that follows it, which begins when it
has ended: the first of them leads that, for all.

A write spoils the look-ups of its key: they may have read what was there before. They still answer
those who asked before the write, but nobody joins them any more, and they leave nothing in the
cache. What the cache has of a batch is given at once to those who wait for it: they do not wait for
the source, nor hear that it is down.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

__all__ = ["Flight", "Flights", "LookupInterrupted", "PartialAnswers"]


class LookupInterrupted(Exception):
    """Who looked it up was stopped: whoever waits looks it up instead."""


class Flight:
    """The keys that one look-up takes upon itself, and those that others are looking up."""

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
        """What it follows has landed: it begins to look up these of its keys. What another does by
        now is not cached: a write tells only that one."""
        with self._flights.lock:
            self._flights.number(self)
            for key in keys:
                if self._flights.table.setdefault(key, self) is not self:
                    self.spoiled.add(key)
            return {key: self.mine[key] for key in keys}

    def join(self) -> Future[Mapping[bytes, Any]]:
        """Its answers, in time; for whoever has the lock."""
        if self.landed is None:
            self.landed = Future()
        return self.landed

    def land_some(self, answers: Mapping[bytes, Any]) -> None:
        """Give those who wait for these keys their answers; who waits for others waits on."""
        with self._flights.lock:
            self._release(answers)
            landed, self.landed = self.landed, None
            if landed is None:
                return
            rest = self.join()
        landed.set_result(PartialAnswers(answers, rest))

    def land(self, answers: Mapping[bytes, Any]) -> None:
        """Give those who wait their answers."""
        self._leave()
        if self.landed is None:
            return
        if self.mine.keys() <= answers.keys():
            self.landed.set_result(answers)
        else:
            self.landed.set_exception(LookupInterrupted())

    def crash(self, problem: BaseException) -> None:
        """Tell them that there are none."""
        self._leave()
        if self.landed is not None:
            # Ctrl-C here, or a task that was cancelled, is not theirs.
            theirs = problem if isinstance(problem, Exception) else LookupInterrupted()
            self.landed.set_exception(theirs)

    def _leave(self) -> None:
        """From here on nobody joins."""
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
        """Has it yet to begin?"""
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
        self.begun = 0  # how many have
        self._watching: list[Flight] = []

    def claim(self, keys: Mapping[bytes, Any], since: int = 0) -> Flight:
        """Begin to look up these keys, but for those that others have begun with. `since` is the
        number that had `begun` when they were asked for."""
        flight = Flight(self)
        with self.lock:
            self.number(flight)
            for key, given in keys.items():
                held = self.table.get(key)
                if held is None:
                    flight.mine[key] = given
                    self.table[key] = flight
                elif held.number > since:
                    flight.theirs.setdefault(held.join(), []).append(key)
                else:
                    self._follow(flight, held, key, given)
        return flight

    def _follow(self, flight: Flight, held: Flight, key: bytes, given: Any) -> None:
        """Let a key be looked up when the one that has it has landed."""
        following = held.following.get(key)
        if following is not None and following.waits:
            flight.theirs.setdefault(following.join(), []).append(key)
            return
        landed = held.join()
        if not flight.leads or flight.leads[-1][0] is not landed:
            flight.leads.append((landed, Flight(self)))
        following = held.following[key] = flight.leads[-1][1]
        following.mine[key] = given

    def number(self, flight: Flight) -> None:
        """It begins; for whoever has the lock."""
        self.begun += 1
        flight.number = self.begun

    @contextmanager
    def watch(self, keys: Iterable[bytes]) -> Iterator[Flight]:
        """Hear of writes to these keys, in a flight that no look-up joins."""
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
            held = self.table.pop(key, None)
            flights = [one for one in self._watching if key in one.mine]
            if held is not None:
                flights.append(held)
            for flight in flights:
                flight.spoiled.add(key)
            return [flight.join() for flight in flights if flight.storing]
