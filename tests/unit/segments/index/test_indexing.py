"""Which files of a folder are indexed, while they change and where they are linked from."""

import os
import threading
import time
from pathlib import Path

from bloomery.segments import SegmentIndex
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
