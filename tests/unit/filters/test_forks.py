"""A fork while other threads are at work on a filter: the child has a whole one, and can use it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from os import _exit
from typing import Any

import numpy as np
import pytest

from bloomery import BloomFilter
from bloomery.filters import COMMON_KINDS
from conftest import effort
from unit.kinds import OPEN
from waiting import wait_until

if not hasattr(os, "fork"):
    pytest.skip("no fork here", allow_module_level=True)

# Python warns of each fork of a process with threads, from 3.12 on: that is what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

BEFORE = np.arange(20_000)
BATCH = np.arange(200_000) + (1 << 40)
LONG = 60  # seconds after which a child hangs


def in_child(work: Callable[[], object]) -> None:
    """Run it in the child of a fork; fail if it fails there, or hangs."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - it must not get into the parent's code
            traceback.print_exc()
        _exit(code)
    end = time.monotonic() + LONG
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.001)
    assert os.waitstatus_to_exitcode(ended[1]) == 0


class Busy:
    """A thread that does its work again and again, as long as the block lasts."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.rounds = 0
        self._work, self._stop = work, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._work()
            self.rounds += 1

    def __enter__(self) -> Busy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def filled(kind: str) -> Any:
    """An empty filter of this kind would be whole whatever is lost: one with keys in it."""
    one: Any = COMMON_KINDS[kind]
    filter = one(1_000_000, 0.001)
    filter.update(BEFORE)
    return filter


def used(filter: Any) -> Callable[[], None]:
    """What a child does: it asks and adds, one key and many."""

    def work() -> None:
        assert np.asarray(filter.contains_many(BEFORE)).all()
        assert all(key in filter for key in range(100))
        filter.add(-1)
        filter.update([-2, -3])
        filter.update(np.arange(-9000, -3000))
        assert all(key in filter for key in (-1, -2, -3, -5000))

    return work


def change(filter: Any, **options: int) -> None:
    filter.update(BATCH, **options)
    if hasattr(filter, "remove_many"):
        filter.remove_many(BATCH)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bloom", *OPEN])
def test_during_a_batch(kind: str) -> None:
    """Whatever a batch was doing to the filter, its child neither hangs nor misses a key."""
    filter = filled(kind)
    with Busy(lambda: change(filter)):
        for _ in range(effort(2, 5, 200)):
            in_child(used(filter))
    used(filter)()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bloom", "scalable"])
def test_during_questions(kind: str) -> None:
    """A batch that only asks holds the filter too, against whoever would change it."""
    filter = filled(kind)
    with Busy(lambda: filter.contains_many(BATCH, threads=2)):
        for _ in range(effort(2, 5, 200)):
            in_child(used(filter))


@pytest.mark.slow
@pytest.mark.parametrize("error_rate", [0.01, 1e-5])
def test_during_a_batch_on_several_threads(error_rate: float) -> None:
    """The threads of one batch are all waited for."""
    filter = BloomFilter(1_000_000, error_rate)
    filter.update(BEFORE)
    with Busy(lambda: change(filter, threads=3)):
        for _ in range(effort(2, 5, 200)):
            in_child(used(filter))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bloom", "scalable", "counting"])
def test_while_single_keys_wait(kind: str) -> None:
    """Threads that wait for a batch with one key each are not in the way."""
    filter = filled(kind)
    with Busy(lambda: change(filter)), Busy(lambda: filter.add(7)), Busy(lambda: 7 in filter):
        for _ in range(effort(2, 5, 200)):
            in_child(used(filter))


@pytest.mark.slow
def test_a_long_batch_makes_way() -> None:
    """A fork in the middle of a batch of seconds does not wait for its end."""
    filter = BloomFilter(1_000_000, 1e-5, layout="classic")
    filter.update(BEFORE)
    keys, done = np.arange(10_000_000), list[bool]()

    def add() -> None:
        filter.update(keys)
        done.append(True)

    thread = threading.Thread(target=add)
    thread.start()
    assert wait_until(lambda: filter.fill_ratio >= 0.05, pause=0.001)
    in_child(used(filter))
    early = not done
    thread.join()
    assert early
    assert np.asarray(filter.contains_many(keys[::1000])).all()


def test_a_pool_of_processes() -> None:
    """`multiprocessing` forks its workers while a thread of the parent changes the filter."""
    filter = filled("scalable")
    with Busy(lambda: change(filter)):
        pool = multiprocessing.get_context("fork").Pool(2, used(filter))
        with pool:
            assert pool.map(abs, range(-4, 0)) == [4, 3, 2, 1]


SCRIPT = """if True:
    import os, threading
    # Registered before bloomery's, so called after it, when new work has been told of the fork.
    lock = threading.RLock()
    def before():
        lock.acquire()
        filter.update(keys)
    os.register_at_fork(before=before, after_in_parent=lock.release, after_in_child=lock.release)
    import numpy as np
    from bloomery import ScalableBloomFilter
    filter, keys, stop = ScalableBloomFilter(1_000_000), np.arange(50_000), threading.Event()
    def work():
        while not stop.is_set():
            with lock:
                filter.update(keys)
    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(10):
        if (child := os.fork()) == 0:
            assert filter.contains_many(keys).all()
            filter.update(-keys)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    stop.set()
    thread.join()
"""


def test_other_fork_handlers_may_use_the_filter() -> None:
    """A handler that runs between ours and the fork may lock, and add, as `logging` does."""
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    subprocess.run(command, check=True, timeout=LONG)


FAILING = """if True:
    import os, resource
    import numpy as np
    from bloomery import ScalableBloomFilter
    filter, keys = ScalableBloomFilter(1000), np.arange(50_000)
    if os.getuid() == 0:
        os.setuid(65534)  # for root there is no limit
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    try:
        os.fork()
    except OSError:
        filter.update(keys)
        assert filter.contains_many(keys).all()
    else:
        os._exit(3)
"""


def test_a_fork_that_fails() -> None:
    """Batches go on as before when there was no child after all."""
    pytest.importorskip("resource")
    subprocess.run([sys.executable, "-c", FAILING], check=True, timeout=LONG)
