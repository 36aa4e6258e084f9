"""A drawing in the terminal: dots of Braille, two by four a character; asterisks where those cannot
be shown."""

import math
import time
from collections.abc import Iterator

from bloomery.cli.plotting.panels import Drawing, Panel, show

_BRAILLE = 0x2800
# The bit of a dot in its character, by column and row.
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_MARKS = "●×"  # of the point that is now, and of the limit
_LABEL = 10  # characters beside the axis


def draw(drawing: Drawing, width: int, height: int, *, braille: bool = True) -> str:
    """The drawing as lines of text; `height` is of each panel."""
    parts = [drawing.title]
    for panel in drawing.panels:
        parts += ["", *_panel(panel, max(20, width - _LABEL - 2), height, braille)]
    parts += list(_below(drawing, max(20, width - _LABEL - 2)))
    return "\n".join(parts)


def _panel(panel: Panel, width: int, height: int, braille: bool) -> Iterator[str]:
    names = [line.name for line in panel.lines if line.name != panel.title]
    notes = [f"limit {show(panel.limit, panel.unit)} is ─"] if panel.limit is not None else []
    if panel.now is not None:
        notes.append(f"now {show(panel.now[1], panel.unit)} is {_MARKS[0] if braille else 'o'}")
    named = f" ({', '.join(names)})" if names else ""
    yield f"{panel.title}{named}" + "".join(f"; {note}" for note in notes)
    canvas = _Canvas(panel, width, height, braille)
    rows = canvas.rows()
    for number, row in enumerate(rows):
        label = ""
        if number in (0, height // 2, height - 1):
            value = canvas.most * (1 - number / max(1, height - 1))
            label = show(value, panel.unit)
        yield f"{label:>{_LABEL}} ┤{row}" if braille else f"{label:>{_LABEL}} |{row}"


def _below(drawing: Drawing, width: int) -> Iterator[str]:
    """The axis below the last panel: where it begins and ends."""
    xs = [x for panel in drawing.panels for line in panel.lines for x in line.xs]
    if not xs:
        return
    first, last = min(xs), max(xs)
    if drawing.axis == "time":
        form = "%H:%M:%S" if last - first < 86400 else "%Y-%m-%d %H:%M"
        begin, end = (time.strftime(form, time.localtime(at)) for at in (first, last))
    else:
        begin, end = show(first, "keys"), f"{show(last, 'keys')} keys"
    yield " " * (_LABEL + 2) + begin + end.rjust(width - len(begin))


class _Canvas:
    """Dots of one panel."""

    def __init__(self, panel: Panel, width: int, height: int, braille: bool) -> None:
        self._panel, self._width, self._height, self._braille = panel, width, height, braille
        self._across, self._down = (2, 4) if braille else (1, 1)
        points = [
            (x, y)
            for line in panel.lines
            for x, y in zip(line.xs, line.ys, strict=True)
            if not math.isnan(y)
        ]
        ys = [y for _, y in points]
        highest = max([*ys, panel.limit or 0.0, panel.now[1] if panel.now else 0.0])
        self.most = highest * 1.05 or 1.0
        xs = [x for line in panel.lines for x in line.xs]
        self._first, self._last = min(xs), max(xs)
        self._cells = [[0] * width for _ in range(height)]
        self._marks: dict[tuple[int, int], str] = {}

    def rows(self) -> list[str]:
        """The lines of text, from the top."""
        panel = self._panel
        if panel.limit is not None:
            _, row = self._place(self._first, panel.limit)
            rule = "─" if self._braille else "-"
            for column in range(self._width):
                self._marks[row // self._down, column] = rule
        for line in panel.lines:
            before: tuple[int, int] | None = None
            for x, y in zip(line.xs, line.ys, strict=True):
                if math.isnan(y):
                    before = None
                    continue
                at = self._place(x, y)
                for dot in _between(before or at, at):
                    self._dot(*dot)
                before = at
        if panel.now is not None:
            column, row = self._place(min(panel.now[0], self._last), panel.now[1])
            mark = _MARKS[0] if self._braille else "o"
            self._marks[row // self._down, column // self._across] = mark
            self._cells[row // self._down][column // self._across] = 0
        return [
            "".join(self._character_at(number, column) for column in range(self._width)).rstrip()
            for number in range(self._height)
        ]

    def _place(self, x: float, y: float) -> tuple[int, int]:
        """The dot of a point: its column from the left, and its row from the top."""
        across = self._width * self._across - 1
        down = self._height * self._down - 1
        span = self._last - self._first
        column = round((x - self._first) / span * across) if span > 0 else 0
        row = round((1.0 - min(y / self.most, 1.0)) * down)
        return min(max(column, 0), across), min(max(row, 0), down)

    def _dot(self, column: int, row: int) -> None:
        bit = _DOTS[column % 2][row % 4] if self._braille else 1
        self._cells[row // self._down][column // self._across] |= bit

    def _character_at(self, row: int, column: int) -> str:
        dots = self._cells[row][column]
        if dots:
            return chr(_BRAILLE + dots) if self._braille else "*"
        return self._marks.get((row, column), " ")


def _between(begin: tuple[int, int], end: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The dots of a straight line."""
    steps = max(abs(end[0] - begin[0]), abs(end[1] - begin[1]), 1)
    for step in range(steps + 1):
        share = step / steps
        yield (
            round(begin[0] + share * (end[0] - begin[0])),
            round(begin[1] + share * (end[1] - begin[1])),
        )
