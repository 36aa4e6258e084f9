"""What was found in a corpus, by file and in all."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass
class FileCounts:
    """What was found in one file, or in several."""

    documents: int = 0
    documents_removed: int = 0
    documents_changed: int = 0  # which lose paragraphs, and not all
    units: int = 0  # documents or paragraphs with something in them
    units_removed: int = 0
    characters: int = 0
    characters_removed: int = 0
    keys: int = 0  # that the filter was asked for
    lines: int = 0
    bad_lines: int = 0  # left out, by skip_bad

    def add(self, other: FileCounts) -> None:
        """Count the other's too."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


@dataclass
class CorpusReport:
    """What became of a corpus."""

    total: FileCounts = field(default_factory=FileCounts)
    files: dict[str, FileCounts] = field(default_factory=dict)  # by input
    keys: int = 0  # in the filter: counted, those of earlier runs estimated
    capacity: int = 0
    error_rate: float = 0.0  # as it was asked for: of a unit
    saturated: bool = False  # more keys than the filter was made for
    estimated_key_error_rate: float = 0.0  # by the filter's bits; of a key
    memory_bytes: int = 0
    seconds: float = 0.0  # of this run and those that it went on from
    first_bad_line: str | None = None
    resumed: int = 0  # files that an earlier run had done

    def as_dict(self) -> dict[str, Any]:
        """Return all of it for JSON."""
        return asdict(self)
