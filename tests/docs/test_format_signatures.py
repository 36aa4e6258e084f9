"""docs/format.md is exact for signature indexes: a reader written from it gives our candidates."""

import base64
import datetime as dt
import json
import struct
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from bloomery import BloomFilter
from conftest import require
from docs import reader

pa = require("pyarrow")
from bloomery.signatures import SignatureIndex  # noqa: E402

ROWS, BLOCK = 33_400, 32_768
COLUMNS: dict[str, tuple[Any, Any]] = {  # how a row's value is made, and its type
    "i": (lambda row: row % 97 - 40, pa.int32()),
    "s": (lambda row: None if row % 5 == 0 else f"ż{row % 50}", pa.string()),
    "b": (lambda row: row % 3 == 0, pa.bool_()),
    "d": (lambda row: dt.date(1969, 12, 1) + dt.timedelta(row % 60), pa.date32()),
    "m": (lambda row: Decimal(row % 40 - 20) / 4, pa.decimal128(9, 2)),
    "f": (lambda row: -0.0 if row % 20 == 0 else row % 20 / 8, pa.float64()),
}


def key(name: str, value: Any) -> int | str | bytes:
    """What the page says that a value is as a key."""
    if name == "d":
        return int((value - dt.date(1970, 1, 1)).days)
    if name == "m":
        return int(value * 100).to_bytes(16, "little", signed=True)
    if name == "f":
        (bits,) = struct.unpack("<q", struct.pack("<d", value + 0.0))
        return int(bits)
    return int(value) if name == "b" else value


class Index:
    """A file of kind 11, read as the page says."""

    def __init__(self, data: bytes) -> None:
        assert data[:11] == b"BLOOMERY\x01\x00\x0b"
        (columns,) = struct.unpack_from("<H", data, 14)
        self.length, rows = (int.from_bytes(data[at : at + 8], "little") for at in (16, 64))
        (text,) = struct.unpack_from("<Q", data, 72)
        about = json.loads(data[128 : 128 + text])
        self.names = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(about["schema"]))).names
        self.bits, self.rows = about["bits"], rows
        assert len(self.bits) == len(self.names) == columns
        self.body = data[-(-(128 + text) // 4096) * 4096 :]

    def has(self, row: int, place: int) -> bool:
        block, within = divmod(row, BLOCK)
        each = -(-min(BLOCK, self.rows - block * BLOCK) // 512) * 64
        at = block * BLOCK // 8 * self.length + place * each + within // 8
        return bool(self.body[at] >> within % 8 & 1)

    def candidates(self, asked: Mapping[str, Any]) -> list[int]:
        places: set[int] = set()
        for name, value in asked.items():
            column = self.names.index(name)
            tag = (column + 1) * 0x9E3779B97F4A7C15 % 2**64
            # XXH3 as published: the reader has that of 8 bytes alone.
            h = reader.remix(BloomFilter(1).hash_of(key(name, value)) ^ tag)
            places |= set(reader.classic_positions(h, self.length, self.bits[column]))
        return [row for row in range(self.rows) if all(self.has(row, place) for place in places)]


@pytest.mark.parametrize("length", [80, 33])
def test_candidates_by_the_page(length: int, tmp_path: Path) -> None:
    """Every column's bits, over a full block and a short one, are where the page says."""
    values = {n: pa.array([make(r) for r in range(ROWS)], t) for n, (make, t) in COLUMNS.items()}
    index = SignatureIndex.build(pa.table(values), length=length, bits={"s": 5, "b": 1})
    index.save(tmp_path / "i")
    saved = Index((tmp_path / "i").read_bytes())
    assert saved.rows == ROWS
    for names in [["i"], ["s", "b"], ["d", "m"], ["f", "i", "s"]]:
        asked = {name: COLUMNS[name][0](ROWS - 1) for name in names}
        assert saved.candidates(asked) == index.candidates(asked).tolist()
