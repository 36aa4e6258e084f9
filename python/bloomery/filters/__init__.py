"""The family of filters, one file a kind.

A class here is all of a filter that is not hot: its arguments, estimates, merging, files. What is
hot is native: `Bloom` of the plain filter, `Bank` of the bank, `Chain` and `Cuckoo` of the two of
RedisBloom, and one class, `Family`, for all other kinds (docs/decisions/0010-one-native-class.md).

**Where a key is.** Every kind hashes a key alike; what comes after the hash is the kind's:

    bloom                       bits in one line of 64 bytes, or two; classic: anywhere
    counting, deletable         one line or two; in each a few cells, found as one mask
    scalable, cuckoo, rotating  one slot of two buckets, whose slots are compared in a word or two
    static                      three cells near each other, combined by XOR
    exact                       as static, in a first level and, if it is found there, in a second
    bank                        the user's slot in the directory, its record, a page of each layer
    redisbloom, rediscuckoo     as RedisBloom has them, with hashes of their own

**How a batch is read**, and whether other threads run meanwhile:

    list, tuple, iterable       object by object, 4,096 hashed before their bits are touched;
                                the interpreter lock is held, with a turn for others after each
    array, buffer, Arrow        where it lies, a stream chunk by chunk; released from 2,048 rows on
    column of Python objects    as a list
    lines of text               up to the last newline; released

`threads=N` splits a column from 16,384 keys a thread on. Questions are split by row, additions by
hash: equal keys meet in one thread, so that a duplicate is new once.

**Memory.** Bits lie in whole lines; from 1 MiB on they come from the kernel with huge pages. From
64 MiB on it is asked first whether there is room. `save` and `load` go by chunks of 1 MiB;
`to_bytes`, `copy` and pickle double the memory, and so does `save` of a kind other than the plain
one that is changed meanwhile: it sees that by a count of changes, and saves a copy.
"""

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
from bloomery.filters.static import ExactSet, StaticFilter

__all__ = [
    "COMMON_KINDS",
    "KINDS",
    "AnyFilter",
    "BloomFilter",
    "CountingBloomFilter",
    "CuckooFilter",
    "DeletableBloomFilter",
    "ExactSet",
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
