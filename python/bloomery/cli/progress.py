"""A bar and a rate on standard error, for a run that takes long enough to want one.

Shown only when standard error is a terminal and standard output is not (lines and a bar in one
window garble each other). Nothing is imported or drawn in the first half second, so a small input
costs no rich (about 60 ms).
"""

import time
from typing import Any

from bloomery.cli.terminal import STDERR, STDOUT, is_terminal

_PATIENCE = 0.5
_INTERVAL = 0.1


class LineProgress:
    """Counts lines and bytes; draws when there is somebody to see it."""

    def __init__(self, total: int | None, quiet: bool = False) -> None:
        self.lines = 0
        self.new = 0
        self._total = total
        self._position = 0
        self._wanted = not quiet and is_terminal(STDERR) and not is_terminal(STDOUT)
        self._started = time.monotonic()
        self._next_draw = self._started + _PATIENCE
        self._display: Any = None
        self._task: Any = None

    def advance(self, position: int, lines: int, new: int) -> None:
        """A chunk is done: encoded input bytes so far, lines seen and lines new in the chunk."""
        self.lines += lines
        self.new += new
        self._position = position
        if self._wanted and time.monotonic() >= self._next_draw:
            self._draw()

    def _draw(self) -> None:
        now = time.monotonic()
        self._next_draw = now + _INTERVAL
        if self._display is None:
            self._start()
        rate = self.lines / (now - self._started)
        self._display.update(
            self._task,
            completed=self._position,
            lines=f"{self.lines:,} lines",
            new=f"{self.new:,} new",
            rate=f"{rate / 1e6:.1f} M lines/s" if rate >= 1e5 else f"{rate:,.0f} lines/s",
        )
        self._display.refresh()

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        fields = [TextColumn(f"{{task.fields[{name}]}}") for name in ("lines", "new", "rate")]
        known = [BarColumn(), DownloadColumn(), TimeRemainingColumn()] if self._total else []
        self._display = Progress(
            TextColumn("dedup"),
            *known,
            *fields,
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
        )
        self._task = self._display.add_task("", total=self._total, lines="", new="", rate="")
        self._display.start()

    def stop(self) -> None:
        """Take the bar away again, so that a message after it stands on a line of its own."""
        if self._display is not None:
            self._display.stop()
            self._display = None
