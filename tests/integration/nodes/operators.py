"""Clients that do everything to filters of all kinds, each to its own, through any node; each knows
what its filters must have.

What was not acknowledged may be done or not, or yet be done: a filter that may so lose keys is left
alone from then on.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis

from integration.nodes.fleet import client_at

KINDS: dict[str, tuple[Any, ...]] = {
    "bloom": ("KIND", "bloom"),
    "scalable": ("KIND", "scalable"),
    "counting": ("KIND", "counting"),
    "deletable": ("KIND", "deletable"),
    "cuckoo": ("KIND", "cuckoo"),
    "rotating": ("KIND", "rotating", "WINDOW", "7d"),
    "bank": ("KIND", "bank"),
    "cf": (),
}
REMOVES = {"counting", "deletable", "cuckoo", "cf"}
GROWS = {"scalable", "cf"}


class Operator(threading.Thread):
    """One client with filters of one kind; one command at a time, by strong connections."""

    def __init__(self, kind: str, ports: Sequence[int], seed: int) -> None:
        super().__init__(name=f"operator-{kind}", daemon=True)
        self.kind, self.ports = kind, ports
        self.random = random.Random(f"{seed} {kind}")
        self.ending = threading.Event()
        self.must: dict[str, set[str]] = {}  # by the names of filters that are surely there
        self.done = self.failed = self.asked = 0
        self.wrong: list[str] = []
        self.problem: BaseException | None = None
        self._clients: dict[int, Any] = {}
        self._keys = 0
        self._names = 0

    def run(self) -> None:
        """Called by the thread."""
        try:
            while not self.ending.is_set():
                self.step()
                time.sleep(0.003)
        except BaseException as problem:  # noqa: BLE001  # the test is told
            self.problem = problem
        finally:
            for client in self._clients.values():
                client.close()

    def step(self) -> None:
        """Do one thing to a filter, or make one, and ask for what some filter must have."""
        if len(self.must) < 3:
            self.make()
            return
        name = self.random.choice(sorted(self.must))
        act = self.random.choices(
            [self.add, self.remove, self.copy, self.rename, self.clear, self.drop, self.other],
            [60, 10 if self.kind in REMOVES else 0, 4, 4, 0 if self.kind == "cf" else 2, 2, 4],
        )[0]
        act(name)
        if self.must:
            self.ask(self.random.choice(sorted(self.must)))

    # What it does. `_do` is None if it is not known whether it was done.

    def make(self) -> None:
        """Make a filter; small, so that those grow that can."""
        name = self._new_name()
        capacity = 200 if self.kind in GROWS else 1000
        if self.kind == "cf":
            made = self._do("CF.RESERVE", name, capacity)
        else:
            made = self._do("BF.RESERVE", name, 1e-6, capacity, *KINDS[self.kind])
        if made is not None:
            self.must[name] = set()

    def add(self, name: str) -> None:
        """Add some keys that nobody added before."""
        keys = [
            f"{self.kind}-{self._keys + number}" for number in range(self.random.choice((1, 20)))
        ]
        self._keys += len(keys)
        words = ("CF.INSERT", name, "ITEMS") if self.kind == "cf" else ("BF.MADD", name)
        answers = self._do(*words, *keys)
        if answers is not None:  # -1, or an error: a filter that does not grow is full
            pairs = zip(keys, answers, strict=False)
            self.must[name].update(key for key, said in pairs if said in (0, 1))

    def remove(self, name: str) -> None:
        """Remove a key that is there."""
        if self.must[name]:
            key = self.random.choice(sorted(self.must[name]))
            had = self.must.pop(name)
            removed = self._do("CF.DEL" if self.kind == "cf" else "BF.DEL", name, key)
            if removed is None:
                return
            self.must[name] = had - {key}
            if not removed:
                self.wrong.append(f"{key} of {name} was not there to be removed")

    def copy(self, name: str) -> None:
        """Copy it to another name."""
        to = self._new_name()
        if self._do("COPY", name, to) is not None:
            self.must[to] = set(self.must[name])
            if len(self.must) > 6:
                self.drop(name)

    def rename(self, name: str) -> None:
        """Give it another name."""
        to = self._new_name()
        had = self.must.pop(name)
        if self._do("RENAME", name, to) is not None:
            self.must[to] = had

    def clear(self, name: str) -> None:
        """Take all keys."""
        del self.must[name]
        if self._do("BF.CLEAR", name) is not None:
            self.must[name] = set()

    def drop(self, name: str) -> None:
        """Drop it."""
        del self.must[name]
        self._do("DEL", name)

    def other(self, name: str) -> None:
        """What takes nothing: rotation (within the window), an end that is far, a merge."""
        if self.kind == "rotating" and not any(self.must[name]):
            self._do("BF.ROTATE", name)
        elif self.kind == "bloom":
            source = self.random.choice(sorted(self.must))
            if source != name and self._do("BF.MERGE", name, source) is not None:
                self.must[name] |= self.must[source]
        else:
            self._do("PEXPIRE", name, 10_000_000)

    def ask(self, name: str) -> None:
        """Ask any node strongly: it must know all."""
        keys = sorted(self.must[name])
        if len(keys) > 50:
            keys = self.random.sample(keys, 50)
        if not keys:
            return
        command = "CF.MEXISTS" if self.kind == "cf" else "BF.MEXISTS"
        found = self._do(command, name, *keys)
        if found is not None:
            self.asked += 1
            self.wrong += [
                f"{key} of {name}: a strong no, after {self.done} commands"
                for key, maybe in zip(keys, found, strict=True)
                if not maybe
            ]

    def _new_name(self) -> str:
        self._names += 1
        return f"{self.kind}/{self._names}"

    def _do(self, *words: Any) -> Any:
        at = self.random.randrange(len(self.ports))
        try:
            if at not in self._clients:
                self._clients[at] = client_at(self.ports[at], strong=True)
            answer = self._clients[at].execute_command(*words)
        except (redis.RedisError, OSError) as problem:
            self.failed += 1
            text = str(problem)
            # Refusals that name no trouble are mistakes: of this test, or of a node.
            known = (
                "Redis",
                "node",
                "refused",
                "closed",
                "reset",
                "imed out",
                "ready",
                "Broken pipe",
            )
            if isinstance(problem, redis.ResponseError) and not any(one in text for one in known):
                self.wrong.append(f"{' '.join(map(str, words))[:80]}: {text}")
            time.sleep(0.02)
            return None
        self.done += 1
        return answer


@contextmanager
def operators(ports: Sequence[int], seed: int) -> Iterator[list[Operator]]:
    """One of each kind, until the end of the block."""
    made = [Operator(kind, ports, seed) for kind in KINDS]
    for one in made:
        one.start()
    try:
        yield made
    finally:
        for one in made:
            one.ending.set()
        for one in made:
            one.join()
    for one in made:
        if one.problem is not None:
            raise one.problem
