"""Arrow streams of bytes that nobody vouches for: read as they are, or refused; never believed."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from bloomery import BloomFilter, errors
from bloomery.service.http.body.arrow import Column, Messages, answers
from conftest import effort, require

pa = require("pyarrow")

MOST = 1 << 20
COLUMNS = {
    "int64": pa.array(range(-100, 900)),
    "uint8": pa.array(range(200), pa.uint8()),
    "string": pa.array([f"key {i}" for i in range(500)]),
    "large_string": pa.array(["é" * (i % 40) for i in range(300)], pa.large_string()),
    "string_view": pa.array(["a" * (i % 30) for i in range(300)]).cast(pa.string_view()),
    "binary": pa.array([bytes([i]) * i for i in range(200)]),
    "fixed": pa.array([b"abcd", b"efgh"] * 50, pa.binary(4)),
    "uuid": pa.array([UUID(int=i) for i in range(300)], pa.uuid()),
}


def stream(*columns: Any, **options: Any) -> bytes:
    """Columns of one stream."""
    table = pa.table({f"column {i}": column for i, column in enumerate(columns)})
    file = io.BytesIO()
    with pa.ipc.new_stream(file, table.schema, **options) as writer:
        writer.write_table(table, max_chunksize=333)
    return file.getvalue()


def read(data: bytes, step: int = 1 << 16, column: str | None = None) -> Iterator[Any]:
    """The keys of a stream, whose bytes come so many at a time."""
    messages, keys = Messages(MOST), Column(column, MOST)
    for start in range(0, len(data), step):
        for message in messages.feed(data[start : start + step]):
            yield from keys.take(*message)
    messages.end()


@pytest.mark.parametrize("step", [1, 7, 1000, 1 << 16])
@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_in_any_pieces(name: str, step: int) -> None:
    """Each type of keys is read as it was written, however the bytes are cut."""
    found = list(read(stream(COLUMNS[name]), step))
    assert pa.chunked_array(found).to_pylist() == COLUMNS[name].to_pylist()


def test_a_column_by_name() -> None:
    """The first column is taken, or the one that is named; a wrong name says what there is."""
    data = stream(pa.array([1, 2]), pa.array(["a", "b"]))
    assert pa.chunked_array(list(read(data))).to_pylist() == [1, 2]
    assert pa.chunked_array(list(read(data, column="column 1"))).to_pylist() == ["a", "b"]
    with pytest.raises(errors.InvalidParameter, match="0: its columns are 'column 0', 'column 1'"):
        list(read(data, column="other"))


def test_a_file_is_no_stream() -> None:
    """Arrow's file format, which begins otherwise, is told from a stream."""
    file = io.BytesIO()
    table = pa.table({"keys": [1, 2]})
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(errors.UnsupportedBatch, match="it is an Arrow file; write a stream"):
        list(read(file.getvalue()))


def test_a_stream_may_end_without_its_mark() -> None:
    """A stream that just ends behind a message is whole; in a message, or with more behind its end
    mark, it is not."""
    data = stream(COLUMNS["int64"])
    assert sum(map(len, read(data[:-8]))) == 1000
    for wrong in (data[:-9], data[:-1], data + b"a", data[:-8] + b"\xff"):
        with pytest.raises(errors.UnsupportedBatch):
            list(read(wrong))


def test_nulls_are_refused_by_row() -> None:
    """A null is a NullKey with its row; all rows before its slice have been given."""
    column = pa.array([1, 2, None] + [4] * 400)
    with pytest.raises(errors.NullKey, match="row 2"):
        list(read(stream(column)))
    taken = read(stream(pa.array([1] * 500 + [None])))
    assert len(next(taken)) == 333
    with pytest.raises(errors.NullKey, match="row 500"):
        list(taken)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.5]),
        pa.array([[1]]),
        pa.array([{"a": 1}]),
        pa.array([0], pa.timestamp("s")),
        pa.array([True]),
        pa.array(["a"]).dictionary_encode(),
        pa.array([None]),
        pa.array([b""], pa.binary(0)),
        pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8())),
    ],
    ids=lambda column: str(column.type),
)
def test_types_that_are_no_keys(column: Any) -> None:
    """A column that is none of ints, strings, binary and UUIDs is refused by its type."""
    with pytest.raises(errors.UnsupportedBatch, match="column of type"):
        list(read(stream(column)))


def test_an_extension_type_that_pyarrow_does_not_know_is_refused() -> None:
    """What only the metadata of a column says counts: a type that is stored as ints is no int."""
    field = pa.field("key", pa.int64(), metadata={"ARROW:extension:name": "someone.else"})
    file = io.BytesIO()
    with pa.ipc.new_stream(file, pa.schema([field])) as writer:
        writer.write_table(pa.table([[1]], schema=pa.schema([field])))
    with pytest.raises(errors.UnsupportedBatch, match="column of type"):
        list(read(file.getvalue()))


def test_uuids_are_uuids() -> None:
    """A column of UUIDs has the keys that `add` takes one by one."""
    filter = BloomFilter(100, 1e-9)
    for part in read(stream(pa.array([UUID(int=5)], pa.uuid()))):
        filter.update(part)
    assert UUID(int=5) in filter
    assert UUID(int=5).bytes not in filter


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_batches_are_refused(codec: str) -> None:
    """A compressed batch is refused before it is unpacked: a kilobyte may become a terabyte."""
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pytest.raises(errors.UnsupportedBatch, match="compressed"):
        list(read(stream(pa.array([0] * 10_000), options=options)))


@pytest.mark.parametrize("kind", [pa.binary_view(), pa.string_view()], ids=str)
def test_views_of_the_same_bytes_are_bounded(kind: Any) -> None:
    """Views that show the same bytes again and again have as many bytes as a message may have, and
    no more."""
    size, rows = MOST // 300, 300
    shown = pa.py_buffer(b"a" * size)

    def views(rows: int, sign: int = 1) -> Any:
        one = struct.pack("<i4sii", sign * size, b"aaaa", 0, 0)
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(one * rows), shown])

    assert sum(map(len, read(stream(views(rows))))) == rows
    for sign in (1, -1):
        with pytest.raises(errors.BloomeryError):
            list(read(stream(views(rows + 1, sign))))
    with pytest.raises(errors.RequestTooLarge):
        list(read(stream(views(rows + 1))))


def test_no_length_is_believed() -> None:
    """A message that says it is longer than a request may be is refused at its head."""
    data = stream(pa.array(range(300)))
    schema = 8 + struct.unpack_from("<I", data, 4)[0]
    at = data.rindex(struct.pack("<q", 300 * 8), schema, schema + 400)  # the body's length
    for length in (MOST, 1 << 40, -1, -(1 << 62)):
        forged = data[:at] + struct.pack("<q", length) + data[at + 8 :]
        with pytest.raises((errors.RequestTooLarge, errors.UnsupportedBatch)):
            list(read(forged))
    for length in (1 << 21, 0x7FFFFFF8, 12, 8):
        with pytest.raises(errors.UnsupportedBatch):
            list(read(struct.pack("<II", 0xFFFFFFFF, length) + bytes(64)))


def forgeries(data: bytes, rounds: int, seed: int) -> Iterator[bytes]:
    """The stream damaged in every way: cut, flipped, numbers replaced by hostile ones, swapped."""
    chance = random.Random(seed)
    hostile = [0, 1, -1, 7, 1 << 31, (1 << 31) - 1, 1 << 40, (1 << 63) - 1, -(1 << 63)]
    for _ in range(rounds):
        damaged = bytearray(data)
        for _ in range(chance.choice([1, 1, 2, 5])):
            at = chance.randrange(len(damaged))
            what = chance.randrange(5)
            if what == 0:
                damaged[at] ^= 1 << chance.randrange(8)
            elif what == 1:
                size = chance.choice([1, 2, 4, 8])
                value = chance.choice(hostile) & ((1 << 8 * size) - 1)
                damaged[at : at + size] = value.to_bytes(size, "little")
            elif what == 2:
                del damaged[at:]
            elif what == 3:
                del damaged[at : at + chance.randrange(16)]
            else:
                damaged[at:at] = chance.randbytes(chance.randrange(16))
            if not damaged:
                break
        yield bytes(damaged)


@pytest.mark.parametrize("name", COLUMNS)
def test_damaged_streams(name: str) -> None:
    """Whatever is damaged: keys come out, or one of our errors; never another, and a filter can
    take what came out."""
    filter, refused = BloomFilter(1000), 0
    for forged in forgeries(stream(COLUMNS[name]), effort(150, 400, 20_000), seed=7):
        taken = 0
        try:
            for keys in read(forged, 1000):
                filter.add_many(keys)
                taken += len(keys)
        except errors.BloomeryError:
            refused += 1
        assert taken <= 2 * 8 * len(forged), "more keys than the bytes could hold"
    assert refused > 0


def test_answers_are_a_boolean_column() -> None:
    """Answers, a byte each, come out as one column of booleans, in as many batches as it takes."""
    for count in (0, 1, 9, (1 << 20) + 3):
        given = np.arange(count) % 3 == 0
        data = b"".join(answers(given.astype("u1").tobytes()))
        found = pa.ipc.open_stream(data).read_all().column(0)
        assert found.type == pa.bool_()
        assert found.to_numpy().tolist() == given.tolist()
