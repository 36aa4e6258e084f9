"""The figures of filters for live pages: one computation for all who look.

A page asks every two seconds. What it is answered is kept for a moment, by what was asked and by
the names that the user may see, so that five viewers of one table cost as much as one. Samples are
the source: no filter's bits are counted for a page.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

from fastapi import Request

from bloomery.names import printable
from bloomery.service.access.glob import glob
from bloomery.service.access.permissions import User
from bloomery.service.domain.entry import Entry
from bloomery.service.domain.policy import capacity_of, part_of, policy_of
from bloomery.service.http.encoding import encode_json
from bloomery.service.parts import Parts
from bloomery.service.policy.alerts import Alert
from bloomery.service.policy.forecast import in_words
from bloomery.service.sampling.sample import Sample
from bloomery.service.slices import Slice, gathered

FRESH = 1.5  # seconds for which an answer serves others too
ROWS = 50  # of a page of the table
_MOST_KEPT = 256
_MOST_NAMES = 200_000  # that are looked at: of more filters, the oldest are shown
_MOST_ALERTS = 200

# Which alerts of a filter make it what.
_SATURATED = ("full", "error-rate")
_FILLING = ("nearly-full", "full-soon")
STATES = ("loading", "lagging", "saturated", "filling", "healthy")


class Board:
    """What pages show of a server's filters, and its last alerts."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._kept: dict[Any, tuple[float, bytes]] = {}
        self._alerts: deque[tuple[Alert, str]] = deque(maxlen=_MOST_ALERTS)  # the newest last
        parts.alerts.on_alert.subscribe(lambda alert, state: self._alerts.append((alert, state)))

    def recent_alerts(self, user: User, limit: int) -> list[dict[str, Any]]:
        """Return the last alerts that a user may see, ready for JSON, the newest last."""
        seen = [
            alert.as_dict(state)
            for alert, state in self._alerts
            if alert.name is None or user.covers(alert.name)
        ]
        return seen[-limit:]

    async def table(self, user: User, search: str, sort: str, descending: bool, page: int) -> bytes:
        """A page of the table, as JSON."""
        patterns = (b"*",) if user.everything else user.patterns
        asked = (patterns, search, sort, descending, page)
        kept = self._recent(asked)
        if kept is not None:
            return kept
        entries = await self._matching(user, search)
        share, keyed = Slice(), list[tuple[Any, Entry]]()
        key = _SORTS[sort]
        for entry in entries:
            keyed.append((key(self, entry), entry))
            await share.rest()
        known = sorted((row for row in keyed if row[0] is not None), key=_first, reverse=descending)
        ordered = [*known, *(row for row in keyed if row[0] is None)]  # what is not known is last
        pages = max(1, -(-len(ordered) // ROWS))
        page = min(page, pages)
        on_page = ordered[(page - 1) * ROWS : page * ROWS]
        rows = [self.row(entry) for _, entry in on_page]
        value = {"rows": rows, "number": len(ordered), "page": page, "pages": pages}
        return self._keep(asked, value)

    async def _matching(self, user: User, search: str) -> list[Entry]:
        self._parts.sequencer.join()
        hidden, covers = self._parts.commands.listing.hidden, user.covers
        matches = _matcher(search)
        entries = list(islice(self._parts.engine.state.filters.values(), _MOST_NAMES))
        return await gathered(
            entries,
            lambda entry: entry.name not in hidden and covers(entry.name) and matches(entry.name),
        )

    def live(self, user: User, name: bytes) -> bytes:
        """What changes about one filter, as JSON; UnknownFilter if there is none."""
        kept = self._recent(name)
        if kept is not None:
            return kept
        self._parts.sequencer.join()
        entry = self._parts.commands.find(name)
        rebuild = self._parts.rebuilds.of(entry)
        adds, checks, maybes = self._parts.engine.figures(entry)
        value = self.row(entry) | {
            "sample": self._parts.sampler.last_as_dict(entry) or None,
            "policy": {} if entry.filter is None else policy_of(entry).as_dict(),
            "expires_at": entry.expires_at,
            "total": {"adds": adds, "checks": checks, "maybes": maybes},
            "source": entry.settings.get("source"),
            "lookups": self._parts.lookups.info(entry),
            "rebuild": None if rebuild is None else rebuild.as_dict(),
        }
        return self._keep(name, value)

    def row(self, entry: Entry) -> dict[str, Any]:
        """A filter's row, ready for JSON."""
        filter, sample = entry.filter, self._parts.sampler.last(entry)
        state, why = self.state(entry)
        row = {
            "name": printable(entry.name),
            "kind": None if filter is None else filter.kind,
            "items": self.count(entry),
            "capacity": None if filter is None else capacity_of(entry) or None,
            "limited": filter is not None and policy_of(entry).on_full in ("reject", "alert"),
            "target": getattr(filter, "error_rate", None),
            "nbytes": 0 if filter is None else filter.nbytes,
            "state": state,
            "why": why,
        }
        if sample is not None:
            row |= {
                "at": sample.sampled_at,
                "fill": sample.fill_ratio,
                "estimated": sample.estimated_error_rate,
                "observed": sample.observed_error_rate,
                "observed_low": sample.observed_low,
                "observed_high": sample.observed_high,
                "adds": sample.adds_per_second,
                "checks": sample.checks_per_second,
                "full_in": sample.full_in,
                "forecast": in_words(sample.full_in),
            }
        return row

    def state(self, entry: Entry) -> tuple[str, str]:
        """A filter's state in a word, and why."""
        if entry.filter is None:
            return "loading", "only a part of it has come"
        node, active = self._parts.node, self._parts.alerts.active
        unfit = None if node is None else node.unfit()
        if unfit is not None:
            return "lagging", unfit
        for state, kinds in (("saturated", _SATURATED), ("filling", _FILLING)):
            for kind in kinds:
                if (kind, entry.id) in active:
                    return state, active[kind, entry.id].text
        policy = policy_of(entry)
        if policy.on_full in ("reject", "alert"):
            capacity, items = capacity_of(entry), self.count(entry)
            if items >= part_of(policy.full_at, capacity):
                return "saturated", "it holds all the keys that it was made for"
            if policy.warn_at and items >= part_of(policy.warn_at, capacity):
                return "filling", f"it holds {policy.warn_at:.0%} of its capacity, or more"
        return "healthy", "it has room, and errs no more often than was allowed"

    # What is kept.

    def _recent(self, asked: Any) -> bytes | None:
        at, answer = self._kept.get(asked, (-FRESH, b""))
        return answer if time.monotonic() - at < FRESH else None

    def _keep(self, asked: Any, value: dict[str, Any]) -> bytes:
        answer = encode_json(value)
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[asked] = (time.monotonic(), answer)
        return answer

    def count(self, entry: Entry) -> int:
        """How many keys a filter holds."""
        return self._parts.engine.state.count(entry)

    def sample(self, entry: Entry) -> Sample | None:
        """The last sample of a filter."""
        return self._parts.sampler.last(entry)


def board_of(request: Request) -> Board:
    """The board that all pages share."""
    board: Board = request.app.state.board
    return board


def _matcher(search: str) -> Callable[[bytes], bool]:
    """Whether a name is searched for: it has the text in it, or matches a pattern of Redis."""
    if not search:
        return lambda name: True
    if set(search) & set("*?["):
        return glob(search.encode())
    wanted = search.lower()
    return lambda name: wanted in printable(name).lower()


def _first(row: tuple[Any, Entry]) -> Any:
    return row[0]


def _sampled(field: Callable[[Sample], float | None]) -> Callable[[Board, Entry], Any]:
    """By a figure of the last sample; None where it is not known."""

    def key(board: Board, entry: Entry) -> float | None:
        sample = board.sample(entry)
        value = None if sample is None else field(sample)
        return None if value is None or value != value else value

    return key


_SORTS: dict[str, Callable[[Board, Entry], Any]] = {
    "name": lambda board, entry: printable(entry.name).lower(),
    "kind": lambda board, entry: None if entry.filter is None else entry.filter.kind,
    "items": lambda board, entry: board.count(entry),
    "nbytes": lambda board, entry: 0 if entry.filter is None else entry.filter.nbytes,
    "state": lambda board, entry: STATES.index(board.state(entry)[0]),
    "fill": _sampled(lambda sample: sample.fill_ratio),
    "estimated": _sampled(lambda sample: sample.estimated_error_rate),
    "observed": _sampled(lambda sample: sample.observed_error_rate),
    "adds": _sampled(lambda sample: sample.adds_per_second),
    "checks": _sampled(lambda sample: sample.checks_per_second),
    "full_in": _sampled(lambda sample: sample.full_in),
}
SORTS = tuple(_SORTS)
