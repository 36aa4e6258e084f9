"""A circuit breaker: while a source or a cache is down, only one caller at a time tries it.

closed ──failures in a row──> open ──after a while──> half open: one asks
   ^                            ^───────────────failed──────┤
   └────────────────────────────────────────────answered────┘
"""

from __future__ import annotations

import threading
import time
from typing import Literal


class Breaker:
    """Whether a source or a cache may be asked now. Any thread may use it."""

    def __init__(self, failures: int = 3, retry: float = 1.0, most_retry: float = 30.0) -> None:
        """Open after so many failures in a row; then let one ask each `retry` seconds, which double
        with every failed try up to `most_retry`."""
        self.failures = failures
        self.retry, self.most_retry = retry, most_retry
        self.forked()
        self._failed = 0  # in a row
        self._wait = retry
        self._next = 0.0  # by the steady clock: when one may ask
        self.since: float | None = None  # it is open, as Unix time; None: it is not
        self._probe: float | None = None  # since when one asks

    def forked(self) -> None:
        """A lock that a thread of the parent held would be held for ever."""
        self._lock = threading.Lock()

    @property
    def state(self) -> Literal["closed", "open", "half-open"]:
        """The state of the circuit: closed, open or half-open."""
        with self._lock:
            if self.since is None:
                return "closed"
            return "half-open" if self._probe is not None else "open"

    @property
    def retry_in(self) -> float:
        """Seconds until one may ask; 0.0: now."""
        with self._lock:
            return 0.0 if self.since is None else max(0.0, self._next - time.monotonic())

    def enter(self) -> bool:
        """Whether the caller may ask; of several at a half-open breaker only the first may."""
        if self.since is None:  # without a lock: nothing depends on the last moment
            return True
        with self._lock:
            now = time.monotonic()
            # A probe that never ended, since its thread was killed, does not count for ever.
            asking = self._probe is not None and now - self._probe < self.most_retry
            if now < self._next or asking:
                return False
            self._probe = now
            return True

    def succeeded(self) -> None:
        """Close: there was an answer."""
        if self._failed == 0 and self.since is None:
            return
        with self._lock:
            self._failed, self.since, self._probe = 0, None, None
            self._wait = self.retry

    def failed(self) -> None:
        """Count a failure; open after too many in a row."""
        with self._lock:
            now = time.monotonic()
            self._failed += 1
            if self.since is None:
                if self._failed >= self.failures:
                    self.since, self._wait = time.time(), self.retry
                    self._next = now + self._wait
            elif self._probe is not None:  # not those who asked before it opened
                self._probe = None
                self._wait = min(2 * self._wait, self.most_retry)
                self._next = now + self._wait

    def gave_up(self) -> None:
        """Let the next caller ask: the one that did has not waited for the answer."""
        with self._lock:
            self._probe = None
