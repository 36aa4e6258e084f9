"""Have I seen this before? A no is certain; a maybe is wrong no more often than you allowed."""

import typing as _typing

from bloomery import errors, sizing
from bloomery._native import __version__
from bloomery.filters import (
    BloomFilter,
    CountingBloomFilter,
    CuckooFilter,
    DeletableBloomFilter,
    ExactSet,
    FilterBank,
    RotatingBloomFilter,
    ScalableBloomFilter,
    StaticFilter,
)
from bloomery.filters.files import open
from bloomery.suggestions import all_names as __dir__  # noqa: F401

if _typing.TYPE_CHECKING:
    from bloomery.client import AsyncClient, Client
if not _typing.TYPE_CHECKING:  # the clients once somebody asks for one; a hint for a wrong name
    from bloomery.suggestions import missing_name as __getattr__  # noqa: F401

__all__ = [
    "AsyncClient",
    "BloomFilter",
    "Client",
    "CountingBloomFilter",
    "CuckooFilter",
    "DeletableBloomFilter",
    "ExactSet",
    "FilterBank",
    "RotatingBloomFilter",
    "ScalableBloomFilter",
    "StaticFilter",
    "__version__",
    "errors",
    "open",
    "sizing",
]
