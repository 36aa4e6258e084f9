"""A filter's samples over minutes to months, as a chart draws them: a few hundred points, the
coarse spans for what is long ago and the finer ones for what they do not reach yet."""

from __future__ import annotations

from typing import Any

from bloomery.service.domain.entry import Entry
from bloomery.service.parts import Parts
from bloomery.service.sampling.sample import HOUR, MINUTE, RAW

POINTS = 400  # more than a screen shows
MAX_SECONDS = 90 * 86400
_LIMIT = 5000
# Which are kept for as long as this many seconds, by default.
_SPANS = ((86400, (HOUR, MINUTE, RAW)), (3600, (MINUTE, RAW)), (0, (RAW,)))
_PEAKS = ("estimated_error_rate", "fill_ratio", "adds_per_second", "checks_per_second")
_LAST = ("items", "nbytes", "observed_error_rate", "observed_low", "observed_high")
COLUMNS = ("at", *_PEAKS, *_LAST)


async def series(parts: Parts, entry: Entry, seconds: int) -> dict[str, list[Any]]:
    """The columns of the samples of the last so many seconds, oldest first."""
    spans = next(spans for least, spans in _SPANS if seconds > least)
    since = parts.engine.now - seconds
    rows: list[dict[str, Any]] = []
    for span in spans:
        samples = await parts.sampler.samples(entry, since, None, span, _LIMIT)
        rows += samples
        if samples:
            since = samples[-1]["at"] + max(span, 0.001)
    points = _thinned(rows)
    return {name: [point[name] for point in points] for name in COLUMNS}


def _thinned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """So many points that each can be seen: of several samples the peak, and else the last."""
    many = -(-len(rows) // POINTS)
    return [_joined(rows[at : at + many]) for at in range(0, len(rows), max(1, many))]


def _joined(rows: list[dict[str, Any]]) -> dict[str, Any]:
    point = {name: rows[-1][name] for name in ("at", *_LAST)}
    for name in _PEAKS:
        known = [row[name] for row in rows if row[name] is not None]
        point[name] = max(known) if known else None
    return point
