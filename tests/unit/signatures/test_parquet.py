"""Signature indexes of Parquet files: rows from the files, and changed files are refused."""

import os
import shutil
from collections import OrderedDict
from pathlib import Path

import pytest

from bloomery.errors import InvalidParameter, InvalidSource
from bloomery.storage import file_state
from conftest import require

pa = require("pyarrow")
pq = require("pyarrow.parquet")
from bloomery.signatures import SignatureIndex, parquet  # noqa: E402
from bloomery.signatures.parquet import ParquetFolder  # noqa: E402
from unit.signatures.test_index import table  # noqa: E402

ASKED = {"a": 3, "b": "x7"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files of four row groups each, one of them in a folder of its own."""
    rows = table(6000)
    (tmp_path / "data" / "more").mkdir(parents=True)
    for number, name in enumerate(["a.parquet", "b.parquet", "more/c.pq"]):
        pq.write_table(
            rows.slice(number * 2000, 2000), tmp_path / "data" / name, row_group_size=500
        )
    (tmp_path / "data" / "_SUCCESS").touch()
    return tmp_path / "data"


def test_rows_of_files_are_found(folder: Path, tmp_path: Path) -> None:
    """The same rows as of the table, also from a saved index, a moved folder and a single file."""
    expected = SignatureIndex.build(table(6000))
    index = SignatureIndex.build(folder, ["a", "b"])
    assert index.find(ASKED) == expected.find(ASKED)
    assert index.find(ASKED, ["c", "a"]) == expected.find(ASKED, ["c", "a"])
    assert index.find({"a": -1}).schema == expected.find({"a": -1}).schema
    index.save(tmp_path / "i.sig")
    assert SignatureIndex.load(tmp_path / "i.sig", mmap=True).find(ASKED) == index.find(ASKED)
    moved = tmp_path / "moved"
    shutil.move(folder, moved)
    with pytest.raises(InvalidSource, match="put it back"):
        index.find(ASKED)
    assert SignatureIndex.load(tmp_path / "i.sig", moved).find(ASKED) == expected.find(ASKED)
    single = SignatureIndex.build(moved / "a.parquet")
    assert single.find(ASKED) == SignatureIndex.build(table(6000).slice(0, 2000)).find(ASKED)


def test_new_files_are_appended(folder: Path) -> None:
    """Files that were not there are taken, those that were are not taken twice."""
    index = SignatureIndex.build(folder)
    assert index.append(folder) == 0
    pq.write_table(table(100), folder / "aa.parquet")
    assert index.append(folder) == 100
    both = pa.concat_tables([table(6000), table(100)])
    assert index.find(ASKED) == SignatureIndex.build(both).find(ASKED)


def test_another_folder_is_appended_once(tmp_path: Path) -> None:
    """Its files are known by their places, however these are written."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"n": [1, 2]}), tmp_path / name / "x.parquet")
    index = SignatureIndex.build(tmp_path / "a")
    assert [index.append(tmp_path / "b") for _ in range(2)] == [2, 0]
    assert index.append(tmp_path / "a" / ".." / "b" / "x.parquet") == 0
    assert index.find({"n": 1}).num_rows == 2


def test_an_append_amid_another_or_amid_a_save_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is saved names the files whose rows it has, and no append counts from old rows."""
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"n": [1, 2]}), tmp_path / name / "x.parquet")
    index = SignatureIndex.build(tmp_path / "a")
    refused = []

    def interfere() -> None:
        try:
            index.append(tmp_path / "c")
        except InvalidParameter as problem:
            refused.append(str(problem))

    class Interfering(os.PathLike[str]):
        def __fspath__(self) -> str:
            interfere()
            return str(tmp_path / "b")

    assert index.append(Interfering()) == 2
    about = ParquetFolder.about

    def interfered(rows: ParquetFolder) -> dict[str, object]:
        description = about(rows)
        interfere()
        return description

    monkeypatch.setattr(ParquetFolder, "about", interfered)
    index.save(tmp_path / "i.sig")
    assert SignatureIndex.load(tmp_path / "i.sig").find({"n": 1}).num_rows == 2
    assert refused
    assert all("another thread" in one for one in refused)


def test_files_may_have_different_types_where_they_are_not_indexed(tmp_path: Path) -> None:
    """Dictionaries beside plain text, and what has no common type as text."""
    first = {"n": [1], "s": pa.array(["x"]).dictionary_encode(), "other": [5]}
    pq.write_table(pa.table(first), tmp_path / "a.parquet")
    pq.write_table(pa.table({"n": [1], "s": ["x"], "other": ["y"]}), tmp_path / "b.parquet")
    rows = SignatureIndex.build(tmp_path, ["n", "s"]).find({"n": 1, "s": "x"})
    assert rows.to_pylist() == [
        {"n": 1, "s": "x", "other": "5"},
        {"n": 1, "s": "x", "other": "y"},
    ]


def test_changed_files_are_refused(folder: Path) -> None:
    """A file that was written anew is an error, even if no candidate is in it."""
    index = SignatureIndex.build(folder)
    before = os.stat(folder / "b.parquet")
    pq.write_table(table(10), folder / "b.parquet")
    with pytest.raises(InvalidSource, match=r"b\.parquet has changed.*build the index anew"):
        index.find({"a": -1})
    assert before.st_size != os.stat(folder / "b.parquet").st_size


@pytest.mark.parametrize("rows", [2000, 100])
def test_file_replaced_before_it_is_read_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """The key is in the file all the time, in other row groups: an error, and never a denial."""
    index = SignatureIndex.build(folder)
    expected = index.find(ASKED)  # and the footers are remembered
    check = ParquetFolder._check_unchanged

    def checked(files: ParquetFolder) -> None:
        check(files)
        new = folder / "_new"
        pq.write_table(table(6000).slice(6000 - rows, rows), new, row_group_size=700)
        os.replace(new, folder / "b.parquet")

    assert expected.num_rows
    with monkeypatch.context() as patch:
        patch.setattr(ParquetFolder, "_check_unchanged", checked)
        with pytest.raises(InvalidSource, match=r"b\.parquet has changed since it was indexed"):
            index.find(ASKED)


def test_file_changed_in_place_while_it_is_read_is_refused(folder: Path) -> None:
    """Rows that were read of it are not believed; nor are errors of what is left of it."""
    rows = ParquetFolder.of(folder)
    batches = rows.batches(["a"], 0)
    next(batches)
    with (folder / "a.parquet").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(InvalidSource, match="changed while it was read"):
        list(batches)


def test_wrong_files_are_clear_errors(folder: Path, tmp_path: Path) -> None:
    """No files, no Parquet, other columns or types: one error, and an append leaves no row."""
    index = SignatureIndex.build(folder)
    (folder / "z.parquet").write_bytes(b"PAR1 but no more")
    with pytest.raises(InvalidSource, match=r"z\.parquet"):
        index.append(folder)
    pq.write_table(table(10).drop(["b"]), folder / "z.parquet")
    with pytest.raises(InvalidSource, match="'b' is there 0 times"):
        index.append(folder)
    other = table(10).set_column(0, "a", pa.array([1.5] * 10))
    pq.write_table(other, folder / "z.parquet")
    with pytest.raises(InvalidParameter, match="'a' is of type double"):
        index.append(folder)
    assert index.num_rows == 6000
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidSource, match="no file that ends in"):
        SignatureIndex.build(tmp_path / "empty")
    with pytest.raises(InvalidSource, match="No such file"):
        SignatureIndex.build(tmp_path / "nowhere")
    with pytest.raises(InvalidParameter, match="takes the path"):
        index.append(table(10))


def test_views_of_text_are_read_as_text(tmp_path: Path) -> None:
    """As Polars hands them to pyarrow, which has few functions for them."""
    rows = pa.table(
        {
            "t": pa.array(["a", "b", None, "a"], pa.string_view()),
            "b": pa.array([b"x", None, b"y", b"\xff"], pa.binary_view()),
        }
    )
    pq.write_table(rows, tmp_path / "v.parquet", row_group_size=2)
    index = SignatureIndex.build(tmp_path)
    assert index.find({"t": "a"}).to_pylist() == [{"t": "a", "b": b"x"}, {"t": "a", "b": b"\xff"}]
    assert index.find({"b": b"y"}, ["b"]).to_pylist() == [{"b": b"y"}]
    assert index.find({"t": "none"}).num_rows == 0


def test_hidden_folders_are_left_out(folder: Path) -> None:
    """Of Delta's log and Spark's unfinished files no row counts."""
    for name in ("_delta_log", ".hidden"):
        (folder / name).mkdir()
        pq.write_table(pa.table({"other": [1]}), folder / name / "1.parquet")
    assert SignatureIndex.build(folder).num_rows == 6000


class Colour(pa.ExtensionType):  # type: ignore[misc, name-defined]
    """A type of a user's own; pyarrow cannot hash such types."""

    def __init__(self) -> None:
        super().__init__(pa.int32(), "bloomery.tests.colour")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: object, serialized: bytes) -> "Colour":
        return cls()


def test_columns_of_types_that_users_made(tmp_path: Path) -> None:
    """They come with the rows, and are refused as what is compared."""
    colours = pa.ExtensionArray.from_storage(Colour(), pa.array([7, 8, 9], pa.int32()))
    rows = pa.table({"n": [1, 2, 2], "colour": colours})
    pa.register_extension_type(Colour())
    try:
        pq.write_table(rows, tmp_path / "a.parquet")
        for source in (tmp_path, rows):
            found = SignatureIndex.build(source, ["n"]).find({"n": 2})
            assert found.equals(rows.slice(1))
            assert found.schema.field("colour").type == Colour()
            with pytest.raises(InvalidParameter, match="'colour' is of type extension"):
                SignatureIndex.build(source, ["n", "colour"])
    finally:
        pa.unregister_extension_type("bloomery.tests.colour")


def test_file_is_indexed_once_a_later_change_has_another_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another file of the same size and time would pass for the one that was indexed."""
    path = tmp_path / "a.parquet"
    pq.write_table(table(10), path)
    os.utime(path)
    SignatureIndex.build(path)
    assert file_state.is_settled(path.stat().st_mtime_ns)
    monkeypatch.setattr(file_state, "TICK_NS", 10**15)
    os.utime(path)
    with pytest.raises(InvalidSource, match=r"a\.parquet does not stop changing"):
        SignatureIndex.build(path)


@pytest.mark.parametrize(("tick_ns", "kept"), [(10**15, 0), (0, 1)])
def test_footers_of_files_that_may_still_change_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tick_ns: int, kept: int
) -> None:
    """Another file may have the same inode, size and time, and its row groups elsewhere."""
    monkeypatch.setattr(file_state, "TICK_NS", tick_ns)
    path = tmp_path / "a.parquet"
    pq.write_table(table(10), path)
    monkeypatch.setattr(parquet, "_footers", OrderedDict())
    with parquet._opened(str(path)):
        assert len(parquet._footers) == kept
