"""What is known about a filter in Redis: its settings, and how full it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from bloomery import _native, sizing

if TYPE_CHECKING:
    from bloomery.integrations.redis.config import Backend, Config
    from bloomery.types import Hasher, Layout

__all__ = ["Facts", "Settings", "figures"]


class Settings(NamedTuple):
    """What the header of a plain filter says."""

    capacity: int
    error_rate: float
    layout: Layout
    num_bits: int
    num_hashes: int
    lines_per_key: int
    hasher: Hasher
    seed: int

    @classmethod
    def of(cls, config: Config) -> Settings:
        """Read them."""
        return cls(*_native.parse_header(config.header, None)[:8])

    @property
    def nbytes(self) -> int:
        """How long the strings are together."""
        return -(-self.num_bits // 512) * 64


def figures(config: Config, bits_set: int) -> dict[str, Any]:
    """All of it, as `BloomFilter.info()` has it, from the number of bits that are set.

    A local filter looks into each line for its error rate; here it is what so many keys make of
    such a filter.
    """
    found = Settings.of(config)
    shape = found.layout, found.num_bits, found.num_hashes, found.lines_per_key
    count = sizing.estimated_count(*shape, bits_set)
    rate = sizing.expected_error_rate(*shape, count) if bits_set else 0.0
    return {
        "kind": config.kind,
        **found._asdict(),
        "seed": "secret" if found.hasher == "siphash" else found.seed,
        "shards": config.shards,
        "nbytes": found.nbytes,
        "bits_per_key": found.num_bits / found.capacity,
        "fill_ratio": bits_set / found.num_bits,
        "estimated_count": round(count),
        "estimated_error_rate": rate,
        "saturated": count > found.capacity and rate > found.error_rate,
    }


class Facts:
    """The settings as properties, for threads and for asyncio: nothing is asked of Redis.

    AttributeError for those that a server's own filter does not have.
    """

    _name: str
    _config: Config
    _place: str

    @property
    def name(self) -> str:
        """The filter's name."""
        return self._name

    @property
    def kind(self) -> str:
        """`bloom`."""
        return self._config.kind

    @property
    def capacity(self) -> int:
        """How many keys it was made for."""
        return Settings.of(self._config).capacity

    @property
    def error_rate(self) -> float:
        """How often a maybe may be wrong with so many keys."""
        return Settings.of(self._config).error_rate

    @property
    def backend(self) -> Backend:
        """`bits`: strings of ours. `bf`: a server's own filters, behind BF.*."""
        return self._config.backend

    def _own(self) -> Settings:
        """What only bits of ours have; a server's own filter is told about by `info()`."""
        if self._config.backend == "bf":
            raise AttributeError(
                f"filter {self._name!r} is one of the server's own (BF.*), with a layout, a hash "
                "function and a size of its own: see info()"
            )
        return Settings.of(self._config)

    @property
    def layout(self) -> Layout:
        """`blocked` or `classic`."""
        return self._own().layout

    @property
    def num_bits(self) -> int:
        """Its bits."""
        return self._own().num_bits

    @property
    def num_hashes(self) -> int:
        """Bits of a key."""
        return self._own().num_hashes

    @property
    def lines_per_key(self) -> int:
        """Lines of 64 bytes that a key touches; 0 in the classic layout."""
        return self._own().lines_per_key

    @property
    def hasher(self) -> Hasher:
        """As given."""
        return self._own().hasher

    @property
    def seed(self) -> int:
        """As given; whoever reads the configuration in Redis can read it too."""
        return self._own().seed

    @property
    def shards(self) -> int:
        """How many strings hold its bits, or filters of the server's its keys."""
        return self._config.shards

    @property
    def nbytes(self) -> int:
        """How long they are together."""
        return self._own().nbytes

    def __repr__(self) -> str:
        """Show what it is and where, without secrets."""
        found, many = Settings.of(self._config), "" if self.shards == 1 else "s"
        held = f"{found.nbytes:,} bytes in {self.shards} string{many} of Redis"
        if self.backend == "bf":
            held = f"{self.shards} filter{many} of BF.*"
        return (
            f"<{type(self).__name__}({self._name!r}, capacity={found.capacity}, "
            f"error_rate={found.error_rate:g}): {held} at {self._place}>"
        )
