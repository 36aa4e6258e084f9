"""`bloomery log dump`: the records of a server's log, whole or damaged."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bloomery.service.domain import operations
from bloomery.service.domain.operations import Op
from bloomery.service.durability.folder import log_folder, segment_path
from bloomery.service.durability.log import Log
from conftest import require
from unit.service.durability.damaging import change

pytestmark = pytest.mark.slow

require("typer")

Run = Callable[..., Any]
NAME = b"seen\xff"
SETTINGS = {"kind": "bloom", "capacity": 1000}


def _named(data: bytes) -> bytes:
    return operations.named(NAME, data)


ROWS = [
    (1.5, 1, int(Op.CREATE), _named(operations.fields(settings=SETTINGS))),
    (1700000000.25, 1, int(Op.ADD), _named(bytes(24))),
    (1700000000.25, 2, int(Op.CHUNK), _named(operations.chunk(9, b"12345", format="x"))),
    (1700000000.25, 1, int(Op.DROP), _named(b"")),
    (1700000001.0, 1, 99, b"new"),
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with a log of two segments."""
    log = Log(log_folder(tmp_path), fsync="never")
    log.write(ROWS[:2])
    log.cut()
    for row in ROWS[2:]:
        log.write([row])
    log.close()
    return tmp_path


def test_records_are_printed(run: Run, data: Path) -> None:
    """Each record is a line, of a folder and of one segment."""
    lines = run("log", "dump", str(data)).stdout.decode().splitlines()
    assert lines == [
        "1\t1970-01-01T00:00:01.500000+00:00\t1\tCREATE\t"
        f'{len(ROWS[0][3])}\tname seen\\xff\t{{"settings": {json.dumps(SETTINGS)}}}',
        "2\t2023-11-14T22:13:20.250000+00:00\t1\tADD\t31\tname seen\\xff\thashes 3",
        "3\t2023-11-14T22:13:20.250000+00:00\t2\tCHUNK\t"
        f'{len(ROWS[2][3])}\tname seen\\xff\tposition 9\tpart bytes 5\t{{"format": "x"}}',
        "4\t2023-11-14T22:13:20.250000+00:00\t1\tDROP\t7\tname seen\\xff",
        "5\t2023-11-14T22:13:21.000000+00:00\t1\toperation 99\t3",
    ]
    second = run("log", "dump", str(segment_path(log_folder(data), 2)))
    assert second.stdout.decode().splitlines() == lines[2:]
    assert run("log", "dump", str(log_folder(data))).stdout.decode().splitlines() == lines


def test_records_as_json(run: Run, data: Path) -> None:
    """--json prints an object per line."""
    objects = [
        json.loads(line) for line in run("log", "dump", str(data), "--json").stdout.splitlines()
    ]
    assert [one["seq"] for one in objects] == [1, 2, 3, 4, 5]
    assert objects[1] == {
        "seq": 2,
        "time": 1700000000.25,
        "filter": 1,
        "operation": "ADD",
        "bytes": 31,
        "name": "seen\\xff",
        "hashes": 3,
    }
    assert objects[0]["fields"] == {"settings": SETTINGS}


def test_damage_is_reported(run: Run, data: Path) -> None:
    """Records after the damage are printed, and the damage is on standard error."""
    change(segment_path(log_folder(data), 1), 60)
    done = run("log", "dump", str(data), code=1)
    assert [line.split("\t")[0] for line in done.stdout.decode().splitlines()] == ["3", "4", "5"]
    assert "00000001.log" in done.stderr.decode()


@pytest.mark.parametrize(
    ("name", "says"),
    [("none", "no such file"), ("empty", "no segments"), ("notes.txt", "name is a number")],
)
def test_a_path_that_is_not_a_log(run: Run, tmp_path: Path, name: str, says: str) -> None:
    """Another path is an error that says what to name."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("")
    assert says in run("log", "dump", str(tmp_path / name), code=2).stderr.decode()


def test_a_log_in_sqlite_files(run: Run, tmp_path: Path) -> None:
    """A folder of an older bloomery is named as such."""
    log_folder(tmp_path).mkdir()
    (log_folder(tmp_path) / "00000001.sqlite").write_bytes(b"")
    assert "version 2" in run("log", "dump", str(tmp_path), code=2).stderr.decode()
