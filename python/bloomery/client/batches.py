"""A batch of keys as requests, and their answers as one mask.

| batch | goes as |
|---|---|
| up to 10,000 keys that are Python objects | JSON, one request |
| more of them, all str, bytes or int; a column | an Arrow IPC stream, where pyarrow is installed |
| all others | a stream of JSON lines |

Where answers are wanted, a request has at most 16 Mi keys: a server holds them until the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import bloomery._native as _native
from bloomery import errors
from bloomery.client import columns
from bloomery.client.request import dumped, lines
from bloomery.json_keys import encode_key, encode_keys

if TYPE_CHECKING:
    from bloomery.types import Batch, Mask, Nulls

JSON = "application/json"
NDJSON = "application/x-ndjson"
_FEW = 10_000  # keys
_SMALL = 1 << 20  # bytes: a longer body goes as a stream
_MOST = 1 << 24  # keys of a stream whose answers are wanted
_BLOCK = 4096  # lines that are sent together


@dataclass(slots=True)
class SentRows:
    """The rows of a batch, counted as they are sent."""

    array: bool  # is the mask to be an array?
    count: int = 0
    nulls: list[int] = field(default_factory=list)  # rows that were left out

    def mask(self, answers: list[Any]) -> Mask:
        """The answers of all parts as one mask, False where a row was left out."""
        if not self.array:
            flat = chain.from_iterable(answers)
            left_out = set(self.nulls)
            return [row not in left_out and next(flat) for row in range(self.count)]
        try:
            import numpy
        except ImportError:
            return SentRows(False, self.count, self.nulls).mask(answers)
        whole = numpy.zeros(self.count, dtype=bool)
        kept = numpy.ones(self.count, dtype=bool)
        kept[self.nulls] = False
        whole[kept] = numpy.concatenate([numpy.zeros(0, dtype=bool), *answers])
        return whole


@dataclass(frozen=True, slots=True)
class RequestBody:
    """One request's body, and how its answers are read."""

    content_type: str
    body: bytes | Iterator[bytes]
    accept: str
    read: Callable[[bytes], Any] | None  # None: answers in the body's own JSON


def request_bodies(
    keys: Batch, nulls: Nulls, *, answers: bool
) -> tuple[SentRows, Iterator[RequestBody]]:
    """The bodies of a batch's requests, made as they are sent; `answers`: a mask is wanted."""
    if nulls not in ("error", "skip"):
        raise errors.InvalidParameter(f"nulls is {nulls!r}, must be 'error' or 'skip'")
    arrow = columns.load_pyarrow()
    rows = SentRows(array=columns.is_column(keys))
    listed = _native.column_objects(keys)
    if rows.array and arrow is not None and listed is None:
        column = columns.column_of(keys, arrow)
        if column is not None:
            return rows, _of_column(rows, column, arrow, nulls, answers)
    objects: Any = columns.objects_of(keys) if listed is None else listed
    if not isinstance(objects, Iterable):
        raise errors.UnsupportedBatch(
            f"{type(keys).__name__} is not a batch of keys: pass a list or other iterable, a NumPy "
            "array, or (with pyarrow) an Arrow, Polars, DuckDB or pandas column"
        )
    if arrow is not None and isinstance(objects, list) and len(objects) > _FEW:
        column = columns.of_objects(objects, arrow)
        if column is not None:
            return rows, _of_column(rows, column, arrow, nulls, answers)
    return rows, _of_objects(rows, iter(objects), nulls, answers)


def _of_column(
    rows: SentRows, column: Any, arrow: Any, nulls: Nulls, answers: bool
) -> Iterator[RequestBody]:
    rows.count = len(column)
    if column.null_count:
        empty = column.is_null().to_pylist()
        rows.nulls = [row for row, null in enumerate(empty) if null]
        if nulls == "error":
            raise _null(rows.nulls[0])
        column = column.drop_null()
    most = _MOST if answers else max(1, len(column))

    def read(content: bytes) -> Any:
        answers = arrow.ipc.open_stream(content).read_all().column(0)
        return answers.to_numpy() if rows.array else answers.to_pylist()

    for start in range(0, len(column), most):
        body = columns.messages(column.slice(start, most), arrow)
        yield RequestBody(columns.ARROW, body, columns.ARROW if answers else JSON, read)


def _of_objects(
    rows: SentRows, keys: Iterator[Any], nulls: Nulls, answers: bool
) -> Iterator[RequestBody]:
    block = list(islice(keys, _FEW + 1))
    if len(block) <= _FEW:
        kept = [key for key in block if key is not None] if nulls == "skip" else block
        body = dumped({"keys": encode_keys(kept)})
        if len(body) <= _SMALL:
            rows.count = len(block)
            if len(kept) < len(block):
                rows.nulls = [row for row, key in enumerate(block) if key is None]
            if kept:
                yield RequestBody(JSON, body, JSON, None)
            return
    left: Iterator[Any] = chain(block, keys)
    while (first := next(left, _NOTHING)) is not _NOTHING:
        stream = chain([first], islice(left, _MOST - 1) if answers else left)
        yield RequestBody(
            NDJSON, _lines(rows, stream, nulls), NDJSON if answers else JSON, _read_lines
        )


_NOTHING = object()


def _lines(rows: SentRows, keys: Iterator[Any], nulls: Nulls) -> Iterator[bytes]:
    while block := list(islice(keys, _BLOCK)):
        if set(map(type, block)) <= {str, int}:
            rows.count += len(block)
            yield lines(block)
            continue
        lines_of_block = []
        for key in block:
            if key is not None:
                lines_of_block.append(dumped(key if type(key) in (str, int) else encode_key(key)))
            elif nulls == "skip":
                rows.nulls.append(rows.count)
            else:
                raise _null(rows.count)
            rows.count += 1
        yield b"\n".join([*lines_of_block, b""])


def _read_lines(content: bytes) -> list[bool]:
    return [line == b"true" for line in content.splitlines()]


def _null(row: int) -> errors.NullKey:
    return errors.NullKey(f"row {row} is null: pass nulls='skip' to leave nulls out")
