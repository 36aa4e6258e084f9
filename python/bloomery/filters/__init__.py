"""The family of filters, one file a kind."""

from typing import TypeAlias

from bloomery.filters.bloom import BloomFilter
from bloomery.filters.filter import Filter

__all__ = ["KINDS", "AnyFilter", "BloomFilter", "Filter"]

AnyFilter: TypeAlias = BloomFilter | Filter
# The class of each kind, by the name that a header gives it.
_CLASSES: tuple[type[AnyFilter], ...] = (BloomFilter,)
KINDS = {one.kind: one for one in _CLASSES}
