"""`segments`: reads that filters spare, in an LSM store and in a folder of Parquet files.

The store has 10 M keys in 20 segments that are not merged. Absent keys are asked for one by one and
in batches, at each fp_chance, and without filters: then every segment is read. The folder has 1,000
row groups of 10,000 rows in random order, so that the statistics of Parquet exclude none; a scan is
`pyarrow.dataset` with a filter, of all columns, as `find` gives them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lines import Line, word
from benchmarks.report import Column, table
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress
from bloomery.segments import SegmentIndex, SegmentStore

SEGMENTS = 20
CHANCES = (0.01, 0.1)
GROUPS, FILES = 1000, 50
VALUE = b"v" * 32
COLUMNS = {"user_id": "int64", "email": "string"}


def run(settings: Settings) -> list[Record]:
    with tempfile.TemporaryDirectory() as folder:
        records = [_store(settings, Path(folder), chance) for chance in CHANCES]
    with tempfile.TemporaryDirectory() as folder:
        return records + _index(settings, Path(folder))


def _key(number: int) -> bytes:
    return b"user:%012d" % number


def _store(settings: Settings, folder: Path, chance: float) -> Record:
    keys, asked = settings.segment_keys, settings.segment_gets
    progress.step(f"segments: a store of {keys:,} keys at {chance:g}")
    path = folder / f"{chance:g}"
    options: dict[str, Any] = {"memtable_bytes": 1 << 40, "compact_at": 0, "fsync": False}
    began = time.perf_counter()
    with SegmentStore(path, fp_chance=chance, **options) as store:
        for segment in range(SEGMENTS):
            numbers = range(segment, keys, SEGMENTS)
            store.put_many((_key(number), VALUE) for number in numbers)
            store.flush()
        put = time.perf_counter() - began
        chosen = np.random.default_rng(7).integers(0, keys, asked).tolist()
        absent = [_key(10 * keys + number) for number in chosen]
        present = [_key(number) for number in chosen]
        times = {
            "get, absent": _each(store.get, absent),
            "get_many, absent": _together(store, absent),
        }
        stats = store.stats()
        times["get, present"] = _each(store.get, present)
        segments = store._tree.view.segments  # what a store without filters reads
        few = absent[: len(absent) // 20]
        times["without filters, absent"] = _each(
            lambda key: [segment.get(key) for segment in segments], few
        )
    return {
        "table": "store",
        "fp_chance": chance,
        "keys": keys,
        "segments": stats["segments"],
        "filter_bytes": stats["filter_bytes"],
        "segment_bytes": stats["segment_bytes"],
        "reads": stats["segments_read"] / stats["gets"],
        "us": times,
        "put_us": put / keys * 1e6,
    }


def _each(ask: Callable[[bytes], object], keys: list[bytes]) -> float:
    """Microseconds a key, the best of three passes."""
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        for key in keys:
            ask(key)
        best = min(best, time.perf_counter() - began)
    return best / len(keys) * 1e6


def _together(store: SegmentStore, keys: list[bytes]) -> float:
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        store.get_many(keys)
        best = min(best, time.perf_counter() - began)
    return best / len(keys) * 1e6


def _index(settings: Settings, folder: Path) -> list[Record]:
    from pyarrow import dataset

    rows = settings.segment_rows
    total = GROUPS * rows
    progress.step(f"segments: {GROUPS} row groups of {rows:,} rows")
    _write(folder, rows)
    began = time.perf_counter()
    with SegmentIndex.build(folder, list(COLUMNS), fp_chance=0.01) as index:
        built = time.perf_counter() - began
        stats = index.stats()
        files = dataset.dataset(folder, format="parquet", exclude_invalid_files=True)
        records: list[Record] = []
        values = np.random.default_rng(3).integers(total // 4, 3 * total // 4, 100).tolist()
        for name in COLUMNS:
            progress.step(f"segments: find by {name}")
            wanted = [_value(name, number) for number in values]
            before = index.stats()["parts_skipped"]
            for value in wanted:
                index.candidates({name: value})
            touched = len(wanted) * GROUPS - (index.stats()["parts_skipped"] - before)
            some = wanted[: 1 + settings.rounds]
            times = {
                "find_ms": _median(_asking(index, name), wanted),
                "scan_ms": _median(_scanning(files, name, None), some),
                "narrow_scan_ms": _median(_scanning(files, name, [name]), some),
            }
            records.append(
                {
                    "table": "index",
                    "column": name,
                    "groups": GROUPS,
                    "rows": total,
                    "touched": (touched - len(wanted)) / len(wanted) / (GROUPS - 1),
                    **times,
                    "bytes_per_key": stats["bytes_per_key"],
                    "index_bytes": stats["index_bytes"],
                    "build_s": built,
                }
            )
    return records


def _write(folder: Path, rows: int) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    random = np.random.default_rng(1)
    numbers = random.permutation(GROUPS * rows)
    each = GROUPS // FILES * rows
    for file in range(FILES):
        ids = numbers[file * each : (file + 1) * each]
        columns = {
            "user_id": ids,
            "email": pa.array([_value("email", number) for number in ids.tolist()]),
            "amount": random.random(len(ids)),
            "at": pa.array(ids + 1_700_000_000, pa.timestamp("s")),
            "note": pa.array([f"note {number % 997}" for number in ids.tolist()]),
        }
        parquet.write_table(pa.table(columns), folder / f"{file:03}.parquet", row_group_size=rows)


def _value(column: str, number: int) -> object:
    return number if column == "user_id" else f"user{number}@example.org"


def _asking(index: SegmentIndex, name: str) -> Callable[[object], Any]:
    return lambda value: index.find({name: value})


def _scanning(files: Any, name: str, columns: list[str] | None) -> Callable[[object], Any]:
    from pyarrow import dataset

    field = dataset.field(name)
    return lambda value: files.to_table(columns, filter=field == value)


def _median(find: Callable[[object], Any], values: list[object]) -> float:
    """Milliseconds a value; the first one warms up."""
    times = []
    for value in values:
        began = time.perf_counter()
        _one(find(value))
        times.append(time.perf_counter() - began)
    return float(np.median(times[1:])) * 1e3


def _one(table: Any) -> None:
    assert table.num_rows == 1, f"{table.num_rows} rows instead of 1"


def render(records: list[Record]) -> str:
    stores = [r for r in records if r["table"] == "store"]
    indexes = [r for r in records if r["table"] == "index"]
    what = list(stores[0]["us"])
    columns = [Column("fp_chance", left=True), Column("filters"), Column("segments read")]
    columns += [Column(f"{name}, µs") for name in what]
    rows = [
        [
            f"{r['fp_chance']:g}",
            f"{r['filter_bytes'] / 1e6:.2f} MB",
            f"{r['reads']:.3f} of {r['segments']}",
            *(f"{r['us'][name]:.2f}" for name in what),
        ]
        for r in stores
    ]
    text = table(f"A store of {stores[0]['keys']:,} keys in {SEGMENTS} segments", columns, rows)
    titles = ("others touched", "find", "scan", "scan of the column alone", "bytes a key")
    columns = [Column("column", left=True), *map(Column, titles)]
    rows = [
        [
            r["column"],
            f"{r['touched']:.2%}",
            f"{r['find_ms']:.2f} ms",
            f"{r['scan_ms']:,.0f} ms ({r['scan_ms'] / r['find_ms']:.0f}x)",
            f"{r['narrow_scan_ms']:,.0f} ms",
            f"{r['bytes_per_key']:.3f}",
        ]
        for r in indexes
    ]
    title = f"A folder of {GROUPS:,} row groups, {indexes[0]['rows']:,} rows; a key in one of them"
    return f"{text}\n\n{table(title, columns, rows)}"


def judge(records: list[Record]) -> list[Line]:
    """The lines of the table "How good"."""
    lines = []
    for r in records:
        if r["table"] == "store" and r["fp_chance"] == CHANCES[0]:
            measured = f"{r['reads']:.3f} of {r['segments']}, {r['us']['get, absent']:.1f} µs"
            what = "SegmentStore.get of absent keys, 20 segments"
            must = "<= 0.25 segments read a key at 0.01"
            lines.append(Line(what, must, "-", measured, word(r["reads"] <= 0.25)))
    indexes = [r for r in records if r["table"] == "index"]
    if indexes:
        touched = max(r["touched"] for r in indexes)
        faster = min(r["scan_ms"] / r["find_ms"] for r in indexes)
        weight = max(r["bytes_per_key"] for r in indexes)
        met = touched <= 0.015 and faster >= 50 and weight <= 1.3
        must = "<= 1.5% of the others touched; >= 50x a scan; <= 1.3 bytes a key"
        measured = f"{touched:.2%}; {faster:.0f}x; {weight:.2f} bytes"
        lines.append(
            Line("SegmentIndex, 1,000 row groups, a key in one", must, "-", measured, word(met))
        )
    return lines
