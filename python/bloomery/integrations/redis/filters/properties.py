"""Properties of the filters in Redis, from their configuration: Redis is not asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bloomery import _native
from bloomery.integrations.redis.header import CountingHeader, PlainHeader

if TYPE_CHECKING:
    from bloomery.integrations.redis.config import Backend, Config
    from bloomery.types import Hasher, Layout


class FilterProperties(ABC):
    """Properties that all kinds have."""

    _name: str
    _config: Config
    _place: str

    @property
    def name(self) -> str:
        """The filter's name."""
        return self._name

    @property
    def kind(self) -> str:
        """`bloom`, `counting` or `rotating`."""
        return self._config.kind

    @property
    def capacity(self) -> int:
        """How many distinct keys it was made for."""
        return int(self._settings()["capacity"])

    @property
    def error_rate(self) -> float:
        """How often a maybe may be wrong with so many keys."""
        return float(self._settings()["error_rate"])

    @abstractmethod
    def _settings(self) -> dict[str, Any]:
        """What it was made with, as `repr` shows it."""

    def _size_in_redis(self) -> str:
        """How much of Redis it takes, as `repr` says it."""
        return f"{_nbytes(self._config):,} bytes in Redis"

    def __repr__(self) -> str:
        """Show what it is and where, without secrets."""
        settings = [f"{name}={_word(value)}" for name, value in self._settings().items()]
        arguments = ", ".join([repr(self._name), *settings])
        where = f"{self._size_in_redis()} at {self._place}"
        return f"<{type(self).__name__}({arguments}): {where}>"


def _word(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else repr(value)


def _nbytes(config: Config) -> int:
    return _native.read_header(config.header, None)[1]


class PlainProperties(FilterProperties):
    """Properties of a Bloom filter. AttributeError for what a server's own filter does not have."""

    def _settings(self) -> dict[str, Any]:
        header = PlainHeader.of(self._config.header)
        return {"capacity": header.capacity, "error_rate": header.error_rate}

    def _size_in_redis(self) -> str:
        many = "" if self.shards == 1 else "s"
        if self.backend == "bf":
            return f"{self.shards} filter{many} of BF.*"
        return f"{self.nbytes:,} bytes in {self.shards} string{many} of Redis"

    @property
    def backend(self) -> Backend:
        """`bits`: strings of ours. `bf`: a server's own filters, behind BF.*."""
        return self._config.backend

    def _own(self) -> PlainHeader:
        """Return the header; AttributeError for a server's own filter, which `info()` describes."""
        if self._config.backend == "bf":
            raise AttributeError(
                f"filter {self._name!r} is one of the server's own (BF.*), with a layout, a hash "
                "function and a size of its own: see info()"
            )
        return PlainHeader.of(self._config.header)

    @property
    def layout(self) -> Layout:
        """`blocked` or `classic`."""
        return self._own().layout

    @property
    def num_bits(self) -> int:
        """Bits of the whole filter."""
        return self._own().num_bits

    @property
    def num_hashes(self) -> int:
        """How many bits a key sets."""
        return self._own().num_hashes

    @property
    def lines_per_key(self) -> int:
        """Lines of 64 bytes that a key touches; 0 in the classic layout."""
        return self._own().lines_per_key

    @property
    def hasher(self) -> Hasher:
        """The hash function."""
        return self._own().hasher

    @property
    def seed(self) -> int:
        """The seed of the hash function; whoever can read Redis can read it too."""
        return self._own().seed

    @property
    def shards(self) -> int:
        """How many strings its bits are in; with BF.*, how many filters of the server."""
        return self._config.shards

    @property
    def nbytes(self) -> int:
        """Bytes of all its strings."""
        return self._own().nbytes


class CountingProperties(FilterProperties):
    """Properties of a counting filter."""

    def _settings(self) -> dict[str, Any]:
        return asdict(CountingHeader.of(self._config.header))

    @property
    def counter_bits(self) -> int:
        """Bits of a counter: 4 or 8."""
        return CountingHeader.of(self._config.header).counter_bits

    @property
    def nbytes(self) -> int:
        """Bytes of the counters."""
        return _nbytes(self._config)


class RotatingProperties(FilterProperties):
    """Properties of a rotating filter."""

    def _settings(self) -> dict[str, Any]:
        config, each = self._config, PlainHeader.of(self._config.header).error_rate
        return {
            "capacity": config.capacity,
            "error_rate": each * (self.generations + 1),
            "window": config.window,
            "generations": self.generations,
        }

    def _size_in_redis(self) -> str:
        return f"up to {self.nbytes:,} bytes in Redis"

    @property
    def window(self) -> float:
        """Seconds for which a key is certainly remembered."""
        return self._config.window or 0.0

    @property
    def generations(self) -> int:
        """How many whole generations make up the window."""
        return self._config.generations or 0

    @property
    def nbytes(self) -> int:
        """Bytes of all strings, when there is one for each generation."""
        return _nbytes(self._config) * (self.generations + 1)
