"""Look-ups: exact answers for filters that are bound to a source.

A binding is a setting of the filter, `source`, and so in the log and in snapshots; what stands
behind the name is the operator's (`sources`). The filter answers at once; what it cannot tell waits
for the cache and the source, beside all else the server does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bloomery import errors
from bloomery.guard.answer import Answer
from bloomery.guard.core import Core
from bloomery.guard.driver import arun
from bloomery.guard.lookups import look_up
from bloomery.guard.observed import Observation
from bloomery.names import printable
from bloomery.service.config.sources import SourceSettings
from bloomery.service.domain.state import Entry
from bloomery.service.lookup.source import Backing, open_source

if TYPE_CHECKING:
    from bloomery.service.config.settings import Settings
    from bloomery.service.engine import Engine
    from bloomery.service.policy.alerts import Say

__all__ = ["MOST_KEYS", "Lookups"]

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
        data = Path(settings.data)
        self.backings = {name: Backing(one, data) for name, one in (sources or {}).items()}
        self._bound: OrderedDict[int, _Bound] = OrderedDict()  # those asked last at the end
        self._watching: asyncio.Task[None] | None = None
        engine.on_drop.append(lambda entry: self._bound.pop(entry.id, None))

    async def start(self, say: Say) -> None:
        """Begin; and tell of filters that are bound to what is not there."""
        for backing in self.backings.values():
            await backing.start()
        self._watching = asyncio.create_task(self._watch())
        filters = self.engine.state.filters.values()
        named = Counter(entry.settings.get("source") for entry in filters)
        for source in named.keys() - {None, *self.backings}:
            text = f"the configuration has no source {source}, to which filters are bound"
            say(f"{text}: look-ups in them are refused", level="warning", filters=named[source])

    async def _watch(self) -> None:
        """See each second how much waits for the sources."""
        while True:
            for backing in self.backings.values():
                await backing.look()
            await asyncio.sleep(1)

    async def stop(self) -> None:
        """Let go of the sources."""
        if self._watching is not None:
            self._watching.cancel()
        stopping = [backing.stop() for backing in self.backings.values()]
        with contextlib.suppress(asyncio.TimeoutError):
            together = asyncio.gather(*stopping, return_exceptions=True)
            await asyncio.wait_for(together, _STOP_SECONDS)

    # Binding.

    def check(self, source: str) -> None:
        """Raise unless there is a source of that name."""
        if source not in self.backings:
            known = f"there are {', '.join(self.backings)}" if self.backings else "there are none"
            raise errors.InvalidParameter(
                f"there is no source named {source[:64]!r} in the server's configuration: {known}"
            )

    def rows(self, entry: Entry) -> Any:
        """The source of a filter, to be read from end to end, by a connection of its own: those who
        look keys up need theirs."""
        backing = self._backing(entry)
        if not hasattr(backing.source, "batches"):
            raise errors.InvalidParameter(
                f"the source {entry.settings['source']} is a query, which looks keys up: give it a "
                "table and a key, from which all keys can be read"
            )
        return open_source(replace(backing.settings, connections=1))

    # Asking.

    async def ask(self, entry: Entry, keys: Sequence[Any]) -> list[Answer]:
        """An answer for each key. What the filter knows not to be there waits for nothing."""
        if len(keys) > MOST_KEYS:
            raise errors.RequestTooLarge(
                f"a look-up of {len(keys):,} keys, may have {MOST_KEYS:,}: ask for fewer at once"
            )
        core = self._core(entry)
        self.waiting += 1
        try:
            return await arun(look_up(core, keys), core.workers)
        finally:
            self.waiting -= 1

    def admit(self) -> None:
        """Raise if so many wait that this one may not."""
        most = self.settings.max_lookups
        if self.waiting > most:
            raise errors.ServerUnavailable(
                f"{most:,} look-ups wait for their sources already (max-lookups): try again"
            )

    def _backing(self, entry: Entry) -> Backing:
        name = entry.settings.get("source")
        if name is None:
            raise errors.InvalidParameter(
                f"{_shown(entry)} is not bound to a source: BF.BIND it to one, or PATCH it"
            )
        backing = self.backings.get(name)
        if backing is None:
            raise errors.InvalidParameter(
                f"{_shown(entry)} is bound to the source {name}, which the server's configuration "
                "does not have: bind it to another"
            )
        return backing

    def _core(self, entry: Entry) -> Core:
        backing = self._backing(entry)
        name = backing.name
        bound = self._bound.get(entry.id)
        if bound is None or bound.source != name:
            core = backing.core(_Shelved(self, entry))
            bound = self._bound[entry.id] = _Bound(name, core, entry.changes)
            if len(self._bound) > _MOST_BOUND:
                self._bound.popitem(last=False)
        elif bound.changes != entry.changes:  # cleared, merged, …: it may err otherwise now
            bound.core.observed.restart()
            bound.changes = entry.changes
        self._bound.move_to_end(entry.id)
        return bound.core

    # What was seen.

    def observed(self, entry: Entry) -> Observation | None:
        """How often the filter erred, as far as look-ups tell; None if there were none."""
        bound = self._bound.get(entry.id)
        if bound is None or bound.changes != entry.changes:
            return None
        return bound.core.observed.take()

    def shown(self, entry: Entry) -> dict[str, Any] | None:
        """What look-ups of a filter told, ready for JSON; None before the first."""
        bound = self._bound.get(entry.id)
        return None if bound is None else bound.core.info()


class _Shelved:
    """A filter of the server as a guard asks it, whatever its name is now, and whichever filter
    has taken its place. It has no `error_rate`, so that the guard warns of none: policies do."""

    blocking = False

    def __init__(self, lookups: Lookups, entry: Entry) -> None:
        self._lookups = lookups
        self._entry = entry

    def contains_many(self, keys: Sequence[Any]) -> bytes:
        """A byte for each key: 0 it was definitely not added, 1 maybe."""
        found = self._lookups.engine.shelf.contains(self._entry.name, keys)
        if 1 in found:
            self._lookups.admit()
        return found


def _shown(entry: Entry) -> str:
    return printable(entry.name)[:60]
