"""Feeds lines to a native call, a chunk at a time; signals wait until the call has returned.

No Python runs for a line: a chunk of 256 KiB is read into one buffer, handed over, and the
unfinished line at its end moved to the front. Memory is the buffer and, for a line that is longer,
at most twice that line. (A chunk of 1 MiB is no faster, and takes 2 MB more.)
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from bloomery.storage.inputs import MAX_LINE as MAX_LINE
from bloomery.storage.inputs import InputFile, line_too_long

CHUNK = 256 << 10

Step = Callable[[memoryview, bool], int]


class FirstMatch(Exception):
    """A step needs no more lines: `contains -q` has its answer."""


class SignalInterrupt(KeyboardInterrupt):
    """A signal asked us to stop. `message` is the line that `main` prints."""

    def __init__(self, signum: int, message: str = "") -> None:
        super().__init__(signum)
        self.signum = signum
        self.message = message


class Interrupts:
    """Ctrl-C, SIGTERM and SIGHUP stop the run between two chunks.

    While a chunk is being added and its lines written, a signal only leaves a mark, so that what
    the filter recorded and what came out stay the same set; while waiting for input it raises at
    once. A second signal inside a chunk (the reader of our output is stuck) raises there.
    """

    def __init__(self) -> None:
        self._inside = False
        self._pending = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            signum = getattr(signal, name, None)
            # An ignored signal stays ignored: nohup, and jobs that a script starts with `&`.
            if signum is not None and signal.getsignal(signum) is not signal.SIG_IGN:
                self._before[signum] = signal.signal(signum, self._arrived)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _arrived(self, signum: int, frame: FrameType | None) -> None:
        if self._inside and not self._pending:
            self._pending = signum
            return
        raise SignalInterrupt(signum)

    @contextmanager
    def held_off(self, *, last: bool = False) -> Iterator[None]:
        """A stretch that must not be torn apart; after the last one there is nothing to stop."""
        self._inside = True
        try:
            yield
        finally:
            self._inside = False
            signum, self._pending = self._pending, 0
        if signum and not last:
            raise SignalInterrupt(signum)


class LinePump:
    """Feeds sources to a step, chunk by chunk, from one buffer.

    The step gets a view and whether it ends the source, and returns how many bytes it consumed:
    all up to the last line end, everything when it is final. A source always ends a line: the
    last line of one file and the first of the next are two lines even without a line end between.
    """

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._buffer = bytearray(CHUNK)
        self._failure: OSError | None = None
        self._held = 0  # bytes at the front: a line whose end has not been read yet

    def prime(self, source: InputFile) -> memoryview:
        """Read the first chunk of a file without consuming it, to estimate from.

        A failure is kept for `run`, after the lines before it.
        """
        try:
            while self._held < len(self._buffer) and (count := self._read(source)):
                self._held += count
        except OSError as failure:
            self._failure = failure
        return memoryview(self._buffer)[: self._held]

    def run(self, source: InputFile, step: Step) -> None:
        """Read all of the source, and do the step with each chunk."""
        searched = 0  # a long line that trickles in is searched for its end once, not every time
        while True:
            if self._buffer.find(b"\n", searched, self._held) >= 0:
                self._hand_over(step, final=False)
            searched = self._held
            if self._held == len(self._buffer):
                self._grow(source)
            count = self._read(source)
            if not count:
                break
            self._held += count
        if self._held:
            self._hand_over(step, final=True)

    def _hand_over(self, step: Step, *, final: bool) -> None:
        end = self._held
        with memoryview(self._buffer) as view, self._interrupts.held_off():
            consumed = step(view[:end], final)
            self._held = end - consumed
            if self._held and consumed:
                view[: self._held] = bytes(view[consumed:end])

    def _read(self, source: InputFile) -> int:
        if self._failure is not None:
            raise self._failure
        with memoryview(self._buffer) as view:
            return source.readinto(view[self._held :])

    def _grow(self, source: InputFile) -> None:
        if len(self._buffer) >= MAX_LINE:
            raise line_too_long(source.name, MAX_LINE)
        self._buffer.extend(bytes(len(self._buffer)))
