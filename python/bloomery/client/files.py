"""Saved filters on their way to and from a server."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeVar

__all__ = ["chunks", "in_thread", "loaded", "opened", "replacing", "temporary"]

T = TypeVar("T")

_CHUNK = 1 << 20


@contextlib.contextmanager
def opened(source: Any) -> Iterator[tuple[IO[bytes], int]]:
    """A saved filter's file, or a local filter as one; and how long it is."""
    if isinstance(source, str | os.PathLike):
        with open(source, "rb") as file:
            yield file, os.fstat(file.fileno()).st_size
        return
    # By way of a file: in memory it would be there twice.
    with temporary() as path:
        source.save(path)
        with opened(path) as found:
            yield found


@contextlib.contextmanager
def temporary() -> Iterator[str]:
    """A path for a file that is gone at the end."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="bloomery-") as folder:
        yield os.path.join(folder, "filter.bloom")


def replacing(path: str | os.PathLike[str]) -> contextlib.AbstractContextManager[Any]:
    """A new file that takes the path's place when all of it is there."""
    from bloomery.storage import files

    return files.replacing(path)


def loaded(path: str) -> Any:
    """The saved filter at a path, of whatever kind."""
    from bloomery.filters.files import open

    return open(path)


def chunks(file: IO[bytes]) -> Iterator[bytes]:
    """A file's bytes, some at a time."""
    while chunk := file.read(_CHUNK):
        yield chunk


async def in_thread(work: Callable[..., T], *given: Any) -> T:
    """Do what may take a while, and let others go on."""
    import asyncio  # which takes longer than all of bloomery, and most never need

    return await asyncio.to_thread(work, *given)
