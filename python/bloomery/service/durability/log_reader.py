"""Reads a write-ahead log: its rows up to the first damage, and what is damaged or missing.
`recovery` decides whether that is good enough."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from bloomery import _native

Row: TypeAlias = tuple[int, float, int, int, bytes]  # seq, at, filter, op, data


class LogReader:
    """The rows of all segments from `first` on, up to before `end`, in order: up to the first
    damage, or with `salvage` all rows that are not damaged. LogUnavailable: a file cannot be read.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        first: int,
        seq: int | None,
        end: int | None = None,
        *,
        salvage: bool = False,
    ) -> None:
        """`seq` is the number of the last row before `first`; None: take it from the header."""
        self.folder = Path(folder)
        self._reader = _native.LogChunks(self.folder, first, seq, end, salvage)
        self.segments = self._reader.segments

    def chunks(self) -> Iterator[list[Row]]:
        """Yield the rows, some thousands at a time."""
        return iter(self._reader.read, [])

    def apply(self, shelf: _native.Shelf) -> Iterator[list[Row]]:
        """Apply rows of keys to the filters on a shelf; yield the rows that the caller must apply
        before the next ones are. Some of these lists are empty: they only show progress."""
        return iter(partial(self._reader.apply, shelf), None)

    @property
    def latest(self) -> float:
        """The latest time of a row that `apply` has applied itself."""
        return self._reader.latest

    def __iter__(self) -> Iterator[Row]:
        return chain.from_iterable(self.chunks())

    @property
    def problems(self) -> list[str]:
        """A sentence for each damage found so far."""
        return self._reader.problems

    @property
    def broken(self) -> int | None:
        """The segment with the first damage."""
        return self._reader.broken

    @property
    def intact(self) -> int:
        """The number of the last row before the first damage."""
        return self._reader.intact

    @property
    def tail(self) -> str | None:
        """What follows the last valid row of the last segment, if anything does: a write that a
        crash cut off, or damage."""
        return self._reader.tail

    @property
    def last(self) -> int:
        """The number of the last row that was read."""
        return self._reader.last

    @property
    def rows(self) -> int:
        """How many rows were read."""
        return self._reader.rows
