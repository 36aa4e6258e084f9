"""A server in small, for the projection's tests: filters by number, and what follows them."""

from collections.abc import Iterable

from bloomery.service.registry.registry import Registry
from bloomery.service.registry.rows import RegistryRow
from bloomery.service.registry.writer import RegistryWriter

SOON = 30.0  # what takes longer than this, on a busy machine too, is a hang


class Follower:
    """It tells its projection of every change, as the server does."""

    def __init__(self, url: str, server: str = "here") -> None:
        self.filters: dict[int, RegistryRow] = {}
        self.reads = 0
        self.registry = Registry(url, server)
        self.writer = RegistryWriter(lambda: self.read(), first_retry=0.02, last_retry=0.1)

    def start(self) -> None:
        """Start to write its registry."""
        self.writer.start(self.registry)

    def read(self) -> Iterable[RegistryRow]:
        """All filters."""
        self.reads += 1
        return list(self.filters.values())

    def put(self, *rows: RegistryRow) -> None:
        """These are new or changed."""
        self.filters |= {one.id: one for one in rows}
        self.writer.put(rows)

    def drop(self, *numbers: int) -> None:
        """These are gone."""
        for number in numbers:
            del self.filters[number]
        self.writer.drop(numbers)
