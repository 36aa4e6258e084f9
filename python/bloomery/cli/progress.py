"""A bar and a rate on standard error, for a run that takes long enough to want one.

Shown only when standard error is a terminal. Nothing is imported or drawn in the first half second,
so a small input costs no rich (about 60 ms). Where there is no rich, there is no bar.
"""

import time
from typing import Any

from bloomery.cli.terminal import STDERR, STDOUT, is_terminal

_PATIENCE = 0.5
_INTERVAL = 0.1
_NAME = 30  # characters of a file's name


class _Bar:
    """Draws when there is somebody to see it."""

    def __init__(self, title: str, total: int | None, wanted: bool) -> None:
        self._title, self._total, self._wanted = title, total, wanted
        self._started = time.monotonic()
        self._next_draw = self._started + _PATIENCE
        self._display: Any = None
        self._task: Any = None

    def _due(self) -> bool:
        return self._wanted and time.monotonic() >= self._next_draw

    def _rate(self, count: int, unit: str) -> str:
        return f"{_short(count / (time.monotonic() - self._started))} {unit}/s"

    def _draw(self, completed: int, *fields: str) -> None:
        self._next_draw = time.monotonic() + _INTERVAL
        if self._display is None:
            try:
                self._start(len(fields))
            except ImportError:  # the plain install has no rich, and these commands do without
                self._wanted = False
                return
        texts = {f"field{number}": text for number, text in enumerate(fields)}
        self._display.update(self._task, completed=completed, **texts)
        self._display.refresh()

    def _start(self, count: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.table import Column

        def text(template: str) -> TextColumn:
            return TextColumn(template, table_column=Column(no_wrap=True))

        names = [f"field{number}" for number in range(count)]
        # The bar has what the words leave of the line.
        bar = BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=4))
        self._display = Progress(
            text(self._title),
            *([bar, TimeRemainingColumn(table_column=Column(no_wrap=True))] if self._total else []),
            *(text(f"{{task.fields[{name}]}}") for name in names),
            expand=bool(self._total),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
        )
        self._task = self._display.add_task("", total=self._total, **dict.fromkeys(names, ""))
        self._display.start()

    def stop(self) -> None:
        """Take the bar away again, so that a message after it stands on a line of its own."""
        if self._display is not None:
            self._display.stop()
            self._display = None


class LineProgress(_Bar):
    """Counts lines and bytes, for `dedup`: its lines and a bar would garble each other."""

    def __init__(self, total: int | None, quiet: bool = False, title: str = "dedup") -> None:
        wanted = not quiet and is_terminal(STDERR) and not is_terminal(STDOUT)
        super().__init__(title, total, wanted)
        self.lines = 0
        self.new = 0

    def advance(self, position: int, lines: int, new: int) -> None:
        """A chunk is done: encoded input bytes so far, lines seen and lines new in the chunk."""
        self.lines += lines
        self.new += new
        if self._due():
            rate = self._rate(self.lines, "lines")
            self._draw(position, f"{_short(self.lines)} lines", f"{_short(self.new)} new", rate)


class ByteProgress(_Bar):
    """Counts bytes, for `backup` and `restore`."""

    def __init__(self, title: str, total: int | None = None) -> None:
        super().__init__(title, total, is_terminal(STDERR))
        self._done = 0

    def begin(self, total: int) -> None:
        """Begin to show progress, of so many bytes."""
        self._total, self._started = total, time.monotonic()

    def advance(self, nbytes: int) -> None:
        """Show that so many more bytes are done."""
        self._done += nbytes
        if self._due():
            self._draw(self._done, f"{_short(self._done)}B", self._rate(self._done, "B"))


class MailProgress(_Bar):
    """Counts messages, for `mail dedup`."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__("mail", None, not quiet and is_terminal(STDERR))

    def advance(self, messages: int, duplicates: int) -> None:
        """Messages so far, and how many of them are duplicates."""
        if self._due():
            rate = self._rate(messages, "messages")
            self._draw(
                messages, f"{_short(messages)} messages", f"{_short(duplicates)} again", rate
            )


class CorpusProgress(_Bar):
    """Counts bytes and documents, for `corpus dedup`."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__("corpus", None, not quiet and is_terminal(STDERR))
        self._before: int | None = None  # bytes that an earlier run has read

    @property
    def begun(self) -> bool:
        """Whether the reading has begun."""
        return self._before is not None

    def advance(self, position: int, total: int, documents: int, removed: int) -> None:
        """Bytes of the inputs so far and in all, documents, and what is removed of them."""
        if self._before is None:
            self._before, self._total = position, max(1, total)
            self._started = time.monotonic()  # it may have sampled for a while
        if self._due():
            self._draw(
                position,
                f"{_short(documents)} documents",
                f"{_short(removed)} again",
                self._rate(position - self._before, "B"),
            )


class RowProgress(_Bar):
    """Counts rows, for `build`."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__("build", None, not quiet and is_terminal(STDERR))
        self._before: int | None = None  # rows that an earlier run has read

    @property
    def begun(self) -> bool:
        """Whether the reading has begun."""
        return self._before is not None

    def advance(self, rows: int, total: int | None) -> None:
        """Rows so far, and in all if that is known; first before any is read."""
        if self._before is None:
            self._before, self._total = rows, total
            self._started = time.monotonic()  # it may have counted for a while
        if self._due():
            self._draw(rows, f"{_short(rows)} rows", self._rate(rows - self._before, "rows"))


class FileProgress(_Bar):
    """Counts files, for `index`."""

    def __init__(self, title: str, quiet: bool = False) -> None:
        super().__init__(title, None, not quiet and is_terminal(STDERR))

    def advance(self, done: int, total: int, name: str) -> None:
        """Files so far and in all, and the one that is next."""
        self._total = max(1, total)
        if self._due():
            shown = name if len(name) <= _NAME else f"…{name[-_NAME:]}"
            self._draw(done, f"{done:,} of {total:,} files", shown)


class FilterProgress(_Bar):
    """Counts the filters of a Parquet file, for `parquet add-bloom`."""

    def __init__(self) -> None:
        super().__init__("add-bloom", None, is_terminal(STDERR))

    def advance(self, done: int, total: int) -> None:
        """Show how many filters are done, of how many."""
        self._total = total
        if self._due():
            self._draw(done, f"{done:,} of {total:,} filters")


def _short(count: float) -> str:
    return f"{count / 1e6:,.1f} M" if count >= 1e5 else f"{count:,.0f}"
