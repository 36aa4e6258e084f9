"""Each message once: recorded when the work succeeded, done again when it failed or was cut off."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from bloomery import BloomFilter, RotatingBloomFilter
from bloomery.apps import Deduplicator, DiskSet
from bloomery.errors import InvalidParameter, UnsupportedKey
from unit.clocks import Clock
from unit.kills import die, killed

Made = Callable[[Path], Any]
KINDS: list[Made] = [
    lambda folder: DiskSet(folder / "done.sqlite", fsync=False),
    lambda folder: BloomFilter(1000, 1e-6),
]


@pytest.mark.parametrize("make", KINDS, ids=["exact", "filter"])
def test_work_is_done_once(tmp_path: Path, make: Made) -> None:
    """The first delivery is worked on, the others are not."""
    dedup: Deduplicator[dict[str, str]] = Deduplicator(make(tmp_path), key=lambda m: m["id"])
    work = []
    for number in [1, 2, 1, 3, 2, 1]:
        with dedup.once({"id": f"message {number}"}) as first:
            if first:
                work.append(number)
    assert work == [1, 2, 3]
    assert dedup.info() == {"firsts": 3, "duplicates": 3, "failures": 0, "races": 0}


def test_work_that_failed_is_first_again() -> None:
    """An exception is not swallowed, and nothing is recorded."""
    dedup: Deduplicator[str] = Deduplicator(BloomFilter(1000))

    def fail() -> None:
        with dedup.once("a") as first:
            assert first
            raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            fail()
    with dedup.once("a") as first:
        assert first
    with dedup.once("a") as first:
        assert not first
    assert dedup.info() == {"firsts": 1, "duplicates": 1, "failures": 2, "races": 0}


@pytest.mark.parametrize("fails", [False, True], ids=["succeeds", "fails"])
def test_another_thread_waits_for_the_one_that_works(fails: bool) -> None:
    """It is not first if the work succeeded, and first if it failed."""
    dedup: Deduplicator[str] = Deduplicator(BloomFilter(1000))
    began, go_on = threading.Event(), threading.Event()
    answers: list[bool] = []

    def work() -> None:
        try:
            with dedup.once("a"):
                began.set()
                go_on.wait(60)
                if fails:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            pass

    def wait() -> None:
        with dedup.once("a") as first:
            answers.append(first)

    threads = [threading.Thread(target=work)]
    threads[0].start()
    assert began.wait(60)
    threads += [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads[1:]:
        thread.start()
    with dedup.once("b") as first:
        assert first, "other ids do not wait"
    assert not answers
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert sorted(answers) == ([False, False, True] if fails else [False] * 3)


class Interrupt(BaseException):
    """What no test runner takes for its own end."""


def test_an_interrupt_leaves_no_id_claimed() -> None:
    """One that comes when the id was just claimed, before the work: it can be done again."""
    dedup: Deduplicator[str] = Deduplicator(BloomFilter(1000))

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "return" and frame.f_code.co_name == "_claim":
            raise Interrupt

    def interrupted() -> None:
        with dedup.once("id"):
            raise AssertionError("it was not interrupted")

    sys.setprofile(profile)
    try:
        with pytest.raises(Interrupt):
            interrupted()
    finally:
        sys.setprofile(None)
    with dedup.once("id") as first:
        assert first


def test_a_thread_does_not_wait_for_itself() -> None:
    """Nested, it is an error and not a hang."""
    dedup: Deduplicator[str] = Deduplicator(BloomFilter(1000))
    with (
        dedup.once("a"),
        pytest.raises(InvalidParameter, match="wait for itself"),
        dedup.once("a"),
    ):
        pass


@pytest.mark.parametrize("when", ["in the work", "after the record"])
def test_killed_in_the_middle(tmp_path: Path, when: str) -> None:
    """Killed while it works, the message is first again; killed after the block, it is not."""

    def work() -> None:
        dedup: Deduplicator[str] = Deduplicator(DiskSet(tmp_path / "done.sqlite"))
        with dedup.once("a"):
            if when == "in the work":
                die()
        die()

    killed(work)
    with (
        DiskSet(tmp_path / "done.sqlite") as seen,
        Deduplicator[str](seen).once("a") as first,
    ):
        assert first == (when == "in the work")


def test_a_window() -> None:
    """Over a rotating filter a message is first again when the window is over."""
    clock = Clock(0.0)
    dedup: Deduplicator[str] = Deduplicator(RotatingBloomFilter(1000, window="1d", clock=clock))
    answers = []
    for hours in (0, 1, 22, 60):
        clock.now = hours * 3600.0
        with dedup.once("a") as first:
            answers.append(first)
    assert answers == [True, False, False, True]


def test_two_processes_at_the_same_time_are_counted() -> None:
    """Where two that share a filter worked on one message, the later one is told by its add."""
    filter = BloomFilter(1000)
    one: Deduplicator[str] = Deduplicator(filter)
    other: Deduplicator[str] = Deduplicator(filter)
    with one.once("a") as first, other.once("a") as second:
        assert first and second  # noqa: PT018
    assert (one.races, other.races) == (1, 0)


def test_what_is_wrong_is_said() -> None:
    """A filter that is none, a key that is no function, an id that cannot be one."""
    with pytest.raises(InvalidParameter, match="type int, must have add"):
        Deduplicator(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="key is 'id'"):
        Deduplicator(BloomFilter(10), key="id")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedKey), Deduplicator[Any](BloomFilter(10)).once(1.5):
        pass
