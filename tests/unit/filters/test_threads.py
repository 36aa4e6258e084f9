"""Many threads, and many processes, on one filter: no key is lost."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bloomery import BloomFilter
from conftest import effort

SHAPES = [("blocked", 0.01), ("blocked", 1e-5), ("classic", 0.01)]
SHARE = 30_000  # keys a writer adds


@pytest.fixture(autouse=True)
def switch_often() -> Iterator[None]:
    """Let threads take turns as often as they can, so that a race has many chances."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(*jobs: Callable[[], None]) -> None:
    """Run the jobs at once, a thread each; what one raises is raised here."""
    problems: list[BaseException] = []
    start = threading.Barrier(len(jobs))

    def run(job: Callable[[], None]) -> None:
        start.wait()
        try:
            job()
        except BaseException as problem:  # noqa: BLE001 - raised below
            problems.append(problem)

    threads = [threading.Thread(target=run, args=[job]) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


def one_by_one(filter: BloomFilter, keys: Any) -> None:
    for key in keys.tolist():
        filter.add(key)


def by_list(filter: BloomFilter, keys: Any) -> None:
    for start in range(0, len(keys), 1000):
        filter.add_many(keys[start : start + 1000].tolist())


def by_generator(filter: BloomFilter, keys: Any) -> None:
    filter.update(key for key in keys.tolist())


def by_array(filter: BloomFilter, keys: Any) -> None:
    for start in range(0, len(keys), 5000):
        filter.add_many(keys[start : start + 5000])


def by_small_array(filter: BloomFilter, keys: Any) -> None:
    for start in range(0, len(keys), 100):
        filter.update(keys[start : start + 100])


def by_threads(filter: BloomFilter, keys: Any) -> None:
    filter.add_many(np.concatenate([keys, keys]), threads=2)


def by_lines(filter: BloomFilter, keys: Any) -> None:
    filter.add_lines(b"".join(b"%d\n" % key for key in keys.tolist()))


def by_merging(filter: BloomFilter, keys: Any) -> None:
    other = filter.copy()
    other.clear()
    for start in range(0, len(keys), 5000):
        other.update(keys[start : start + 5000])
        filter |= other


WRITERS = [one_by_one, by_list, by_generator, by_array, by_small_array, by_threads]
WRITERS += [by_lines, by_merging]


def held(filter: BloomFilter, writer: Callable[..., None], keys: Any) -> int:
    """How many of the keys that a writer added are a maybe."""
    if writer is by_lines:
        return sum(filter.contains_many([b"%d" % key for key in keys.tolist()]))
    return int(np.count_nonzero(filter.contains_many(keys)))


def hammer(layout: Any, error_rate: float, writers: list[Callable[..., None]]) -> None:
    """Let the writers loose on one filter, each with keys of its own, beside a reader."""
    filter = BloomFilter(SHARE * len(writers), error_rate, layout=layout)
    shares = [np.arange(SHARE) + (i << 32) for i in range(len(writers))]
    stop = threading.Event()
    seen = set(range(-100, 0))
    filter.update(list(seen))

    def read() -> None:
        while not stop.is_set():
            assert all(key in filter for key in seen)
            assert all(filter.contains_many(list(seen)))
            assert 0 < filter.fill_ratio < 1

    def write() -> None:
        try:
            together(
                *(
                    lambda writer=writer, keys=keys: writer(filter, keys)
                    for writer, keys in zip(writers, shares, strict=True)
                )
            )
        finally:
            stop.set()

    together(read, write)
    for writer, keys in zip(writers, shares, strict=True):
        assert held(filter, writer, keys) == SHARE, f"{writer.__name__} lost keys"


@pytest.mark.parametrize(("layout", "error_rate"), SHAPES)
def test_all_kinds_of_writers_at_once(layout: Any, error_rate: float) -> None:
    """Eight writers that each add in another way, all on one filter, lose no key."""
    for _ in range(effort(2, 20, 500)):
        hammer(layout, error_rate, WRITERS)


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "error_rate"), SHAPES)
@pytest.mark.parametrize("writer", WRITERS)
def test_each_kind_beside_a_column(writer: Any, layout: Any, error_rate: float) -> None:
    """Whatever way keys are added in, two columns that are added meanwhile take none away."""
    for _ in range(effort(3, 10, 300)):
        hammer(layout, error_rate, [writer, by_array, by_threads])


def test_a_generator_beside_a_column() -> None:
    """A generator gives other threads their turn in the middle of its batch, and loses no key."""
    for _ in range(effort(5, 20, 300)):
        for layout, error_rate in SHAPES:
            hammer(layout, error_rate, [by_generator, by_array, by_array])


def test_a_generator_may_use_the_filter_itself() -> None:
    """A batch whose generator adds to the same filter, in any way, neither hangs nor loses keys."""
    filter = BloomFilter(20_000, 1e-6)

    def keys() -> Iterator[int]:
        for i in range(600):
            filter.add(-i)
            if i % 200 == 0:
                filter.update(np.arange(5000) + 10**6)
                together(lambda: filter.update(np.arange(5000) + 10**7))
            yield i

    filter.update(keys())
    for expected in (np.arange(600), -np.arange(600), np.arange(5000) + 10**7):
        assert np.asarray(filter.contains_many(expected)).all()


def test_saving_while_adding(tmp_path: Path) -> None:
    """A file saved while keys are added loads, and holds every key added before it was begun."""
    filter = BloomFilter(2_000_000)  # more than two chunks of a megabyte
    path, before = tmp_path / "filter.bloom", np.arange(50_000)
    filter.update(before)
    stop = threading.Event()

    def add() -> None:
        for start in range(10**6, 3 * 10**6, 20_000):
            filter.update(np.arange(start, start + 20_000))
            if stop.is_set():
                return

    def save() -> None:
        try:
            for _ in range(8):
                filter.save(path)
                loaded = BloomFilter.load(path)
                assert np.asarray(loaded.contains_many(before)).all()
                assert loaded <= filter
                assert BloomFilter.from_bytes(filter.to_bytes()) <= filter
        finally:
            stop.set()

    together(add, save)


SCRIPT = """
import sys, numpy as np
from bloomery import BloomFilter
path, me = sys.argv[1], int(sys.argv[2])
filter = BloomFilter.load(path, mmap=True, writable=True)
sys.stdout.write("ready\\n"); sys.stdout.flush()
sys.stdin.readline()
keys = np.arange(60_000) + (me << 32)
for start in range(0, 30_000, 3000):
    filter.update(keys[start : start + 3000])
for key in keys[30_000:].tolist():
    filter.add(key)
assert np.asarray(filter.contains_many(keys)).all()
"""


@pytest.mark.parametrize(("layout", "error_rate"), SHAPES)
@pytest.mark.slow
def test_processes_on_one_file(tmp_path: Path, layout: Any, error_rate: float) -> None:
    """Processes that map one file for writing see each other's keys, and none is lost."""
    path = tmp_path / "shared.bloom"
    BloomFilter(200_000, error_rate, layout=layout).save(path)
    watching = BloomFilter.load(path, mmap=True)
    command = [sys.executable, "-c", SCRIPT, str(path)]
    running = [
        subprocess.Popen([*command, str(i)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for i in range(3)
    ]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
    for process in running:
        process.communicate(timeout=60)
        assert process.returncode == 0
    for filter in (watching, BloomFilter.load(path), BloomFilter.load(path, mmap=True)):
        for i in range(3):
            assert np.asarray(filter.contains_many(np.arange(60_000) + (i << 32))).all()
