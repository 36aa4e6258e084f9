"""A batch that is too large for one entry of the log, as several. Each of its records is applied
separately anyway."""

from __future__ import annotations

from bloomery.service.domain.operations import Record

MAX_BYTES = 4 << 20  # of records in one entry: half a million keys, which a node applies at once


def split_batch(records: list[Record], limit: int = MAX_BYTES) -> list[list[Record]]:
    """Return the records in parts of at most this many bytes, or of one record."""
    parts: list[list[Record]] = [[]]
    size = 0
    for record in records:
        nbytes = len(record[2])
        if parts[-1] and size + nbytes > limit:
            parts.append([])
            size = 0
        parts[-1].append(record)
        size += nbytes
    return parts
