"""Rows of files of different types in one table, and of files that others replace meanwhile."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bloomery.errors import InvalidSource
from bloomery.segments import SegmentIndex
from bloomery.segments.index import finding, indexing
from bloomery.storage import file_state
from conftest import require

pa = require("pyarrow")
pq = require("pyarrow.parquet")


def test_rows_of_files_of_different_types_are_in_one_table(tmp_path: Path) -> None:
    """Columns that have no common type are text; those that have, and dictionaries, are not."""
    first = {"id": [42], "wide": pa.array([1], pa.int8()), "s": pa.array(["x"]).dictionary_encode()}
    pq.write_table(pa.table({**first, "deep": [[1, 2]]}), tmp_path / "a.parquet")
    second = {"id": ["42"], "wide": [2], "s": ["y"], "deep": [2.5], "only": [b"\xff"]}
    pq.write_table(pa.table(second), tmp_path / "b.parquet")
    (tmp_path / "c.csv").write_text("id,only\n42,5\n")
    with SegmentIndex.build(tmp_path, ["id"]) as index:
        rows = sorted(index.find({"id": 42}).to_pylist(), key=lambda row: row["wide"] or 3)
        assert [row["id"] for row in rows] == ["42"] * 3
        assert [row["wide"] for row in rows] == [1, 2, None]
        assert [row["s"] for row in rows] == ["x", "y", None]
        assert [row["deep"] for row in rows] == ["[1, 2]", "2.5", None]
        assert [row["only"] is None for row in rows] == [True, False, False]
        assert index.find({"id": 42}, columns=["wide"]).column("wide").type == pa.int64()


def write(path: Path, *, key_at_end: bool, rows: int = 1000) -> None:
    """A file that has the key 42 in its first or in its last part, put there by a rename."""
    ids = [42, *range(1000, 1000 + rows - 1)]
    if key_at_end:
        ids.reverse()
    new = path.with_name(f"_{path.name}")
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"id": ids}), new, row_group_size=100)
    elif path.suffix == ".csv":
        new.write_text("".join(f"{line},1\n" for line in ["id", *ids]))
    else:
        new.write_text("".join(f'{{"id": {number}}}\n' for number in ids))
    os.replace(new, path)


@contextmanager
def before_each_reading(change: Callable[[], object]) -> Iterator[None]:
    """Do something after parts were chosen, and before each file is opened."""
    original = finding.Finder.rows

    def rows(*given: Any) -> Any:
        change()
        return original(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finding.Finder, "rows", rows)
        yield


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl"])
@pytest.mark.parametrize("shorter", [False, True])
def test_file_replaced_after_parts_were_chosen_is_read_whole(
    tmp_path: Path, name: str, shorter: bool
) -> None:
    """The key is in the file all the time, in other parts before and after."""
    path = tmp_path / name
    write(path, key_at_end=False)
    with SegmentIndex.build(tmp_path, ["id"]) as index:
        assert index.find({"id": 42}).num_rows == 1  # and its footer is remembered
        rows = 150 if shorter else 1000
        with before_each_reading(lambda: write(path, key_at_end=True, rows=rows)):
            assert index.find({"id": 42}).num_rows == 1


def test_file_renamed_after_parts_were_chosen_is_found(tmp_path: Path) -> None:
    """A file that is gone when it is read is looked for under other names."""
    files = [tmp_path / "a.parquet", tmp_path / "b.csv"]
    for file in files:
        write(file, key_at_end=False)

    def rename() -> None:
        while files:
            file = files.pop()
            file.rename(file.with_stem(f"z{file.stem}"))

    with SegmentIndex.build(tmp_path, ["id"]) as index:
        with before_each_reading(rename):
            assert index.find({"id": 42}).num_rows == 2
        (tmp_path / "za.parquet").unlink()
        assert index.find({"id": 42}).num_rows == 1


def replace_all_the_time(path: Path, count: Path) -> None:
    """Replace the file until the process is killed, update the index now and then, and note how
    often the file was replaced."""
    with SegmentIndex(path.parent) as writer:
        for version in itertools.count(1):
            write(path, key_at_end=version % 2 == 1, rows=1000 - version % 3)
            if version % 4 == 0:
                writer.update()
            with count.open("a") as file:
                file.write(".")


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl"])
def test_key_is_found_while_another_process_replaces_its_file(tmp_path: Path, name: str) -> None:
    """A writer replaces the file and updates the index, as fast as it can: no error, no denial."""
    folder, count = tmp_path / "files", tmp_path / "count"
    folder.mkdir()
    count.touch()
    path = folder / name
    write(path, key_at_end=False)
    SegmentIndex.build(folder, ["id"]).close()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen([sys.executable, __file__, path, count], env=environment) as writer:
        try:
            with SegmentIndex(folder) as index:
                found: list[int] = []
                while len(found) < 300 or count.stat().st_size < 50:
                    found.append(index.find({"id": 42}).num_rows)
                    assert writer.poll() is None
        finally:
            writer.kill()
    assert set(found) == {1}


def test_file_renamed_while_the_folder_is_listed_is_found(tmp_path: Path) -> None:
    """Nothing is indexed of either file; the listing has the old name of one, which is gone."""
    SegmentIndex.build(tmp_path, ["id"]).close()
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for file in files:
        file.write_text("id,n\n42,1\n")
    original = indexing.walk

    def walk(root: str) -> Iterator[Any]:
        for path, status in original(root):
            files[:] = [file for file in files if file.name != path]
            yield path, status
            while files:
                files.pop().rename(tmp_path / "c.csv")

    with SegmentIndex(tmp_path) as index, pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexing, "walk", walk)
        assert index.find({"id": 42}).num_rows == 2
        assert files == []


def test_file_rewritten_in_place_is_read_again_or_refused(tmp_path: Path) -> None:
    """What is read of a file that changes under the reader is not believed."""
    path = tmp_path / "a.csv"
    write(path, key_at_end=False)
    changes = 0
    original = finding._matching

    def matching(data: Any, *given: Any) -> Any:
        for part in data.parts(None):
            assert part.rows
            break
        nonlocal changes
        if changes > 0:
            path.write_text("id,n\n" + "42,1\n" * changes)
            changes -= 1
        return original(data, *given)

    with SegmentIndex.build(tmp_path, ["id"]) as index, pytest.MonkeyPatch.context() as patch:
        patch.setattr(finding, "_matching", matching)
        changes = 3
        assert index.find({"id": 42}).num_rows == 1
        changes = 1000
        with pytest.raises(InvalidSource, match="changed while it was read"):
            index.find({"id": 42})


def test_lines_that_are_appended_all_the_time_are_found(tmp_path: Path) -> None:
    """A log that grows is read as far as it is."""
    path = tmp_path / "a.jsonl"
    write(path, key_at_end=False, rows=100)
    with SegmentIndex.build(tmp_path, ["id"]) as index:

        def grow(data: Any, *given: Any) -> Any:
            rows = original(data, *given)
            with path.open("a") as file:
                file.write('{"id": 7}\n')
            list(data.parts(None))  # which looks at the file again
            return rows

        original = finding._matching
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(finding, "_matching", grow)
            assert index.find({"id": 42}).num_rows == 1


@pytest.mark.parametrize(("tick_ns", "kept"), [(10**15, 0), (0, 1)])
def test_footers_of_files_that_may_still_change_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tick_ns: int, kept: int
) -> None:
    """Another file may have the same inode, size and time, and its row groups elsewhere."""
    monkeypatch.setattr(file_state, "TICK_NS", tick_ns)
    write(tmp_path / "a.parquet", key_at_end=False)
    finder = finding.Finder()
    finder.schema(str(tmp_path / "a.parquet"), False)
    assert len(finder._footers) == kept


if __name__ == "__main__":
    replace_all_the_time(Path(sys.argv[1]), Path(sys.argv[2]))
