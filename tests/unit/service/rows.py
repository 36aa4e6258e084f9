"""Rows for the registry's tests."""

from typing import Any

from bloomery.service.registry.rows import RegistryRow
from bloomery.service.sampling.sample import Sample

NOW = 1_700_000_000.25


def row(number: int, name: bytes | None = None, **other: Any) -> RegistryRow:
    """A plain filter's row."""
    plain: dict[str, Any] = {
        "kind": "bloom",
        "capacity": 1_000_000,
        "error_rate": 0.01,
        "num_bits": 9_585_059,
        "num_hashes": 7,
        "created_at": NOW,
        "nbytes": 1_198_133,
        "items": 10,
        "layout": "blocked",
        "hasher": "xxh3",
        "seed": 0,
    }
    name = b"name %d" % number if name is None else name
    return RegistryRow(id=number, name=name, **plain | other)


def sample(
    number: int, at: float = NOW, count: float = 5, rate: float = 0.001, **other: Any
) -> Sample:
    """A sample of a filter."""
    return Sample(
        filter_id=number, estimated_count=count, estimated_error_rate=rate, sampled_at=at, **other
    )
