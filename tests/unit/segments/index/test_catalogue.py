"""The catalogue of an index after its writer was killed."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from bloomery.errors import CorruptData
from bloomery.segments import SegmentIndex
from bloomery.segments.index.catalogue import IndexCatalogue
from conftest import require

require("pyarrow")


def leave_half_a_transaction(catalogue: Path) -> None:
    """Leave the files as a writer does that is killed while it writes: the journal is hot."""
    journal = catalogue.with_name(catalogue.name + "-journal")
    with contextlib.closing(sqlite3.connect(catalogue, isolation_level=None)) as writer:
        writer.execute("PRAGMA cache_size = 1")  # so that pages go to the file before the commit
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE meta SET value = '7'")
        rows = [(f"x{number}", "y" * 500, 0) for number in range(100)]
        writer.executemany("INSERT INTO meta VALUES (?, ?, ?)", rows)
        killed = catalogue.read_bytes(), journal.read_bytes()
        writer.execute("ROLLBACK")
    catalogue.write_bytes(killed[0])
    journal.write_bytes(killed[1])


def test_readers_go_on_after_a_killed_update(tmp_path: Path) -> None:
    """Those that are open and those that come undo what it left, and nobody has to write."""
    (tmp_path / "a.csv").write_text("id,x\n1,1\n")
    with SegmentIndex.build(tmp_path, ["id"]) as index:
        leave_half_a_transaction(index.path / "catalogue.sqlite")
        with SegmentIndex(tmp_path) as second:
            assert second.find({"id": 1}).num_rows == 1
        leave_half_a_transaction(index.path / "catalogue.sqlite")
        assert index.find({"id": 1}).num_rows == 1
        assert index.stats()["files"] == 1


def test_a_mistake_of_ours_is_not_damage(tmp_path: Path) -> None:
    """An index is rebuilt for what it lacks, and not since SQLite did not understand a query."""
    catalogue = IndexCatalogue(tmp_path, create=True)
    with contextlib.closing(catalogue), contextlib.closing(sqlite3.connect(catalogue.path)) as db:
        with pytest.raises(sqlite3.OperationalError, match="syntax error"), catalogue.errors():
            db.execute("SELEKT 1")
        with pytest.raises(CorruptData, match="damaged"), catalogue.errors():
            db.execute("SELECT full_name FROM files")
