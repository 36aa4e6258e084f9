"""Which files of a folder are indexed, while they change and where they are linked from."""

import os
import shutil
import threading
import time
from pathlib import Path

from bloomery.segments import IndexChanges, SegmentIndex
from bloomery.segments.index import indexing
from conftest import require

require("pyarrow")


def test_a_file_that_does_not_stop_changing_is_indexed_and_always_read(tmp_path: Path) -> None:
    """`build` ends though somebody writes, and a file of no settled time counts as changed."""
    path = tmp_path / "a.csv"
    path.write_text("id,x\n1,1\n")
    done = threading.Event()
    limit = time.monotonic() + 10  # for a build that would not end

    def write() -> None:
        while not done.is_set() and time.monotonic() < limit:
            os.utime(path)
            done.wait(0.001)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        index = SegmentIndex.build(tmp_path, ["id"])
        assert writer.is_alive()
    finally:
        done.set()
        writer.join()
    with index:
        assert [one.why for one in index.candidates({"id": 1})] == ["changed"]
        assert index.find({"id": 1}).num_rows == 1
        os.utime(path, (1, 1))
        assert index.update().changed == 1
        assert [one.why for one in index.candidates({"id": 1})] == ["maybe"]


def test_linked_folders_are_indexed_once(tmp_path: Path) -> None:
    """Links to folders are followed, in a ring too, and no folder comes twice."""
    data, outside = tmp_path / "data", tmp_path / "outside"
    for number, folder in enumerate((data / "real", outside / "deep")):
        folder.mkdir(parents=True)
        (folder / "a.csv").write_text(f"id,x\n{number},1\n")
    (data / "a-link").symlink_to(outside)
    (data / "b-link").symlink_to(outside / "deep")
    (data / "a-second").symlink_to(data / "real")
    (outside / "back").symlink_to(data)
    (data / "self.csv").symlink_to("self.csv")
    (data / "gone.csv").symlink_to("nowhere")
    with SegmentIndex.build(data, ["id"]) as index:
        assert [index.find({"id": number}).num_rows for number in (0, 1)] == [1, 1]
        assert index.stats()["files"] == 2
        (outside / "deep" / "new.csv").write_text("id,x\n2,1\n")
        assert [one.path for one in index.candidates({"id": 2})] == ["a-link/deep/new.csv"]
        assert index.find({"id": 2}).num_rows == 1


def test_files_that_disappear_while_they_are_listed_have_no_status(tmp_path: Path) -> None:
    """The caller must know: a listing may lack the new name of a file that was renamed."""
    for name in ("a.csv", "b.csv", "deep/c.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("id\n1\n")
    listing = indexing.walk(str(tmp_path))
    first, status = next(listing)
    assert status is not None
    shutil.rmtree(tmp_path / "deep")
    other = ({"a.csv", "b.csv"} - {first}).pop()
    (tmp_path / other).unlink()
    assert sorted(listing) == [(other, None), ("deep", None)]


def test_files_that_disappear_before_they_are_indexed_are_left_out(tmp_path: Path) -> None:
    """An update counts what it did, and the next search does not look for them."""
    for name in ("a.csv", "b.csv", "c.csv"):
        (tmp_path / name).write_text("id\n1\n")
    SegmentIndex.build(tmp_path, ["id"]).close()
    for name in ("b.csv", "c.csv", "d.csv"):
        (tmp_path / name).write_text("id\n1\n2\n")

    def remove(done: int, total: int, name: str) -> None:
        if name in ("b.csv", "d.csv"):
            (tmp_path / name).unlink()

    with SegmentIndex(tmp_path) as index:
        assert index.update(remove) == IndexChanges(added=0, changed=1, removed=1, unchanged=1)
        assert index.stats()["files"] == 2
        assert index.find({"id": 1}).num_rows == 2
