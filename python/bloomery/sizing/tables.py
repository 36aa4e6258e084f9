"""How large a table of fingerprints is, and how often it errs: the kinds scalable, cuckoo, rotating
and static, and the bank.

The tables' own numbers come from native code, which makes the tables. A static filter and a bank
are sized here as crates/core/src/fuse and crates/core/src/bank size them; tests compare both with
filters that were built.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import bloomery._native as _native
from bloomery.errors import InvalidParameter
from bloomery.sizing.blocked import LINE_BYTES
from bloomery.sizing.limits import MAX_MEMORY, check_hash_width, last_true, number, show

# Where the numbers of a table are in its word, as crates/core/src/table/saved.rs packs them.
_TAG, _STREAM, _MARK = 48, 54, 59
_RING_PAIR = 8  # slots of two buckets in a table that never grows
_MAX_LOAD = 0.955
_REACH_BITS = 18
_MAX_WIDTH = 40
_WORDS_PER_LINE = 8
_SLOT_BYTES = 16  # of a bank's directory
_DIRECTORY_LOAD = 0.6  # which doubles: between half of this and all of it, on average
_SPREAD = 2.5
_MOST_TAG = 57


class TablePlan(NamedTuple):
    """A table's size. `each` is what one entry adds to the error rate."""

    num_bits: int
    nbytes: int
    slot_bits: int
    each: float
    room: int  # entries before it grows, or is full


def fixed_table(capacity: int, error_rate: float) -> TablePlan:
    """The table of a CuckooFilter, which is full when it is full."""
    return _plan(capacity, error_rate, _native.fixed_table(capacity, error_rate))


def growing_table(capacity: int, error_rate: float) -> TablePlan:
    """The table of a ScalableBloomFilter, and of a CuckooFilter that grows."""
    return _plan(capacity, error_rate, _native.growing_table(capacity, error_rate))


def rotating_table(capacity: int, error_rate: float, generations: int) -> TablePlan:
    """The table of a RotatingBloomFilter."""
    return _plan(capacity, error_rate, _native.rotating_table(capacity, error_rate, generations))


def _plan(capacity: int, error_rate: float, fields: tuple[int, int, int, int]) -> TablePlan:
    check_hash_width(capacity, error_rate)
    pair, num_bits, nbytes, word = fields
    if nbytes > MAX_MEMORY:
        raise InvalidParameter(
            f"{capacity:,} keys at error_rate {error_rate:g} need more than {MAX_MEMORY:,} bytes"
        )
    buckets = word & ((1 << _TAG) - 1)
    tag_bits = word >> _TAG & ((1 << (_STREAM - _TAG)) - 1)
    stream_bits = word >> _STREAM & ((1 << (_MARK - _STREAM)) - 1)
    slots = -(-buckets // 2) * pair
    if pair == _RING_PAIR:
        each, room = 2.0 / (buckets * (2.0**tag_bits - 1.0)), capacity
    else:
        known = tag_bits + buckets.bit_length() - 1 + stream_bits
        each, room = 2.0 ** (1 - known), int(_MAX_LOAD * slots)
    return TablePlan(num_bits, nbytes, num_bits // slots, each, room)


class StaticPlan(NamedTuple):
    """A static filter's size: `width` bits of a fingerprint a cell."""

    num_bits: int
    nbytes: int
    width: int


def static_plan(count: int, error_rate: float) -> StaticPlan:
    """The size of a StaticFilter of so many distinct keys, when building it succeeds at once: later
    attempts may take 3% more."""
    width = next((w for w in range(1, _MAX_WIDTH) if 0.5**w <= error_rate), _MAX_WIDTH)
    root = math.isqrt(8 * max(1, count))
    reach = min(1 << (root - 1).bit_length() if root > 1 else 1, 1 << _REACH_BITS)
    spare = min(0.092 + 1.6 / math.sqrt(reach), 0.135)
    cells = math.ceil(max(1, count) * (1.0 + spare) * 1.0) + 3 * reach
    num_bits = cells * width
    nbytes = -(-(num_bits // 8 + 8) // LINE_BYTES) * LINE_BYTES
    return StaticPlan(num_bits, nbytes, width)


def bank_bytes_a_user(keys_per_filter: int, error_rate: float) -> int:
    """About how many bytes a user with so many keys takes in a FilterBank: its record, its pages,
    and its share of the directory."""
    lines, cells = _native.bank_pages(keys_per_filter, error_rate)
    words = lines * _WORDS_PER_LINE

    def too_few(pages: int) -> bool:
        return not _fits(keys_per_filter, pages, cells, words)

    pages = 1 + last_true(too_few, keys_per_filter / (8 * words), 1, keys_per_filter)
    directory = _SLOT_BYTES / (0.75 * _DIRECTORY_LOAD)
    return round(LINE_BYTES * (1 + pages * lines) + directory)


def _fits(keys: int, pages: int, cells: int, words: int) -> bool:
    """Whether the fullest of so many pages has room, for nearly all users."""
    mean = keys / pages
    most = mean + _SPREAD * math.sqrt(mean * (1.0 - 1.0 / pages))
    return most <= _page_slots(-(-cells // pages), words)


def _page_slots(cells: int, words: int) -> int:
    """Keys that a page of so many words holds, of a range of so many cells."""
    best = 0
    for tag_bits in range(_MOST_TAG + 1):
        buckets = -(-cells // (1 << tag_bits))
        if buckets < 64 * words:
            best = max(best, (64 * words - buckets) // (tag_bits + 1))
    return best


def check_count(name: str, value: object, least: int, most: int) -> int:
    """A whole number that is in its range, or InvalidParameter."""
    count = number(value)
    if isinstance(count, int) and least <= count <= most:
        return count
    raise InvalidParameter(
        f"{name} must be a whole number from {least:,} to {most:,}, not {show(value)}"
    )
