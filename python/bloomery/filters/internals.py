"""What the rest of the package does with a filter, and users do not.

The native half of a filter has these under private names. Whoever needs one calls it here, so that
they are listed in one place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import bloomery._native as _native

F = TypeVar("F")


class Internals(Protocol):
    """The private methods of filters that the package uses; not every kind has all of them."""

    def _add_hashes(self, data: bytes) -> int: ...
    def _changes(self) -> int: ...
    def _check_chunk(self, iterator: int, nbytes: int) -> None: ...
    def _check_compatible(self, other: Any, doing: str) -> None: ...
    def _facts(self) -> dict[str, Any]: ...
    def _header(self, checksum: int) -> bytes: ...
    def _open(self, head: bytes, body: _native.Memory) -> Any: ...
    def _positions(self, key: Any) -> list[int]: ...
    def _remove_hashes(self, data: bytes) -> int: ...
    def _sections(self) -> list[Any]: ...
    def _shares(self, buffer: Any, offset: int) -> bool: ...


def open_filter(kind: type[F], head: bytes, body: _native.Memory) -> F:
    """Make a filter of its header and its memory."""
    filter: F = kind._open(head, body)  # type: ignore[attr-defined]
    return filter


def header(filter: Any, checksum: int = 0) -> bytes:
    """Return the header of its file, with this checksum."""
    head: bytes = filter._header(checksum)
    return head


def sections(filter: Any) -> list[Any]:
    """Return its memory, as buffers in the order in which a file has them."""
    parts: list[Any] = filter._sections()
    return parts


def changes(filter: Any) -> int:
    """Return how often it was written to: what was read in parts belongs together if that stays."""
    count: int = filter._changes()
    return count


def shares(filter: Any, buffer: Any, offset: int) -> bool:
    """Whether its memory is this buffer's, from the offset on."""
    same: bool = filter._shares(buffer, offset)
    return same


def facts(filter: Any) -> dict[str, Any]:
    """Return the figures of its native half, by name; some take a look at all of its memory."""
    figures: dict[str, Any] = filter._facts()
    return figures


def add_hashes(filter: Any, data: bytes) -> int:
    """Add keys by their hashes, as a log keeps them; return how many are new."""
    new: int = filter._add_hashes(data)
    return new


def remove_hashes(filter: Any, data: bytes) -> int:
    """Remove keys by their hashes; return how many there were."""
    removed: int = filter._remove_hashes(data)
    return removed


def check_chunk(filter: Any, iterator: int, nbytes: int) -> None:
    """Raise CorruptData unless a chunk of a RedisBloom dump fits a filter."""
    filter._check_chunk(iterator, nbytes)


def check_compatible(filter: Any, other: Any, doing: str) -> None:
    """Raise IncompatibleFilters unless the two can be merged."""
    filter._check_compatible(other, doing)


def cells_of(filter: Any, key: Any) -> list[int]:
    """Return where a key's cells are, of a kind that has lines of cells; none for other kinds."""
    positions: list[int] = filter._positions(key)
    return positions
