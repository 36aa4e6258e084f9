"""A filter of a server, by number and by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bloomery.filters.files import Loading

# Settings that belong to the service, and not to users.
INTERNAL = ("successor", "loadable")


@dataclass(slots=True)
class Entry:
    """A filter with its name, its settings and its counts."""

    id: int
    name: bytes
    filter: Any  # of any kind; None while its chunks are loaded
    created_at: float
    expires_at: float | None = None
    # Keys that were new when they were added, minus keys removed. In a running server the shelf
    # counts, and `State.count` brings this up to date.
    items: int = 0
    settings: dict[str, Any] = field(default_factory=dict)  # as CREATE and ADJUST gave them
    loading: Loading | None = None
    changes: int = 0  # operations on the filter, except adds and removals

    @property
    def needs_python(self) -> bool:
        """Whether native code must not apply records of keys to it: a rebuild follows the filter,
        or it may still get chunks of a dump."""
        return any(name in self.settings for name in INTERNAL)
