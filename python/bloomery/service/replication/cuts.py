"""A turn that is too large for one entry of the log, as several: each of its records is done by
itself anyway, and so is each key of a record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bloomery.service.domain.operations import HASHES, Record

MOST = 4 << 20  # bytes of records in one entry: half a million keys, which a node applies at once
_PAIR = 16  # bytes: of the hashes of a key, two at most


class CutTurn:
    """The records of a turn, some at a time; and what came of all of them, in the end."""

    def __init__(self, records: list[Record], most: int = MOST) -> None:
        self._parts = _parts(records, most)
        self._results: list[list[Any]] = [[] for _ in records]  # of each record's pieces
        self._places: list[int] = []  # of the records whose pieces are being done

    def next(self) -> list[Record] | None:
        """Return what is to be done next; None: all of it is done."""
        part = next(self._parts, None)
        if part is None:
            return None
        self._places = [place for place, _ in part]
        return [record for _, record in part]

    def take(self, results: list[Any]) -> None:
        """Note what came of that."""
        for place, result in zip(self._places, results, strict=True):
            self._results[place].append(result)

    @property
    def is_begun(self) -> bool:
        """Was some of it done?"""
        return any(self._results)

    def results(self) -> list[Any]:
        """Return what came of each record."""
        return [_joined(pieces) for pieces in self._results]


def _parts(records: list[Record], most: int) -> Iterator[list[tuple[int, Record]]]:
    """Cut records into parts of about so many bytes, each record with its place."""
    part: list[tuple[int, Record]] = []
    size = 0
    for place, (number, op, data) in enumerate(records):
        step = most - most % _PAIR if op in HASHES else max(1, len(data))
        for start in range(0, max(1, len(data)), step):
            piece = data[start : start + step]
            if part and size + len(piece) > most:
                yield part
                part, size = [], 0
            part.append((place, (number, op, piece)))
            size += len(piece)
    if part:
        yield part


def _joined(pieces: list[Any]) -> Any:
    """What came of a record, of which this came of its pieces."""
    for result in pieces:
        if len(pieces) == 1 or isinstance(result, Exception):
            return result
    refusals = [refusal for _, refusal in pieces if refusal is not None]
    return b"".join(answers for answers, _ in pieces), refusals[0] if refusals else None
