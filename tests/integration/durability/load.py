"""Clients that write as fast as they can, and remember what was acknowledged.

Each has names of its own, and one command or a few under way at a time. When the server dies, the
first of these were done and the others were not; everything before them must be there.
"""

from __future__ import annotations

import copy
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from integration.resp.wire import Connection, Refused, Word

# How a filter of each kind is made, after its name; the error rate is such that no test meets it.
RATE = 1e-7
KINDS: dict[str, tuple[Word, ...]] = {
    "bloom": ("BF.RESERVE", RATE, 20_000, "KIND", "bloom"),
    "scalable": ("BF.RESERVE", RATE, 100),
    "counting": ("BF.RESERVE", RATE, 5_000, "KIND", "counting", "COUNTERBITS", 8),
    "deletable": ("BF.RESERVE", RATE, 20_000, "KIND", "deletable"),
    "cuckoo": ("BF.RESERVE", RATE, 20_000, "KIND", "cuckoo"),
    "rotating": ("BF.RESERVE", RATE, 1_000, "KIND", "rotating", "WINDOW", "1h"),
    "rediscuckoo": ("CF.RESERVE", 1 << 17),
}
# From 1 MiB on a snapshot is made by changing a copy where it is mapped.
LARGE: dict[str, tuple[Word, ...]] = {
    "bloom": ("BF.RESERVE", RATE, 300_000, "KIND", "bloom"),
    "counting": ("BF.RESERVE", RATE, 50_000, "KIND", "counting", "COUNTERBITS", 8),
    "deletable": ("BF.RESERVE", RATE, 300_000, "KIND", "deletable"),
    "cuckoo": ("BF.RESERVE", RATE, 400_000, "KIND", "cuckoo"),
    "rediscuckoo": ("CF.RESERVE", 1 << 21),
}
EXACT = ("counting", "cuckoo")  # a key that was removed is definitely not there
MOST_KEYS = 4_000  # of a filter: none is to be full
POOL = 40  # keys of a rediscuckoo filter, which are added several times and counted


@dataclass
class Kept:
    """A filter as its client remembers it."""

    kind: str
    keys: list[bytes] = field(default_factory=list)
    removed: list[bytes] = field(default_factory=list)
    counts: Counter[bytes] = field(default_factory=Counter)
    expires_at: int = -1  # ms


Names = dict[bytes, Kept]
Change = Callable[[Names], None]
Step = tuple[tuple[Word, ...], Change]  # a command, and what it does to the names


class Writer(threading.Thread):
    """A client; `names` is what the server has acknowledged, `under_way` what it has not."""

    def __init__(self, number: int, seed: int, names: Names | None = None) -> None:
        super().__init__(name=f"writer-{number}", daemon=True)
        self.prefix = b"w%d-" % number
        self.random = random.Random(f"{number} {seed}")
        self.names: Names = {} if names is None else names
        self.under_way: list[Change] = []
        self.acknowledged = 0
        self.failure: BaseException | None = None
        self.port = 0
        self.saving = True  # whether it asks for snapshots too
        self._stamp = f"{seed}-".encode()
        self._made = 0
        self._ending = threading.Event()

    def begin(self, port: int) -> Writer:
        """Write to the server at this port, until it is gone or `end` is called."""
        self.port = port
        self.start()
        return self

    def end(self) -> None:
        """Let it end; raises what went wrong."""
        self._ending.set()
        self.join(60)
        assert not self.is_alive(), f"{self.name} waits for a reply"
        if self.failure is not None:
            raise self.failure

    def run(self) -> None:
        """Write."""
        try:
            with Connection(self.port) as connection:
                while not self._ending.is_set():
                    self._step(connection)
        except ConnectionError:
            pass
        except BaseException as problem:  # noqa: BLE001  # for the thread that waits
            self.failure = problem

    def _step(self, connection: Connection) -> None:
        steps = [self._choose()]
        if self.random.random() < 0.1:
            steps = self._burst() or steps
        self.under_way = [change for _, change in steps]
        try:
            connection.ask_all([words for words, _ in steps])
        finally:
            for (words, change), reply in zip(steps, connection.replies, strict=False):
                refused = isinstance(reply, Refused)
                assert not refused or "in progress" in str(reply), f"{words[:4]!r}: {reply}"
                if not refused:
                    change(self.names)
                    self.acknowledged += 1
                self.under_way.pop(0)

    def _key(self) -> bytes:
        self._made += 1
        return self._stamp + b"%d" % self._made

    def _choose(self) -> Step:
        """The next command, and what it does to the names if it is acknowledged."""
        chance = self.random.random()
        if not self.names or (chance < 0.05 and len(self.names) < 12):
            return self._create()
        name = self.random.choice(list(self.names))
        if chance < 0.12:
            return self._change_name(name)
        if chance < 0.14 and self.saving:
            return ("BGSAVE",), lambda names: None
        return self._change_keys(name)

    def _burst(self) -> list[Step]:
        """Many commands at once, none of which needs another's answer."""
        names = [
            name
            for name, kept in self.names.items()
            if kept.kind != "rediscuckoo" and len(kept.keys) < MOST_KEYS
        ]
        return [self._add(self.random.choice(names), 1) for _ in range(30)] if names else []

    def _create(self) -> Step:
        name, sizes = self.prefix + self._key(), self.random.choice((KINDS, KINDS, LARGE))
        kind, (command, *settings) = self.random.choice(list(sizes.items()))

        def change(names: Names) -> None:
            names[name] = Kept(kind)

        return (command, name, *settings), change

    def _change_name(self, name: bytes) -> Step:
        other = self.prefix + self._key()
        at = int(time.time() * 1000) + self.random.randrange(3_600_000, 7_200_000)

        def expire(names: Names) -> None:
            names[name].expires_at = at

        def persist(names: Names) -> None:
            names[name].expires_at = -1

        choices: list[Step] = [
            (("DEL", name), lambda names: _forget(names, name)),
            (("RENAME", name, other), lambda names: names.update({other: names.pop(name)})),
            (
                ("COPY", name, other),
                lambda names: names.update({other: copy.deepcopy(names[name])}),
            ),
            (("PEXPIREAT", name, at), expire),
            (("PERSIST", name), persist),
        ]
        return self.random.choice(choices)

    def _change_keys(self, name: bytes) -> Step:
        kept = self.names[name]
        if len(kept.keys) > MOST_KEYS:
            return ("DEL", name), lambda names: _forget(names, name)
        if kept.kind == "rediscuckoo":
            return self._change_count(name)
        if kept.kind in EXACT and kept.keys and self.random.random() < 0.3:
            key = self.random.choice(kept.keys)

            def remove(names: Names) -> None:
                names[name].keys.remove(key)
                names[name].removed.append(key)

            return ("BF.DEL", name, key), remove
        return self._add(name, self.random.choice((1, 1, 1, 20)))

    def _add(self, name: bytes, count: int) -> Step:
        keys = [self._key() for _ in range(count)]
        command = "BF.ADD" if count == 1 else "BF.MADD"
        return (command, name, *keys), lambda names: names[name].keys.extend(keys)

    def _change_count(self, name: bytes) -> Step:
        key = b"k%d" % self.random.randrange(POOL)
        by = -1 if self.names[name].counts[key] > self.random.randrange(4) else 1
        command = "CF.ADD" if by == 1 else "CF.DEL"
        return (command, name, key), lambda names: names[name].counts.update({key: by})

    def verify(self, port: int) -> None:
        """Raise AssertionError unless the server has what was acknowledged: with none, some or all
        of the commands that were under way."""
        wrong = self._wrong(port)
        while wrong and self.under_way:
            self.under_way.pop(0)(self.names)
            wrong = self._wrong(port)
        assert not wrong, f"{self.name}: {wrong[:5]}"
        self.under_way = []

    def _wrong(self, port: int) -> list[str]:
        with Connection(port) as connection:
            found = set(connection.ask("KEYS", self.prefix + b"*"))
            wrong = [f"names: {found ^ set(self.names)!r}"] if found != set(self.names) else []
            for name, kept in self.names.items():
                if name in found:
                    wrong += [
                        f"{name!r} ({kept.kind}): {one}" for one in _differs(connection, name, kept)
                    ]
        return wrong


def _forget(names: Names, name: bytes) -> None:
    del names[name]


def _differs(connection: Connection, name: bytes, kept: Kept) -> list[str]:
    """How a filter differs from what is remembered of it."""
    wrong = []
    at = connection.ask("PEXPIRETIME", name)
    if at != kept.expires_at:
        wrong.append(f"ends at {at}, not {kept.expires_at}")
    for start in range(0, len(kept.keys), 1000):
        part = kept.keys[start : start + 1000]
        answers = connection.ask("BF.MEXISTS", name, *part)
        wrong += [f"{key!r} is lost" for key, there in zip(part, answers, strict=True) if not there]
    if kept.removed:
        answers = connection.ask("BF.MEXISTS", name, *kept.removed)
        pairs = zip(kept.removed, answers, strict=True)
        wrong += [f"{key!r} is back" for key, there in pairs if there]
    if kept.counts:
        pool = [b"k%d" % number for number in range(POOL)]
        counts = connection.ask_all([("CF.COUNT", name, key) for key in pool])
        pairs = zip(pool, counts, strict=True)
        wrong += [
            f"{k!r}: {n} times, not {kept.counts[k]}" for k, n in pairs if n != kept.counts[k]
        ]
    return wrong
