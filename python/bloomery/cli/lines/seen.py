"""What `dedup` remembers of the lines before: a filter here, every key on disk in exact.py."""

from typing import Any, NoReturn, Protocol

from bloomery import sizing
from bloomery._native import LineKey
from bloomery.cli.amounts import show_rate
from bloomery.cli.files import state
from bloomery.cli.lines.reading import Chunk
from bloomery.cli.pump import Interrupts
from bloomery.filters import AnyFilter, BloomFilter, CuckooFilter
from bloomery.filters.files import key_type


class SeenLines(Protocol):
    """Takes lines, says which are new, and keeps them once they have come out."""

    path: str | None
    unsaved: str  # what the file is after a chunk that did not come out

    def add_lines(self, data: memoryview, final: bool, key: LineKey | None) -> Chunk:
        """The new lines and those without a key; bytes, lines, and how many of them came out."""

    def written(self) -> None:
        """The new lines of the last chunk have come out."""

    def full(self) -> str | None:
        """A warning, if it errs more often than it may by now."""

    def save(self) -> None:
        """Keep what has come out for the next run."""

    def facts(self) -> dict[str, Any]:
        """For the summary."""


class _OnceFilter(CuckooFilter):
    """Has each key once, and refuses none: what has no slot is kept beside, in memory alone."""

    def __init__(self, capacity: int, error_rate: float) -> None:
        self._act("once")


class Fingerprints:
    """Takes each line once, and refuses none; for memory alone.

    Nothing here is saved, so lines need no BloomFilter: fingerprints take 24 bits a line at the
    default rate, and bits of a Bloom filter 31. What is beside the filter within would be missing
    in files and copies of it: so lines are added and asked for, and no more can be done.
    """

    def __init__(self, capacity: int, error_rate: float) -> None:
        self.error_rate = error_rate
        self._filter = _OnceFilter(capacity, error_rate)
        self.add_lines, self.contains_lines = self._filter.add_lines, self._filter.contains_lines

    @property
    def capacity(self) -> int:
        """How many lines it was made for."""
        return self._filter.capacity

    @property
    def count(self) -> int:
        """How many lines it has."""
        return self._filter.estimated_count

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._filter.nbytes

    def __reduce__(self) -> NoReturn:
        raise TypeError("fingerprints of lines are for memory alone: save a filter of another kind")


class GrowingLines:
    """Lines in a filter of an estimated size, and in further ones once it is full.

    An estimate that is too small would drop lines, so it is only where to begin: each further
    filter is twice as large. What all of them together err is at most the rate asked for, or where
    no filter errs so seldom, what `facts` says.
    """

    path: str | None = None
    unsaved = ""

    def __init__(self, capacity: int, error_rate: float) -> None:
        self._rate = sizing.check_error_rate(error_rate)
        self._layers = [Fingerprints(capacity, _allowed(self._rate * _FIRST))]
        self._count = 0  # keys of the last layer

    def add_lines(self, data: memoryview, final: bool, key: LineKey | None) -> Chunk:
        self._make_room(data)
        *full, last = self._layers
        if not full:
            before = 0 if key is None else key.missing
            chunk = last.add_lines(data, final=final, key=key)
            missing = 0 if key is None else key.missing - before
        else:
            before = 0 if key is None else key.missing
            text, consumed, lines, _ = _absent(full, data, final, key)
            missing = 0 if key is None else key.missing - before
            again = None if key is None else key.fresh()
            new, _, _, chosen = last.add_lines(text, final=True, key=again)
            chunk = new, consumed, lines, chosen
        self._count += chunk[3] - missing
        return chunk

    def _make_room(self, data: memoryview) -> None:
        """Begin another layer, if the last has no room for so many lines."""
        room = self._layers[-1].capacity - self._count
        # No more than 66,000 lines are shorter than three bytes, if they are distinct; to count
        # them takes a copy, which is spared as long as there is room for any.
        if len(data) // 4 + 66_000 <= room:
            return
        lines = bytes(data).count(b"\n") + 1
        if lines <= room:
            return
        rate = self._rate * (1 - _FIRST) * 0.5 ** len(self._layers)
        capacity = 2 * max(lines, self._layers[-1].capacity)
        self._layers.append(Fingerprints(capacity, _allowed(rate)))
        self._count = 0

    def absent_lines(self, data: memoryview, final: bool, key: LineKey | None) -> Chunk:
        """As `add_lines`, but adds nothing: the lines that were never added."""
        return _absent(self._layers, data, final, key)

    def written(self) -> None:
        pass

    def full(self) -> str | None:
        return None

    def save(self) -> None:
        pass

    def facts(self) -> dict[str, Any]:
        nbytes = sum(layer.nbytes for layer in self._layers)
        # Near the least rate that a filter has, the layers together may err more than was asked.
        rate = max(self._rate, sum(layer.error_rate for layer in self._layers))
        return {"exact": False, "error_rate": rate, "memory_bytes": nbytes}


# Of the error rate, for the first layer; the others have the rest. (With 0.9 a fingerprint would
# have a bit more at the default rate.)
_FIRST = 0.9375


def _allowed(error_rate: float) -> float:
    return max(error_rate, sizing.MIN_ERROR_RATE)


def _absent(
    layers: list[Fingerprints], data: memoryview, final: bool, key: LineKey | None
) -> Chunk:
    """The lines that none of the layers has; the first sees all of them, and counts for `key`."""
    first, *others = layers
    text, consumed, lines, chosen = first.contains_lines(data, final=final, invert=True, key=key)
    for layer in others:
        again = None if key is None else key.fresh()
        text, _, _, chosen = layer.contains_lines(text, final=True, invert=True, key=again)
    return text, consumed, lines, chosen


class FilteredLines:
    """Lines in one filter, saved at the end of the run if it has a path."""

    unsaved = "is as it was before, so this run's lines will come out again"

    def __init__(self, filter: AnyFilter, path: str | None, interrupts: Interrupts) -> None:
        self.path = path
        self._filter, self._interrupts = filter, interrupts
        self._key_type = key_type(path) if path is not None else None
        # What was there before is estimated; what comes now is counted.
        self._count = filter.estimated_count if path is not None else 0.0
        self._error = 0.0
        if isinstance(filter, BloomFilter) and path is not None:
            shape = (filter.layout, filter.num_bits, filter.num_hashes, filter.lines_per_key)
            self._error = sizing.count_error(*shape, filter.capacity)

    def add_lines(self, data: memoryview, final: bool, key: LineKey | None) -> Chunk:
        before = 0 if key is None else key.missing
        chunk = self._filter.add_lines(data, final=final, key=key)
        self._count += chunk[3] - (0 if key is None else key.missing - before)
        return chunk

    def written(self) -> None:
        pass

    def full(self) -> str | None:
        capacity = self._filter.capacity
        if not isinstance(self._filter, BloomFilter):  # the other kinds grow
            return None
        if not sizing.is_beyond(self._count, capacity, self._error):
            return None
        again = "with another --filter and" if self.path is not None else "again with"
        return (
            f"warning: more than the {capacity:,} distinct lines the filter was made"
            f" for; new lines are now dropped more often than"
            f" {show_rate(self._filter.error_rate)}: run {again} a larger --capacity"
        )

    def save(self) -> None:
        assert self.path is not None
        with self._interrupts.held_off(last=True):
            consequence = "it is as it was, so this run's lines will come out again"
            state.save(self._filter, self.path, consequence, self._key_type)

    def facts(self) -> dict[str, Any]:
        rate = self._filter.error_rate
        return {"exact": False, "error_rate": rate, "memory_bytes": self._filter.nbytes}
