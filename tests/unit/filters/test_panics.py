"""An internal error in the middle of a batch: an error for the caller, and nobody hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bloomery import BloomFilter
from bloomery.errors import CorruptData
from unit.kinds import KEYS, every_other, made


def in_time(work: Callable[[], object]) -> None:
    """Run it in a thread of its own: it must end, and may not raise."""
    problems = list[BaseException]()

    def run() -> None:
        try:
            work()
        except BaseException as problem:  # noqa: BLE001 - raised below
            problems.append(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "it hangs"
    if problems:
        raise problems[0]


def panic(filter: Any, long: bool) -> None:
    with pytest.raises(BaseException, match="a test asked for") as caught:
        filter._panic(long)
    assert type(caught.value).__name__ == "PanicException"


@pytest.mark.parametrize("long", [True, False])
def test_a_plain_filter_goes_on(long: bool) -> None:
    """Some of the batch's bits are set and some are not, as after any batch that stopped."""
    filter = BloomFilter(10_000)
    filter.update(KEYS)
    panic(filter, long)

    def work() -> None:
        assert filter.add("another")
        filter.update(np.arange(5000))
        assert all(key in filter for key in KEYS)

    in_time(work)


@every_other
@pytest.mark.parametrize("long", [True, False])
def test_every_other_kind_says_so(kind: str, long: bool, tmp_path: Path) -> None:
    """What stopped half-way in a table may have lost keys: it answers no more, and says why."""
    filter, path = made(kind), tmp_path / "saved"
    filter.save(path)
    panic(filter, long)
    uses: list[Callable[[], object]] = [
        lambda: KEYS[0] in filter,
        lambda: filter.contains_many(KEYS),
        lambda: filter.contains_many(np.arange(5000)),
        lambda: filter.contains_lines(b"a\nb\n"),
        lambda: filter.add("another"),
        lambda: filter.update(KEYS),
        lambda: filter.clear(),
        lambda: filter.info(),
        lambda: filter.copy(),
        lambda: filter.save(path),
        lambda: filter.nbytes,
    ]

    def refused(use: Callable[[], object]) -> None:
        with pytest.raises(CorruptData, match="load it again"):
            use()

    for use in uses:
        in_time(partial(refused, use))
    assert all(key in type(filter).load(path) for key in KEYS)
