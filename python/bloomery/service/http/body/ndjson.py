"""Keys out of lines of JSON, as they come; and answers as such lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic_core import from_json

from bloomery import errors
from bloomery.json_keys import decode_key
from bloomery.service.http.body import bodies
from bloomery.service.http.limits import MAX_NDJSON_VALUE

_LINES = 1 << 10  # that are looked at in one go: some 5 ms, for which all others wait
_PIECE = 64 << 10  # bytes of lines that are parsed in one go
_ANSWERS = 1 << 20


class NdjsonReader:
    """Reads a stream of lines, each a key, of at most so many bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest = bytearray()  # of a line that is not yet whole
        self._lines = 0

    @property
    def pending(self) -> int:
        """Bytes of a line that is not yet whole."""
        return len(self._rest)

    def feed(self, data: bytes) -> Iterator[list[Any]]:
        """Take received bytes; return the keys of the lines that are complete, in batches."""
        whole, newline, rest = data.rpartition(b"\n")
        if newline:
            self._rest += whole
            whole, self._rest = bytes(self._rest), bytearray()
            yield from self._keys(whole)
        self._rest += rest
        if len(self._rest) > self._most:
            raise errors.RequestTooLarge(f"line {self._lines + 1} has more than {self._most} bytes")

    def end(self) -> Iterator[list[Any]]:
        """The last line, if no newline ended it."""
        yield from self._keys(bytes(self._rest))

    def _keys(self, text: bytes) -> Iterator[list[Any]]:
        """The keys of whole lines, some at a time."""
        start = 0
        while len(text) - start > _PIECE:
            end = text.rfind(b"\n", start, start + _PIECE)
            if end < 0:  # a long line
                end = text.find(b"\n", start + _PIECE)
                end = len(text) if end < 0 else end
            yield from self._batches(text[start:end])
            start = end + 1
        if start <= len(text):
            yield from self._batches(text[start:])

    def _batches(self, text: bytes) -> Iterator[list[Any]]:
        if len(text) > _PIECE:
            self._check_long(text)
        keys = _plain(text)
        if keys is not None:
            self._lines += len(keys)
            yield keys
            return
        lines = text.split(b"\n")
        for start in range(0, len(lines), _LINES):
            yield from self._each(lines[start : start + _LINES])

    def _check_long(self, line: bytes) -> None:
        if len(line) > MAX_NDJSON_VALUE and not line.lstrip().startswith(b'"'):
            raise errors.RequestTooLarge(
                f"line {self._lines + 1} has {len(line):,} bytes and is not a string: a key of "
                f"another form may have {MAX_NDJSON_VALUE:,}"
            )

    def _each(self, lines: list[bytes]) -> Iterator[list[Any]]:
        """The keys one by one, up to a line that is none."""
        keys: list[Any] = []
        try:
            for line in lines:
                self._lines += 1
                if line and not line.isspace():
                    keys.append(decode_key(_value(line)))
        except errors.BloomeryError as problem:
            yield keys
            raise type(problem)(f"line {self._lines}: {problem}") from None
        except ValueError:
            yield keys
            raise errors.UnsupportedBatch(f"line {self._lines} is not JSON") from None
        yield keys


def _value(line: bytes) -> Any:
    """The value of a line. Of two members of one name this parser keeps the last and says nothing:
    where there may be such, the one for bodies has to agree."""
    value = from_json(line, allow_inf_nan=False)
    if b"{" in line:
        bodies.parse(line)
    return value


def _plain(text: bytes) -> list[Any] | None:
    """The keys of all lines at once, if each is a string or an integer; else None.

    No string goes over a line's end, and between two commas there is a value: where as many plain
    values come out as there are lines, each line is one. It takes a tenth of the time.
    """
    if text.startswith((b"[", b"{")) or b"\n[" in text or b"\n{" in text:
        # And thousands of objects are not made, which the garbage collector would count.
        return None
    joined = b"[%s]" % text.replace(b"\n", b"\n,\n")
    try:
        keys: list[Any] = from_json(joined, allow_inf_nan=False, cache_strings="none")
    except ValueError:
        return None
    plain = len(keys) == text.count(b"\n") + 1 and set(map(type, keys)) <= {str, int}
    return keys if plain else None


def answers(results: bytes) -> Iterator[bytes]:
    """A byte an answer as lines of true and false."""
    for start in range(0, len(results), _ANSWERS):
        part = results[start : start + _ANSWERS]
        yield part.replace(b"\1", b"true\n").replace(b"\0", b"false\n")
