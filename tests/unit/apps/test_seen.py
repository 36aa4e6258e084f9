"""A store of seen articles never offers again what was marked within the window."""

import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bloomery import FilterBank, errors
from bloomery.apps import SeenStore
from unit.clocks import Clock
from waiting import wait_until

DAY = 86400.0


def store(clock: Clock, folder: Path | None = None, **options: Any) -> SeenStore:
    made: dict[str, Any] = {"window": "4d", "generations": 4, "articles_per_user": 40}
    return SeenStore(folder, clock=clock, **(made | options))


@pytest.fixture
def clock() -> Clock:
    return Clock(1_700_000_000.0)


def test_marked_articles_are_not_fresh(clock: Clock) -> None:
    """Of the candidates those come back that the user has not had, in their order, up to a limit;
    other users are others."""
    seen = store(clock)
    seen.mark("ada", ["a", "b"])
    assert seen.fresh("ada", ["c", "a", "d", "b", "e"], limit=2) == ["c", "d"]
    assert seen.fresh("ada", ("c", "a", "d")) == ["c", "d"]
    assert seen.fresh("bob", ["a", "b"], limit=0) == []
    assert seen.fresh("bob", iter(["a", "b"])) == ["a", "b"]


def test_columns(clock: Clock) -> None:
    """Users and articles may be columns, a row each; an array of candidates gives an array."""
    seen = store(clock)
    seen.mark(np.array([1, 2, 2]), np.array([10, 20, 21]))
    assert seen.fresh(2, np.array([10, 20, 21, 22]), limit=1).tolist() == [10]
    assert seen.fresh(1, [10, 20]) == [20]


def test_the_window_holds_to_the_last_moment(clock: Clock) -> None:
    """Whenever it was marked, an article is not fresh until the window is over, and is fresh again
    one generation later at the latest."""
    seen = store(clock)
    began = clock.now
    marks = {}
    for step in range(80):
        clock.now = began + step * 0.3 * DAY
        marks[step] = clock.now
        seen.mark("ada", [step])
        fresh = set(seen.fresh("ada", list(marks)))
        for article, marked in marks.items():
            age = (clock.now - marked) / DAY
            assert article not in fresh or age >= 4, (article, age)
            assert article in fresh or age < 5, (article, age)
    assert len(seen.info()["generations"]) <= 5


def test_it_forgets_while_nobody_marks(clock: Clock) -> None:
    """A store that is only asked forgets too."""
    seen = store(clock)
    seen.mark("ada", ["a"])
    clock.now += 5 * DAY
    assert seen.fresh("ada", ["a"]) == ["a"]
    assert seen.info()["marks"] == 0


def test_a_clock_set_back_forgets_nothing(clock: Clock) -> None:
    """While the clock is behind, and when it is right again, marks are not forgotten early."""
    seen = store(clock)
    seen.mark("ada", ["before"])
    right, clock.now = clock.now, clock.now - 100 * DAY
    seen.mark("ada", ["while"])
    assert seen.fresh("ada", ["before", "while"]) == []
    clock.now = right + 3.9 * DAY
    seen.mark("ada", ["after"])
    assert seen.fresh("ada", ["before", "while", "after"]) == []


def test_a_clock_that_is_none_is_refused() -> None:
    """Times before 1970, or nan, are an error and not a file name."""
    for now in (-5.0, float("nan"), 1e13):
        with pytest.raises(errors.InvalidParameter, match="the clock says"):
            store(Clock(now))


def test_without_a_window_nothing_is_forgotten(clock: Clock, tmp_path: Path) -> None:
    """`window=None` is one generation for ever, in memory or in a folder."""
    with store(clock, tmp_path / "s", window=None) as seen:
        seen.mark("ada", ["a"])
        clock.now += 10_000 * DAY
        seen.mark("ada", ["b"])
        assert seen.fresh("ada", ["a", "b", "c"]) == ["c"]
        assert len(seen.info()["generations"]) == 1
    with pytest.raises(errors.InvalidParameter, match="was made with window=None"):
        store(clock, tmp_path / "s")


def test_the_rate_is_that_of_all_generations_together(clock: Clock) -> None:
    """A full store, marks spread over its generations, leaves out as many by mistake as allowed."""
    seen = store(clock, articles_per_user=4000, error_rate=0.02)
    for part in range(5):
        seen.mark("ada", range(part * 1000, part * 1000 + 1000))
        clock.now += DAY
    clock.now -= DAY
    absent = np.arange(10_000_000, 10_100_000)
    left_out = 1 - len(seen.fresh("ada", absent)) / len(absent)
    assert len(seen.info()["generations"]) == 5
    assert left_out <= 0.022


def test_a_folder_is_opened_again(clock: Clock, tmp_path: Path) -> None:
    """Generations, their times and their marks are all in the folder; what the window left behind
    is deleted there."""
    for day in range(4):
        with store(clock, tmp_path) as seen:
            seen.mark("ada", [day])
            assert seen.fresh("ada", range(5)) == list(range(day + 1, 5))
        clock.now += 1.5 * DAY
    names = [path.name for path in tmp_path.iterdir()]
    assert len(names) == 4
    with store(clock, tmp_path) as seen:  # 6 days after the first
        assert seen.fresh("ada", range(5)) == [0, 4]
        seen.mark("ada", [4])
        assert len(list(tmp_path.iterdir())) == len(seen.info()["generations"]) == 4


def test_a_killed_process_loses_no_mark(tmp_path: Path) -> None:
    """What `mark` returned from is in the folder after kill -9, over several generations."""
    program = f"""
import os, signal
from bloomery.apps import SeenStore
now = [1_700_000_000.0]
seen = SeenStore({str(tmp_path)!r}, window="4d", generations=4, clock=lambda: now[0])
for day in range(4):
    seen.mark("ada", range(day * 100, day * 100 + 100))
    now[0] += {DAY}
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == -9
    with store(Clock(1_700_000_000.0 + 3 * DAY), tmp_path) as seen:
        assert seen.fresh("ada", range(400)) == []


def test_one_process_has_the_folder(clock: Clock, tmp_path: Path) -> None:
    """A second one is told so, and the folder is free when the first has closed it."""
    with store(clock, tmp_path) as seen:
        with pytest.raises(errors.FolderInUse, match="another process has"):
            store(clock, tmp_path)
        seen.mark("ada", ["a"])
    store(clock, tmp_path).close()


def test_a_damaged_file_is_an_error_and_the_folder_free(clock: Clock, tmp_path: Path) -> None:
    """One clear error; the other files are as they were, and can be opened without it."""
    with store(clock, tmp_path) as seen:
        seen.mark("ada", ["a"])
        clock.now += 1.5 * DAY
        seen.mark("ada", ["b"])
    first, second = sorted(tmp_path.iterdir())
    good = second.read_bytes()
    second.write_bytes(b"no bank")
    with pytest.raises(errors.CorruptData, match=second.name):
        store(clock, tmp_path)
    second.write_bytes(good)
    (tmp_path / "notes.txt").write_text("not ours")
    with store(clock, tmp_path) as seen:
        assert seen.fresh("ada", ["a", "b", "c"]) == ["c"]
    assert first.exists()


def test_closed(clock: Clock, tmp_path: Path) -> None:
    """A closed store answers nothing, rather than that everything is fresh."""
    seen = store(clock, tmp_path)
    seen.close()
    seen.close()
    for use in (lambda: seen.fresh("ada", ["a"]), lambda: seen.mark("ada", ["a"]), seen.flush):
        with pytest.raises(errors.InvalidParameter, match="the store is closed"):
            use()


def test_a_user_is_forgotten(clock: Clock) -> None:
    """`forget` takes a user out of every generation."""
    seen = store(clock)
    seen.mark("ada", ["a"])
    clock.now += 1.5 * DAY
    seen.mark("ada", ["b"])
    assert seen.forget("ada")
    assert not seen.forget("ada")
    assert seen.fresh("ada", ["a", "b"]) == ["a", "b"]


def test_a_user_is_forgotten_for_good(clock: Clock) -> None:
    """What the window had passed, and a clock set back would bring again, is forgotten too."""
    seen = store(clock)
    seen.mark("ada", ["a"])
    clock.now += 5 * DAY
    seen.forget("ada")
    clock.now -= 2 * DAY
    assert seen.fresh("ada", ["a"]) == ["a"]


def test_marks_during_rotations(clock: Clock, tmp_path: Path) -> None:
    """Threads that mark and ask while generations turn over: whatever was marked within the window
    is never fresh, and nobody meets a bank that was let go."""
    seen, stop = store(clock, tmp_path, window="40s"), threading.Event()
    problems: list[object] = []
    marked = [0, 0, 0]

    def read(user: int) -> None:
        rng = random.Random(user)
        try:
            while not stop.is_set():
                article, before = rng.getrandbits(60), clock.now
                seen.mark(user, [article])
                fresh = seen.fresh(user, [article])
                if fresh and clock.now - before < 40:
                    problems.append((user, article))
                marked[user] += 1
        except Exception as problem:  # noqa: BLE001  # any is a failure of this test
            problems.append(problem)

    threads = [threading.Thread(target=read, args=[user]) for user in range(3)]
    for thread in threads:
        thread.start()

    def turn() -> bool:
        clock.now += 7
        return bool(problems) or min(marked) >= 300

    assert wait_until(turn, pause=0.0005)
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(list(tmp_path.iterdir())) <= 5
    seen.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": "fortnight"}, "window is 'fortnight'.*None to forget nothing"),
        ({"window": "2s"}, "each of 4 generations would have 0.5 s; must be at least 1 s"),
        ({"generations": 0}, "generations is 0, must be an int from 1 to 100"),
        ({"articles_per_user": -1}, "articles_per_user must be a whole"),
        ({"error_rate": 3}, "error_rate must be a number"),
    ],
)
def test_parameters(clock: Clock, options: dict[str, Any], message: str) -> None:
    """What is out of its range is refused with the value and the range."""
    with pytest.raises(errors.InvalidParameter, match=message):
        store(clock, **options)


def test_memory_is_the_banks(clock: Clock) -> None:
    """What it says about its memory is what its banks say."""
    seen = store(clock)
    seen.mark("ada", range(1000))
    (generation,) = seen.info()["generations"]
    assert seen.nbytes == generation["nbytes"] == seen.info()["nbytes"]
    assert generation["users"] == 1
    plain = FilterBank(0.01 / 5, 10)
    plain.update("ada", range(1000))
    assert seen.nbytes == plain.nbytes


def test_a_forked_child_holds_nothing(tmp_path: Path) -> None:
    """After a fork the folder is the parent's: it may close and open it while the child lives, and
    the child's own close takes no lock away."""
    program = f"""
import os, time
from bloomery.apps import SeenStore
from bloomery.errors import FolderInUse
seen = SeenStore({str(tmp_path)!r})
seen.mark("ada", ["a"])
read, write = os.pipe()
if not (child := os.fork()):
    seen.close()
    os.write(write, b"closed")
    time.sleep(60)
assert os.read(read, 6) == b"closed"
try:
    SeenStore({str(tmp_path)!r})
    raise SystemExit("the child gave the parent's lock away")
except FolderInUse:
    pass
seen.close()
again = SeenStore({str(tmp_path)!r})
assert again.fresh("ada", ["a", "b"]) == ["b"]
os.kill(child, 9)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
