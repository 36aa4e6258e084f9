"""Alerts: what an operator should know. Each is published once when it begins and once when it is
over: to the log, to `/metrics` (`active`, `counts`), and to subscribers such as a webhook."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bloomery.names import printable
from bloomery.service.domain.entry import Entry
from bloomery.service.events import Event
from bloomery.service.observe.logs import Say

# Every kind of alert: how bad it is, and what it means.
KINDS = {
    "nearly-full": ("warning", "a filter holds `warn_at` of its capacity"),
    "full": ("error", "a filter holds `full_at` of its capacity: its policy acts"),
    "full-soon": ("warning", "at this rate a filter is full within `warn_within`"),
    "error-rate": ("error", "a filter errs more often than it was made for, as was measured"),
    "rotated": ("info", "a filter with on_full=rotate began a new generation (told, never active)"),
    "filter-differs": ("warning", "a filter of the configuration is otherwise, or is not there"),
    "data-damaged": ("error", "damaged files of the data folder were set aside, and still are"),
    "log-unavailable": ("error", "the log cannot be written: writes are refused"),
    "store-unavailable": ("error", "the Redis of a node does not answer"),
    "store-refused": ("error", "the Redis of a node takes no writes: it is full, say"),
    "store-differs": ("error", "the log in Redis lacks writes that a node has"),
    "store-incomplete": ("error", "no node can start from what Redis has: a snapshot is made"),
    "store-clock": ("warning", "the clocks of Redis and of a node's machine differ"),
    "store-evicts": ("warning", "the Redis of a node may evict its keys (maxmemory-policy)"),
    "store-foreign": ("warning", "the log had an entry that no node wrote (told, never active)"),
    "store-damaged": ("error", "an entry of the shared log is damaged: nodes wait for its removal"),
    "memory-short": ("error", "a node lacks memory for the filters of the log: it tries again"),
    "registry-late": ("warning", "the registry's database does not follow"),
    "source-unavailable": ("error", "a source that filters are bound to does not answer"),
    "snapshot-failed": ("error", "the last snapshot was not made; the log keeps everything"),
    "snapshot-damaged": ("error", "a file of a snapshot was damaged (told, never active)"),
    "log-late": ("warning", "the disk does not follow the log: replies to writes wait for it"),
    "clock": ("warning", "the wall clock jumped: the server's time follows it slowly"),
}
# Something that happens again and again to one filter is told once in so many seconds.
_QUIET = 10.0


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that has begun, and is not yet over."""

    kind: str
    level: str
    text: str
    at: float  # when it began, Unix time
    name: bytes | None  # of the filter that it is about
    fields: dict[str, Any]

    def as_dict(self, state: str = "active") -> dict[str, Any]:
        """All of it, ready for JSON."""
        return {
            "kind": self.kind,
            "state": state,
            "level": self.level,
            "filter": None if self.name is None else printable(self.name),
            "text": self.text,
            "at": self.at,
            **self.fields,
        }


class Alerts:
    """The alerts of a server."""

    def __init__(self, say: Say, now: Callable[[], float] = time.time) -> None:
        # By kind and filter (its number, or its name), source or folder; 0: the server itself.
        self.active: dict[tuple[str, int | str | bytes], Alert] = {}
        self.counts: Counter[str] = Counter()  # how often each kind began
        self.on_alert: Event[[Alert, str]] = Event()  # each that is published, and its state
        self._say = say
        self._now = now
        # When an event was last published, the oldest first.
        self._last_events: OrderedDict[tuple[str, int | str | bytes], float] = OrderedDict()

    def begin(
        self, kind: str, text: str, entry: Entry | bytes | None = None, **fields: Any
    ) -> None:
        """Raise an alert, unless it is active already. `entry`: the filter that it is about, or
        the name of one that may not be there."""
        key = _key(kind, entry, fields)
        if key not in self.active:
            self.active[key] = alert = self._new(kind, text, entry, fields)
            self._publish(alert, "raised")

    def end(self, kind: str, text: str, entry: Entry | bytes | None = None, **fields: Any) -> bool:
        """End an alert; return whether it was active."""
        before = self.active.pop(_key(kind, entry, fields), None)
        if before is not None:
            over = Alert(kind, "info", text, self._now(), before.name, fields)
            self._publish(over, "cleared")
        return before is not None

    def event(
        self, kind: str, text: str, entry: Entry | bytes | None = None, **fields: Any
    ) -> None:
        """Publish something that happened once, unless the same was published a moment ago."""
        key, now = _key(kind, entry, fields), time.monotonic()
        self.counts[kind] += 1
        while self._last_events and now - next(iter(self._last_events.values())) >= _QUIET:
            self._last_events.popitem(last=False)
        if key not in self._last_events:
            self._last_events[key] = now
            self._publish(self._new(kind, text, entry, fields), "event")

    def forget(self, filter_id: int) -> None:
        """Forget the alerts of a filter that is gone."""
        for kind in KINDS:
            self.active.pop((kind, filter_id), None)

    def _new(
        self, kind: str, text: str, entry: Entry | bytes | None, fields: dict[str, Any]
    ) -> Alert:
        name = entry.name if isinstance(entry, Entry) else entry
        return Alert(kind, KINDS[kind][0], text, self._now(), name, fields)

    def _publish(self, alert: Alert, state: str) -> None:
        if state == "raised":
            self.counts[alert.kind] += 1
        about = {} if alert.name is None else {"filter": printable(alert.name)}
        self._say(
            alert.text, level=alert.level, alert=alert.kind, state=state, **about, **alert.fields
        )
        self.on_alert(alert, state)


def _key(
    kind: str, entry: Entry | bytes | None, fields: dict[str, Any]
) -> tuple[str, int | str | bytes]:
    assert kind in KINDS, kind
    if isinstance(entry, bytes):
        return kind, entry
    return kind, fields.get("source", fields.get("folder", 0)) if entry is None else entry.id
