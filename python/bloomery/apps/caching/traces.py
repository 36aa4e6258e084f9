"""What an admission cache would have done with the requests of a trace, beside a plain cache.

A trace has a line for each request: time in seconds, key, size in bytes, with white space between;
what stands behind these is not read. So do webcachesim's and libCacheSim's text traces.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from io import BufferedIOBase
from typing import Any, NamedTuple

from bloomery import errors
from bloomery.apps.caching.admission import AdmissionCache
from bloomery.filters import RotatingBloomFilter, ScalableBloomFilter

_LONGEST_LINE = 1 << 16
_MAX_SIZE = 1 << 50


class TraceRequest(NamedTuple):
    """A line of a trace."""

    time: float
    key: bytes
    size: int


def read_trace(file: BufferedIOBase, *, strict: bool = False) -> Iterator[TraceRequest | str]:
    """The requests of a trace; a line that is none is a text that says why, or, if `strict`, an
    InvalidParameter. Blank lines and those that begin with # are passed over."""
    number = 0
    while line := file.readline(_LONGEST_LINE):
        number += 1
        request = _parsed(line)
        if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
            while (rest := file.readline(_LONGEST_LINE)) and not rest.endswith(b"\n"):
                pass
            request = f"longer than {_LONGEST_LINE:,} bytes"
        if request is None:
            continue
        if isinstance(request, TraceRequest):
            yield request
            continue
        problem = f"line {number:,} is {request}; must be a time, a key and a size, as in `12 /a 5`"
        if strict:
            raise errors.InvalidParameter(problem)
        yield problem


def _parsed(line: bytes) -> TraceRequest | str | None:
    fields = line.split(None, 3)
    if not fields or fields[0].startswith(b"#"):
        return None
    if len(fields) < 3:
        return repr(line[:60])
    try:
        time, size = float(fields[0]), int(fields[2])
    except ValueError:
        return repr(line[:60])
    if not math.isfinite(time) or not 0 <= size <= _MAX_SIZE:
        return repr(line[:60])
    return TraceRequest(time, fields[1], size)


class LruSizes:
    """The sizes of what a cache of so many bytes would hold; the least recently used goes first."""

    def __init__(self, nbytes: int) -> None:
        self._sizes: OrderedDict[bytes, int] = OrderedDict()
        self._room = self._nbytes = nbytes
        self.writes = self.bytes_written = 0

    def __getitem__(self, key: bytes) -> int:
        self._sizes.move_to_end(key)
        return self._sizes[key]

    def __contains__(self, key: bytes) -> bool:
        return key in self._sizes

    def __setitem__(self, key: bytes, size: int) -> None:
        if size > self._nbytes:
            raise ValueError("value too large")
        self.pop(key)
        self._sizes[key] = size
        self._room -= size
        self.writes += 1
        self.bytes_written += size
        while self._room < 0:
            self._room += self._sizes.popitem(last=False)[1]

    def keys(self) -> list[bytes]:
        """What it holds now."""
        return list(self._sizes)

    def pop(self, key: bytes, default: int = 0) -> int:
        """Take a size out."""
        size = self._sizes.pop(key, default)
        self._room += size
        return size


class _Everything:
    """In the place of a filter: whatever comes was asked for before, so a plain cache."""

    def add(self, key: bytes) -> bool:
        return False


@dataclass
class Outcome:
    """What one cache did with a trace."""

    cache_bytes: int
    admission: bool
    hits: int = 0
    bytes_hit: int = 0
    writes: int = 0
    bytes_written: int = 0
    filter_bytes: int = 0
    hit_ratio: float = 0.0
    byte_hit_ratio: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return asdict(self)


class TraceComparison:
    """Caches of several sizes, each with and without admission, that get the same requests.

    `capacity` is how many keys a filter remembers that were asked for once; with a `window`, for
    how long, by the trace's own time.
    """

    def __init__(
        self,
        cache_bytes: Sequence[int],
        *,
        capacity: int = 1_000_000,
        window: str | float | None = None,
        error_rate: float = 0.01,
    ) -> None:
        if not cache_bytes or min(cache_bytes) < 1:
            raise errors.InvalidParameter(f"cache sizes are {cache_bytes}, must be bytes above 0")
        self.requests = self.nbytes = self.distinct = self.distinct_bytes = self.repeated = 0
        self._time = 0.0
        self._once, self._twice = (ScalableBloomFilter(100_000, 0.001) for _ in range(2))
        self._runs: list[tuple[AdmissionCache, LruSizes, Outcome]] = []
        for size in cache_bytes:
            for admission in (False, True):
                filter: Any = _Everything()
                if admission:
                    clock = None if window is None else (lambda: self._time)
                    filter = RotatingBloomFilter(capacity, error_rate, window=window, clock=clock)
                lru = LruSizes(size)
                self._runs.append((AdmissionCache(lru, filter), lru, Outcome(size, admission)))

    def ask(self, request: TraceRequest) -> None:
        """Put one request to every cache."""
        self._time, key, size = request
        self.requests += 1
        self.nbytes += size
        if self._once.add(key):
            self.distinct += 1
            self.distinct_bytes += size
        elif self._twice.add(key):
            self.repeated += 1
        for cache, _, outcome in self._runs:
            if cache.find(key) is None:
                cache.offer(key, size)
            else:
                outcome.hits += 1
                outcome.bytes_hit += size

    @property
    def one_hit_share(self) -> float:
        """The share of objects that were asked for once, by filters that err for 0.1%."""
        return 1 - self.repeated / self.distinct if self.distinct else 0.0

    def outcomes(self) -> list[Outcome]:
        """What each cache did: by size, without admission and with it."""
        for cache, lru, outcome in self._runs:
            outcome.writes, outcome.bytes_written = lru.writes, lru.bytes_written
            outcome.filter_bytes = getattr(cache.filter, "nbytes", 0)
            outcome.hit_ratio = outcome.hits / max(1, self.requests)
            outcome.byte_hit_ratio = outcome.bytes_hit / max(1, self.nbytes)
        return [outcome for _, _, outcome in self._runs]

    def as_dict(self) -> dict[str, Any]:
        """The trace and what each cache did with it, ready for JSON."""
        return {
            "requests": self.requests,
            "bytes": self.nbytes,
            "objects": self.distinct,
            "object_bytes": self.distinct_bytes,
            "one_hit_share": self.one_hit_share,
            "caches": [outcome.as_dict() for outcome in self.outcomes()],
        }
