"""The server's time beside wall clocks that jump."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery.service.clock import Clock, HighWaterMark

DAY = 86_400.0


class Hands:
    """A wall clock and a steady one, both of which a test moves."""

    def __init__(self, wall: float = 1e9) -> None:
        self.wall, self.steady = wall, 50.0

    def clock(self, since: float = 0.0, mark: HighWaterMark | None = None) -> Clock:
        """The server's clock that goes by these."""
        return Clock(since, lambda: self.wall, lambda: self.steady, mark)

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
    clock = hands.clock(mark=HighWaterMark(tmp_path / "clock"))
    for _ in range(100):
        hands.let_pass(0.7)
        before = clock.now()
    hands.wall -= DAY
    if not killed:
        clock.close()
    after = hands.clock(mark=HighWaterMark(tmp_path / "clock")).now()
    assert before - 0.001 <= after <= before + (2.0 if killed else 0.001)


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
    clock = hands.clock(mark=HighWaterMark(path))
    hands.let_pass(1.0)
    clock.now()
    path.write_bytes(damage(path.read_bytes()))
    hands.wall -= 10
    mark = HighWaterMark(path)
    assert mark.at == 0.0
    clock = hands.clock(mark=mark)
    hands.let_pass(1.0)
    clock.now()
    assert HighWaterMark(path).at > hands.wall


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
