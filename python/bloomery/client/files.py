"""Saved filters on their way to and from a server; on asyncio a thread reads and writes them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from typing import IO, Any, TypeVar

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
        with opened(path) as file_and_length:
            yield file_and_length


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


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a thread, since it may take a while: the event loop goes on."""
    import asyncio  # which takes longer than all of bloomery, and most never need

    return await asyncio.to_thread(work, *arguments)


@contextlib.asynccontextmanager
async def opened_in_thread(source: Any) -> AsyncIterator[tuple[IO[bytes], int]]:
    """As `opened`: a local filter is written to a file first, by a thread, for it may be large."""
    with contextlib.ExitStack() as stack:
        yield await in_thread(stack.enter_context, opened(source))


def read_in_thread(body: bytes | Iterator[bytes] | None) -> bytes | AsyncIterator[bytes] | None:
    """A body as asyncio's client takes it: its parts, if it has any, are each made in a thread."""
    return body if body is None or isinstance(body, bytes) else _chunks_in_thread(body)


async def _chunks_in_thread(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    while chunk := await in_thread(next, chunks, b""):
        yield chunk
