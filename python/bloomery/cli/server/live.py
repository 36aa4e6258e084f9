"""The figures of a server's filters, read again and again: what `bloomery top` shows.

They come from two endpoints: `/metrics` has the figures of all filters in one answer, at the cost
of one look at the last samples, and `/filters` the kinds, asked for when a name is new.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from bloomery.client import Client
from bloomery.client.request import Request, loaded

State = Literal["healthy", "filling", "saturated", "lagging"]
_LINE = re.compile(
    r'bloomery_(\w+?)(?:\{(?:alert="([a-z-]+)",)?filter="((?:[^"\\]|\\.)*)"\})? (\S+)'
)
# Which alerts of a filter make it what.
_SATURATED, _FILLING = {"full", "error-rate"}, {"nearly-full", "full-soon"}
_PAGE = "1000"  # rows of one answer
_SOON = 86400.0  # seconds: what is full within a day is filling
_NEARLY = 0.9  # and so is what has nine tenths of its keys
_LAG = 2.0  # seconds that a node may be behind


@dataclass(frozen=True, slots=True)
class LiveFilter:
    """The figures of one filter; None: the server does not know it (yet)."""

    name: str
    kind: str
    state: State
    keys: int
    capacity: int | None
    fill_ratio: float | None
    error_rate: float | None  # that was asked for
    estimated_error_rate: float | None
    observed_error_rate: float | None
    nbytes: int
    adds_per_second: float | None
    checks_per_second: float | None
    full_in_seconds: float | None


@dataclass(frozen=True, slots=True)
class LiveServer:
    """All filters that one may see, and how many more there are."""

    filters: list[LiveFilter]
    not_shown: int
    nbytes: int


class LiveReader:
    """Reads a server's figures; rates are those since the reading before."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._kinds: dict[str, str] = {}
        self._totals: dict[str, tuple[float, float]] = {}
        self._read_at: float | None = None

    def read(self) -> LiveServer:
        """Read all figures now."""
        server, filters = parse_metrics(self._get("/metrics", bytes.decode))
        now = self._clock()
        seconds = None if self._read_at is None else now - self._read_at
        if not filters.keys() <= self._kinds.keys():
            self._kinds = self._read_kinds()
        lagging = (server.get("store_behind_seconds") or 0.0) > _LAG
        rows = []
        for name, figures in filters.items():
            totals = figures.get("adds_total", 0.0), figures.get("checks_total", 0.0)
            adds, checks = _rates(self._totals.get(name), totals, seconds)
            self._totals[name] = totals
            rows.append(
                _row(name, self._kinds.get(name, "?"), figures, adds, checks, lagging=lagging)
            )
        self._read_at = now
        not_shown = int(server.get("filters_not_shown", 0.0))
        return LiveServer(rows, not_shown, int(server.get("filters_bytes", 0.0)))

    def _read_kinds(self) -> dict[str, str]:
        kinds: dict[str, str] = {}
        query = {"limit": _PAGE}
        while True:
            page = self._get("/filters", loaded, query)
            kinds.update((row["name"], row["kind"] or "loading") for row in page["filters"])
            if not page.get("cursor"):
                return kinds
            query["cursor"] = str(page["cursor"])

    def _get(
        self, path: str, read: Callable[[bytes], Any], query: dict[str, str] | None = None
    ) -> Any:
        request = Request("GET", path, read, query=query or {}, repeatable=True)
        return self._client.transport.send(request)


def parse_metrics(text: str) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """The server's own figures, and those of each filter by its name; what is no line of ours in
    Prometheus's format is passed over."""
    server: dict[str, float] = {}
    filters: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        figure, alert, label, value = match.groups()
        if label is None:
            server[figure] = float(value)
            continue
        name = re.sub(r"\\(.)", r"\1", label)
        if figure.startswith("filter_"):
            filters.setdefault(name, {})[figure.removeprefix("filter_")] = float(value)
        elif figure == "alert_active" and name:  # else it is about the server
            filters.setdefault(name, {})[f"alert {alert}"] = float(value)
    return server, filters


def _rates(
    before: tuple[float, float] | None, now: tuple[float, float], seconds: float | None
) -> tuple[float | None, float | None]:
    """Adds and checks a second; None if it is not known, as after a restart of the server."""
    if before is None or not seconds or now[0] < before[0] or now[1] < before[1]:
        return None, None
    return (now[0] - before[0]) / seconds, (now[1] - before[1]) / seconds


def _row(
    name: str,
    kind: str,
    figures: dict[str, float],
    adds: float | None,
    checks: float | None,
    *,
    lagging: bool,
) -> LiveFilter:
    capacity, full_in = figures.get("capacity"), figures.get("full_in_seconds")
    return LiveFilter(
        name,
        kind,
        _state(figures, lagging),
        int(figures.get("items", 0.0)),
        None if capacity is None else int(capacity),
        figures.get("fill_ratio"),
        figures.get("error_rate"),
        figures.get("estimated_error_rate"),
        figures.get("observed_error_rate"),
        int(figures.get("bytes", 0.0)),
        adds,
        checks,
        full_in,
    )


def _state(figures: dict[str, float], lagging: bool) -> State:
    """The state of a filter in a word: by the server's alerts about it, and by its figures."""
    alerts = {name.removeprefix("alert ") for name in figures if name.startswith("alert ")}
    if lagging:
        return "lagging"
    rate, capacity = figures.get("error_rate"), figures.get("capacity")
    items = figures.get("items", 0.0)
    if alerts & _SATURATED:
        return "saturated"
    if rate is not None:
        surely = figures.get("observed_error_rate_low", 0.0) > rate
        over = capacity is not None and items > capacity
        if surely or (over and figures.get("estimated_error_rate", 0.0) > rate):
            return "saturated"
    forecast = figures.get("full_in_seconds")  # none of a filter that grows
    nearly = capacity is not None and items >= _NEARLY * capacity
    if alerts & _FILLING or (forecast is not None and (forecast <= _SOON or nearly)):
        return "filling"
    return "healthy"
