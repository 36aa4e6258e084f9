"""The filter file behind `create`, `add` and `dedup --filter`: found, locked, loaded, saved.

Two processes that load one file, add and save would lose the keys of whoever saves first, and a
lost key breaks the promise. So whoever is going to save holds a lock from the load to the save.
Readers need none: a save replaces the file in one step.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from bloomery import errors
from bloomery.cli.terminal import say, with_step
from bloomery.filters import AnyFilter, BloomFilter, FilterBank, RotatingBloomFilter, files
from bloomery.filters.files import open as open_filter
from bloomery.storage.files import is_head

# Where locks do not exist (some network file systems) the file can still be used.
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS}


def load(path: str) -> BloomFilter:
    """The plain filter in a file; a missing file says how to make one."""
    with _create_hint(path):
        return BloomFilter.load(path)


def load_any(path: str, *, mmap: bool = False) -> AnyFilter:
    """The filter in a file, of whatever kind."""
    with _create_hint(path):
        filter = open_filter(path, mmap=mmap)
        if isinstance(filter, FilterBank):
            raise errors.IncompatibleFilters(
                f"{path}: a key in a bank belongs to a user, so it takes bloomery.FilterBank"
            )
        if not isinstance(filter, AnyFilter):
            raise errors.IncompatibleFilters(
                f"{path}: a {filter.kind} filter belongs to a server, which adds to it and asks it"
            )
        # What is mapped forgets nothing, however much time has passed: that kind is read.
        if mmap and isinstance(filter, RotatingBloomFilter):
            return RotatingBloomFilter.load(path)
        return filter


def describe(path: str) -> dict[str, Any]:
    """All that is known about a filter."""
    with _create_hint(path):
        facts = open_filter(path, mmap=True).info()
        del facts["read_only"]  # of how it was opened here, not of the file
        return {**facts, "key_type": files.key_type(path)}


@contextmanager
def _create_hint(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as failure:
        raise with_step(failure, f"make it with `bloomery create {path} --capacity N`") from None
    except errors.CorruptData as failure:
        if not _is_ours(path):
            with_step(failure, f"`bloomery build --from {path} --out FILE` makes a filter of it")
        raise


def _is_ours(path: str) -> bool:
    """True if a file begins as ours do, so that it is a damaged one; a pipe is not read again."""
    if not os.path.isfile(path):
        return True
    with open(path, "rb") as file:
        return is_head(file.read(16))


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Nobody else saves this file meanwhile; waits for a process that is about to."""
    fd = _lock(path)
    try:
        yield
    finally:
        if fd is not None:
            os.close(fd)


def _lock(path: str) -> int | None:
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        return None
    reported = False
    while True:
        with _create_hint(path):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not reported:
                    say(f"waiting for another process to finish with {path}")
                    reported = True
                fcntl.flock(fd, fcntl.LOCK_EX)
            # The one we waited for has put a new file in its place: lock that one.
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
        except FileNotFoundError:
            pass
        except OSError as failure:
            os.close(fd)
            if failure.errno in _NO_LOCKS:
                return None
            raise
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def save_new(filter: AnyFilter, path: str, consequence: str, key_type: str | None) -> None:
    """As `save`, but a file that is there by now stays."""
    folder, name = os.path.split(os.path.abspath(path))
    temporary = os.path.join(folder, f".{name}.{os.urandom(8).hex()}.new")
    try:
        save(filter, temporary, consequence, key_type)
        with suppress(FileExistsError):
            os.link(temporary, path)
    except OSError as failure:
        raise with_step(
            OSError(failure.errno, failure.strerror or str(failure), path), consequence
        ) from None
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def save(
    filter: AnyFilter | FilterBank, path: str, consequence: str, key_type: str | None = None
) -> None:
    """Save in one step; if that fails the old file stands, and the message says what follows."""
    try:
        if isinstance(filter, FilterBank):
            filter.save(path)
        else:
            files.save(filter, path, key_type)
    except OSError as failure:
        # The library may name the temporary file beside it; the person named this one.
        named = OSError(failure.errno, failure.strerror or str(failure), path)
        raise with_step(named, consequence) from None
