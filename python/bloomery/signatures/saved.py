"""A signature index as a file: header, a JSON text about its columns and rows, then the bitmaps.

docs/format.md has every byte. The bitmaps begin at a multiple of 4,096, so that the bitmap of one
bit and 32,768 rows is one page of a mapped file.
"""

from __future__ import annotations

import base64
import binascii
import json
import mmap as memory_map
import os
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa

import bloomery._native as _native
from bloomery import errors
from bloomery.storage import files, memory
from bloomery.storage.files import CHUNK_BYTES, HEADER_BYTES

KIND = "signatures"
_PAGE = 4096
_ADVICE = "map it with load(path, mmap=True)"


@dataclass(frozen=True)
class Description:
    """What a file says of its index beside the bitmaps."""

    schema: pa.Schema  # the indexed columns, in the types in which they are compared
    bits: list[int]
    rows: dict[str, Any] | None  # where the rows are

    def as_json(self) -> bytes:
        schema = base64.b64encode(self.schema.serialize().to_pybytes()).decode()
        return json.dumps({"schema": schema, "bits": self.bits, "rows": self.rows}).encode()


def write(
    file: BinaryIO, native: _native.Signatures, length: int, description: Description
) -> None:
    """Write an index to an empty file that can seek."""
    text = description.as_json()
    skip = _skip(len(text))
    checksum = 0
    file.seek(HEADER_BYTES)
    for chunk in files.chunks([text.ljust(skip), *native.sections()]):
        checksum = _native.checksum(chunk, checksum)
        file.write(chunk)
    head = _head(native.rows, len(description.bits), length, skip + native.nbytes, len(text))
    file.seek(0)
    file.write(head[:-8] + checksum.to_bytes(8, "little"))


def read(
    path: str | os.PathLike[str], mmap: bool, verify: bool | None
) -> tuple[_native.Signatures, int, Description]:
    """Open a file: the bitmaps, the length of a signature, and what it says of itself."""
    with files.naming(path), open(path, "rb") as file:
        head = file.read(HEADER_BYTES)
        total = os.fstat(file.fileno()).st_size
        kind, nbytes, expected = _native.read_header(head, total)
        if kind != KIND:
            raise errors.IncompatibleFilters(
                f"this is a {kind} filter, not a signature index: load it with bloomery.open"
            )
        if expected == _native.LIVE:
            raise errors.CorruptData("no checksum: a signature index always has one")
        body: Any
        if mmap:
            body = memory_map.mmap(file.fileno(), 0, access=memory_map.ACCESS_READ)
            offset = HEADER_BYTES
            if verify:
                with memoryview(body)[HEADER_BYTES:] as view:
                    files.check_sum(expected, _native.checksum(view))
        else:
            memory.check(total, _ADVICE)
            body, offset = _native.Memory(nbytes), 0
            checksum, at = 0, 0
            while chunk := file.read(CHUNK_BYTES):
                checksum = _native.checksum(chunk, checksum)
                body.write(at, chunk)
                at += len(chunk)
            if at != nbytes:
                raise errors.CorruptData("the file became shorter while it was read")
            if verify is not False:
                files.check_sum(expected, checksum)
        columns = int.from_bytes(head[14:16], "little")
        length, rows, about = (int.from_bytes(head[at : at + 8], "little") for at in (16, 64, 72))
        if _head(rows, columns, length, nbytes, about)[:112] != head[:112]:
            raise errors.CorruptData("its header has numbers that no signature index has")
        skip = _skip(about)
        if skip > nbytes:
            raise errors.CorruptData(f"{about} bytes about its rows, of {nbytes} in all")
        text = body[offset : offset + about] if mmap else body.read(0, about)
        description = _described(bytes(text), columns)
        native = _native.Signatures.open(head, description.bits, body, offset, skip)
        return native, length, description


def _head(rows: int, columns: int, length: int, nbytes: int, text: int) -> bytes:
    return _native.make_header(
        KIND,
        max(1, rows),
        0.5,  # of an error rate, which an index has none of
        "xxh3",
        0,
        num_hashes=columns,
        num_bits=length,
        nbytes=nbytes,
        extra=[rows, text],
    )


def _skip(text: int) -> int:
    """Bytes of the body before the bitmaps."""
    return -(-(HEADER_BYTES + text) // _PAGE) * _PAGE - HEADER_BYTES


def _described(text: bytes, columns: int) -> Description:
    try:
        head = json.loads(text)
        serialized = base64.b64decode(head["schema"], validate=True)
        schema = pa.ipc.read_schema(pa.py_buffer(serialized))
        bits, rows = head["bits"], head["rows"]
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error, OSError) as problem:
        raise errors.CorruptData(
            f"what it says of its columns cannot be read ({type(problem).__name__}): restore the "
            "file from a copy, or build the index anew"
        ) from None
    right = (
        isinstance(bits, list)
        and len(bits) == len(schema) == columns == len(set(schema.names))
        and all(type(number) is int and 0 < number < 1 << 32 for number in bits)
        and (rows is None or isinstance(rows, dict))
    )
    if not right:
        raise errors.CorruptData(
            f"{columns} columns in the header, but what is said of them is something else"
        )
    return Description(schema, bits, rows)
