"""An index of files: it finds what a scan finds, and reads little."""

import contextlib
import datetime
import decimal
import gzip
import os
import shutil
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import zstandard

from bloomery.errors import (
    BloomeryError,
    CorruptData,
    FolderInUse,
    InvalidParameter,
    InvalidSource,
    NullKey,
    UnsupportedKey,
)
from bloomery.segments import SegmentIndex
from bloomery.segments.index import data_files, indexing
from bloomery.storage.locking import lock_folder
from conftest import effort, require

pa = require("pyarrow")
pq = require("pyarrow.parquet")


def write(path: Path, start: int, rows: int, group: int = 100) -> None:
    """A file of rows whose ids begin at a number."""
    ids = range(start, start + rows)
    table = pa.table(
        {"id": list(ids), "name": [f"n{n}" for n in ids], "amount": [n / 2 for n in ids]}
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=group)
        return
    lines = "".join(f"{row}\n" for row in text_rows(table, path.name))
    data = lines.encode()
    if path.suffix == ".gz":
        data = gzip.compress(data)
    if path.suffix == ".zst":
        data = zstandard.compress(data)
    path.write_bytes(data)


def text_rows(table: Any, name: str) -> list[str]:
    """The rows as lines of CSV or JSON."""
    if ".csv" in name:
        return [
            "id,name,amount",
            *(f"{r['id']},{r['name']},{r['amount']}" for r in table.to_pylist()),
        ]
    row = '{"id": %d, "name": "%s", "amount": %s}'
    return [row % (r["id"], r["name"], r["amount"]) for r in table.to_pylist()]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of two Parquet files with ten row groups each, and one file of each other kind."""
    folder = tmp_path / "data"
    write(folder / "a.parquet", 0, 1000)
    write(folder / "deep" / "b.parquet", 1000, 1000)
    for number, name in enumerate(("c.csv", "d.csv.gz", "e.jsonl", "f.ndjson.zst"), 2):
        write(folder / name, number * 1000, 1000)
    (folder / "notes.txt").write_text("no rows")
    (folder / "_hidden.parquet").write_text("no rows")
    return folder


def found(index: SegmentIndex, conditions: Mapping[str, object]) -> list[Any]:
    """The ids of the rows that were found."""
    return sorted(index.find(conditions).column("id").to_pylist())


def test_every_row_is_found_and_nothing_else(data: Path) -> None:
    """In every kind of file, by number and by text, alone and together."""
    with SegmentIndex.build(data, ["id", "name"]) as index:
        for number in range(0, 6000, 97):
            assert found(index, {"id": number}) == [number]
            assert found(index, {"name": f"n{number}"}) == [number]
            assert found(index, {"id": number, "name": f"n{number}"}) == [number]
            assert found(index, {"id": number, "name": f"n{number + 1}"}) == []
        assert found(index, {"id": 6000}) == found(index, {"id": -1}) == []
        row = index.find({"id": 4500}).to_pylist()
        assert row == [{"id": 4500, "name": "n4500", "amount": 2250.0}]
        assert index.find({"id": 17}, columns=["amount"]).to_pylist() == [{"amount": 8.5}]
        empty = index.find({"id": -1}, columns=["name"])
        assert (empty.num_rows, empty.column_names) == (0, ["name"])


def test_few_parts_are_read(data: Path) -> None:
    """A value of one row group leaves the others alone, but for the few that filters let by."""
    with SegmentIndex.build(data, ["id"]) as index:
        for number in range(2000):
            candidates = index.candidates({"id": number})
            folder = "a.parquet" if number < 1000 else "deep/b.parquet"
            assert (folder, number % 1000 // 100) in {(one.path, one.part) for one in candidates}
            assert {one.why for one in candidates} == {"maybe"}
        stats = index.stats()
        assert (stats["files"], stats["parts"], stats["rows"]) == (6, 24, 6000)
        touched = 2000 * 24 - stats["parts_skipped"] - 2000
        assert touched < 2000 * 23 * 0.015
        index.find({"id": 5})
        assert index.stats()["parts_read"] - index.stats()["parts_in_vain"] == 1


def test_a_value_is_taken_as_one_of_the_column(data: Path) -> None:
    """Text that says a number finds it; what no such column can hold finds nothing."""
    with SegmentIndex.build(data, ["id", "name", "amount"]) as index:
        assert found(index, {"id": "42"}) == found(index, {"id": 42.0}) == [42]
        assert found(index, {"amount": 21}) == found(index, {"amount": "21.0"}) == [42]
        assert found(index, {"name": b"n42"}) == [42]
        for nothing in ("x", 42.5, 2**70, 2**63):
            assert found(index, {"id": nothing}) == []
        with pytest.raises(NullKey):
            index.find({"id": None})
        with pytest.raises(UnsupportedKey, match="list"):
            index.find({"id": [1]})


VALUES: dict[str, tuple[Any, list[Any]]] = {
    "bool": ("bool_", [True, True]),
    "int8": ("int8", [-128, 127]),
    "uint64": ("uint64", [0, 2**64 - 1]),
    "float": ("float32", [0.5, -1.25]),
    "half": ("float16", [0.5, 2.0]),
    "double": ("float64", [0.1, 1e300]),
    "string": ("string", ["", "ä"]),
    "large_string": ("large_string", ["a", "b"]),
    "string_view": ("string_view", ["a", "long enough for a buffer of its own"]),
    "binary": ("binary", [b"\0", b"\xff"]),
    "date": ("date32", [datetime.date(1969, 12, 31), datetime.date(2026, 1, 2)]),
    "time": ("time64:us", [datetime.time(1, 2, 3, 4), datetime.time(0)]),
    "timestamp": ("timestamp:us", [datetime.datetime(1960, 1, 1), datetime.datetime(2026, 1, 2)]),
    "seconds": ("timestamp:s", [datetime.datetime(1960, 1, 1), datetime.datetime(2026, 1, 2)]),
    "duration": ("duration:us", [datetime.timedelta(1), datetime.timedelta(-1, 5)]),
    "decimal": ("decimal", [decimal.Decimal("1.50"), decimal.Decimal("-0.01")]),
    "dictionary": ("dictionary", ["red", "green"]),
    "uuid": ("uuid", [uuid.UUID(int=7), uuid.UUID(int=8)]),
}


def arrow_type(name: str) -> Any:
    """A type by its name, with its unit behind a colon."""
    special = {
        "decimal": lambda: pa.decimal128(9, 2),
        "dictionary": lambda: pa.dictionary(pa.int32(), pa.string()),
    }
    name, _, unit = name.partition(":")
    return special[name]() if name in special else getattr(pa, name)(*([unit] if unit else []))


@pytest.mark.parametrize("name", VALUES)
def test_columns_of_every_type(tmp_path: Path, name: str) -> None:
    """Values of any type that is not nested are found, nulls are not."""
    kind, values = VALUES[name]
    if kind == "uuid" and not hasattr(pa, "uuid"):
        pytest.skip("this pyarrow has no UUIDs")
    column = pa.array([*values, None], arrow_type(kind))
    pq.write_table(pa.table({"key": column, "id": [0, 1, 2]}), tmp_path / "t.parquet")
    pq.write_table(pa.table({"id": [3]}), tmp_path / "without.parquet")
    with SegmentIndex.build(tmp_path, ["key"]) as index:
        for value in values:
            rows = [number for number, other in enumerate(values) if other == value]
            assert found(index, {"key": value}) == rows
        if name not in {"half", "duration", "binary", "time"}:
            as_text = str(values[1]).lower() if name == "bool" else str(values[1])
            assert 1 in found(index, {"key": as_text})


def test_zeros_of_either_sign_are_equal_and_nan_is_not(tmp_path: Path) -> None:
    """As for pyarrow, whose comparison decides."""
    column = pa.array([0.0, -0.0, float("nan")])
    pq.write_table(pa.table({"key": column, "id": [0, 1, 2]}), tmp_path / "t.parquet")
    with SegmentIndex.build(tmp_path, ["key"]) as index:
        assert found(index, {"key": 0.0}) == found(index, {"key": -0.0}) == [0, 1]
        assert found(index, {"key": float("nan")}) == []


@pytest.mark.parametrize(("value", "kind"), [([1], "list"), ({"a": 1}, "struct")])
def test_nested_columns_are_refused(tmp_path: Path, value: object, kind: str) -> None:
    """With the file, the column and its type."""
    pq.write_table(pa.table({"key": [value, value]}), tmp_path / "t.parquet")
    with pytest.raises(InvalidSource, match=rf"t\.parquet.*'key'.*{kind}"):
        SegmentIndex.build(tmp_path, ["key"])


def test_csv_whose_types_change_is_text(tmp_path: Path) -> None:
    """A column that begins with numbers and goes on with words is found by either."""
    rows = [f"{n},x" for n in range(600_000)] + ["unknown,y"]
    (tmp_path / "t.csv").write_text("key,id\n" + "\n".join(rows))
    with SegmentIndex.build(tmp_path, ["key"]) as index:
        assert index.find({"key": "unknown"}).to_pylist() == [{"key": "unknown", "id": "y"}]
        assert index.find({"key": 77}).to_pylist() == [{"key": "77", "id": "x"}]


def test_large_text_files_have_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a filter of its own, and rows are found across them."""
    monkeypatch.setattr(data_files, "PART_ROWS", 130)
    monkeypatch.setattr(data_files, "_JSON_BYTES", 5000)
    write(tmp_path / "t.csv", 0, 1000)
    write(tmp_path / "t.jsonl.gz", 1000, 1000)
    with SegmentIndex.build(tmp_path, ["id"]) as index:
        assert index.stats()["parts"] == 8 + 10
        for number in range(0, 2000, 13):
            assert found(index, {"id": number}) == [number]


def test_fields_of_json_may_come_late_and_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A field that no line of the first part has, and one that becomes text, are found."""
    monkeypatch.setattr(data_files, "_JSON_BYTES", 2000)
    lines = [f'{{"id": {n}}}' for n in range(500)]
    lines += [f'{{"id": {n}, "late": {n}}}' for n in range(500, 1000)]
    lines += [f'{{"id": "t{n}", "late": null}}' for n in range(1000, 1500)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines) + "\n\n")
    with SegmentIndex.build(tmp_path, ["id", "late"]) as index:
        assert index.stats()["rows"] == 1500
        assert index.find({"late": 750}).to_pylist() == [{"id": 750, "late": 750}]
        assert index.find({"id": 7}).to_pylist() == [{"id": 7}]
        for text in ("t1200", "t1000", "999"):  # a part with numbers and text is text
            assert index.find({"id": text}).to_pylist()[0]["id"] in {text, 999}
        assert index.find({"id": "t1200"}, columns=["late"]).to_pylist() == [{"late": None}]


def test_json_of_several_types_is_read_or_refused(tmp_path: Path) -> None:
    """A number too large for Arrow beside text is found as text; nesting past all reason is an
    error of ours."""
    (tmp_path / "a.jsonl").write_text(f'{{"id": {2**70}}}\n{{"id": "x"}}\n')
    with SegmentIndex.build(tmp_path, ["id"]) as index:
        assert index.find({"id": str(2**70)}).to_pylist() == [{"id": str(2**70)}]
    deep = '{"id": 1, "tree": ' + '[\n{"a": ' * 100_000 + "1" + "}]" * 100_000 + "}\n"
    (tmp_path / "b.jsonl").write_text(deep)
    with pytest.raises(InvalidSource, match="nested over 1000 deep"):
        SegmentIndex.build(tmp_path, ["id"], rebuild=True)


def test_files_that_came_or_changed_are_never_skipped(data: Path) -> None:
    """They are read whole, until the index is brought up to date."""
    index = SegmentIndex.build(data, ["id"])
    write(data / "new.parquet", 50_000, 200)
    write(data / "a.parquet", 60_000, 1000)  # in the place of another, of the same size
    os.utime(data / "a.parquet", ns=(10**18, 10**18))
    (data / "c.csv").unlink()
    assert found(index, {"id": 50_001}) == [50_001]
    assert found(index, {"id": 60_001}) == [60_001]
    assert found(index, {"id": 5}) == found(index, {"id": 2005}) == []
    whys = {(one.path, one.why) for one in index.candidates({"id": 60_001}) if one.part is None}
    assert whys == {("new.parquet", "new"), ("a.parquet", "changed")}
    of_a = [one.part for one in index.candidates({"id": 5}) if one.path == "a.parquet"]
    assert of_a == [None]  # and no row group, by what it was
    changes = index.update()
    assert (changes.added, changes.changed, changes.removed, changes.unchanged) == (1, 1, 1, 4)
    assert found(index, {"id": 60_001}) == [60_001]  # the same object sees it
    assert all(one.part is not None for one in index.candidates({"id": 60_001}))
    assert index.update().unchanged == 6
    index.close()


def test_a_look_at_the_folder_may_be_so_old(data: Path) -> None:
    """Who allows it finds new files later, and asks faster."""
    SegmentIndex.build(data, ["id"]).close()
    with SegmentIndex(data, max_age=3600) as index:
        assert found(index, {"id": 1}) == [1]
        write(data / "new.parquet", 50_000, 200)
        assert found(index, {"id": 50_001}) == []
        index.max_age = 0
        assert found(index, {"id": 50_001}) == [50_001]


def test_filters_of_files_that_are_gone_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of filters is written anew when most of it is of no use, and nothing is lost."""
    monkeypatch.setattr(indexing, "_WASTE", 0)
    for number in range(6):
        write(tmp_path / f"{number}.parquet", number * 1000, 1000)
    index = SegmentIndex.build(tmp_path, ["id", "name"])
    before = sum(path.stat().st_size for path in index.path.glob("*.pack"))
    for number in range(4):
        (tmp_path / f"{number}.parquet").unlink()
    assert index.update().removed == 4
    (pack,) = index.path.glob("*.pack")
    assert pack.stat().st_size < before / 2
    assert found(index, {"id": 4242}) == found(index, {"name": "n4242"}) == [4242]
    assert index.verify().ok
    index.close()


def test_an_index_elsewhere(data: Path, tmp_path: Path) -> None:
    """It can be in another folder; in the folder itself it moves with it."""
    with SegmentIndex.build(data, ["id"], path=tmp_path / "index") as index:
        assert found(index, {"id": 77}) == [77]
    assert not (data / indexing.NAME).exists()
    SegmentIndex.build(data, ["id"]).close()
    shutil.move(data, tmp_path / "moved")
    with SegmentIndex(tmp_path / "moved") as index:
        assert found(index, {"id": 77}) == [77]
        assert index.stats()["root"] == str(tmp_path / "moved")


def test_the_index_of_another_folder_is_left_alone(data: Path, tmp_path: Path) -> None:
    """`build` refuses an index that is of another folder, and takes it by another name of it."""
    write(tmp_path / "other" / "a.csv", 70_000, 10)
    (tmp_path / "link").symlink_to(data)
    SegmentIndex.build(data, ["id"], path=tmp_path / "index").close()
    with pytest.raises(InvalidParameter, match=r"of the folder .*data, not of .*other: rebuild"):
        SegmentIndex.build(tmp_path / "other", ["id"], path=tmp_path / "index")
    with SegmentIndex.build(tmp_path / "link", ["id"], path=tmp_path / "index") as index:
        assert (found(index, {"id": 77}), found(index, {"id": 70_005})) == ([77], [])
    with SegmentIndex.build(
        tmp_path / "other", ["id"], path=tmp_path / "index", rebuild=True
    ) as index:
        assert (found(index, {"id": 77}), found(index, {"id": 70_005})) == ([], [70_005])


def test_a_change_of_directory_does_not_change_the_folder(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path is of the directory in which the index was opened."""
    write(tmp_path / "b" / "data" / "a.csv", 70_000, 10)
    monkeypatch.chdir(tmp_path)
    with SegmentIndex.build("data", ["id"]) as index, SegmentIndex("data") as second:
        monkeypatch.chdir(tmp_path / "b")
        for one in (index, second):
            assert (found(one, {"id": 77}), found(one, {"id": 70_005})) == ([77], [])
        write(data / "new.csv", 80_000, 10)
        assert index.update().added == 1


def test_wrong_questions_say_what_would_be_right(data: Path, tmp_path: Path) -> None:
    """Columns that are not indexed or not there, no conditions, folders without an index."""
    with pytest.raises(FileNotFoundError, match="bloomery index build"):
        SegmentIndex(data)
    with pytest.raises(NotADirectoryError):
        SegmentIndex.build(tmp_path / "none", ["id"])
    for columns in ([], "id", ["id", "id"]):
        with pytest.raises(InvalidParameter, match="columns"):
            SegmentIndex.build(data, columns)
    with SegmentIndex.build(data, ["id"]) as index:
        with pytest.raises(InvalidParameter, match="'name' is not indexed, id"):
            index.find({"name": "n1"})
        with pytest.raises(InvalidParameter, match="no column 'none': there are id, name"):
            index.find({"id": 1}, columns=["none"])
        with pytest.raises(InvalidParameter, match="condition"):
            index.find({})
    with pytest.raises(InvalidParameter, match="rebuild"):
        SegmentIndex.build(data, ["name"])
    with SegmentIndex.build(data, ["name"], rebuild=True) as index:
        assert found(index, {"name": "n77"}) == [77]


def test_one_writer_at_a_time(data: Path) -> None:
    """A second is refused; readers are not."""
    index = SegmentIndex.build(data, ["id"])
    with lock_folder(index.path, "writer of the index"):
        with pytest.raises(FolderInUse, match="writer of the index"):
            index.update()
        assert found(index, {"id": 1}) == [1]
    index.close()


def test_a_damaged_data_file_is_named(data: Path) -> None:
    """What is no Parquet stops the build, and what was indexed before stays."""
    SegmentIndex.build(data, ["id"]).close()
    (data / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(InvalidSource, match=r"bad\.parquet"):
        SegmentIndex.build(data, ["id"])
    (data / "bad.parquet").unlink()
    with SegmentIndex(data) as index:
        assert found(index, {"id": 1}) == [1]


def test_a_kill_between_filters_and_catalogue_leaves_the_index_as_it_was(data: Path) -> None:
    """Bytes behind what the catalogue names are cut off by the next writer."""
    index = SegmentIndex.build(data, ["id"])
    (pack,) = index.path.glob("*.pack")
    size = pack.stat().st_size
    with pack.open("ab") as file:
        file.write(b"half a filter")
    assert found(index, {"id": 77}) == [77]
    write(data / "new.parquet", 50_000, 100)
    index.update()
    assert (pack.stat().st_size - size) % 64 == 0
    assert found(index, {"id": 50_050}) == [50_050]
    assert index.verify().ok
    index.close()


def flipped(path: Path, at: int) -> None:
    """Change a bit of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 0x20
    path.write_bytes(data)


@pytest.mark.slow
def test_damage_to_the_index_is_never_a_wrong_no(data: Path, tmp_path: Path) -> None:
    """Whatever byte of it changes, a value that is there is found, or the index is refused."""
    SegmentIndex.build(data, ["id"]).close()
    whole = {path.name: path.read_bytes() for path in (data / indexing.NAME).iterdir()}
    refused = 0
    for name, content in whole.items():
        if name == "lock":
            continue
        step = effort(2003, 401, 7)
        for at in range(0, len(content), step):
            flipped(data / indexing.NAME / name, at)
            try:
                with SegmentIndex(data) as index:
                    for number in range(50, 6000, 500):
                        assert found(index, {"id": number}) == [number], (name, at)
            except (CorruptData, FileNotFoundError, BloomeryError, sqlite3.Error):
                refused += 1
            (data / indexing.NAME / name).write_bytes(content)
    assert refused


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE filters SET place = 0 WHERE part = 3",
        "UPDATE filters SET place = -1 WHERE part = 3",
        "UPDATE filters SET type = type + 1 WHERE part = 3",
        "DELETE FROM filters WHERE part = 3",
        "UPDATE files SET mtime_ns = mtime_ns + 1",
        "UPDATE files SET parts = parts - 1",
        "DELETE FROM files WHERE path = 'a.parquet'",
        "UPDATE meta SET value = '64' WHERE name = 'pack_bytes'",
        "UPDATE types SET schema = x'00'",
        "DELETE FROM meta",
        "DROP TABLE types",
    ],
)
def test_a_catalogue_that_was_changed_is_refused(data: Path, change: str) -> None:
    """By the checksums of its rows and by their number: SQLite itself sees nothing wrong."""
    index = SegmentIndex.build(data, ["id"])
    index.close()
    with contextlib.closing(sqlite3.connect(index.path / "catalogue.sqlite")) as connection:
        connection.execute(change)
        connection.commit()

    def ask() -> None:
        with SegmentIndex(data) as index:
            index.find({"id": 350})

    with pytest.raises(CorruptData, match="rebuild"):
        ask()


def test_the_filters_of_another_index_are_not_believed(tmp_path: Path) -> None:
    """They are whole, and lie where these should; they would say no to what is there."""
    for name, start in (("a", 0), ("b", 50_000)):
        write(tmp_path / name / "t.parquet", start, 1000)
        SegmentIndex.build(tmp_path / name, ["id"]).close()
    packs = [tmp_path / name / indexing.NAME / "filters-000001.pack" for name in "ab"]
    assert packs[0].stat().st_size == packs[1].stat().st_size
    shutil.copy(packs[1], packs[0])
    with SegmentIndex(tmp_path / "a") as index:
        with pytest.raises(CorruptData, match="is another"):
            index.find({"id": 7})
        assert len(index.verify().damaged) == 10


def test_verify_tells_what_is_damaged(data: Path) -> None:
    """Filters by their checksums, files by their ends."""
    index = SegmentIndex.build(data, ["id"])
    whole = index.verify()
    assert (whole.ok, whole.filters, whole.stale) == (True, 24, ())
    status = (data / "e.jsonl").stat()
    text = (data / "e.jsonl").read_text().replace("4000", "9999", 1)
    (data / "e.jsonl").write_text(text)
    os.utime(data / "e.jsonl", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert index.verify().stale == ("e.jsonl",)  # though its size and time are as before
    index.close()
    (pack,) = (data / indexing.NAME).glob("*.pack")
    flipped(pack, 200)
    with SegmentIndex(data) as index:
        told = index.verify()
        assert (told.ok, told.filters, len(told.damaged)) == (False, 23, 1)
        assert "part" in told.damaged[0]
        with pytest.raises(CorruptData, match="rebuild"):
            index.find({"id": 1})


@pytest.mark.parametrize("text", ["{", "[1]", '{"id": 1', '{"id": 1}{', "\0" * 50])
def test_what_is_no_json_is_named(tmp_path: Path, text: str) -> None:
    """The file is in the error, and what is in the file is not."""
    (tmp_path / "t.jsonl").write_text(text)
    with pytest.raises(InvalidSource, match=r"t\.jsonl.*JSON"):
        SegmentIndex.build(tmp_path, ["id"])


def test_an_empty_folder_and_empty_files(tmp_path: Path) -> None:
    """No rows are found, and nothing goes wrong."""
    with SegmentIndex.build(tmp_path, ["id"]) as index:
        assert index.find({"id": 1}).num_rows == 0
        assert index.stats()["bytes_per_key"] is None
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "empty.jsonl").write_text("")
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "empty.parquet")
    pq.write_table(pa.table({"id": pa.array([None], pa.int64())}), tmp_path / "null.parquet")
    with SegmentIndex.build(tmp_path, ["id"]) as index:
        assert index.stats()["files"] == 4
        assert index.find({"id": 1}).num_rows == 0
        assert index.candidates({"id": 1}) == []


def test_files_without_the_column_are_counted_and_skipped(tmp_path: Path) -> None:
    """Their rows have no value there; a column that comes twice is refused."""
    for name in ("a.parquet", "b.csv", "c.jsonl"):
        write(tmp_path / name, 0, 100)
    with SegmentIndex.build(tmp_path, ["other"]) as index:
        assert (index.stats()["rows"], index.stats()["filters"]) == (300, 0)
        assert index.find({"other": 1}).num_rows == 0
    (tmp_path / "d.csv").write_text("other,other\n1,2\n")
    with pytest.raises(InvalidSource, match=r"d\.csv.*'other' is there 2 times"):
        SegmentIndex.build(tmp_path, ["other"])


@pytest.mark.slow
@pytest.mark.parametrize("files", [1500, pytest.param(100_000, marks=pytest.mark.soak)])
def test_memory_does_not_grow_with_files(tmp_path: Path, files: int) -> None:
    """An index over many small files takes about as much memory as one over a few."""
    for number in range(files):
        folder = tmp_path / "data" / f"{number % 50:02}"
        if number < 50:
            folder.mkdir(parents=True)
        (folder / f"{number}.csv").write_text(f"id,name\n{number},n{number}\n")
    few = files // 50
    program = f"""
import os, sys
from bloomery.segments import SegmentIndex
index = SegmentIndex.build(sys.argv[1], ["id", "name"], path=sys.argv[2])
assert index.find({{"id": {few // 2 * 50}}}).num_rows == 1
assert index.stats()["rows"] == int(sys.argv[3])
# Not ru_maxrss, which begins with what the process had that started this one.
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
sys.stdout.flush()
os._exit(0)  # Arrow's threads have aborted the end of such a process once
"""
    peaks = []
    for name, rows in (("data/00", few), ("data", files)):
        arguments = [str(tmp_path / name), str(tmp_path / f"index-{rows}"), str(rows)]
        command = [sys.executable, "-c", program, *arguments]
        peaks.append(int(subprocess.run(command, capture_output=True, check=True).stdout))
    assert peaks[1] - peaks[0] < 15_000 + files * 0.7  # KiB


def test_a_column_without_values_is_told(data: Path) -> None:
    """No file has it, or none a value: an index of a name that was mistyped finds nothing."""
    with SegmentIndex.build(data, ["id", "usr"]) as index:
        assert index.stats()["columns_without_values"] == ["usr"]


def test_progress_is_told(data: Path) -> None:
    """Before each file: how many are done, of how many, and which is next."""
    told: list[tuple[int, int, str]] = []
    SegmentIndex.build(data, ["id"], on_file=lambda *step: told.append(step)).close()
    assert [step[0] for step in told] == list(range(6))
    assert {step[1] for step in told} == {6}
    assert "deep/b.parquet" in {step[2] for step in told}
