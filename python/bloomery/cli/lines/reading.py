"""Inputs of lines, one after another: headers of CSV apart, fields checked, lines counted."""

from collections.abc import Callable

from bloomery._native import LineKey
from bloomery.cli.lines.fields import FieldOptions
from bloomery.cli.progress import LineProgress
from bloomery.cli.pump import LinePump
from bloomery.errors import InvalidParameter
from bloomery.storage.inputs import InputFile

# The lines that come out; bytes used, lines seen, and lines that come out.
Chunk = tuple[bytes, int, int, int]
Step = Callable[[memoryview, bool, LineKey | None], Chunk]


def ignore(data: bytes) -> None:
    """Do nothing with it."""


class LineReader:
    """Hands every input to a step, chunk by chunk, and what comes out of it to `write`.

    `write` gets no lines of a chunk that `--strict` refuses. The first header goes to `write` too;
    those of other inputs must be the same.
    """

    def __init__(
        self,
        pump: LinePump,
        asked: FieldOptions,
        progress: LineProgress,
        step: Step,
        write: Callable[[bytes], None] = ignore,
    ) -> None:
        self._pump, self._asked, self._progress = pump, asked, progress
        self._step, self._write = step, write
        self._before = 0  # encoded bytes of the inputs already read
        self._header = b""
        self.lines = self.chosen = self.missing = 0  # seen; that came out; without the field

    def read(self, source: InputFile) -> None:
        """All lines of an input."""
        self._source, self._fields = source, self._asked.reader()
        self._pump.run(source, self._take)
        self._before += source.position
        if self._fields is not None:
            self._progress.stop()
            self._fields.report(source.name)

    def read_all(self, paths: list[str]) -> None:
        """All lines of these inputs."""
        for path in paths:
            with InputFile(path) as source:
                self.read(source)

    def _take(self, data: memoryview, final: bool) -> int:
        key = None if self._fields is None else self._fields.key
        if self._fields is not None and key is None:
            return self._take_header(data, final)
        before = 0 if key is None else key.missing
        text, consumed, lines, chosen = self._step(data, final, key)
        missing = 0
        if self._fields is not None and key is not None:
            self._fields.check(self._source.name)
            missing = key.missing - before
        self._write(text)
        self.lines += lines
        self.chosen += chosen - missing
        self.missing += missing
        position = self._before + self._source.position
        self._progress.advance(position, lines, chosen - missing)
        return consumed

    def _take_header(self, data: memoryview, final: bool) -> int:
        assert self._fields is not None
        consumed = self._fields.begin(data, final, self._source.name)
        if not consumed:
            return 0
        header = self._fields.header
        if header and not self._header:
            self._header = header
            self._write(header)
        elif _names(header) != _names(self._header):
            raise InvalidParameter(
                f"{self._source.name}: its header is not that of the first file; bring the columns"
                " into one order, or take the files one by one"
            )
        if consumed == len(data):
            return consumed
        return consumed + self._take(data[consumed:], final)


def _names(header: bytes) -> bytes:
    return header.rstrip().removeprefix(b"\xef\xbb\xbf")
