"""Takes samples of all filters every few seconds, with probes of keys that nobody added (canary).

The event loop serves clients too, so a round is cut into slices of a few milliseconds, spread over
the interval, and takes at most a hundredth of the time: with very many filters a round takes longer
than the interval. Samples go to the registry in batches; its own thread writes them, or loses them
if the database is away.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import Any, Protocol

from bloomery import errors
from bloomery.service.config.settings import Settings
from bloomery.service.domain.entry import Entry
from bloomery.service.engine import Engine
from bloomery.service.events import Event
from bloomery.service.lookup.lookups import Lookups
from bloomery.service.observe.logs import Say
from bloomery.service.policy.forecast import in_words
from bloomery.service.registry.publisher import Publisher
from bloomery.service.sampling.canary import PROBES
from bloomery.service.sampling.history import FilterHistory
from bloomery.service.sampling.retention import Retention
from bloomery.service.sampling.sample import HOUR, MINUTE, SPANS, Sample
from bloomery.service.sequencer import Sequencer

_SLICE = 0.003  # seconds; to begin with one costs as much as five filters
_SHARE = 0.01  # of a core, at most
# Rows of one filter lie together on disk: a batch of several rounds writes fewer pages.
_FLUSH_SECONDS = 15.0
_FLUSH_ROWS = 20_000
_PRUNE_SECONDS = 60.0


class SharedTraffic(Protocol):
    """What clients ask all nodes for."""

    def sum(self, number: int, adds: int, checks: int, maybes: int) -> tuple[int, int, int]:
        """Note how often a filter was asked here; return how often it was asked of all nodes.
        `adds`: those that the log has, of whichever node."""

    def forget(self, number: int) -> None:
        """Forget a filter."""

    async def exchange(self, interval: float) -> None:
        """Tell what was noted, and hear what others did, each `interval` seconds."""


class Sampler:
    """Takes the samples; `on_sample` is the event that there is one."""

    def __init__(
        self,
        engine: Engine,
        sequencer: Sequencer,
        lookups: Lookups,
        publisher: Publisher,
        settings: Settings,
        say: Say,
        traffic: SharedTraffic | None = None,
    ) -> None:
        """`traffic`: of the other nodes."""
        self._engine, self._sequencer, self._lookups = engine, sequencer, lookups
        self._publisher, self._settings, self._say = publisher, settings, say
        self._traffic = traffic
        self.on_sample: Event[[Entry, Sample]] = Event()
        self.round_seconds = 0.0  # that the last round took
        self._histories: dict[int, FilterHistory] = {}
        self._random = random.Random()
        self.pending: list[Sample] = []  # not yet with the registry's writer
        self._flushed, self._pruned = time.monotonic(), -_PRUNE_SECONDS
        self._retention: Retention | None = None
        self._task: asyncio.Task[None] | None = None
        engine.on_drop.subscribe(self._dropped)

    def _dropped(self, entry: Entry) -> None:
        self._histories.pop(entry.id, None)
        if self._traffic is not None:
            self._traffic.forget(entry.id)

    def start(self) -> None:
        """Begin with the rounds."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End, and hand over what is not yet written."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for history in self._histories.values():
            self.pending += history.rest()
        self.flush()

    # Reading samples.

    def last(self, entry: Entry) -> Sample | None:
        """The last sample of a filter; None before the first."""
        history = self._histories.get(entry.id)
        return None if history is None else history.last

    def last_as_dict(self, entry: Entry) -> dict[str, Any]:
        """The last sample as clients get it, with the forecast in words; empty before the first."""
        sample = self.last(entry)
        if sample is None:
            return {}
        return sample.as_dict() | {"forecast": in_words(sample.full_in)}

    async def samples(
        self,
        entry: Entry,
        since: float | None = None,
        until: float | None = None,
        span: int | None = None,
        limit: int = 1000,
    ) -> list[dict[str, Any]]:
        """The samples of a filter from the registry, oldest first; of more than `limit` the latest.

        `since` and `until` are epochs. Without `since`, as long as the finest samples are kept.
        Without a span, that which is kept since then: raw samples, those of minutes (60) or of
        hours (3600). RegistryUnavailable if the database is away.
        """
        now, kept = self._engine.now, {span: keep for span, keep in self._keep().items() if keep}
        until = float("inf") if until is None else until
        if since is None:
            finest = next(iter(kept), HOUR)
            since, span = now - kept.get(finest, 0), finest if span is None else span
        elif span is None:
            span = next((one for one, keep in kept.items() if now - since <= keep), HOUR)
        if span not in SPANS:
            raise errors.InvalidParameter(
                f"span is {span}, must be 0 (raw samples), {MINUTE} or {HOUR} seconds"
            )
        read = self._publisher.registry.samples
        return await asyncio.to_thread(
            read, entry.id, since=since, until=until, span=span, limit=limit
        )

    # The rounds.

    def take(self, entry: Entry) -> Sample | None:
        """Sample a filter now; None if it is not yet whole, or gone."""
        figures = self._engine.shelf.sample(entry.name, PROBES, self._random.getrandbits(64))
        if figures is None or entry.filter is None:
            return None
        history = self._histories.get(entry.id)
        if history is None:
            history = self._histories[entry.id] = FilterHistory()
        if self._traffic is not None:
            figures = (figures[0], *self._traffic.sum(entry.id, *figures[1:4]), *figures[4:])
        steady, now = time.monotonic(), self._engine.now
        looked_up = self._lookups.observed(entry)
        sample = history.take(entry, figures, PROBES, now, steady, looked_up)
        self.pending += history.rows(sample, steady)
        self.on_sample(entry, sample)
        return sample

    async def _run(self) -> None:
        while True:
            began, interval = time.monotonic(), self._settings.sample_seconds
            if interval:
                try:
                    await self.sample_all(interval)
                except Exception as problem:  # noqa: BLE001  # or there would be no next round
                    self._say("a round of samples failed", level="error", problem=problem)
                self.round_seconds = time.monotonic() - began
            rest = (interval or 1) - (time.monotonic() - began)
            await asyncio.sleep(max(_SLICE, rest))

    async def sample_all(self, interval: float) -> None:
        """Sample every filter that there is when it begins."""
        if self._traffic is not None:
            await self._traffic.exchange(interval)
        filters = self._engine.state.filters
        numbers, began, at = list(filters), time.monotonic(), 0
        while at < len(numbers):
            self._sequencer.join()
            start, worked = time.monotonic(), time.thread_time()
            while at < len(numbers) and time.monotonic() - start < _SLICE:
                # Not by a name of its own, which would hold a dropped filter until the next slice.
                self._try(filters.get(numbers[at]))
                at += 1
            self._hand_over(start)
            worked = time.thread_time() - worked
            even = began + interval * at / len(numbers) - time.monotonic()
            await asyncio.sleep(max(even, worked / _SHARE))

    def _try(self, entry: Entry | None) -> None:
        try:
            if entry is not None:
                self.take(entry)
        except Exception as problem:  # noqa: BLE001  # one's trouble is not that of the others
            self._say("a filter was not sampled", level="error", problem=problem)

    # To the registry.

    def _hand_over(self, steady: float) -> None:
        late = steady - self._flushed >= _FLUSH_SECONDS
        if self.pending and (late or len(self.pending) >= _FLUSH_ROWS):
            self.flush()
            self._flushed = steady
        if steady - self._pruned >= _PRUNE_SECONDS and self._publisher.writer.ready:
            self._pruned = steady
            self.prune(steady)

    def flush(self) -> None:
        """Hand the samples that wait to the registry's writer."""
        rows, self.pending = self.pending, []
        keep = self._keep()
        wanted = [row for row in rows if keep[row.span]]
        wanted.sort(key=lambda row: row.filter_id)
        self._publisher.writer.add_samples(wanted)

    def prune(self, steady: float) -> None:
        """Let the registry drop samples that are older than they are kept."""
        writer, now = self._publisher.writer, self._engine.now
        if self._retention is None:
            self._retention = Retention(now, steady, writer.newest)
        writer.prune(self._retention.before(self._keep(), now, steady))

    def _keep(self) -> dict[int, float]:
        """For how many seconds samples of each span are kept."""
        settings = self._settings
        kept = (settings.sample_keep, settings.sample_keep_minutes, settings.sample_keep_hours)
        return dict(zip(SPANS, kept, strict=True))
