"""Publishes the filters of a server to its registry: a row for each, as it is made, changed and
dropped. A thread of its own writes the rows; whether it can or not, the server goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bloomery import errors
from bloomery.service.domain.entry import Entry
from bloomery.service.engine import Engine
from bloomery.service.registry import address
from bloomery.service.registry.rows import RegistryRow
from bloomery.service.registry.writer import RegistryWriter

if TYPE_CHECKING:
    from bloomery.service.registry.registry import Registry


class Publisher:
    """Subscribes to the engine's changes, and hands them to the writer of the registry."""

    def __init__(
        self, engine: Engine, url: str | Path, server: str, *, shared: bool = False
    ) -> None:
        """`shared`: by nodes, of which the one that `share` names writes. InvalidParameter for a
        URL that cannot be right."""
        if isinstance(url, str):
            address.dialect_of(url)
        self.engine = engine
        self._url, self._server = url, server
        self._registry: Registry | None = None
        self.writer = RegistryWriter(self._rows)
        engine.on_change.subscribe(self._changed)
        engine.on_drop.subscribe(lambda entry: self.writer.drop([entry.id]))
        self._shared = shared
        self.writer.pause(shared)

    def open(self) -> None:
        """Open the registry and start to write it. Imports SQLAlchemy, 0.2 s, so the server calls
        it on a thread, after it answers."""
        from bloomery.service.registry.registry import Registry

        registry = self._registry = Registry(self._url, self._server)
        registry.server = self._server  # which `share` may have changed by now
        self.writer.start(registry)

    @property
    def registry(self) -> Registry:
        """The registry; RegistryUnavailable while the server starts."""
        if self._registry is None:
            raise errors.RegistryUnavailable("the registry is not open yet: try again soon")
        return self._registry

    def share(self, server: str, writes: bool) -> None:
        """As one of several nodes that are one server to the registry: write from now on, or let
        another do it. Who begins reads all its filters."""
        if self._shared and server:
            self._server = server
            if self._registry is not None:
                self._registry.server = server
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
