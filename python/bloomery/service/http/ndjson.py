"""Keys out of lines of JSON, as they come; and answers as such lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic_core import from_json

from bloomery import errors
from bloomery.service.http.keyforms import key_of

__all__ = ["Lines", "answers"]

_LINES = 1 << 14  # that are added in one go: some 5 ms, for which all others wait
_ANSWERS = 1 << 20


class Lines:
    """Cuts a stream into lines, each a key, of at most so many bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest = bytearray()  # of a line that is not yet whole
        self._lines = 0

    def feed(self, data: bytes) -> Iterator[list[Any]]:
        """Take what came; the keys of the lines that are whole now, in batches."""
        whole, newline, rest = data.rpartition(b"\n")
        if newline:
            self._rest += whole
            whole, self._rest = bytes(self._rest), bytearray()
            yield from self._keys(whole)
        self._rest += rest
        if len(self._rest) > self._most:
            raise errors.RequestTooLarge(
                f"line {self._lines + 1} has more than {self._most} bytes (proto-max-bulk-len)"
            )

    def end(self) -> Iterator[list[Any]]:
        """The last line, if no newline ended it."""
        yield from self._keys(bytes(self._rest))

    def _keys(self, text: bytes) -> Iterator[list[Any]]:
        lines = text.split(b"\n")
        for start in range(0, len(lines), _LINES):
            keys: list[Any] = []
            try:
                for line in lines[start : start + _LINES]:
                    self._lines += 1
                    if line and not line.isspace():
                        value = from_json(line, allow_inf_nan=False, cache_strings="none")
                        keys.append(value if type(value) is str else key_of(value))
            except errors.BloomeryError as problem:
                yield keys
                raise type(problem)(f"line {self._lines}: {problem}") from None
            except ValueError:
                yield keys
                raise errors.UnsupportedBatch(f"line {self._lines} is not JSON") from None
            yield keys


def answers(given: bytes) -> Iterator[bytes]:
    """A byte an answer as lines of true and false."""
    for start in range(0, len(given), _ANSWERS):
        part = given[start : start + _ANSWERS]
        yield part.replace(b"\1", b"true\n").replace(b"\0", b"false\n")
