"""Keys of the three kinds, distinct, as fresh objects for every pass.

CPython keeps a str's hash (and a bytes') inside the object, so a second pass over the same objects
flatters the peers that use `hash()`. So the keys are held as one blob or array, and cut into new
objects before each pass.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

ABSENT = 1 << 31
"""Where the absent keys start: no run adds as many keys as this."""

_ODD = 0x9E3779B97F4A7C15
_HOSTS = [
    f"{name}.example.{tld}"
    for tld in ("com", "org", "net", "co.uk")
    for name in ("www", "shop", "news", "blog", "forum", "media", "static", "archive")
]
_SECTIONS = (
    "articles",
    "products",
    "users",
    "questions",
    "reviews",
    "categories/garden",
    "tags",
    "catalogue/books",
    "events/2024",
    "images",
)
_SLUGS = ("item", "how-to", "page", "top-ten", "guide", "detail", "list", "a-short-note")
_CHUNK = 1_000_000


def urls(start: int, count: int) -> str:
    """`count` distinct URLs of 44 to 71 characters, one a line, no newline after the last.

    The number at the end is `i * odd mod 2**32`: distinct for distinct i, and in no order.
    """
    parts: list[str] = []
    for low in range(start, start + count, _CHUNK):
        high = min(low + _CHUNK, start + count)
        numbers = [(i * 2654435761) & 0xFFFFFFFF for i in range(low, high)]
        parts.append(
            "\n".join(
                [
                    f"https://{_HOSTS[j & 31]}/{_SECTIONS[(j >> 5) % 10]}/"
                    f"{_SLUGS[(j >> 9) & 7]}-{j:010d}"
                    for j in numbers
                ]
            )
        )
    return "\n".join(parts)


def int64s(start: int, count: int) -> npt.NDArray[np.int64]:
    """`count` distinct ids under 2**48, in no order (times an odd number is one-to-one)."""
    numbers = np.arange(start, start + count, dtype=np.uint64)
    numbers *= np.uint64(_ODD)
    numbers &= np.uint64((1 << 48) - 1)
    return numbers.view(np.int64)


def bytes16(start: int, count: int) -> npt.NDArray[np.void]:
    """`count` distinct keys of 16 bytes that look like digests or UUIDs."""
    pairs = np.empty((count, 2), dtype=np.uint64)
    numbers = np.arange(start, start + count, dtype=np.uint64)
    np.multiply(numbers, np.uint64(_ODD), out=pairs[:, 0])
    np.multiply(
        pairs[:, 0] ^ (pairs[:, 0] >> np.uint64(29)), np.uint64(0xBF58476D1CE4E5B9), out=pairs[:, 1]
    )
    return pairs.reshape(-1).view("V16")


class Keys:
    """A run of keys of one kind, from which `fresh` cuts new objects."""

    def __init__(self, kind: str, start: int, count: int) -> None:
        self.kind = kind
        self.count = count
        self._array: Any = None
        self._blobs: dict[int, str] = {}
        if kind == "str":
            self._blobs[count] = urls(start, count)
        elif kind == "int":
            self._array = int64s(start, count)
        elif kind == "bytes":
            self._array = bytes16(start, count)
        else:
            raise ValueError(f"kind: got {kind!r}, expected str, int or bytes")

    def fresh(self, count: int | None = None) -> list[Any]:
        """The first `count` keys (all of them by default) as objects nobody has hashed yet."""
        wanted = self.count if count is None else min(count, self.count)
        if self.kind == "str":
            return self._blob(wanted).split("\n")
        keys: list[Any] = self._array[:wanted].tolist()
        return keys

    def array(self) -> npt.NDArray[np.int64]:
        """A fresh copy of the int64 keys."""
        array: npt.NDArray[np.int64] = self._array.copy()
        return array

    def _blob(self, count: int) -> str:
        if count not in self._blobs:
            self._blobs[count] = "\n".join(self._blobs[self.count].split("\n", count)[:count])
        return self._blobs[count]


@lru_cache(maxsize=2)
def present_and_absent(kind: str, present: int, absent: int) -> tuple[Keys, Keys]:
    """The keys to add, and keys not among them; kept, since 10 M URLs take seconds to make."""
    # URLs are numbered mod 2**32, ids mod 2**48: ABSENT keeps both apart.
    return Keys(kind, 0, present), Keys(kind, ABSENT, absent)
