"""Clients that write as fast as they can, and remember what was acknowledged.

Each has names of its own and one command under way at a time. When the server dies, that command
was done or was not; everything before it must be there.
"""

from __future__ import annotations

import copy
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from integration.durability.connection import Connection, Refused, Word

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
EXACT = ("counting", "cuckoo")  # a key that was removed is definitely not there
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


class Writer(threading.Thread):
    """A client; `names` is what the server has acknowledged, `under_way` what it has not."""

    def __init__(self, number: int, seed: int, names: Names | None = None) -> None:
        super().__init__(name=f"writer-{number}", daemon=True)
        self.prefix = b"w%d-" % number
        self.random = random.Random(f"{number} {seed}")
        self.names: Names = {} if names is None else names
        self.under_way: Change | None = None
        self.acknowledged = 0
        self.failure: BaseException | None = None
        self.port = 0
        self.saving = True  # whether it asks for snapshots too
        self.patient = False  # whether a write that is refused is passed over
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
        words, change = self._choose()
        self.under_way = change
        try:
            connection.ask(*words)
        except Refused as refused:
            if not self.patient and "in progress" not in str(refused):
                raise AssertionError(f"{words[:4]!r}: {refused}") from None
        else:
            change(self.names)
            self.acknowledged += 1
        self.under_way = None

    def _key(self) -> bytes:
        self._made += 1
        return self._stamp + b"%d" % self._made

    def _choose(self) -> tuple[tuple[Word, ...], Change]:
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

    def _create(self) -> tuple[tuple[Word, ...], Change]:
        name, kind = self.prefix + self._key(), self.random.choice(list(KINDS))
        command, *settings = KINDS[kind]

        def change(names: Names) -> None:
            names[name] = Kept(kind)

        return (command, name, *settings), change

    def _change_name(self, name: bytes) -> tuple[tuple[Word, ...], Change]:
        other = self.prefix + self._key()
        at = int(time.time() * 1000) + self.random.randrange(3_600_000, 7_200_000)

        def expire(names: Names) -> None:
            names[name].expires_at = at

        def persist(names: Names) -> None:
            names[name].expires_at = -1

        choices: list[tuple[tuple[Word, ...], Change]] = [
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

    def _change_keys(self, name: bytes) -> tuple[tuple[Word, ...], Change]:
        kept = self.names[name]
        if kept.kind == "rediscuckoo":
            return self._change_count(name)
        if kept.kind in EXACT and kept.keys and self.random.random() < 0.3:
            key = self.random.choice(kept.keys)

            def remove(names: Names) -> None:
                names[name].keys.remove(key)
                names[name].removed.append(key)

            return ("BF.DEL", name, key), remove
        keys = [self._key() for _ in range(self.random.choice((1, 1, 1, 20)))]
        command = "BF.ADD" if len(keys) == 1 else "BF.MADD"
        return (command, name, *keys), lambda names: names[name].keys.extend(keys)

    def _change_count(self, name: bytes) -> tuple[tuple[Word, ...], Change]:
        key = b"k%d" % self.random.randrange(POOL)
        by = -1 if self.names[name].counts[key] > self.random.randrange(4) else 1
        command = "CF.ADD" if by == 1 else "CF.DEL"
        return (command, name, key), lambda names: names[name].counts.update({key: by})

    def verify(self, port: int) -> None:
        """Raise AssertionError unless the server has what was acknowledged: with the command that
        was under way, or without it."""
        wrong = self._wrong(port)
        if wrong and self.under_way is not None:
            self.under_way(self.names)
            wrong = self._wrong(port)
        assert not wrong, f"{self.name}: {wrong[:5]}"
        self.under_way = None

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
