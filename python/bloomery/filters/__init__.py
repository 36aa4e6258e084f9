"""The family of filters, one file a kind."""

from typing import TypeAlias

from bloomery.filters.bank import FilterBank
from bloomery.filters.bloom import BloomFilter
from bloomery.filters.counting import CountingBloomFilter
from bloomery.filters.cuckoo import CuckooFilter
from bloomery.filters.deletable import DeletableBloomFilter
from bloomery.filters.filter import Filter, RemovingFilter
from bloomery.filters.rotating import RotatingBloomFilter
from bloomery.filters.scalable import ScalableBloomFilter
from bloomery.filters.static import StaticFilter

__all__ = [
    "KINDS",
    "AnyFilter",
    "BloomFilter",
    "CountingBloomFilter",
    "CuckooFilter",
    "DeletableBloomFilter",
    "Filter",
    "FilterBank",
    "RemovingFilter",
    "RotatingBloomFilter",
    "ScalableBloomFilter",
    "StaticFilter",
]

AnyFilter: TypeAlias = BloomFilter | Filter
# The class of each kind, by the name that a header gives it.
_CLASSES: tuple[type[AnyFilter], ...] = (
    BloomFilter,
    ScalableBloomFilter,
    CountingBloomFilter,
    DeletableBloomFilter,
    CuckooFilter,
    RotatingBloomFilter,
    StaticFilter,
)
KINDS = {one.kind: one for one in _CLASSES}
