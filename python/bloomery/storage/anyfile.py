"""A saved filter of whatever kind."""

from __future__ import annotations

import os

from bloomery.filters import AnyFilter
from bloomery.storage import files

__all__ = ["open"]


def open(
    path: str | os.PathLike[str],
    *,
    mmap: bool = False,
    writable: bool = False,
    verify: bool | None = None,
) -> AnyFilter:
    """Read a saved filter of any kind; the arguments are those of `BloomFilter.load`.

    `writable` is for the plain filter alone.
    """
    found: AnyFilter = files.load(None, path, mmap=mmap, writable=writable, verify=verify)
    return found
