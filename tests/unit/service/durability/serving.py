"""A server without sockets, for the tests of what it keeps: filters, their log, their snapshots."""

from __future__ import annotations

import random
import shutil
import struct
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bloomery import _native
from bloomery.filters.internals import add_hashes, remove_hashes
from bloomery.service.domain import operations
from bloomery.service.domain.operations import Op
from bloomery.service.domain.state import State
from bloomery.service.durability import snapshotter
from bloomery.service.durability.log import Fsync
from bloomery.service.durability.log_reader import LogReader
from bloomery.service.durability.recovery import Recovery, recover
from bloomery.service.durability.replay import replay

NOW = 1_000_000_000.0
# Every kind that can be made empty, with what makes it go through its paces soon.
SETTINGS: dict[str, dict[str, Any]] = {
    "bloom": {"capacity": 500, "error_rate": 0.001},
    "scalable": {"capacity": 20, "error_rate": 0.001},
    "counting": {"capacity": 300, "error_rate": 0.001, "counter_bits": 4},
    "deletable": {"capacity": 300, "error_rate": 0.001},
    "cuckoo": {"capacity": 300, "error_rate": 0.001},
    "rotating": {"capacity": 30, "error_rate": 0.001, "window": 60, "generations": 3},
    "bank": {"capacity": 20, "error_rate": 0.001},
    "redisbloom": {"capacity": 50, "error_rate": 0.001, "expansion": 2},
    "rediscuckoo": {"capacity": 300, "bucket_size": 4, "max_iterations": 20, "expansion": 1},
}
WIDTH = {"redisbloom": 16, "bank": 16}  # bytes of a key in the log, where they are not 8
REMOVING = ("counting", "deletable", "cuckoo", "rediscuckoo")
LARGE = 1_000_000  # a capacity at which a filter is changed in a mapped file


def hashes(seed: int, count: int, kind: str = "bloom") -> bytes:
    """The hashes of so many keys, the same for the same seed."""
    return random.Random(seed).randbytes(WIDTH.get(kind, 8) * count)


def packed(*values: int, kind: str = "bloom") -> bytes:
    """These hashes, each as often as a key of the kind has them."""
    each = WIDTH.get(kind, 8) // 8
    return b"".join(struct.pack("<Q", value) * each for value in values)


def missing(filter: Any, data: bytes) -> int:
    """How many of these keys are definitely not there."""
    copy = filter.copy()
    if filter.kind == "rediscuckoo":  # it takes a key again and again
        return len(data) // 8 - remove_hashes(copy, data)
    return add_hashes(copy, data)


def replay_rows(rows: Iterable[tuple[float, int, int, bytes]], state: State) -> list[str]:
    """Write rows into a log, each as a batch of its own, and replay it onto a state; return the
    problems."""
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        log = _native.LogWriter(Path(folder), 1, 0, "never", 1 << 40)
        for row in rows:
            log.write([row], NOW)
        log.close()
        replay(state, LogReader(folder, 1, 0), problems)
    return problems


class Server:
    """Filters and their log in a folder."""

    def __init__(self, data: Path, fsync: Fsync = "never", **options: Any) -> None:
        self.data = data
        self.now = NOW
        self.recovery: Recovery = recover(data, **options)
        self.state = self.recovery.state
        self.log = self.recovery.log(fsync)

    def do(self, op: Op, filter_id: int, body: bytes = b"", *, name: bytes | None = None) -> Any:
        """Log an operation, then apply it; return its result. A filter that exists has its name,
        and a new one gets `name`. The log has records that are refused, too."""
        if name is None:
            name = self.state.filters[filter_id].name
        data = operations.named(name, body)
        self.log.append([(filter_id, op, data)], self.now)
        return self.state.apply(op, filter_id, data, self.now)

    def create(self, kind: str, name: str | None = None, **settings: Any) -> int:
        """Make a filter; its number."""
        chosen = {"kind": kind, **SETTINGS[kind], **settings}
        number = self.state.next_id
        fields = operations.fields(settings=chosen)
        self.do(Op.CREATE, number, fields, name=(name or kind).encode())
        return number

    def wait(self, seconds: float) -> None:
        """Let time pass, and log what expires or rotates."""
        self.now += seconds
        for entry, op in self.state.due(self.now):
            self.do(op, entry.id)

    def snapshot(self) -> int:
        """Make a snapshot, in this process."""
        number = self.log.cut()
        snapshotter.take(self.data, number)
        return number

    def killed(self, copy: Path) -> Path:
        """A copy of the folder as it would be found if the server were killed now."""
        shutil.copytree(self.data, copy)
        return copy


def assert_same(found: State, expected: State) -> None:
    """Both have the same filters, byte for byte, and all that is known about them."""
    assert found.filters.keys() == expected.filters.keys()
    assert {name: entry.id for name, entry in found.names.items()} == {
        name: entry.id for name, entry in expected.names.items()
    }
    assert found.next_id == expected.next_id
    for number, entry in expected.filters.items():
        other = found.filters[number]
        assert (other.filter is None) == (entry.filter is None)
        if entry.filter is not None:
            assert other.filter == entry.filter, entry
        facts = ("name", "created_at", "expires_at", "items", "settings")
        for fact in facts:
            assert getattr(other, fact) == getattr(entry, fact), fact
