"""What `/metrics` says of sources, and of look-ups in filters that are bound to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bloomery.names import printable
from bloomery.service.domain.entry import Entry
from bloomery.service.lookup.lookups import Lookups
from bloomery.service.lookup.source import LookupSource

_Family = type[CounterMetricFamily] | type[GaugeMetricFamily]
# Of each source, as `bloomery_source_NAME`.
_OF_SOURCES: tuple[tuple[str, _Family, str, Callable[[LookupSource], float]], ...] = (
    (
        "up",
        GaugeMetricFamily,
        "Whether it answered when it was last asked.",
        lambda source: source.down_since is None,
    ),
    ("queries", CounterMetricFamily, "Questions to it.", lambda source: source.asking.queries),
    (
        "failures",
        CounterMetricFamily,
        "Those without an answer.",
        lambda source: source.asking.failures,
    ),
    (
        "cache_failures",
        CounterMetricFamily,
        "Times that its cache did not answer.",
        lambda source: 0 if source.caching is None else source.caching.failures,
    ),
    (
        "queued",
        GaugeMetricFamily,
        "Look-ups that wait until it answers again.",
        lambda source: source.queued,
    ),
)


class LookupFigures(Collector):
    """Families of metrics; most are empty where there are no sources."""

    def __init__(self, lookups: Lookups, entries: list[Entry]) -> None:
        """`entries` are the filters that have figures of their own."""
        self.lookups = lookups
        self.entries = entries

    def collect(self) -> Iterator[Metric]:
        """One family after the other."""
        labels = ["filter", "by"]
        answers = CounterMetricFamily(
            "bloomery_lookups", "Keys that were looked up.", labels=labels
        )
        for entry in self.entries:
            info = self.lookups.info(entry) or {"answers": {}}
            for by, count in info["answers"].items():
                answers.add_metric([printable(entry.name), by], count)
        yield answers
        waiting = self.lookups.waiting
        yield GaugeMetricFamily("bloomery_lookups_waiting", "Look-ups under way.", waiting)
        for name, kind, what, value in _OF_SOURCES:
            family = kind(f"bloomery_source_{name}", what, labels=["source"])
            for source in self.lookups.sources.values():
                family.add_metric([source.name], value(source))
            yield family
