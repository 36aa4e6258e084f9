"""The family of filters, one file a kind."""

from bloomery.filters.bloom import BloomFilter

__all__ = ["BloomFilter"]
