"""The pump: chunks of whole lines, bounded memory, signals between chunks."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery.cli import pump as module
from bloomery.cli.pump import Interrupts, LinePump, SignalInterrupt
from bloomery.errors import InvalidSource


class Pieces:
    """A source that hands out the given pieces, one a read, split further if they do not fit."""

    name = "pieces"
    size = None
    position = 0

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]
        self.searched = 0

    def readinto(self, view: memoryview) -> int:
        if not self._pieces:
            return 0
        piece = self._pieces.pop(0)
        taken = min(len(piece), len(view))
        view[:taken] = piece[:taken]
        if piece[taken:]:
            self._pieces.insert(0, piece[taken:])
        return taken


@contextmanager
def small_chunks(chunk: int, longest: int) -> Iterator[None]:
    """Chunks of a few bytes, so that every edge is met."""
    before = module.CHUNK, module.MAX_LINE
    module.CHUNK, module.MAX_LINE = chunk, longest
    try:
        yield
    finally:
        module.CHUNK, module.MAX_LINE = before


def collect(pieces: list[bytes], taken: list[tuple[bytes, bool]]) -> None:
    """Run the pieces through a step that consumes whole lines, as the native one does."""

    def step(data: memoryview, final: bool) -> int:
        whole = bytes(data)
        end = len(whole) if final else whole.rfind(b"\n") + 1
        taken.append((whole[:end], final))
        return end

    with Interrupts() as interrupts:
        LinePump(interrupts).run(Pieces(pieces), step)  # type: ignore[arg-type]


@given(st.lists(st.binary(max_size=12) | st.sampled_from([b"\n", b"ab\n", b"x" * 9]), max_size=12))
def test_everything_passes_once_in_order(pieces: list[bytes]) -> None:
    """However the input is cut up, the step sees all of it once, in whole lines."""
    with small_chunks(4, 1 << 20):
        taken: list[tuple[bytes, bool]] = []
        collect(pieces, taken)
    assert b"".join(data for data, _ in taken) == b"".join(pieces)
    assert all(data.endswith(b"\n") for data, final in taken if not final)
    assert all(not final for _, final in taken[:-1])


def test_a_line_beyond_all_measure_is_an_error() -> None:
    """Growth stops at the limit, with a message that names the source."""
    with small_chunks(4, 64), pytest.raises(InvalidSource, match="a line is longer") as caught:
        collect([b"x" * 200], [])
    assert str(caught.value).startswith("pieces: ")


def signals_itself(times: int) -> Callable[[memoryview, bool], int]:
    """A step that is interrupted in the middle of its work."""

    def step(data: memoryview, final: bool) -> int:
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
        return len(data)

    return step


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """As in a terminal: whoever runs the tests in the background may have them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_a_signal_inside_a_chunk_waits_for_its_end() -> None:
    """The chunk is finished, then the run stops; handlers are put back."""
    before = signal.getsignal(signal.SIGINT)
    done = []

    def step(data: memoryview, final: bool) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        done.append(bytes(data))
        return len(data)

    with pytest.raises(SignalInterrupt) as caught, Interrupts() as interrupts:
        LinePump(interrupts).run(Pieces([b"a\n", b"b\n"]), step)  # type: ignore[arg-type]
    assert done == [b"a\n"]
    assert caught.value.signum == signal.SIGINT
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("ctrl_c")
def test_a_second_signal_inside_a_chunk_does_not_wait() -> None:
    """Twice Ctrl-C gets through at once."""
    finished = []

    def step(data: memoryview, final: bool) -> int:
        signals_itself(2)(data, final)
        finished.append(True)
        return len(data)

    with pytest.raises(SignalInterrupt), Interrupts() as interrupts:
        LinePump(interrupts).run(Pieces([b"a\n"]), step)  # type: ignore[arg-type]
    assert not finished


def test_an_ignored_signal_stays_ignored() -> None:
    """Under nohup SIGHUP is ignored, and remains so."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
