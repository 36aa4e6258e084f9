"""A filter file out of rows: sized, filled, kept on the way, and put in its place at the end."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bloomery.building.checkpoint import RESTART, Checkpoint, Progress, unusable
from bloomery.building.rows import Rows
from bloomery.errors import InvalidParameter, InvalidSource, NullKey, UnsupportedKey
from bloomery.filters import AnyFilter, creation
from bloomery.filters.files import save
from bloomery.types import Nulls

# Those that can be filled bit by bit, and forget nothing by themselves.
KINDS = ("bloom", "scalable", "counting", "deletable", "cuckoo")
EVERY = 30.0
# An estimate is of a sample, and few rows are hard to estimate.
_SPARE = 1.25
_LEAST = 1000
# Saving a large filter takes a while: no more than this share of the time.
_SHARE = 0.1


@dataclass(frozen=True)
class Built:
    """The result of a build."""

    filter: AnyFilter
    rows: int
    nulls: int  # rows of them that were left out
    seconds: float


def build(
    rows: Rows,
    out: str | os.PathLike[str],
    *,
    kind: str = "bloom",
    capacity: int | None = None,
    estimate: bool = False,
    nulls: Nulls = "skip",
    restart: bool = False,
    every: float = EVERY,
    on_batch: Callable[[Progress], None] | None = None,
    held: Callable[[bool], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    **options: Any,
) -> Built:
    """Make a filter of all rows and save it at `out`, which is there only when it is whole.

    Its capacity is the number of rows, counted first or, with `estimate`, estimated. A row that is
    NULL is left out and counted (in SQL no question finds it either); `nulls="error"` refuses it.
    Every 30 seconds, and whenever it stops early, it keeps how far it came beside `out`; the same
    call goes on from there, `restart=True` begins anew. `on_batch` is told how far it is, first
    before any row. `held(last)` is entered around what no signal must tear apart; behind the last
    such stretch all is done. Other options are those of the filter.
    """
    if kind not in KINDS:
        raise InvalidParameter(f"kind is {kind!r}, must be one of {', '.join(KINDS)}")
    if nulls not in ("skip", "error"):
        raise InvalidParameter(f"nulls is {nulls!r}, must be skip or error")
    wanted = {"kind": kind, "capacity": capacity, "nulls": nulls, **options}
    # The seed may be a secret, and is not written down but in the filter.
    named = {name: value for name, value in wanted.items() if name != "seed"}
    point = Checkpoint(out, {**rows.identity, **named})
    with point.locked():
        if restart:
            point.remove()
        kept = None if rows.unresumable else point.load()
        if kept is None:
            kept = _begin(rows, wanted, estimate)
        elif kept[0].seed != options.get("seed", 0):
            raise unusable(
                InvalidParameter(f"{point.resume} is of a build with another seed: {RESTART}")
            )
        run = _BuildRun(rows, point, *kept, every=every)
        return run.through(out, nulls, on_batch, held)


def _begin(rows: Rows, wanted: dict[str, Any], estimate: bool) -> tuple[AnyFilter, Progress]:
    """An empty filter, and the number of rows if that is known."""
    capacity = wanted.pop("capacity")
    counted = capacity is None and not estimate
    total = rows.count() if counted else rows.estimate()
    if capacity is None and total is not None:
        capacity = max(1, total) if counted else max(_LEAST, int(total * _SPARE))
    if capacity is not None:
        wanted["capacity"] = capacity
    elif wanted["kind"] != "scalable":
        raise InvalidParameter(
            f"{rows.name} cannot be counted before it is read: say for how many keys (capacity), "
            "or take the kind scalable, which grows"
        )
    return creation.create(wanted, time.time), Progress(total=total, key_types=[])


class _BuildRun:
    """One run: from where the last one came to, to the end."""

    def __init__(
        self, rows: Rows, point: Checkpoint, filter: AnyFilter, progress: Progress, every: float
    ) -> None:
        self._rows, self._point = rows, point
        self._filter, self._progress = filter, progress
        self._every = every
        self._kept = progress.rows  # at the last checkpoint
        self._began = time.monotonic() - progress.seconds
        self._next = time.monotonic() + every

    def through(
        self,
        out: str | os.PathLike[str],
        nulls: Nulls,
        on_batch: Callable[[Progress], None] | None,
        held: Callable[[bool], contextlib.AbstractContextManager[Any]],
    ) -> Built:
        progress = self._progress
        if on_batch is not None:
            on_batch(progress)
        batches = self._rows.batches(progress.position)
        try:
            for batch in batches:
                if batch.nulls and nulls == "error":
                    raise NullKey(f"{self._rows.name} has a NULL among its keys, which is no key")
                with held(False):
                    try:
                        batch.add_to(self._filter)
                    except UnsupportedKey as failure:
                        # The row is that of the batch, which nobody who gave a table knows.
                        why = re.sub(r"^row \d+: ", "", str(failure))
                        raise InvalidSource(f"{self._rows.name}: {why}") from None
                    progress.position = batch.position
                    progress.rows += batch.rows
                    progress.nulls += batch.nulls
                    progress.key_types = sorted(batch.key_types().union(progress.key_types))
                    progress.seconds = time.monotonic() - self._began
                    if time.monotonic() >= self._next:
                        self._keep()
                if on_batch is not None:
                    on_batch(progress)
        except BaseException:
            batches.close()
            with held(False), contextlib.suppress(OSError):  # what was kept before still stands
                self._keep()
            raise
        with held(True):
            key_type = progress.key_types[0] if len(progress.key_types) == 1 else None
            save(self._filter, out, key_type)
            self._point.remove()
        seconds = time.monotonic() - self._began
        return Built(self._filter, progress.rows, progress.nulls, seconds)

    def _keep(self) -> None:
        """Keep how far it came, if it can be gone on from there and there is more to keep."""
        if self._rows.unresumable or self._progress.rows == self._kept:
            return
        started = time.monotonic()
        self._point.save(self._filter, self._progress)
        self._kept = self._progress.rows
        ended = time.monotonic()
        self._next = ended + max(self._every, (ended - started) / _SHARE)
