"""Publishes the filters of a server to its registry: a row for each, as it is made, changed and
dropped. A thread of its own writes the rows; whether it can or not, the server goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bloomery.service.domain.state import Entry
from bloomery.service.engine import Engine
from bloomery.service.registry.registry import Registry
from bloomery.service.registry.tables import RegistryRow
from bloomery.service.registry.writer import RegistryWriter


class Publisher:
    """Subscribes to the engine's changes, and hands them to the writer of the registry."""

    def __init__(
        self, engine: Engine, url: str | Path, server: str, *, shared: bool = False
    ) -> None:
        """`shared`: by nodes, of which the one that `share` names writes."""
        self.engine = engine
        self.registry = Registry(url, server)
        self.writer = RegistryWriter(self.registry, self._rows)
        engine.on_change.subscribe(self._changed)
        engine.on_drop.subscribe(lambda entry: self.writer.drop([entry.id]))
        self._shared = shared
        self.writer.pause(shared)
        self.writer.start()

    def share(self, server: str, writes: bool) -> None:
        """As one of several nodes that are one server to the registry: write from now on, or let
        another do it. Who begins reads all its filters."""
        if self._shared and server:
            self.registry.server = server
            self.writer.pause(not writes)

    def close(self) -> None:
        """Write what waits, if the database is there."""
        self.writer.close()

    def _rows(self) -> Iterator[RegistryRow]:
        """Rows of all filters, on the registry's thread while the server goes on."""
        filters = self.engine.state.filters
        for number in list(filters):  # not the filters, which would hold the memory of dropped ones
            entry = filters.get(number)
            if entry is not None and entry.filter is not None:
                yield row_of(entry)

    def _changed(self, entry: Entry) -> None:
        if entry.filter is not None:
            self.writer.put([row_of(entry)])


def row_of(entry: Entry) -> RegistryRow:
    """Return an entry as the registry has it."""
    filter, settings = entry.filter, entry.settings

    def known(name: str) -> Any:
        return getattr(filter, name, settings.get(name))

    window = known("window")
    return RegistryRow(
        id=entry.id,
        name=entry.name,
        kind=filter.kind,
        capacity=settings.get("capacity", getattr(filter, "capacity", 0)),
        error_rate=known("error_rate"),
        num_bits=known("num_bits") or 8 * filter.nbytes,
        num_hashes=known("num_hashes"),
        created_at=entry.created_at,
        nbytes=filter.nbytes,
        items=entry.items,
        layout=known("layout"),
        hasher=known("hasher"),
        seed=known("seed"),
        window_seconds=window if isinstance(window, (int, float)) else None,
        counter_bits=known("counter_bits"),
        expansion=settings.get("expansion"),
        expires_at=entry.expires_at,
    )
