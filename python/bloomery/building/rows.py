"""What a filter is built from: rows in batches, which can be resumed behind any of them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

_KEY_TYPES = {bytes: "str", UUID: "uuid", datetime: "datetime"}  # others by their own name


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows as keys."""

    keys: Any  # a list or an Arrow column, for `add_many`; without the NULLs
    rows: int  # NULLs too
    nulls: int
    position: Any  # where to go on behind it, as JSON has it; None: there is no such place

    def add_to(self, filter: Any) -> None:
        """Add all keys."""
        filter.update(self.keys)

    def key_types(self) -> set[str]:
        """What the keys are, as a file says it; a column's are all alike."""
        keys = self.keys if isinstance(self.keys, list) else (key.as_py() for key in self.keys[:1])
        return {_KEY_TYPES.get(kind, kind.__name__) for kind in set(map(type, keys))}

    def for_add_many(self) -> Any:
        """The keys as any filter's `add_many` takes them, a server's too."""
        return self.keys


class LineBatch(Batch):
    """Some lines, each a key without its line end: no Python runs for a line."""

    __slots__ = ()

    def add_to(self, filter: Any) -> None:
        """Add all lines."""
        filter.add_lines(self.keys, final=True)

    def key_types(self) -> set[str]:
        """Lines are bytes, and these are the keys that text is."""
        return {"str"}

    def for_add_many(self) -> Any:
        """The lines as a list."""
        return self.keys.removesuffix(b"\n").split(b"\n")


class Rows(Protocol):
    """Rows of any origin."""

    @property
    def name(self) -> str:
        """What messages call it; no secret in it."""

    @property
    def identity(self) -> dict[str, Any]:
        """What has to be the same for a build to go on, as JSON has it; no secret in it."""

    @property
    def unresumable(self) -> str:
        """Why reading cannot go on from a position, and what would help; empty: it can."""

    def count(self) -> int | None:
        """How many there are, exactly; None if they can only be read once."""

    def estimate(self) -> int | None:
        """How many there are, about, without reading all of them; None if nobody knows."""

    def batches(self, after: Any = None) -> Generator[Batch, None, None]:
        """Read them, from the beginning or from a batch's position on."""

    def close(self) -> None:
        """Let go of what is open."""
