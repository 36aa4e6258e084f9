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
from bloomery.filters.saved import Saved
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
SavedFilter: TypeAlias = BloomFilter | Saved
_CLASSES: tuple[type[AnyFilter], ...] = (
    BloomFilter,
    ScalableBloomFilter,
    CountingBloomFilter,
    DeletableBloomFilter,
    CuckooFilter,
    RotatingBloomFilter,
    StaticFilter,
)
# The class of each kind with which all can be done that can be done with any, by its name.
COMMON_KINDS = {one.kind: one for one in _CLASSES}
# And those that speak RedisBloom's language: whatever a file may hold but banks.
KINDS: dict[str, type[SavedFilter]] = {
    **COMMON_KINDS,
    RedisBloomFilter.kind: RedisBloomFilter,
    RedisCuckooFilter.kind: RedisCuckooFilter,
}
