"""`/metrics`: the server's figures, and those of its filters, as Prometheus reads them.

The server's own go through prometheus-client. The lines of filters are put together here: with
1,000 filters that takes 10 ms of the loop, with the library's objects in between it took 95.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from bloomery import __version__, _native
from bloomery.names import printable
from bloomery.service.access.permissions import User
from bloomery.service.commands import Commands
from bloomery.service.domain.entry import Entry
from bloomery.service.domain.policy import capacity_of
from bloomery.service.durability.schedule import SnapshotSchedule
from bloomery.service.lookup.metrics import LookupFigures
from bloomery.service.observe.server_figures import ServerFigures
from bloomery.service.policy.alerts import Alerts
from bloomery.service.registry.publisher import Publisher
from bloomery.service.sampling.sampler import Sampler
from bloomery.service.sequencer import Sequencer

# Names that are looked at for one who may see only some of them: a tenth of a second.
_MOST_NAMES = 200_000


class Figure(NamedTuple):
    """One figure of each filter, as `bloomery_filter_NAME`."""

    name: str
    type: str
    what: str


FILTER_FIGURES = (
    Figure("items", "gauge", "Keys that were new when they were added, less those removed."),
    Figure("capacity", "gauge", "Keys that the filter is made for."),
    Figure("error_rate", "gauge", "The error rate that was asked for."),
    Figure("fill_ratio", "gauge", "The share of its places that are taken."),
    Figure("estimated_error_rate", "gauge", "How often an absent key is a maybe, from the fill."),
    Figure("observed_error_rate", "gauge", "How often an absent key is a maybe, as measured."),
    Figure("observed_error_rate_low", "gauge", "The lower end of its 95% confidence interval."),
    Figure("observed_error_rate_high", "gauge", "The upper end of its 95% confidence interval."),
    Figure("adds_total", "counter", "Keys that were added, new or not, since the server started."),
    Figure("checks_total", "counter", "Keys that were asked for since the server started."),
    Figure("maybes_total", "counter", "Those of them that may be there."),
    Figure("bytes", "gauge", "Memory of the filter."),
    Figure("full_in_seconds", "gauge", "When it is full at this rate; absent if it does not fill."),
)
_Values = list["float | None"]


class Metrics:
    """The figures of a server."""

    def __init__(
        self,
        commands: Commands,
        sequencer: Sequencer,
        snapshots: SnapshotSchedule,
        publisher: Publisher,
        sampler: Sampler,
        alerts: Alerts,
        server_figures: Callable[[], ServerFigures],
    ) -> None:
        self.commands, self.sequencer, self.snapshots = commands, sequencer, snapshots
        self.publisher, self.sampler, self.alerts = publisher, sampler, alerts
        self.server_figures = server_figures
        self.engine, self.settings = commands.engine, commands.settings

    def render(self, user: User) -> bytes:
        """The figures of the server, and of the filters that this user may use."""
        self.sequencer.join()
        entries = list(self._visible_entries(user.covers))
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_ServerCollector(self, len(entries), user))
        registry.register(LookupFigures(self.commands.lookups, entries))
        ProcessCollector(registry=registry)
        return generate_latest(registry) + self._filter_lines(entries).encode()

    def _visible_entries(self, covers: Callable[[bytes], bool]) -> Iterator[Entry]:
        entries = itertools.islice(self.engine.state.filters.values(), _MOST_NAMES)
        hidden = self.commands.listing.hidden
        known = (entry for entry in entries if entry.name not in hidden and covers(entry.name))
        whole = (entry for entry in known if entry.filter is not None)
        return itertools.islice(whole, self.settings.metrics_filters)

    def _filter_lines(self, entries: list[Entry]) -> str:
        labels = [_label(entry.name) for entry in entries]
        columns = zip(*(self._values(entry) for entry in entries), strict=True)
        parts = []
        for figure, column in zip(FILTER_FIGURES, columns, strict=False):
            name = f"bloomery_filter_{figure.name}"
            parts.append(f"# HELP {name} {figure.what}\n# TYPE {name} {figure.type}\n")
            parts += [
                f'{name}{{filter="{label}"}} {_number(value)}\n'
                for label, value in zip(labels, column, strict=True)
                if value is not None and value == value
            ]
        return "".join(parts)

    def _values(self, entry: Entry) -> _Values:
        """In the order of FILTER_FIGURES; None and nan are left out."""
        items, adds, checks, maybes = self.engine.shelf.figures(entry.name) or (0, 0, 0, 0)
        capacity, rate = capacity_of(entry) or None, getattr(entry.filter, "error_rate", None)
        sample, nbytes = self.sampler.last(entry), entry.filter.nbytes
        if sample is None:
            unknown = [None] * 5
            return [items, capacity, rate, *unknown, adds, checks, maybes, nbytes, None]
        return [
            *(items, capacity, rate, sample.fill_ratio, sample.estimated_error_rate),
            *(sample.observed_error_rate, sample.observed_low, sample.observed_high),
            *(adds, checks, maybes, sample.nbytes, sample.full_in),
        ]


@lru_cache(maxsize=4096)
def _label(name: bytes) -> str:
    return printable(name).replace("\\", "\\\\").replace('"', '\\"')


def _number(value: float) -> str:
    return "+Inf" if value == math.inf else repr(value)


STORE = {
    "up": "Whether the Redis of a node answers.",
    "outage_seconds": "For how long it has not.",
    "behind_seconds": "Since a node last knew that it had all that others wrote.",
    "loads": "How often all filters were loaded from a snapshot.",
    "entries": "Entries of the shared log so far; one of many bytes counts as several.",
    "nodes": "Nodes that were heard of within a minute, this one among them.",
    "older_nodes": "Those of them that know fewer operations than this one.",
    "holds_lease": "Whether this node decides for all.",
}


def _buckets(histogram: _native.Histogram) -> tuple[list[tuple[str, float]], float]:
    """Each bucket's upper end and how many there are up to it; and the sum."""
    bounds, counts, seconds = histogram.read()
    ends = [*map(str, bounds), "+Inf"]
    return list(zip(ends, itertools.accumulate(counts), strict=True)), seconds


class _ServerCollector(Collector):
    """Families of metrics of the server itself."""

    def __init__(self, metrics: Metrics, filters: int, user: User) -> None:
        """`filters` have figures of their own."""
        self.metrics = metrics
        self.server = metrics.server_figures()
        self.filters = filters
        self.user = user

    def collect(self) -> Iterator[Metric]:
        """One family after the other."""
        yield InfoMetricFamily("bloomery_build", "What runs.", {"version": __version__})
        for name, what, value in self._gauges():
            if value is not None:
                yield GaugeMetricFamily(f"bloomery_{name}", what, value)
        for name, what, label, values in self._counters():
            family = CounterMetricFamily(f"bloomery_{name}", what, labels=[label] if label else [])
            for word, count in values.items():
                family.add_metric([word] if label else [], count)
            yield family
        yield from self._histograms()
        yield from self._doors()
        yield from self._alerts()

    def _gauges(self) -> Iterator[tuple[str, str, float | None]]:
        metrics, server = self.metrics, self.server
        snapshots, registry = metrics.snapshots, metrics.publisher.writer
        filters, log = metrics.commands.listing.number(self.user), metrics.engine.log
        yield "ready", "Whether the server takes requests.", server.ready
        yield "start_time_seconds", "When it started, as Unix time.", server.started
        yield "filters", "Filters that there are, and that one may use.", filters
        yield "filters_not_shown", "Those without figures of their own.", filters - self.filters
        yield "filters_bytes", "Memory of all filters.", _native.memory_used()
        limit = metrics.settings.maxmemory or None
        yield "filters_limit_bytes", "What they may take; absent without a limit.", limit
        wrong = server.recovery_problems
        yield "recovery_problems", "What was wrong with the data folder at the start.", wrong
        yield "log_segment", "The segment of the log that is written to.", log.segment
        refusing = metrics.engine.problem is not None
        yield "log_refusing", "Whether writes are refused for want of a log.", refusing
        waited = log.unsynced(time.monotonic())
        yield "log_unsynced_seconds", "For how long a write has not been on the disk.", waited
        late = metrics.sequencer.late_since is not None
        yield "log_late", "Whether replies to writes wait for the disk.", late
        yield "registry_healthy", "Whether the last try to write it succeeded.", registry.healthy
        yield "registry_behind_seconds", "For how long a change has been waiting.", registry.behind
        age = max(0.0, time.time() - snapshots.last_save)
        yield "snapshot_age_seconds", "Since the last snapshot, or the start.", age
        yield "snapshot_duration_seconds", "That the last one took.", snapshots.seconds
        yield "snapshot_failed", "Whether the last one failed.", snapshots.problem is not None
        yield "snapshot_running", "Whether one is being made.", snapshots.running
        ends = server.tls_expires
        yield "tls_expiry_time_seconds", "When the certificate expires; absent without.", ends
        for name, value in server.store.items():
            yield f"store_{name}", STORE[name], value
        took = metrics.sampler.round_seconds
        yield "sampler_round_seconds", "That the last round of samples took.", took

    def _counters(self) -> Iterator[tuple[str, str, str, dict[str, int]]]:
        metrics, server = self.metrics, self.server
        by = server.commands
        yield "commands", "Commands of the Redis protocol, by what did them.", "by", by
        refused = server.connections_refused
        yield "connections_refused", "Connections turned away.", "door", refused
        yield "log_rows", "Rows of the log, ever.", "", {"": metrics.engine.log.seq}
        delayed = {"": metrics.sequencer.delayed}
        yield "log_delayed_fsync", "How often replies began to wait for the disk.", "", delayed
        lost = metrics.publisher.writer.lost_samples
        yield "samples_lost", "Samples that never got into the registry.", "", {"": lost}

    def _histograms(self) -> Iterator[Metric]:
        took = HistogramMetricFamily(
            "bloomery_request_duration_seconds",
            "From a command's or a request's arrival until its reply is written.",
            labels=["door"],
        )
        for protocol, histogram in self.server.latency.items():
            took.add_metric([protocol], *_buckets(histogram))
        yield took
        commits = HistogramMetricFamily(
            "bloomery_log_commit_duration_seconds", "That a commit to the log took."
        )
        commits.add_metric([], *_buckets(self.metrics.sequencer.latency))
        yield commits

    def _doors(self) -> Iterator[Metric]:
        open_now = GaugeMetricFamily("bloomery_connections", "Connections.", labels=["door"])
        for protocol, count in self.server.connections.items():
            open_now.add_metric([protocol], count)
        yield open_now

    def _alerts(self) -> Iterator[Metric]:
        alerts = self.metrics.alerts
        began = CounterMetricFamily("bloomery_alerts", "Alerts that began.", labels=["alert"])
        for kind, count in alerts.counts.items():
            if self.user.everything:  # they may be of any filter
                began.add_metric([kind], count)
        yield began
        active: Counter[tuple[str, str]] = Counter()
        for alert in alerts.active.values():
            if alert.name is None or self.user.covers(alert.name):
                active[alert.kind, "" if alert.name is None else printable(alert.name)] += 1
        now = GaugeMetricFamily(
            "bloomery_alert_active", "Alerts that are not over.", labels=["alert", "filter"]
        )
        for words, count in active.items():
            now.add_metric(list(words), count)
        yield now
