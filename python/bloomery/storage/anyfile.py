"""A saved filter of whatever kind."""

from __future__ import annotations

import builtins
import os

from bloomery import _native, errors
from bloomery.filters import FilterBank, SavedFilter
from bloomery.storage import files

__all__ = ["holds_a_bank", "open"]


def open(
    path: str | os.PathLike[str],
    *,
    mmap: bool = False,
    writable: bool = False,
    verify: bool | None = None,
) -> SavedFilter | FilterBank:
    """Read a saved filter of any kind; the arguments are those of `BloomFilter.load`.

    `writable` is for the plain filter and for banks alone. Without `mmap`, the default, nothing
    that happens to the file later matters; a mapped file that another process makes shorter ends
    this process by the signal SIGBUS.
    """
    if holds_a_bank(path):
        return FilterBank.load(path, mmap=mmap, writable=writable, verify=verify)
    found: SavedFilter = files.load(None, path, mmap=mmap, writable=writable, verify=verify)
    return found


def holds_a_bank(path: str | os.PathLike[str]) -> bool:
    """True if the file is a bank's; nothing more of it is checked."""
    if not os.path.isfile(path):
        return False  # nothing may be read from a pipe that others are to read again
    with builtins.open(path, "rb") as file:
        try:
            return _native.read_header(file.read(_native.HEADER_BYTES), None)[0] == "bank"
        except errors.CorruptData:
            return False  # whoever loads it says what is wrong
