"""Writes the registry from a thread of its own, so that it follows the server.

    server thread ── put, drop, add_samples ──> what waits, by filter ──> thread ──> Registry
                     (never waits, never fails)                │
                                          too much, or the database is away
                                                               └──> only: read all, and replace

Of several changes of one filter only the last is written. When the database is away nothing is
kept but that all is to be read again (samples taken meanwhile are lost), so that the memory this
takes is bounded; when it is back, the registry is made right from what the server then has.

The other way go rows that somebody inserted: `claim_soon` asks for them, `on_inserted` has them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bloomery.service.events import Event
from bloomery.service.registry.rows import RegistryRow
from bloomery.service.sampling.sample import Sample

if TYPE_CHECKING:  # it needs SQLAlchemy, which is imported after the server's start
    from bloomery.service.registry.registry import Registry

_log = logging.getLogger(__name__)

# What may wait. With more filters than this, reading all again costs less than keeping them.
MOST_FILTERS = 10_000
MOST_SAMPLES = 100_000
# How many of the longest retries lie between two looks at names that another server has: each look
# reads all filters.
_CONFLICTS = 10


@dataclass(slots=True)
class _PendingWrites:
    """Changes that are not yet in the registry."""

    all: bool = False
    rows: dict[int, RegistryRow | None] = field(default_factory=dict)  # None: dropped
    samples: list[Sample] = field(default_factory=list)
    prune_before: dict[int, float] = field(default_factory=dict)  # by span
    problems: dict[int, str] = field(default_factory=dict)  # of rows that somebody inserted
    claim: bool = False  # for such rows

    def __bool__(self) -> bool:
        return bool(
            self.all
            or self.rows
            or self.samples
            or self.prune_before
            or self.problems
            or self.claim
        )


class RegistryWriter:
    """The thread that writes a registry: `start` it, hand it changes, `close` it.

    `read_all` returns a row for each filter that there is. It is called on the writer's thread, at
    the start and whenever the registry may have missed something, while the server goes on.
    Between two tries are `first_retry` seconds, then twice as many, up to `last_retry`.
    """

    def __init__(
        self,
        read_all: Callable[[], Iterable[RegistryRow]],
        *,
        first_retry: float = 0.5,
        last_retry: float = 30.0,
    ) -> None:
        self._read_all = read_all
        self._first_retry = first_retry
        self._last_retry = last_retry
        self.on_inserted: Event[[list[dict[str, Any]]]] = Event()  # on the writer's thread
        self._lock = threading.Condition()  # guards all that follows, and is told of its changes
        self._pending = _PendingWrites(all=True)
        self._since: float | None = time.monotonic()
        self._busy = False
        self._closing = False
        self._paused = False
        self._refused: dict[int, str] = {}
        self._look_at_refused = 0.0  # when to look whether they can be written now
        self._last_error: str | None = None
        self._lost_samples = 0
        self._ready = False
        self._newest: float | None = None
        self._thread: threading.Thread | None = None

    def start(self, registry: Registry) -> None:
        """Start the thread; it starts with all filters that exist."""
        self._thread = threading.Thread(
            target=self._run, args=(registry,), name="bloomery-registry", daemon=True
        )
        self._thread.start()

    def pause(self, paused: bool) -> None:
        """Write nothing, and keep nothing but that all is to be read again: of the nodes that share
        a registry one writes. Or go on."""
        with self._lock:
            if paused != self._paused:
                self._paused, self._pending = paused, _PendingWrites(all=True)
                self._since = None if paused else time.monotonic()
                self._lock.notify_all()

    def put(self, rows: Iterable[RegistryRow]) -> None:
        """Write the rows of filters that are new or have changed."""
        self._add({row.id: row for row in rows})

    def drop(self, ids: Iterable[int]) -> None:
        """Remove the rows of filters that were dropped."""
        self._add(dict.fromkeys(ids))

    def add_samples(self, rows: Iterable[Sample]) -> None:
        """Write samples; they are lost if the database is away, or if too many wait."""
        given = list(rows)
        with self._lock:
            if self._paused:
                return  # another writes them
            room = 0 if self._pending.all else MOST_SAMPLES - len(self._pending.samples)
            self._pending.samples += given[:room]
            self._lost_samples += max(0, len(given) - room)
            self._notify()

    def prune(self, before: Mapping[int, float]) -> None:
        """Remove samples of these spans from before these times (epochs)."""
        with self._lock:
            if not self._paused:
                self._pending.prune_before |= before
                self._notify()

    def claim_soon(self) -> None:
        """Look for rows that somebody inserted, soon."""
        with self._lock:
            if not self._paused:
                self._pending.claim = True
                self._notify()

    def note_problems(self, problems: Mapping[int, str]) -> None:
        """Write into such rows (by their ids) why they are no filters."""
        with self._lock:
            self._pending.problems |= problems
            self._notify()

    @property
    def healthy(self) -> bool:
        """Whether the last try to write succeeded, and for every filter."""
        return self._last_error is None

    @property
    def last_error(self) -> str | None:
        """Why it is not healthy, in one line without secrets."""
        return self._last_error

    @property
    def behind(self) -> float:
        """For how many seconds the oldest change has been waiting; 0.0 when all is written."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def lost_samples(self) -> int:
        """How many samples never got into the registry."""
        return self._lost_samples

    @property
    def ready(self) -> bool:
        """Whether the registry could be reached at some time since the start."""
        return self._ready

    @property
    def newest(self) -> float | None:
        """When the newest sample was taken that the registry had before this server's own."""
        return self._newest

    def flush(self, timeout: float) -> bool:
        """Wait until all that was handed over is written; False if it was not, in that time."""
        with self._lock:
            done = self._lock.wait_for(lambda: not self._busy and not self._pending, timeout)
            return done and self.healthy

    def close(self, timeout: float = 5.0) -> bool:
        """Write what waits if the database is there, and end; False if something was left."""
        with self._lock:
            self._closing = True
            self._lock.notify_all()
        if self._thread is not None:
            self._thread.join(timeout)
        return self._since is None

    # ---- with the lock held

    def _add(self, changes: dict[int, RegistryRow | None]) -> None:
        with self._lock:
            if self._pending.all:
                return  # which will bring these too
            self._pending.rows |= changes
            if len(self._pending.rows) > MOST_FILTERS:
                self._read_again()
            self._notify()

    def _read_again(self) -> None:
        """Drop all pending changes, and read all filters again instead."""
        self._lost_samples += len(self._pending.samples)
        self._pending = _PendingWrites(
            all=True,
            prune_before=self._pending.prune_before,
            problems=self._pending.problems,
        )

    def _notify(self) -> None:
        if self._pending and self._since is None:
            self._since = time.monotonic()
        self._lock.notify_all()

    # ---- the thread

    def _run(self, registry: Registry) -> None:
        pause = self._first_retry
        while work := self._next():
            began = time.monotonic()
            try:
                refused = self._write(registry, work)
            except Exception as failure:  # noqa: BLE001 - whatever it is, the server goes on
                self._failed(work, str(failure) or type(failure).__name__, pause)
                pause = min(2 * pause, self._last_retry)
            else:
                self._succeeded(work, refused, began)
                pause = self._first_retry
        registry.close()

    def _next(self) -> _PendingWrites | None:
        """Wait for work and take it; None when the thread is to end."""
        with self._lock:
            self._busy = False
            self._lock.notify_all()
            # A name that another server had may be free again.
            wait = self._look_at_refused - time.monotonic() if self._refused else None
            ready = self._lock.wait_for(self._is_due, wait)
            while self._paused and not ready:
                ready = self._lock.wait_for(self._is_due)
            if self._paused:  # and closing
                return None
            due = time.monotonic() >= self._look_at_refused
            if self._refused and due and not self._closing:
                self._pending.all = True
            away = self._pending.all and not self.healthy
            if self._closing and (away or not self._pending):
                return None
            work, self._pending = self._pending, _PendingWrites()
            self._busy = True
            return work

    def _is_due(self) -> bool:
        return self._closing or (bool(self._pending) and not self._paused)

    def _write(self, registry: Registry, work: _PendingWrites) -> dict[int, str]:
        """Write changes into the registry; return the ids that were refused, and why."""
        refused: dict[int, str] = {}
        if work.all:
            registry.migrate()
            if not self._ready:
                self._newest, self._ready = registry.newest(), True
            refused = registry.replace(self._read_all())
        if dropped := [number for number, row in work.rows.items() if row is None]:
            registry.drop(dropped)
        if rows := [row for row in work.rows.values() if row is not None]:
            refused |= registry.put(rows)
        if work.samples:
            registry.add_samples(work.samples)
        if work.prune_before:
            registry.prune(work.prune_before)
        if work.problems:
            registry.note_problems(work.problems)
        if work.claim and (inserted := registry.claim()):
            self.on_inserted(inserted)
        return refused

    def _succeeded(self, work: _PendingWrites, refused: dict[int, str], began: float) -> None:
        with self._lock:
            if work.all or not self._refused:
                self._look_at_refused = time.monotonic() + _CONFLICTS * self._last_retry
            old = {} if work.all else {n: w for n, w in self._refused.items() if n not in work.rows}
            self._refused = old | refused
            if self._refused:
                first, more = next(iter(self._refused.values())), len(self._refused) - 1
                self._say(f"{first}; and {more} more" if more else first)
            else:
                self._say(None)
                self._since = began if self._pending and not self._paused else None

    def _failed(self, work: _PendingWrites, error: str, pause: float) -> None:
        with self._lock:
            self._pending.prune_before = work.prune_before | self._pending.prune_before
            self._pending.problems = work.problems | self._pending.problems
            self._lost_samples += len(work.samples)
            self._read_again()
            self._say(error)
            self._busy = False
            self._lock.notify_all()
            self._lock.wait_for(lambda: self._closing, pause)

    def _say(self, error: str | None) -> None:
        if error == self._last_error:
            return
        self._last_error = error
        if error is None:
            _log.info("the registry is up to date again")
        else:
            _log.warning("the registry is late: %s", error)
