"""Look-ups: exact answers for filters that are bound to a source.

A binding is a setting of the filter, `source`, and so in the log and in snapshots; the source of
that name is in the operator's configuration (`sources`). A no of the filter is answered at once; a
maybe waits for the cache and the source, while the server goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bloomery import errors
from bloomery._native import canonical
from bloomery.guard.answer import Answer
from bloomery.guard.core import Core
from bloomery.guard.driver import arun
from bloomery.guard.lookups import look_up
from bloomery.guard.observed import Observation
from bloomery.names import printable
from bloomery.service.config.settings import Settings
from bloomery.service.config.sources import SourceSettings
from bloomery.service.domain.entry import Entry
from bloomery.service.engine import Engine
from bloomery.service.lookup.keytypes import as_given, forms
from bloomery.service.lookup.source import LookupSource, open_source
from bloomery.service.observe.logs import Say

MOST_KEYS = 10_000  # of one look-up
# Filters whose look-ups are counted, each with 0.2 MB for the keys of its last hour. Past that the
# one that was not asked for longest begins anew.
_MOST_BOUND = 1000
_STOP_SECONDS = 2.0  # a source may hang


@dataclass(slots=True)
class _Bound:
    """A filter that somebody has looked keys up in."""

    source: str
    core: Core
    changes: int  # of the filter, when it was last asked


class Lookups:
    """The sources of a server, and the filters that are bound to them."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        sources: Mapping[str, SourceSettings] | None = None,
    ) -> None:
        self.engine = engine
        self.settings = settings
        self.waiting = 0  # look-ups under way
        self._data = Path(settings.data)
        self.sources: dict[str, LookupSource] = {}
        self.sources = self.prepare(sources or {})
        self._retiring: dict[LookupSource, asyncio.Task[None]] = {}
        self._bound: OrderedDict[int, _Bound] = OrderedDict()  # those asked last at the end
        self._watching: asyncio.Task[None] | None = None
        engine.on_drop.subscribe(lambda entry: self._bound.pop(entry.id, None))
        engine.on_forget.subscribe(self._outdate)
        engine.on_exchange.subscribe(self._empty)

    async def start(self, say: Say) -> None:
        """Open the sources; warn of filters that are bound to one that is not configured."""
        for source in self.sources.values():
            await source.start()
        self._watching = asyncio.create_task(self._watch())
        self._warn(say)

    def _warn(self, say: Say) -> None:
        filters = self.engine.state.filters.values()
        named = Counter(entry.settings.get("source") for entry in filters)
        for name in named.keys() - {None, *self.sources}:
            text = f"the configuration has no source {name}, to which filters are bound"
            say(f"{text}: look-ups in them are refused", level="warning", filters=named[name])

    async def _watch(self) -> None:
        """Each second: measure how many look-ups wait for the sources, and delete what caches are
        to forget."""
        while True:
            for source in self.sources.values():
                await source.measure_queue()
                await source.forget(())
            await asyncio.sleep(1)

    async def stop(self) -> None:
        """Close the sources."""
        if self._watching is not None:
            self._watching.cancel()
        for task in self._retiring.values():
            task.cancel()
        stopping = [source.stop() for source in (*self.sources.values(), *self._retiring)]
        with contextlib.suppress(asyncio.TimeoutError):
            together = asyncio.gather(*stopping, return_exceptions=True)
            await asyncio.wait_for(together, _STOP_SECONDS)

    # Other sources.

    def prepare(self, sources: Mapping[str, SourceSettings]) -> dict[str, LookupSource]:
        """The sources of a configuration: those that are open already and the same, and new ones.
        Raises if one cannot be; nothing is changed yet."""
        opened = {}
        for name, settings in sources.items():
            known = self.sources.get(name)
            same = known is not None and known.settings == settings
            opened[name] = known if known and same else LookupSource(settings, self._data)
        return opened

    async def exchange(self, sources: dict[str, LookupSource], say: Say) -> list[str]:
        """Go by these sources from now on, which `prepare` has made; what changed. Those that were
        there before are closed when their questions have been answered."""
        opened = [
            source for name, source in sources.items() if source is not self.sources.get(name)
        ]
        try:
            for source in opened:
                await source.start()
        except errors.BloomeryError as problem:
            say(f"the sources stay as they were: {problem}", level="error")
            await asyncio.gather(*(source.stop() for source in opened), return_exceptions=True)
            return []
        before, self.sources = self.sources, sources
        changed = []
        for name in sorted(before.keys() | sources.keys()):
            old, new = before.get(name), sources.get(name)
            if old is new:
                continue
            what = "was removed" if new is None else "is new" if old is None else "is another"
            changed.append(f"the source {name} {what}")
            for number in [n for n, bound in self._bound.items() if bound.source == name]:
                del self._bound[number]
            if old is not None:
                self._retiring[old] = asyncio.create_task(self._retire(old))
        if changed:
            self._warn(say)
        return changed

    async def _retire(self, source: LookupSource) -> None:
        await asyncio.sleep(source.settings.timeout)  # no question takes longer
        await source.stop()
        del self._retiring[source]

    # Binding.

    def check(self, source: str) -> None:
        """Raise unless there is a source of that name."""
        if source not in self.sources:
            known = f"there are {', '.join(self.sources)}" if self.sources else "there are none"
            raise errors.InvalidParameter(
                f"there is no source named {source[:64]!r} in the server's configuration: {known}"
            )

    def rows(self, entry: Entry) -> Any:
        """The source of a filter, to be read from end to end, by a connection of its own: those who
        look keys up need theirs."""
        source = self._source_of(entry)
        if not hasattr(source.source, "batches"):
            raise errors.InvalidParameter(
                f"the source {entry.settings['source']} is a query, which looks keys up: give it a "
                "table and a key, from which all keys can be read"
            )
        return open_source(replace(source.settings, connections=1))

    # Looking keys up.

    async def ask(self, entry: Entry, keys: Sequence[Any]) -> list[Answer]:
        """Return an answer for each key. For a key that is not in the filter no source is asked."""
        _check_count(keys)
        core = self._core(entry)
        self.waiting += 1
        try:
            return await arun(look_up(core, keys), core.workers)
        finally:
            self.waiting -= 1

    # Forgetting: a cache deletes a key before it is used again, and takes no answer of the source
    # that was asked for before that (`guard.caches.resilient`). All filters of a source share one.

    def cached_names(self, entry: Entry, keys: Sequence[Any]) -> list[bytes]:
        """Names of keys as caches have them, in every form in which clients may have given one."""
        self._source_of(entry)
        _check_count(keys)
        return [canonical(form) for key in keys for form in forms(as_given(key))]

    async def forget(self, entry: Entry, names: Sequence[bytes]) -> None:
        """Delete from the cache of a filter's source, if it is there; else before it is used."""
        await self._source_of(entry).forget(names)

    def _outdate(self, entry: Entry, names: list[bytes]) -> None:
        """Another node may have said so."""
        source = self.sources.get(entry.settings.get("source", ""))
        if source is not None and source.caching is not None:
            source.caching.outdate(names)

    def _empty(self) -> None:
        """This node did not follow all that the others did: what they forgot it may not know."""
        for source in self.sources.values():
            source.forget_own()

    def admit(self) -> None:
        """Raise ServerUnavailable if too many look-ups wait already (`max-lookups`)."""
        most = self.settings.max_lookups
        if self.waiting > most:
            raise errors.ServerUnavailable(
                f"{most:,} look-ups wait for their sources already (max-lookups): try again"
            )

    def _source_of(self, entry: Entry) -> LookupSource:
        name = entry.settings.get("source")
        if name is None:
            raise errors.InvalidParameter(
                f"{_short_name(entry)} is not bound to a source: BF.BIND it to one, or PATCH it"
            )
        source = self.sources.get(name)
        if source is None:
            raise errors.InvalidParameter(
                f"{_short_name(entry)} is bound to the source {name}, which the server's "
                "configuration does not have: bind it to another"
            )
        return source

    def _core(self, entry: Entry) -> Core:
        source = self._source_of(entry)
        name = source.name
        bound = self._bound.get(entry.id)
        if bound is None or bound.source != name:
            core = source.core(_ShelfFilter(self, entry))
            bound = self._bound[entry.id] = _Bound(name, core, entry.changes)
            if len(self._bound) > _MOST_BOUND:
                self._bound.popitem(last=False)
        elif bound.changes != entry.changes:  # cleared, merged, …: it may err otherwise now
            bound.core.observed.restart()
            bound.changes = entry.changes
        self._bound.move_to_end(entry.id)
        return bound.core

    # What was observed.

    def observed(self, entry: Entry) -> Observation | None:
        """How often the filter erred, as far as look-ups tell; None if there were none."""
        bound = self._bound.get(entry.id)
        if bound is None or bound.changes != entry.changes:
            return None
        return bound.core.observed.take()

    def info(self, entry: Entry) -> dict[str, Any] | None:
        """What look-ups of a filter told, ready for JSON; None before the first."""
        bound = self._bound.get(entry.id)
        return None if bound is None else bound.core.info()


class _ShelfFilter:
    """A filter of the server as a guard asks it, whatever its name is now, and whichever filter
    has taken its place. It has no `error_rate`, so that the guard warns of none: policies do."""

    blocking = False

    def __init__(self, lookups: Lookups, entry: Entry) -> None:
        self._lookups = lookups
        self._entry = entry

    def contains_many(self, keys: Sequence[Any]) -> bytes:
        """A byte for each key: 0 it was definitely not added, 1 maybe."""
        answers = self._lookups.engine.shelf.contains(self._entry.name, keys)
        if 1 in answers:
            self._lookups.admit()
        return answers


def _check_count(keys: Sequence[Any]) -> None:
    if len(keys) > MOST_KEYS:
        raise errors.RequestTooLarge(
            f"a look-up of {len(keys):,} keys, may have {MOST_KEYS:,}: ask for fewer at once"
        )


def _short_name(entry: Entry) -> str:
    return printable(entry.name)[:60]
