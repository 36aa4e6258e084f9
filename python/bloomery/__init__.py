"""Have I seen this before? A no is certain; a maybe is wrong no more often than you allowed."""

from bloomery import errors, sizing
from bloomery._native import __version__
from bloomery.client import AsyncClient, Client
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
from bloomery.filters.files import open

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
