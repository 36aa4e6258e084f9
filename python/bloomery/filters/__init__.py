"""The family of filters, one file a kind."""

from typing import TypeAlias

from bloomery.filters.bank import FilterBank
from bloomery.filters.bloom import BloomFilter
from bloomery.filters.counting import CountingBloomFilter
from bloomery.filters.cuckoo import CuckooFilter
from bloomery.filters.deletable import DeletableBloomFilter
from bloomery.filters.filter import Filter, RemovingFilter
from bloomery.filters.redisbloom import RedisBloomFilter, RedisCuckooFilter
from bloomery.filters.rotating import RotatingBloomFilter
from bloomery.filters.saved import KINDS, SavedFilter
from bloomery.filters.scalable import ScalableBloomFilter
from bloomery.filters.static import StaticFilter

__all__ = [
    "COMMON_KINDS",
    "KINDS",
    "AnyFilter",
    "BloomFilter",
    "CountingBloomFilter",
    "CuckooFilter",
    "DeletableBloomFilter",
    "Filter",
    "FilterBank",
    "RedisBloomFilter",
    "RedisCuckooFilter",
    "RemovingFilter",
    "RotatingBloomFilter",
    "SavedFilter",
    "ScalableBloomFilter",
    "StaticFilter",
]

AnyFilter: TypeAlias = BloomFilter | Filter
_CLASSES: tuple[type[AnyFilter], ...] = (
    BloomFilter,
    ScalableBloomFilter,
    CountingBloomFilter,
    DeletableBloomFilter,
    CuckooFilter,
    RotatingBloomFilter,
    StaticFilter,
)
# The class of each kind with which all can be done that can be done with any, by its name; KINDS
# has those that speak RedisBloom's language too.
COMMON_KINDS = {cls.kind: cls for cls in _CLASSES}
