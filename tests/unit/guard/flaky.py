"""A source of truth that comes and goes, and does each write once, across processes too."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

# The drainer of a guard looks once, and then leaves it to the test.
QUIET: dict[str, Any] = {
    "on_outage": "queue",
    "timeout": None,
    "retry": 3600,
    "most_retry": 3600,
    "failures": 1_000_000,
}


def end_lease(queue: Path) -> None:
    """Let time pass until nobody drains this SqliteQueue any more."""
    with closing(sqlite3.connect(queue)) as file, file:
        file.execute("UPDATE lease SET until = 0")


class Flaky:
    """`mode` is `up`, `down`, or `late`: it does what it is asked, but nobody hears of it."""

    def __init__(self) -> None:
        self.mode = "up"
        self.rows: dict[Any, Any] = {}
        self.did: dict[str, bool] = {}  # what came of each write, by idempotency key, in order
        self.calls: list[str] = []  # idempotency keys, as often as they came
        self.before: Callable[[str, Any], object] = lambda what, key: None
        self._lock = threading.Lock()

    def get_many(self, keys: Sequence[Any]) -> Mapping[Any, Any]:
        """The rows with these keys."""
        for key in keys:
            self.before("get", key)
        if self.mode != "up":
            raise ConnectionError("away")
        return {key: self.rows[key] for key in keys if key in self.rows}

    def add(self, key: Any, value: Any, idempotency_key: str) -> bool:
        """Write a row; what came of it the first time."""
        return self._write("add", key, value, idempotency_key)

    def remove(self, key: Any, idempotency_key: str) -> bool:
        """Delete a row."""
        return self._write("remove", key, None, idempotency_key)

    def _write(self, what: str, key: Any, value: Any, token: str) -> bool:
        self.before(what, key)
        if self.mode == "down":
            raise ConnectionError("away")
        with self._lock:
            self.calls.append(token)
            if token not in self.did:
                self.did[token] = (key in self.rows) == (what == "remove")
                self.change(what, key, value, token)
        if self.mode == "late":
            raise TimeoutError("no answer")
        return self.did[token]

    def change(self, what: str, key: Any, value: Any, token: str) -> None:
        """Do it."""
        if what == "add":
            self.rows[key] = value
        else:
            self.rows.pop(key, None)


class Log(Flaky):
    """One that outlives its process: a line for each write that it did."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        if path.exists():
            for line in path.read_text().splitlines():
                self.did[line] = True

    def change(self, what: str, key: Any, value: Any, token: str) -> None:
        """Write a line."""
        with self.path.open("a") as file:
            file.write(f"{token}\n")
