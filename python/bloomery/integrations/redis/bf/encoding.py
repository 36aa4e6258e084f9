"""How keys are encoded for a server with BF.*, which hashes bytes itself.

Text and bytes go as their bytes, as every other client of that server sends them. What else can be
a key (an int, a UUID, a datetime, a tuple) goes as two bytes that no UTF-8 begins with and its
canonical bytes, which begin with its type: keys that are distinct stay distinct. So do bytes that
begin with these two: they go in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bloomery import _native
from bloomery.errors import BloomeryError, UnsupportedBatch

if TYPE_CHECKING:
    from bloomery.types import Batch, Key

ESCAPE = b"\xff\x00"
_TEXT = b"\x00"  # what the canonical bytes of text and bytes begin with
# What columns are turned into a list by: Arrow's, Polars' and pandas', NumPy's.
_LISTS = ("to_pylist", "to_list", "tolist")

_ONE = (str, bytes, bytearray)  # keys, and no batches


def encoded(key: Key) -> bytes:
    """Return the bytes that stand for a key."""
    if type(key) is str:
        return key.encode()  # which `rows` has tried
    if type(key) is bytes and not key.startswith(ESCAPE):
        return key
    own = _native.canonical(key)
    if not own.startswith(_TEXT) or own.startswith(ESCAPE, 1):
        return ESCAPE + own
    return own[1:]


def rows(places: _native.Places, keys: Batch) -> tuple[Sequence[Any], bytes, bool]:
    """Return the keys of a batch, their hashes, and whether the mask is to be an array.

    A column becomes a list of Python's objects, and these must hash as the column does: what is
    asked as one and was added as the other is then the same key.
    """
    if isinstance(keys, list | tuple):
        return keys, *places.hashes(keys)
    to_list = next((turn for name in _LISTS if (turn := getattr(keys, name, None))), None)
    table = hasattr(keys, "__arrow_c_stream__") or hasattr(keys, "__arrow_c_array__")
    if not (to_list or table or isinstance(keys, _ONE)) and isinstance(keys, Iterable):
        batch: list[Any] = [*keys]  # at once: some can be read only once
        return batch, *places.hashes(batch)
    hashes, array = places.hashes(keys)
    try:
        batch = to_list() if to_list is not None else []
        same = places.hashes(batch)[0] == hashes
    except BloomeryError:  # rows of a table, which are no keys
        same = False
    if not same:
        raise UnsupportedBatch(
            f"the keys of this {type(keys).__name__} cannot be read one by one, as a server with "
            "BF.* needs them: pass a list, or one of its columns"
        )
    return batch, hashes, array
