"""Threads that ask a source: started as needed, never too many, left behind by a fork."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

import pytest

from bloomery.guard.driver import Call, run
from bloomery.guard.sources import workers as module
from bloomery.guard.sources.workers import Workers
from unit.filters.test_forks import in_child
from waiting import wait_until


def test_work_is_done_and_problems_come_back() -> None:
    """A result, an exception, and what is no Exception."""
    workers = Workers(2)
    assert workers.submit(lambda n: n + 1, 1).result(10) == 2
    for problem in (KeyError("k"), SystemExit(3), KeyboardInterrupt()):

        def fail(problem: BaseException = problem) -> None:
            raise problem

        assert workers.submit(fail).exception(10) is problem
    assert workers.submit(lambda: "still there").result(10) == "still there"


def test_an_idle_thread_is_used_again() -> None:
    """One after the other needs one thread."""
    workers = Workers(10)
    names = {workers.submit(threading.get_ident).result(10) for _ in range(20)}
    # A result is there a moment before its thread is idle, so that a second one may be started.
    assert len(names) <= 3


def test_there_are_never_too_many_threads() -> None:
    """What is beyond waits, and all of it is done."""
    workers, go_on, barrier = Workers(3), threading.Event(), threading.Barrier(4)

    def work(n: int) -> int:
        if n < 3:
            barrier.wait(10)
        assert go_on.wait(10)
        return n

    done = [workers.submit(work, n) for n in range(50)]
    barrier.wait(10)  # three at once
    named = [t for t in threading.enumerate() if t.name == "bloomery-guard" and t.daemon]
    assert workers.threads == 3 <= len(named)
    go_on.set()
    assert [future.result(10) for future in done] == list(range(50))


def test_idle_threads_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while without work there is none left, and new work starts one."""
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0.01)
    workers = Workers(4)
    for future in [workers.submit(time.sleep, 0) for _ in range(20)]:
        future.result(10)
    assert wait_until(lambda: workers.threads == 0)
    assert (workers.threads, workers.waiting) == (0, 0)
    for n in range(50):  # at the very moment others end
        assert workers.submit(lambda n=n: n).result(10) == n
        time.sleep(0.01 if n % 5 == 0 else 0)  # as long as they stay idle


def test_what_no_thread_began_is_not_done_after_its_time() -> None:
    """A write that waited for a thread until its caller gave up must not happen later."""
    workers, go_on, done = Workers(1), threading.Event(), list[str]()
    hanging = workers.submit(go_on.wait, 10)

    def flow(what: object, timeout: float | None) -> object:
        return (yield Call(what, (), timeout))  # type: ignore[arg-type]

    with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
        run(flow(lambda: done.append("late"), 0.01), workers)  # type: ignore[arg-type]
    go_on.set()
    assert hanging.result(10)
    assert workers.submit(lambda: "next").result(10) == "next"
    assert done == []


def test_waiting_for_anothers_future_does_not_cancel_it() -> None:
    """Who gives up waits no longer; the others do."""

    def flow(future: Future[int]) -> object:
        return (yield Call(future, timeout=0.01))

    future: Future[int] = Future()
    with pytest.raises(TimeoutError):
        run(flow(future), Workers(1))  # type: ignore[arg-type]
    assert not future.cancelled()


def test_a_fork_has_threads_of_its_own() -> None:
    """A process that forks after the first question: its child's questions are asked too."""
    workers = Workers(2)
    workers.submit(time.sleep, 0).result(10)

    def ask() -> None:
        assert workers.submit(lambda: 42).result(30) == 42

    in_child(ask)
