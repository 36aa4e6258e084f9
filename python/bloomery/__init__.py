"""Have I seen this before? A no is certain; a maybe is wrong no more often than you allowed."""

from typing import TYPE_CHECKING

from bloomery import errors, sizing
from bloomery._native import __version__
from bloomery.filters import (
    BloomFilter,
    CountingBloomFilter,
    CuckooFilter,
    DeletableBloomFilter,
    FilterBank,
    RotatingBloomFilter,
    ScalableBloomFilter,
    StaticFilter,
)
from bloomery.storage.anyfile import open

if TYPE_CHECKING:
    from bloomery.client import AsyncClient, Client

__all__ = [
    "AsyncClient",
    "BloomFilter",
    "Client",
    "CountingBloomFilter",
    "CuckooFilter",
    "DeletableBloomFilter",
    "FilterBank",
    "RotatingBloomFilter",
    "ScalableBloomFilter",
    "StaticFilter",
    "__version__",
    "errors",
    "open",
    "sizing",
]


def __getattr__(name: str) -> object:
    """Bring the clients when they are asked for: with them come ssl, asyncio and json."""
    if name in ("AsyncClient", "Client"):
        from bloomery import client

        return getattr(client, name)
    raise AttributeError(f"module 'bloomery' has no attribute {name!r}")
