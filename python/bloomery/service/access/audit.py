"""The audit log: `audit.log` in the data folder, a line of JSON for each administrative action.

    {"at": "2026-01-31T12:00:00.123Z", "user": "ann", "address": "10.0.0.7", "door": "resp",
     "operation": "drop", "command": "del", "names": ["seen"], "outcome": "done"}

Never a key, a password, a token or the value of a setting. A thread writes it: no request waits for
the disk, and a full disk stops nothing, but is logged. What is refused again and again is one line
a minute, with how many times, so that nobody can push older lines out.
"""

from __future__ import annotations

import fcntl
import json
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bloomery import errors
from bloomery.names import printable
from bloomery.service.access import users
from bloomery.service.access.permissions import OPERATIONS, Role

# What is noted, beside logins by password, users that are changed, and start and stop.
AUDITED = frozenset(
    name
    for name, operation in OPERATIONS.items()
    if operation.role is Role.ADMIN or name in ("create", "drop")
)
MAX_BYTES = 16 << 20
KEPT = 4  # older files: audit.log.1 is the newest of them
_MOST_QUEUED = 100_000
_MOST_NAMES = 20
_MOST_REPEATED = 10_000
_MINUTE = 60.0

Line = dict[str, Any]


def audit_file(data: str | os.PathLike[str]) -> Path:
    """Return the path of the audit log."""
    return Path(data, "audit.log")


def line(
    user: str | None,
    address: str,
    protocol: str,
    operation: str,
    outcome: str,
    *,
    command: str = "",
    names: Iterable[bytes] = (),
    settings: Iterable[str] = (),
    note: str = "",
) -> Line:
    """Return a line: who (None: nobody known), from where, did what to which filters, and whether
    it was done, refused (not theirs to do) or failed."""
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    entry: Line = {
        "at": now.replace("+00:00", "Z"),
        "user": user,
        "address": address,
        "door": protocol,
        "operation": operation,
        "command": command,
        "settings": list(settings)[:_MOST_NAMES],
        "note": note,
        "outcome": outcome,
    }
    named = list(names)
    if named:
        entry["names"] = [printable(name[:256]) for name in named[:_MOST_NAMES]]
        if len(named) > _MOST_NAMES:
            entry["more_names"] = len(named) - _MOST_NAMES
    return {key: value for key, value in entry.items() if value not in ("", [])}


def append(data: str | os.PathLike[str], lines: list[Line]) -> None:
    """Write lines; a file that has become long is put aside, and the oldest one is dropped."""
    path = audit_file(data)
    while True:
        with open(path, "ab", opener=users.private) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is(path, file.fileno()):
                continue  # another process has put it aside meanwhile
            users.own(file.fileno(), data)
            if os.fstat(file.fileno()).st_size > MAX_BYTES:
                _put_aside(path)
                continue
            file.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
            return


def _is(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False


def _put_aside(path: Path) -> None:
    for number in range(KEPT, 1, -1):
        older = Path(f"{path}.{number - 1}")
        if older.exists():
            older.replace(f"{path}.{number}")
    path.replace(f"{path}.1")


class Audit:
    """The audit log of a running server."""

    def __init__(self, data: Path, say: Callable[..., None]) -> None:
        self._data, self._say = data, say
        self._queue: queue.Queue[Line | None] = queue.Queue(_MOST_QUEUED)
        self._lost = 0
        self._repeated: dict[tuple[object, ...], int] = {}
        self._minute = time.monotonic()
        self._failing: Exception | None = None  # why the last lines could not be written
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bloomery-audit", daemon=True)
        self._thread.start()
        self.note(None, "", "server", "start", "done")

    def note(
        self,
        user: str | None,
        address: str,
        protocol: str,
        operation: str,
        outcome: str,
        **more: Any,
    ) -> None:
        """Note an action (as `line` has it), from the loop; it is written soon."""
        self.tick()
        entry = line(user, address, protocol, operation, outcome, **more)
        if outcome != "done":
            key = (user, address, protocol, operation, entry.get("command"), outcome)
            times = self._repeated.get(key, 0)
            if times or len(self._repeated) < _MOST_REPEATED:
                self._repeated[key] = times + 1
            if times:
                return
        self._put(entry)

    def tick(self) -> None:
        """Note, once a minute, what was repeated."""
        if time.monotonic() - self._minute < _MINUTE:
            return
        self._minute = time.monotonic()
        repeated, self._repeated = self._repeated, {}
        for (user, address, protocol, operation, command, outcome), times in repeated.items():
            if times > 1:
                more = {"command": command or "", "note": f"{times - 1} more times in a minute"}
                entry = line(user, address, protocol, operation, outcome, **more)  # type: ignore[arg-type]
                self._put(entry)

    def _put(self, entry: Line) -> None:
        try:
            self._queue.put_nowait(entry)
        except queue.Full:
            self._lost += 1

    def close(self, outcome: str) -> None:
        """Note that the server has stopped, write what waits, and end. LogUnavailable says how many
        lines could not be written: nothing is tried twice any more."""
        self._minute = float("-inf")
        self.note(None, "", "server", "stop", outcome)
        self._closing.set()
        self._queue.put(None)
        self._thread.join()
        if self._lost:
            raise errors.LogUnavailable(
                f"{audit_file(self._data)}: {self._failing}: {self._lost} lines of it are lost"
            )

    # In the thread.

    def _run(self) -> None:
        ended = False
        while not ended:
            batch = [self._queue.get()]
            while len(batch) < 1000 and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            ended = None in batch
            self._write([line for line in batch if line is not None])

    def _write(self, lines: list[Line]) -> None:
        while lines:
            lost = self._lost
            gap = [line(None, "", "server", "audit", "failed", note=f"{lost} lines were lost")]
            try:
                append(self._data, [*lines, *(gap if lost else [])])
            except Exception as problem:  # noqa: BLE001  # whatever it is, there are other lines
                if self._failing is None:
                    self._say(f"the audit log cannot be written: {problem}", level="warning")
                self._failing = problem
                if self._closing.is_set() or self._queue.full():
                    self._lost += len(lines)
                    return
                self._closing.wait(1)
            else:
                self._lost -= lost
                if self._failing is not None:
                    self._say("the audit log can be written again")
                self._failing = None
                return
