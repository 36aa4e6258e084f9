"""What else people use, measured: bytes a key and times of `make bench-compare`, for ten million
URLs of 58 characters. `make figures` writes the rows here from its results, as into
docs/compare.md.
"""

from __future__ import annotations

from typing import NamedTuple


class Measured(NamedTuple):
    """One way to know what was seen before; times are microseconds a key."""

    what: str
    bytes_a_key: float
    insert_us: float
    ask_us: float
    wrong_maybes: float
    removes: str
    survives: str
    runs: str

    def as_dict(self) -> dict[str, str | float]:
        """Every figure by name, ready for JSON."""
        return self._asdict()


# fmt: off
ROWS = [
    Measured("Python set", 142.0, 0.322, 0.414, 0.0, "yes", "no", "nothing"),
    Measured("Redis SET", 118.0, 2.7, 3.54, 0.0, "yes", "if it saves", "Redis"),
    Measured("Redis bitmap by hand, 1%", 2.66, 56.5, 73.4, 0.00906, "no", "if it saves", "Redis"),
    Measured("PostgreSQL unique index", 200.0, 11.8, 14.7, 0.0, "yes", "yes", "PostgreSQL"),
    Measured("RocksDB (rocksdict)", 12.3, 2.36, 4.49, 0.0, "yes", "yes", "nothing"),
    Measured("BloomFilter, 1%", 1.24, 0.0241, 0.0364, 0.0101, "no", "if saved", "nothing"),
    Measured("CuckooFilter, 1%", 1.31, 0.0781, 0.0417, 0.00764, "yes", "if saved", "nothing"),
    Measured("StaticFilter, 1%", 0.971, 0.178, 0.0752, 0.00809, "no", "if saved", "nothing"),
]
SOURCE = "python -m benchmarks --only compare, 2026-11-17, commit 2453128e7295"
# fmt: on
