"""Lines, CSV and Parquet as rows: all keys, from any position, and clear errors."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bloomery
from bloomery import building, errors
from bloomery.building import table_files
from bloomery.building.rows import LineBatch
from conftest import require

pytestmark = pytest.mark.slow

URLS = [f"https://example.org/{number}?{'q' * 70}" for number in range(30_000)]  # 3 MB


def listed(batch: building.Batch) -> list[Any]:
    """The keys of a batch."""
    keys = batch.for_add_many()
    keys = keys if isinstance(keys, list) else keys.to_pylist()
    return [key.decode() for key in keys] if isinstance(batch, LineBatch) else list(keys)


def keys_of(rows: building.Rows, after: Any = None) -> list[Any]:
    """All keys from a position on."""
    return [key for batch in rows.batches(after) for key in listed(batch)]


def resumes(make: Callable[[], building.Rows], expected: list[Any]) -> int:
    """Check that from each position all that is missing comes; how many positions there are."""
    done: list[Any] = []
    positions = 0
    for batch in make().batches():
        done += listed(batch)
        assert done + keys_of(make(), batch.position) == expected
        positions += 1
    return positions


@pytest.mark.parametrize("kind", ["plain", "gzip", "zstd"])
def test_lines_go_on_from_every_position(tmp_path: Path, kind: str) -> None:
    """Also in compressed files, and in the second of two; the last line may lack its end."""
    data = "\n".join(URLS).encode()
    if kind == "gzip":
        data = gzip.compress(data, 1)
    elif kind == "zstd":
        data = require("zstandard").compress(data)
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(data)
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert resumes(lambda: building.open_rows(paths), URLS + URLS) >= 6
    rows = building.open_rows(paths)
    assert rows.count() == 60_000
    estimate = rows.estimate()
    assert estimate is not None
    assert 45_000 < estimate < 90_000


def write_csv(path: Path, names: str = "id,url\n") -> None:
    rows = "".join(f'{number},"{url}"\n' for number, url in enumerate(URLS))
    path.write_text(names + rows)


@pytest.mark.parametrize("header", [True, False])
def test_csv_goes_on_from_every_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: bool
) -> None:
    """By name or by number, with a header and without one."""
    require("pyarrow")
    monkeypatch.setattr(table_files, "_BLOCK", 1 << 20)
    path = tmp_path / "urls.csv"
    write_csv(path, "id,url\n" if header else "")
    column = "url" if header else "2"

    def make() -> building.Rows:
        return building.open_rows(str(path), columns=[column], header=header)

    assert resumes(make, URLS) >= 2
    assert make().count() == 30_000


def test_csv_values_are_what_they_are_said_to_be(tmp_path: Path) -> None:
    """Text by default, also what looks like a number or a NULL; int by wish; several as tuples;
    line ends in quotes belong to the value; tabs in .tsv."""
    require("pyarrow")
    path = tmp_path / "t.csv"
    path.write_text('a,b\n1,NULL\n2,"x\ny"\n3,\n')

    def read(*columns: str, **options: Any) -> list[Any]:
        return keys_of(building.open_rows(str(path), columns=list(columns), **options))

    assert read("a") == ["1", "2", "3"]
    assert read("a", type="int") == [1, 2, 3]
    assert read("b") == ["NULL", "x\ny", ""]
    assert read("2", "a")[:1] == [("NULL", "1")]
    tabbed = tmp_path / "t.tsv.gz"
    tabbed.write_bytes(gzip.compress(b"a\tb\n1\t2\n"))
    assert keys_of(building.open_rows(str(tabbed), columns=["b"])) == ["2"]


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (b"a,b\n1,2\n", {"columns": ["c"]}, "no column 'c' among a, b"),
        (b"a,a\n1,2\n", {"columns": ["a"]}, "more than one column 'a'"),
        (b"a,b\nsecret,2\n", {"columns": ["a"], "type": "int"}, "no whole number"),
        (b"a,b\nsecret,2,3\n", {"columns": ["a"]}, "expected 2 columns, got 3"),
        (b"a\n\xff\xfe\n", {"columns": ["a"]}, "not UTF-8"),
        (b"", {"columns": ["a"]}, "no CSV"),
        (b"a\nx\n" + b"y" * (9 << 20), {"columns": ["a"]}, "a row is larger than 4 MiB"),
    ],
)
def test_csv_that_is_wrong_is_one_clear_error(
    tmp_path: Path, text: bytes, options: dict[str, Any], said: str
) -> None:
    """It names the file and no value of it."""
    require("pyarrow")
    path = tmp_path / "t.csv"
    path.write_bytes(text)
    with pytest.raises(errors.InvalidSource, match=rf"t\.csv: .*{said}") as caught:
        keys_of(building.open_rows(str(path), **options))
    assert "secret" not in str(caught.value)


def test_parquet_goes_on_from_every_position(tmp_path: Path) -> None:
    """Between row groups and within a large one."""
    pyarrow = require("pyarrow")
    from pyarrow import parquet

    keys = list(range(100_000))
    table = pyarrow.table({"n": keys, "other": keys})
    path = tmp_path / "t.parquet"
    parquet.write_table(table, path, row_group_size=80_000)

    def make() -> building.Rows:
        return building.open_rows(str(path), columns=["n"])

    assert resumes(make, keys) == 3
    assert make().count() == 100_000


def test_parquet_columns_keep_their_types(tmp_path: Path) -> None:
    """Text, bytes, integers, UUIDs and times are the keys that Python has; NULLs are counted."""
    from datetime import datetime, timezone
    from uuid import UUID

    pyarrow = require("pyarrow")
    from pyarrow import parquet

    when = datetime(2026, 5, 4, 3, 2, 1, 5, tzinfo=timezone.utc)
    values: dict[str, Any] = {
        "text": "ä",
        "bytes": b"\xff",
        "int": -5,
        "time": when,
        "id": UUID(int=7),
    }
    columns = {name: pyarrow.array([value, None]) for name, value in values.items() if name != "id"}
    raw = pyarrow.array([values["id"].bytes, None], pyarrow.binary(16))
    columns["id"] = pyarrow.ExtensionArray.from_storage(pyarrow.uuid(), raw)
    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    for name, value in values.items():
        built = building.build(
            building.open_rows(str(path), columns=[name]), tmp_path / "out", error_rate=1e-6
        )
        assert value in built.filter, name
        assert built.nulls == 1, name
    rows = building.open_rows(str(path), columns=["text", "int"])
    assert keys_of(rows) == [("ä", -5)]


def test_parquet_extension_types_are_what_they_say(tmp_path: Path) -> None:
    """JSON is its text; a type that is only stored as ints is refused, known to pyarrow or not."""
    pyarrow = require("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "t.parquet"
    other = pyarrow.field("x", pyarrow.int64(), metadata={"ARROW:extension:name": "someone.else"})
    text = pyarrow.array(['{"a": 1}'], pyarrow.json_())
    parquet.write_table(
        pyarrow.table([[1], text], schema=pyarrow.schema([other, ("j", text.type)])), path
    )
    assert keys_of(building.open_rows([str(path)], columns=["j"])) == ['{"a": 1}']
    with pytest.raises(errors.InvalidSource, match="'x' is of type int64, which is no key"):
        building.open_rows([str(path)], columns=["x"])


def test_parquet_that_is_wrong_is_one_clear_error(tmp_path: Path) -> None:
    """A column of another type is refused before reading, by name; so is what is no Parquet."""
    pyarrow = require("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table({"x": [1.5]}), path)
    with pytest.raises(errors.InvalidSource, match=r"'x' is of type double, which is no key"):
        building.open_rows(str(path), columns=["x"])
    for zone in (None, "UTC", "Asia/Tokyo"):
        times = pyarrow.array([0, 2**62], pyarrow.int64()).cast(pyarrow.timestamp("us", zone))
        parquet.write_table(pyarrow.table({"x": times, "y": [1, 2]}), path)
        for columns in (["x"], ["x", "y"]):
            with pytest.raises(errors.InvalidSource, match=r"t\.parquet: a time is not in"):
                keys_of(building.open_rows(str(path), columns=columns))
    path.write_bytes(b"PAR1 not really")
    with pytest.raises(errors.InvalidSource, match="no Parquet file"):
        building.open_rows(str(path), columns=["x"])


def test_a_file_that_changed_is_not_gone_on_with(tmp_path: Path) -> None:
    """A position in the old one means nothing in the new one."""
    path, out = tmp_path / "lines", tmp_path / "out"
    path.write_text("\n".join(URLS))

    def stop(progress: Any) -> None:
        if progress.rows:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        building.build(building.open_rows(str(path)), out, on_batch=stop)
    path.write_text("\n".join(URLS[::-1]) + "\n")
    with pytest.raises(errors.InvalidParameter, match=r"files was different.*--restart"):
        building.build(building.open_rows(str(path)), out)
    building.build(building.open_rows(str(path)), out, restart=True)
    assert all(bloomery.BloomFilter.load(out).contains_many(URLS))


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        ("mysql://u:secret@h/d", {"query": "SELECT 1"}, "mysql://… is not read"),
        ("postgresql://h:secret", {}, "a query, or a table"),
        ("sqlite:///x.db", {"query": "x", "table": "y"}, "a query, or a table"),
        ("sqlite:///x.db", {"table": "y"}, "say which column"),
        ("a.csv", {}, "say which column"),
        ("a.txt", {"columns": ["x"]}, "columns is not for a file of lines"),
        ("a.csv", {"query": "SELECT 1"}, "query is not for CSV"),
        (["a.csv", "b.txt"], {"columns": ["x"]}, "of one kind"),
        ("a.txt", {"password": "secret"}, "password is not for"),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: Any,
    options: dict[str, Any],
    said: str,
) -> None:
    """One clear error, without a secret in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.db").touch()
    with pytest.raises(errors.InvalidParameter, match=said) as caught:
        building.open_rows(source, **options)
    assert "secret" not in str(caught.value)


def test_key_batches_are_for_add_many(tmp_path: Path) -> None:
    """What a rebuild adds, batch by batch; the place is opened with the first one."""
    path = tmp_path / "lines"
    batches = building.key_batches(str(path))
    path.write_text("a\n\nb")
    seen = bloomery.BloomFilter(10)
    for batch in batches:
        seen.add_many(batch)
    assert all(seen.contains_many(["a", "", "b"]))
