"""`Guard`: exact answers for threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from bloomery.guard.answer import ABSENT, Answer
from bloomery.guard.core import Core
from bloomery.guard.driver import run
from bloomery.guard.lookups import confirm, listed, look_up
from bloomery.guard.options import Options
from bloomery.guard.queues.draining import adopt, drain, inform
from bloomery.guard.rebuilding import rebuild
from bloomery.guard.writes import add, remove

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from bloomery.guard.options import GuardOptions
    from bloomery.guard.protocols import Cache, Queue
    from bloomery.types import Batch, Key

__all__ = ["Guard"]

_SOME_SECONDS = 5.0


class Guard:
    """A filter in front of a cache in front of the source of truth: exact answers, few queries.

        guard = Guard(filter, source, cache=LocalCache(10_000), ttl=60)
        guard.get("alice").value

    A *no* of the filter ends there. A *maybe* is looked up in the cache, then in the source, and
    counted, so that `info()` has the error rate that really happens. Any thread may use it.
    """

    def __init__(
        self,
        filter: Any,
        source: Any,
        *,
        cache: Cache | None = None,
        queue: Queue | None = None,
        on_answer: Callable[[Any, Answer], None] | None = None,
        **options: Unpack[GuardOptions],
    ) -> None:
        """`source` is a function of a key, or anything with `get_many`. With on_outage="queue" a
        `queue` keeps what the source could not be asked, and `on_answer` is told the answers of
        look-ups that waited in it. The other options: docs/guard.md."""
        self._core = core = Core(filter, source, cache, queue, Options(**options), on_answer)
        core.check_sync()
        self._drainer: threading.Thread | None = None
        if queue is not None:
            run(adopt(core), core.workers)
            self._start_drainer()
            core.on_fork = self._start_drainer  # a thread stays behind in the parent

    @property
    def filter(self) -> Any:
        """The filter that answers now."""
        return self._core.filters[0]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.filter!r}>"

    # Asking.

    def get(self, key: Key) -> Answer:
        """Is the key there, and what is its value?"""
        core = self._core
        # A no costs a filter's `in` and its count, and nothing else.
        if key not in core.filters[0]:
            core.observed.no(key)
            return ABSENT
        (answer,) = run(confirm(core, [key]), core.workers)
        core.count((answer,))
        return answer

    def get_many(self, keys: Batch) -> list[Answer]:
        """The same for many keys, with one question to each of filter, cache and source."""
        return run(look_up(self._core, listed(keys)), self._core.workers)

    # An answer is true where the key is there: the same question in other words.
    contains = get
    contains_many = get_many

    # Writing.

    def add(self, key: Key, value: Any = True, *, idempotency_key: str | None = None) -> Answer:
        """Write a value to the source, and the key to the filter before that.

        Trying again after SourceUnavailable, give the same idempotency key: the first try may have
        come through.
        """
        return run(add(self._core, key, value, idempotency_key), self._core.workers)

    def remove(self, key: Key, *, idempotency_key: str | None = None) -> Answer:
        """Take a key out of the source, the cache, and the filter where its kind can."""
        return run(remove(self._core, key, idempotency_key), self._core.workers)

    # The queue.

    def drain(self) -> int:
        """Do now what waits in the queue; how many items were done. It happens by itself too, as
        soon as the source answers again."""
        if self._core.queue is None:
            return 0
        return run(drain(self._core), self._core.workers)

    def _start_drainer(self) -> None:
        self._wake = threading.Event()
        if not self._core.closing:
            self._drainer = threading.Thread(target=self._drain, name="bloomery-drain", daemon=True)
            self._drainer.start()

    def _drain(self) -> None:
        core = self._core
        while not core.closing:
            core.drain_quietly(self.drain)
            self._wake.wait(core.pause())
            self._wake.clear()

    # The whole.

    def rebuild(
        self,
        new: Any,
        batches: Callable[[], Iterable[Any]] | None = None,
        *,
        on_batch: Callable[[int], None] | None = None,
    ) -> Any:
        """Fill `new`, an empty filter, with every key of the source, and let it take the place of
        the one that answers, which is returned. No key is denied at any moment.

        `batches()` returns the keys of the source, in batches; it is called when the reading may
        begin: not before. A SqlSource of a table has its own. `on_batch` is told how many keys each
        had.
        """
        return run(rebuild(self._core, new, batches, on_batch), self._core.workers)

    def info(self) -> dict[str, Any]:
        """The observed error rate, who answered how often, how the source is; ready for JSON."""
        return run(inform(self._core), self._core.workers)

    def close(self) -> None:
        """Stop draining the queue; what waits in it stays there."""
        self._core.closing = True
        if self._drainer is not None:
            self._wake.set()
            if self._drainer is not threading.current_thread():  # but for `on_answer`
                # For one that waits for a source that hangs: its item stays in the queue.
                self._drainer.join(_SOME_SECONDS)
        if self._core.queue is not None:
            self._core.queue.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
