"""Columns made by hand, some of them wrong, given to a filter until something breaks.

    python column_fuzzer.py SEED ROUNDS

Runs in a process of its own, with little memory, and says which round it is in: a crash, an abort
or a hang is for the parent to see. A column that is right has the keys that pyarrow reads from the
same structures; one that is wrong is refused by an error of bloomery's, or is read all the same
where the interface does not say that it is wrong.
"""

from __future__ import annotations

import random
import resource
import struct
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import pyarrow as pa

from bloomery import BloomFilter, errors
from properties.arrow_structs import Column, Handed, Memory, Streamed

INTS = {"c": "b", "C": "B", "s": "h", "S": "H", "i": "i", "I": "I", "l": "q", "L": "Q"}
BIG = [-1, -(2**63), 2**63 - 1, 2**62, -2]


def extension(name: bytes) -> bytes:
    """The metadata that names an extension type."""
    pairs = [b"other", b"thing", b"ARROW:extension:name", name]
    return struct.pack("=i", 2) + b"".join(struct.pack("=i", len(one)) + one for one in pairs)


def right(rng: random.Random, depth: int = 0) -> Column:
    """A column as the interface wants it."""
    before, length, after = rng.randrange(4), rng.choice([0, 1, 3, 40, 300]), rng.randrange(3)
    rows = before + length + after
    kinds = [*INTS, *"uUzZ", "vu", "vz", "w:", "uuid", "n"]
    if depth == 0:
        kinds += ["dictionary", "+s"] * 3
    kind = rng.choice(kinds)
    texts = [rng.randbytes(rng.choice([0, 1, 5, 12, 13, 40])).hex().encode() for _ in range(rows)]
    metadata = None
    if kind == "n":
        return Column("n", length, [], before, length)
    if kind == "+s":
        child = right(rng, 1)
        skipped = rng.randrange(child.length + 1)
        rows = rng.randrange(child.length - skipped + 1)
        return Column("+s", rows, [None], skipped, 0, children=[child])
    if kind == "dictionary":
        values = right(rng, 1)
        while not values.length:
            values = right(rng, 1)
        format = rng.choice([one for one in INTS if values.length <= 100 or one not in "cC"])
        places = [rng.randrange(values.length) for _ in range(rows)]
        made = Column(format, length, [None, _ints(format, places)], before)
        made.dictionary = values
    elif kind in INTS:
        made = Column(kind, length, [None, rng.randbytes(8 * rows)], before)
    elif kind in ("w:", "uuid"):
        width = 16 if kind == "uuid" else rng.choice([0, 1, 4, 16, 20])
        metadata = extension(b"arrow.uuid") if kind == "uuid" else None
        made = Column(f"w:{width}", length, [None, rng.randbytes(width * rows)], before)
    elif kind.startswith("v"):
        made = Column(kind, length, [None, *_views(rng, texts)], before)
    else:
        ends = [0]
        for text in texts:
            ends.append(ends[-1] + len(text))
        packed = struct.pack(f"={rows + 1}{'i' if kind in 'uz' else 'q'}", *ends)
        made = Column(kind, length, [None, packed, b"".join(texts)], before)
    made.metadata = metadata
    if rng.random() < 0.4:
        made.buffers[0] = rng.randbytes(rows // 8 + 1)
        made.null_count = -1
    return made


def _ints(format: str, values: list[int]) -> bytes:
    return struct.pack(f"={len(values)}{INTS[format]}", *values)


def _views(rng: random.Random, texts: list[bytes]) -> list[bytes]:
    long, views = [bytearray(b"x"), bytearray()], b""
    for text in texts:
        if len(text) <= 12:
            views += struct.pack("=i12s", len(text), text)
        else:
            at = rng.randrange(2)
            views += struct.pack("=i4sii", len(text), text[:4], at, len(long[at]))
            long[at] += text
    return [views, *map(bytes, long), struct.pack("=2q", *map(len, long))]


def spoil(rng: random.Random, column: Column) -> None:
    """Make a column wrong in one of its fields, if the interface lets one tell."""
    inner = [one for one in (column.dictionary, *column.children) if one is not None]
    if inner and rng.random() < 0.5:
        spoil(rng, rng.choice(inner))
        return
    views = column.format.startswith("v")
    ways = ["length", "offset", "null_count", "n_buffers", "buffers", "buffer", "format"]
    ways += ["metadata", "extension", "children", "dictionary", "release", "middle", "middle"]
    way = rng.choice(ways)
    if way in ("length", "offset", "null_count"):
        setattr(column, way, rng.choice(BIG))
    elif way == "n_buffers":
        column.array[way] = rng.choice([-1, -(2**63), *range(len(column.buffers))])
    elif way == "buffers":
        column.array[way] = None
    elif way == "buffer" and column.buffers:
        column.buffers[rng.randrange(len(column.buffers))] = None
    elif way == "format":
        wrong = ["", "w:", "w:-1", "w:x", f"w:{10**30}", "+r", "+l", "+s", "tsu:", "b", "g", "\xff"]
        column.format = rng.choice([*wrong, *INTS, "w:3"])
        if rng.random() < 0.2:
            column.schema["format"] = None
    elif way == "metadata":
        column.metadata = rng.choice([struct.pack("=i", -1), struct.pack("=ii", 3, -7)])
    elif way == "extension":
        names = [b"arrow.uuid", b"arrow.json", b"arrow.bool8", b"pandas.period", b"", b"\xff" * 99]
        column.metadata = extension(rng.choice(names))
    elif way == "children":
        part = rng.choice([column.schema, column.array])
        part.update(rng.choice([{"n_children": -1}, {"n_children": 0}, {"children": None}]))
        if column.children and rng.random() < 0.5:
            most = max(0, min(300, column.length + column.offset))
            column.children[0].length = rng.randrange(most + 1)
    elif way == "dictionary":
        rng.choice([column.schema, column.array])["dictionary"] = rng.choice([None, 1, 3])
        if column.dictionary is None:
            column.schema, column.array = {}, {}
    elif way == "release":
        rng.choice([column.schema, column.array])["release"] = None
    elif way == "middle":
        _spoil_bytes(rng, column, views)


def _spoil_bytes(rng: random.Random, column: Column, views: bool) -> None:
    """Offsets that stay within their text, views, negative lengths, places of a dictionary: what
    cannot be right, or leads nowhere."""
    if len(column.buffers) < 2 or not column.buffers[1]:
        return
    data = bytearray(column.buffers[1])
    if column.format in list("uUzZ"):
        size = 4 if column.format in "uz" else 8
        text = len(column.buffers[2] or b"")
        value = rng.randrange(-5, text + 1)
        struct.pack_into(
            "=i" if size == 4 else "=q", data, rng.randrange(len(data) // size) * size, value
        )
    elif views:
        if rng.random() < 0.2:
            column.buffers[-1] = struct.pack("=2q", -1, rng.choice([0, -(2**63)]))
            return
        word = rng.randrange(len(data) // 4)
        struct.pack_into("=I", data, 4 * word, rng.choice([2**31, 2**32 - 1, 1 << 30, 13, 200, 0]))
    elif column.dictionary is not None:
        data[rng.randrange(len(data))] = rng.randrange(256)
    column.buffers[1] = bytes(data)


def check(rng: random.Random, batch: Any, wanted: list[Any] | None) -> None:
    """Give a batch to a filter; what it takes, it must take as pyarrow does."""
    made = BloomFilter(1000, 1e-6)
    try:
        answers = made.add_many(batch, nulls="skip", threads=rng.choice([1, 2]))
        strict = wanted is None or None not in wanted
        asked = made.contains_many(batch, nulls="error" if strict else "skip")
    except (errors.BloomeryError, MemoryError):
        assert wanted is None, "refused what pyarrow reads"
        return
    if wanted is not None:
        known = BloomFilter(1000, 1e-6)
        known.update([one for one in wanted if one is not None])
        assert made == known, "read otherwise than pyarrow does"
        assert len(answers) == len(asked) == len(wanted)
        assert [bool(one) for one in asked] == [one is not None for one in wanted]


def read(batch: Any) -> list[Any]:
    """The keys as pyarrow reads them: a struct of one field is that field."""
    rows = pa.array(batch) if hasattr(batch, "__arrow_c_array__") else pa.chunked_array(batch)
    shown: list[Any] = (
        rows.cast(pa.binary()).to_pylist() if _is_text(rows.type) else rows.to_pylist()
    )
    return [next(iter(one.values())) if isinstance(one, dict) else one for one in shown]


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind))


def one_round(rng: random.Random) -> None:
    """A column, right or wrong, as an array or as a stream."""
    memory, column = Memory(), right(rng)
    wrong = rng.random() < 0.7
    for _ in range(rng.randrange(1, 3) if wrong else 0):
        spoil(rng, column)
    fails = ""
    if rng.random() < 0.3:
        if rng.random() < 0.3:
            wrong = True
            fails = rng.choice(
                ["get_schema", "get_next", "no get_schema", "no get_next", "released"]
            )
        batch: Any = Streamed(memory, [column] * rng.randrange(1, 4), fails)
    else:
        batch = Handed(memory, column)
    check(rng, batch, None if wrong else read(batch))


def main() -> None:
    """Run as many rounds as were asked for."""
    seed, rounds = int(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    for number in range(rounds):
        print(f"seed {seed} round {number}", flush=True)
        one_round(random.Random(f"{seed} {number}"))
    print("done", flush=True)


if __name__ == "__main__":
    main()
