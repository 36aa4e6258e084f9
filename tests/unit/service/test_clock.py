"""The server's time beside wall clocks that jump."""

import math
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery.service.clock import Clock, HighWaterMark

DAY = 86_400.0


@contextmanager
def opened(path: Path) -> Iterator[HighWaterMark]:
    """The mark of a server that is killed: its file is closed, and nothing more is written."""
    mark = HighWaterMark(path)
    try:
        yield mark
    finally:
        os.close(mark._file)


class Hands:
    """A wall clock and a steady one, both of which a test moves."""

    def __init__(self, wall: float = 1e9) -> None:
        self.wall, self.steady = wall, 50.0

    def clock(self, since: float = 0.0, mark: HighWaterMark | None = None) -> Clock:
        """The server's clock that goes by these."""
        return Clock(since, lambda: self.wall, lambda: self.steady, mark)

    def restart(self, path: Path) -> float:
        """Start a server with this mark and kill it at once; return its time."""
        with opened(path) as mark:
            return self.clock(mark=mark).now()

    def let_pass(self, seconds: float) -> None:
        """Time passes, for both."""
        self.wall += seconds
        self.steady += seconds


def test_it_is_the_wall_clock_while_that_goes_right() -> None:
    """As long as the wall clock goes as fast as the steady one, the time is the wall clock's."""
    hands = Hands()
    clock = hands.clock()
    for seconds in (0.0, 0.5, 3.0, DAY):
        hands.let_pass(seconds)
        assert math.isclose(clock.now(), hands.wall, abs_tol=1e-6)
    assert abs(clock.off) < 1e-6


def test_a_jump_forward_is_caught_up_with_slowly() -> None:
    """An hour forward takes ten hours to catch up with, and not a second of it comes at once."""
    hands = Hands()
    clock = hands.clock()
    hands.wall += 3600
    before = clock.now()
    assert before == 1e9
    assert clock.off == 3600
    hands.let_pass(60)
    assert math.isclose(clock.now() - before, 66)
    for _ in range(60 * 10):
        hands.let_pass(60)
        clock.now()
    assert math.isclose(clock.now(), hands.wall)


def test_a_jump_back_slows_the_time_and_does_not_stop_it() -> None:
    """A year back: the time goes on, a tenth slower, and never back."""
    hands = Hands()
    clock = hands.clock()
    hands.wall -= 365 * DAY
    before = clock.now()
    assert before == 1e9
    hands.let_pass(100)
    assert math.isclose(clock.now() - before, 90)
    assert clock.off < -364 * DAY


def test_a_restart_does_not_go_back() -> None:
    """A server whose log ends later than the wall clock says goes on from there."""
    hands = Hands(wall=1e9)
    clock = hands.clock(since=1e9 + 7)
    assert clock.now() == 1e9 + 7
    hands.let_pass(10)
    assert math.isclose(clock.now(), 1e9 + 16)
    assert hands.clock(since=5.0).now() == hands.wall


@pytest.mark.parametrize("killed", [True, False])
def test_a_restart_without_a_log_does_not_go_back(tmp_path: Path, killed: bool) -> None:
    """Also where nothing was logged for a while: a server that was killed goes on from what its
    file says, some seconds ahead at most; one that was stopped, from where it was."""
    hands = Hands()
    mark = HighWaterMark(tmp_path / "clock")
    clock = hands.clock(mark=mark)
    for _ in range(100):
        hands.let_pass(0.7)
        before = clock.now()
    hands.wall -= DAY
    if killed:
        os.close(mark._file)
    else:
        clock.close()
    after = hands.restart(tmp_path / "clock")
    assert before <= after <= before + (2.001 if killed else 0.001)


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: b"",
        lambda raw: raw[:-1],
        lambda raw: raw.replace(b"1", b"9", 1),
        lambda raw: b"inf 00000000\n",
        lambda raw: b"\xff" * 26,
        lambda raw: raw + raw,
    ],
)
def test_a_damaged_file_is_no_time(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    """What is not whole is not believed: the time would be ahead for ever."""
    path, hands = tmp_path / "clock", Hands()
    with opened(path) as mark:
        clock = hands.clock(mark=mark)
        hands.let_pass(1.0)
        clock.now()
    path.write_bytes(damage(path.read_bytes()))
    hands.wall -= 10
    with opened(path) as mark:
        assert mark.at == 0.0
        clock = hands.clock(mark=mark)
        hands.let_pass(1.0)
        clock.now()
    with opened(path) as mark:
        assert mark.at > hands.wall


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(-1e8, 1e8)), min_size=1, max_size=30))
def test_whatever_the_wall_clock_does(moves: list[tuple[float, float]]) -> None:
    """Between two looks the time moves by 0.9 to 1.1 of what has passed, whatever jumps."""
    hands = Hands()
    clock = hands.clock()
    before = clock.now()
    for passed, jump in moves:
        hands.let_pass(passed)
        hands.wall += jump
        now = clock.now()
        assert 0.9 * passed - 1e-3 <= now - before <= 1.1 * passed + 1e-3
        before = now


def test_a_steady_clock_that_is_not_steady_does_no_harm() -> None:
    """Where even the steady clock goes back, the time stands still rather than going back."""
    hands = Hands()
    clock = hands.clock()
    before = clock.now()
    hands.steady -= 10
    assert clock.now() == before


def run_and_kill(hands: Hands, path: Path, seconds: float) -> float:
    """A server runs for some seconds of the steady clock and is killed; return its last time."""
    with opened(path) as mark:
        clock = hands.clock(mark=mark)
        now = clock.now()
        for _ in range(40):
            hands.let_pass(seconds / 40)
            now = clock.now()
    return now


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.5, 1.0, 1.9, 2.5, 30.0])
@pytest.mark.parametrize("down", [0.01, 0.3])
def test_kills_in_a_row_do_not_move_the_time_ahead(
    tmp_path: Path, seconds: float, down: float
) -> None:
    """A hundred kills and restarts leave the time at most 2 s ahead of the wall clock, so no TTL
    ends more than 2 s early, and the time never goes back."""
    hands, last = Hands(), 0.0
    for _ in range(100):
        first = hands.restart(tmp_path / "clock")
        assert first >= last
        last = run_and_kill(hands, tmp_path / "clock", seconds)
        assert last - hands.wall <= 2.0
        hands.let_pass(down)
    hands.let_pass(2.0)
    after = hands.restart(tmp_path / "clock")
    assert math.isclose(after, hands.wall, abs_tol=0.01)


@pytest.mark.parametrize("seconds", [0.1, 1.9, 30.0])
def test_kills_beside_a_wall_clock_that_was_set_back(tmp_path: Path, seconds: float) -> None:
    """Where the wall clock cannot help, the time runs no faster than the steady clock, over any
    number of kills."""
    hands = Hands()
    last = run_and_kill(hands, tmp_path / "clock", 10)
    hands.wall -= DAY
    first, began = last, hands.steady
    for _ in range(100):
        now = run_and_kill(hands, tmp_path / "clock", seconds)
        assert last <= now <= first + 2.0 + hands.steady - began
        last = now
        hands.let_pass(0.01)


@given(
    st.lists(
        st.tuples(st.floats(0, 40), st.floats(0.002, 3), st.sampled_from([0.0, 0.0, -3600.0])),
        max_size=10,
    )
)
def test_any_kills_leave_the_time_in_order(runs: list[tuple[float, float, float]]) -> None:
    """Any runs, pauses and jumps back: never back, and no faster than the clocks by more than
    2 s."""
    with tempfile.TemporaryDirectory() as folder:
        hands, last = Hands(), 0.0
        began = hands.wall - hands.steady
        for seconds, down, jump in runs:
            last_before, last = last, run_and_kill(hands, Path(folder, "clock"), seconds)
            assert last_before <= last <= began + hands.steady + 2.0
            hands.let_pass(down)
            hands.wall += jump
