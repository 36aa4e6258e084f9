"""What the caches of neighbours hold, by filters that they publish (Summary Cache, cache digests).

An edge that lacks a page asks the neighbours whose summaries say *maybe*, before it goes to the
origin. A summary is right for the moment at which it was made: what came later, the neighbours do
not know of yet (the origin is asked, as without summaries); what left since, and a wrong maybe, is
one request to a neighbour in vain.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from bloomery import errors
from bloomery.filters import BloomFilter

if TYPE_CHECKING:
    from bloomery.types import Batch, Key

_LEAST = 1000  # keys: a summary of an empty cache is small too
_WEIGHED = 100  # neighbours are judged by the last so many requests


def edge_summary(keys: Batch, error_rate: float | str = 0.01) -> bytes:
    """The keys that a cache holds now as a filter, in bytes that neighbours `receive`: some 10 bits
    a key at 1%.

        published = edge_summary(list(cache))
    """
    held: Any = keys if hasattr(keys, "__len__") else list(cast("Iterable[Any]", keys))
    summary = BloomFilter(max(_LEAST, len(held)), error_rate)
    summary.update(held)
    return summary.to_bytes()


class _Summary(NamedTuple):
    filter: BloomFilter
    received: float


class EdgeSummaries:
    """The summaries that neighbours have published: who may hold a key.

        for edge in summaries.holders("/logo.png"):
            page = ask(edge, "/logo.png")
            summaries.report(edge, held=page is not None)

    A summary that was received more than `max_age` seconds ago says nothing any more. `holders`
    names at most `most` edges, and none whose last answers were mostly *no*: a neighbour whose
    summary is old, or says maybe to everything, costs some requests and then no more. Any thread
    may use it.
    """

    def __init__(
        self,
        *,
        max_age: float = 60.0,
        most: int = 1,
        max_bytes: int = 64 << 20,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for name, value in (("max_age", max_age), ("most", most), ("max_bytes", max_bytes)):
            if not value > 0:
                raise errors.InvalidParameter(f"{name} is {value!r}, must be a number above 0")
        self._max_age, self._most, self._max_bytes = max_age, most, max_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._summaries: dict[str, _Summary] = {}
        self._right: dict[str, float] = {}  # share of requests to the edge that were worth it
        self._counts = {"asked": 0, "held": 0, "wasted": 0}

    def receive(self, edge: str, data: bytes) -> None:
        """Take a neighbour's summary, in the place of its last one. CorruptData if it is none,
        InvalidParameter if it is too large or says maybe to nearly everything."""
        if len(data) > self._max_bytes:
            raise errors.InvalidParameter(
                f"the summary of {edge} has {len(data):,} bytes, must have at most "
                f"{self._max_bytes:,}: publish fewer keys, or set max_bytes"
            )
        summary = BloomFilter.from_bytes(data)
        if summary.estimated_error_rate > 0.5:
            raise errors.InvalidParameter(
                f"the summary of {edge} says maybe to {summary.estimated_error_rate:.0%} of all "
                "keys: it must be made for as many keys as the cache holds"
            )
        with self._lock:
            self._summaries[edge] = _Summary(summary, self._clock())
            self._right.setdefault(edge, 1.0)

    def forget(self, edge: str) -> None:
        """The neighbour is gone."""
        with self._lock:
            self._summaries.pop(edge, None)
            self._right.pop(edge, None)

    def holders(self, key: Key) -> list[str]:
        """The neighbours that may hold the key, those first whose summaries were right most often;
        none if nobody said so lately."""
        since = self._clock() - self._max_age
        with self._lock:
            known = [(edge, each) for edge, each in self._summaries.items()]
            right = dict(self._right)
        holders = [edge for edge, each in known if each.received >= since and key in each.filter]
        trusted = [edge for edge in holders if right.get(edge, 0.0) >= 0.1]
        return sorted(trusted, key=lambda edge: -right[edge])[: int(self._most)]

    def report(self, edge: str, held: bool) -> None:
        """What came of a request to a neighbour: whether it did hold the key."""
        with self._lock:
            self._counts["asked"] += 1
            self._counts["held" if held else "wasted"] += 1
            if edge in self._right:
                self._right[edge] += (held - self._right[edge]) / _WEIGHED

    def info(self) -> dict[str, Any]:
        """Requests to neighbours so far, how many were in vain, and for each neighbour the age and
        the size of its summary, and the share of requests that were worth it."""
        now = self._clock()
        with self._lock:
            edges = {
                edge: {
                    "age": now - each.received,
                    "nbytes": each.filter.nbytes,
                    "keys": each.filter.estimated_count,
                    "right": self._right[edge],
                }
                for edge, each in self._summaries.items()
            }
            return {**self._counts, "edges": edges}
