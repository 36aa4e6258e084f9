"""The types that signatures name: what can be a key, a batch of keys, and a batch's answer."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, SupportsIndex, TypeAlias, TypeVar
from uuid import UUID

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "ArrowArray",
    "ArrowStream",
    "Batch",
    "ContainsMany",
    "Hasher",
    "K",
    "Key",
    "Layout",
    "Mask",
    "Nulls",
]

Key: TypeAlias = (
    "str | bytes | bytearray | memoryview | SupportsIndex | UUID | datetime | tuple[Key, ...]"
)

# Keys that come back as they were given.
K = TypeVar("K")


class ArrowArray(Protocol):
    """One Arrow array behind the PyCapsule interface."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Return the capsules of schema and array."""


class ArrowStream(Protocol):
    """A chunked column behind the PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the capsule of the stream."""


Batch: TypeAlias = "Iterable[Key] | np.ndarray[Any, Any] | ArrowArray | ArrowStream"
# A list for Python objects, a NumPy array for NumPy and Arrow (a list if NumPy is not installed).
Mask: TypeAlias = "list[bool] | np.ndarray[Any, np.dtype[np.bool_]]"
Nulls: TypeAlias = Literal["error", "skip"]
Layout: TypeAlias = Literal["blocked", "classic"]
Hasher: TypeAlias = Literal["xxh3", "murmur3", "fnv1a", "siphash"]


class ContainsMany(Protocol):
    """Whatever answers for a whole batch: every filter here, in Redis or behind a server."""

    def contains_many(self, keys: Batch) -> Mask:
        """Return a bool a key: False is definitely not, True is maybe."""
