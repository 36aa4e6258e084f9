"""Clients that write and ask all the time, and tell the checker."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis

from integration.nodes.checker import Answer, Checker, Failure, Place, Write
from integration.nodes.fleet import client_at
from integration.servers import wait_until

RATE = 1e-6  # of the filters: none of their errors hides a key that is missing


def reserve(port: int, filter: str = "seen", capacity: int = 100_000) -> None:
    """Make a plain filter."""
    with client_at(port) as client:
        client.execute_command("BF.RESERVE", filter, RATE, capacity, "KIND", "bloom")


class Worker(threading.Thread):
    """One client with a connection to each place; one command at a time."""

    def __init__(
        self,
        number: int,
        checker: Checker,
        places: Sequence[tuple[Place, int]],
        *,
        filter: str,
        seed: int,
        strong: bool,
        pause: float,
        prefix: str,
    ) -> None:
        super().__init__(name=f"worker-{number}", daemon=True)
        self.number, self.checker, self.filter, self.pause = number, checker, filter, pause
        self.random = random.Random(f"{seed} {number}")
        self.strong, self.prefix = strong, prefix
        self.places = places
        self.ending = threading.Event()
        self.mine: list[str] = []  # acknowledged
        self.rounds = 0
        self.problem: BaseException | None = None
        self._clients: dict[Place, Any] = {}

    def run(self) -> None:
        try:
            while not self.ending.is_set():
                self.step()
                self.rounds += 1
                if self.pause:
                    time.sleep(self.pause)
        except BaseException as problem:  # noqa: BLE001  # the test is told
            self.problem = problem
        finally:
            for client in self._clients.values():
                client.close()

    def step(self) -> None:
        """Write a key at one node, and ask others: for it, and for one of before."""
        key = f"{self.prefix}{self.number}-{self.rounds}"
        place = self.random.choice(self.places)
        if self.write(place, key):
            self.mine.append(key)
            if self.random.random() < 0.3:  # who adds it again is not told that it is new
                self.write(self.random.choice(self.places), key)
            others = [one for one in self.places if one != place] or [place]
            self.ask(self.random.choice(others), key)
        if self.mine:
            self.ask(self.random.choice(self.places), self.random.choice(self.mine))

    def write(self, place: tuple[Place, int], key: str) -> bool:
        """Add a key; True if that was acknowledged."""
        asked = time.monotonic()
        answer = self._do(place, "BF.ADD", key, asked)
        if answer is None:
            return False
        now = time.monotonic()
        self.checker.writes.append(Write(self.filter, key, place[0], asked, now, new=bool(answer)))
        return True

    def ask(self, place: tuple[Place, int], key: str) -> None:
        """Ask for a key."""
        asked = time.monotonic()
        answer = self._do(place, "BF.EXISTS", key, asked)
        if answer is not None:
            now = time.monotonic()
            self.checker.answers.append(
                Answer(self.filter, key, place[0], self.strong, asked, now, bool(answer))
            )

    def _do(self, place: tuple[Place, int], command: str, key: str, asked: float) -> Any:
        if place[0] not in self._clients:
            self._clients[place[0]] = client_at(place[1], strong=self.strong)
        try:
            return self._clients[place[0]].execute_command(command, self.filter, key)
        except (redis.RedisError, OSError) as problem:
            now = time.monotonic()
            self.checker.failures.append(Failure(command, place[0], asked, now, problem))
            time.sleep(0.01)  # who is refused at once must not take a core
            return None


class Load:
    """Some of them."""

    def __init__(self, workers: Sequence[Worker], checker: Checker) -> None:
        self.workers = workers
        self.checker = checker

    def flows(self, writes: int = 50) -> None:
        """Return when each has so many writes more acknowledged."""
        goal = [len(worker.mine) + writes for worker in self.workers]

        def done() -> bool:
            pairs = zip(self.workers, goal, strict=True)
            return all(len(worker.mine) >= wanted or worker.problem for worker, wanted in pairs)

        assert wait_until(done), self._last()
        self.raise_problem()

    def asks(self, count: int = 50) -> None:
        """Return when so many more answers were given by the whole of them."""
        goal = len(self.checker.answers) + count
        assert wait_until(lambda: len(self.checker.answers) >= goal), self._last()

    def _last(self) -> list[str]:
        return [f"{one.node}: {one.problem}" for one in self.checker.failures[-3:]]

    def raise_problem(self) -> None:
        """What ended a worker."""
        for worker in self.workers:
            if worker.problem is not None:
                raise worker.problem


@contextmanager
def load(
    checker: Checker,
    places: Sequence[tuple[Place, int]],
    *,
    filter: str = "seen",
    seed: int = 0,
    strong: bool = False,
    count: int = 4,
    pause: float = 0.002,
    prefix: str = "",
) -> Iterator[Load]:
    """So many clients at these places, until the end of the block."""
    options: dict[str, Any] = {"filter": filter, "seed": seed, "strong": strong, "pause": pause}
    options["prefix"] = prefix  # of the keys
    workers = [Worker(number, checker, places, **options) for number in range(count)]
    for worker in workers:
        worker.start()
    made = Load(workers, checker)
    try:
        yield made
    finally:
        for worker in workers:
            worker.ending.set()
        for worker in workers:
            worker.join()
    made.raise_problem()
