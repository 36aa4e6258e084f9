"""Which articles each reader has had lately, so that none is offered twice.

Marks go to the newest of several banks, the generations; questions go to all of them. A generation
lasts for a part of the window, and is forgotten as a whole when the window has passed since it
ended:

    ──────── window ────────│now
    [ gen 1 ][ gen 2 ][ gen 3 ][ gen 4 …      marks go to gen 4; gen 1 still counts
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from bloomery import errors, sizing
from bloomery.filters import FilterBank
from bloomery.filters.rotating import MAX_TIME, parse_window

if TYPE_CHECKING:
    from typing_extensions import Self

    from bloomery.types import Batch, K, Key

_FOR_EVER = float("inf")
_SHORTEST = 1.0  # seconds of a generation
_NAME = re.compile(r"seen-([0-9]{13,15})-([0-9]{13,15}|never)\.bank")


class _BankGeneration(NamedTuple):
    bank: FilterBank
    start: float
    end: float  # no mark goes there from then on


class SeenStore:
    """Which articles each reader has had within a window of time.

    >>> seen = SeenStore(window="30d", articles_per_user=5_000)
    >>> seen.mark("ada", ["article-1", "article-2"])
    >>> seen.fresh("ada", ["article-1", "article-3", "article-4"], limit=1)
    ['article-3']

    An article that was marked within the window is never fresh. One that was not may be left out by
    mistake: at most `error_rate` of them. A mark is forgotten at the latest after the window and
    one of its `generations` more; with `window=None` never.

    With a `folder` it lives there, in a file for each generation: a mark is there for good as soon
    as `mark` has returned if the process is killed, and as soon as `flush` has if the power fails.
    One process at a time has the folder. Any thread may use it.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        window: str | float | timedelta | None = "30d",
        generations: int = 3,
        articles_per_user: int = 1000,
        error_rate: float | str = 0.01,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open the store in the folder, or begin one there; without a folder, in memory."""
        if type(generations) is not int or not 1 <= generations <= 100:
            raise errors.InvalidParameter(
                f"generations is {generations!r}, must be an int from 1 to 100"
            )
        try:
            count, rate = sizing.check_sizes(articles_per_user, error_rate)
            self._window = _FOR_EVER if window is None else parse_window(window)
        except errors.InvalidParameter as problem:
            message = str(problem).replace("capacity", "articles_per_user")
            message = message.replace("None to rotate by fill", "None to forget nothing")
            raise errors.InvalidParameter(message) from None
        self._each = self._window / generations
        if self._each < _SHORTEST:
            raise errors.InvalidParameter(
                f"window is {window!r}, of which each of {generations} generations would have "
                f"{self._each:g} s; must be at least {_SHORTEST:g} s each"
            )
        # Each generation is wrong for its part of the rate, since each of them is asked.
        self._rate = rate
        self._part = (rate, count)
        if window is not None:
            self._part = rate / (generations + 1), max(1, count // generations)
        self._clock = clock
        self._turning = threading.Lock()
        self._closed = False
        self._generations: tuple[_BankGeneration, ...] = ()  # the newest last
        self._folder = None if folder is None else Path(folder)
        self._fd = self._pid = -1
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._fd, self._pid = _locked(self._folder), os.getpid()
        try:
            if self._folder is not None:
                self._generations = _open_generations(self._folder, self._window)
            self._newest()
        except BaseException:
            self.close()
            raise

    def mark(self, user: Key | Batch, articles: Batch) -> None:
        """Note that a user had these articles; or, with as many users as articles, each user its
        article. The window of these marks begins with the call."""
        self._newest().bank.update(user, articles)

    @overload
    def fresh(
        self, user: Key, candidates: list[K] | tuple[K, ...], limit: int | None = None
    ) -> list[K]: ...
    @overload
    def fresh(self, user: Key, candidates: Iterable[K], limit: int | None = None) -> Any: ...

    def fresh(self, user: Key, candidates: Any, limit: int | None = None) -> Any:
        """Return the first `limit` candidates that the user has definitely not had within the
        window, in their order; without a limit all of them. A list gives a list, an array or column
        one of its kind."""
        if limit is not None and (type(limit) is not int or limit < 0):
            raise errors.InvalidParameter(f"limit is {limit!r}, must be an int from 0 on, or None")
        left = candidates
        for generation in reversed(self._in_window()):
            left = generation.bank.unseen(user, left)
        return left if limit is None else left[:limit]

    def forget(self, user: Key) -> bool:
        """Forget all that a user had; False if there was nothing."""
        self._check_open()
        # Also where the window has passed: should the clock go back, that counts again.
        dropped = [generation.bank.drop(user) for generation in self._generations]
        return any(dropped)

    def flush(self) -> None:
        """Return once every mark is on the disk, where no power cut takes it back."""
        for generation in self._in_window():
            generation.bank.flush()

    def close(self) -> None:
        """Flush and let go of the files; nothing can be asked any more."""
        with self._turning:
            self._closed = True
            generations, self._generations = self._generations, ()
            fd, self._fd = self._fd, -1
        for generation in generations:
            if not generation.bank.closed:  # as they are in the child of a fork
                generation.bank.close()
        if fd >= 0:
            _unlock(fd, self._pid)

    def __enter__(self) -> Self:
        """Return the store, which is closed at the end of the `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the store."""
        self.close()

    @property
    def nbytes(self) -> int:
        """Bytes in use, all generations."""
        return sum(generation.bank.nbytes for generation in self._in_window())

    def info(self) -> dict[str, Any]:
        """All that is known, ready for JSON; each generation with its times."""
        generations = self._in_window()
        return {
            "window": None if self._window == _FOR_EVER else self._window,
            "error_rate": self._rate,
            "nbytes": sum(generation.bank.nbytes for generation in generations),
            "marks": sum(generation.bank.estimated_count for generation in generations),
            "folder": None if self._folder is None else str(self._folder),
            "generations": [
                {
                    "start": generation.start,
                    "end": None if generation.end == _FOR_EVER else generation.end,
                    "users": generation.bank.users,
                    "marks": generation.bank.estimated_count,
                    "nbytes": generation.bank.nbytes,
                }
                for generation in generations
            ],
        }

    def _check_open(self) -> None:
        if self._closed:
            raise errors.InvalidParameter("the store is closed: open its folder again")

    def _now(self) -> float:
        now = float(self._clock())
        if 0 <= now <= MAX_TIME:
            return now
        raise errors.InvalidParameter(f"the clock says {now}, must be seconds since 1970")

    def _in_window(self) -> tuple[_BankGeneration, ...]:
        """The generations that the window reaches."""
        since, generations = self._now() - self._window, self._generations
        self._check_open()
        if since < generations[0].end:
            return generations
        return tuple(each for each in generations if since < each.end)

    def _newest(self) -> _BankGeneration:
        """The generation that takes marks now.

        Where the clock went back, the last one goes on until its end: marks are remembered longer,
        never less long.
        """
        now, generations = self._now(), self._generations
        if generations and now < generations[-1].end:
            return generations[-1]
        with self._turning:
            self._check_open()
            if not self._generations or now >= self._generations[-1].end:
                self._turn(now)
            return self._generations[-1]

    def _turn(self, now: float) -> None:
        """Begin a generation, and let go of those that the window has left behind."""
        generations = (*self._generations, self._new_generation(now))
        self._generations = tuple(each for each in generations if now < each.end + self._window)
        for each in generations[: -len(self._generations)]:
            # Whoever still reads there has the memory, though the file has no name any more. One
            # that cannot be deleted is let go again when the folder is opened.
            if each.bank.path is not None:
                with suppress(OSError):
                    os.unlink(each.bank.path)

    def _new_generation(self, now: float) -> _BankGeneration:
        start, end, path = int(now * 1000), "never", None
        if self._each < _FOR_EVER:
            end = f"{start + int(self._each * 1000):013}"
        if self._folder is not None:
            path = self._folder / f"seen-{start:013}-{end}.bank"
        bank = FilterBank(*self._part, path=path)
        return _BankGeneration(bank, start / 1000, _FOR_EVER if end == "never" else int(end) / 1000)


def _locked(folder: Path) -> int:
    """The folder, opened and locked: the system lets go of it when the process ends."""
    import fcntl

    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise errors.FolderInUse(
            f"another process has {folder}: let it serve the others, or give each users of its own"
        ) from None
    return fd


def _unlock(fd: int, owner: int) -> None:
    """Give the folder back, though a forked child lives on; that child only lets go of it."""
    import fcntl

    if os.getpid() == owner:
        fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def _open_generations(folder: Path, window: float) -> tuple[_BankGeneration, ...]:
    """The generations in a folder, in the order in which they ended."""
    generations: list[_BankGeneration] = []
    try:
        for path in sorted(folder.iterdir()):
            if name := _NAME.fullmatch(path.name):
                end = _FOR_EVER if name[2] == "never" else int(name[2]) / 1000
                if end == _FOR_EVER != window:
                    raise errors.InvalidParameter(
                        f"{path} was made with window=None, and never forgets: open it with that, "
                        "or begin a new folder"
                    )
                generations.append(_BankGeneration(FilterBank.open(path), int(name[1]) / 1000, end))
    except BaseException:
        for generation in generations:
            generation.bank.close()
        raise
    return tuple(sorted(generations, key=lambda each: each.end))
