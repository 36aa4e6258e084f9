"""An exact set out of the rows of two sources: each is read once, in 8 bytes a key."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bloomery.building.rows import Rows
from bloomery.errors import InvalidSource, NullKey, UnsupportedKey
from bloomery.filters.files import save
from bloomery.filters.static import ExactSet, ExactSides
from bloomery.types import Hasher, Nulls


@dataclass(frozen=True)
class BuiltExact:
    """The result of a build."""

    filter: ExactSet
    rows: int  # of both sides
    nulls: int  # rows of them that were left out
    seconds: float


def build_exact(
    members: Rows,
    non_members: Rows,
    out: str | os.PathLike[str],
    *,
    error_rate: float | str | None = None,
    hasher: Hasher = "xxh3",
    seed: int = 0,
    nulls: Nulls = "skip",
    on_batch: Callable[[int], None] | None = None,
    held: Callable[[bool], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
) -> BuiltExact:
    """Make the exact set of all rows and save it at `out`, in one step, when it is whole.

    A row that is NULL is left out and counted; `nulls="error"` refuses it. `on_batch` is told how
    many rows were read. `held(last)` is entered around what no signal must tear apart.
    """
    started = time.monotonic()
    sides = ExactSides(error_rate=error_rate, hasher=hasher, seed=seed)
    read = left_out = 0
    key_types: set[str] = set()
    for rows, side in ((members, sides.members), (non_members, sides.non_members)):
        for batch in rows.batches():
            if batch.nulls and nulls == "error":
                raise NullKey(f"{rows.name} has a NULL among its keys, which is no key")
            with held(False):
                try:
                    batch.add_to(side)
                except UnsupportedKey as failure:
                    # The row is that of the batch, which nobody who gave a table knows.
                    why = re.sub(r"^row \d+: ", "", str(failure))
                    raise InvalidSource(f"{rows.name}: {why}") from None
            read += batch.rows
            left_out += batch.nulls
            key_types |= batch.key_types()
            if on_batch is not None:
                on_batch(read)
    exact = sides.build(ExactSet, lambda: [_again(members), _again(non_members)])
    with held(True):
        save(exact, out, key_types.pop() if len(key_types) == 1 else None)
    return BuiltExact(exact, read, left_out, time.monotonic() - started)


def _again(rows: Rows) -> Iterator[Any]:
    """The keys once more, a batch at a time; none of what can be read only once."""
    if not rows.unresumable:
        for batch in rows.batches():
            yield batch.for_add_many()
