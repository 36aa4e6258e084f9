"""A start never has less than was acknowledged: what is damaged or missing is refused, with what is
wrong and what to do, and stays as it is until somebody accepts the loss."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from bloomery import errors
from bloomery.storage import control, log, operations, quarantine, snapshots
from bloomery.storage.control import Control, control_file
from bloomery.storage.folder import FORMAT, log_folder
from bloomery.storage.log import segment_path, segments
from bloomery.storage.operations import Op
from bloomery.storage.recovery import recover
from unit.storage.serving import Server, assert_same, hashes, missing

Damage = Callable[[Path], None]


def filled(data: Path, rounds: int = 5) -> Server:
    """A server with two generations, and a log behind them: a closed segment and an open one."""
    server = Server(data)
    for name in ("one", "two"):
        server.create("counting", name, capacity=3000)
    for round in range(rounds):
        for number in (1, 2):
            for part in range(20):
                server.do(Op.ADD, number, hashes(100 * round + part, 3))
        if round in (0, 1):
            server.snapshot()
        else:
            server.log.cut()
            server.log.sync()
    for part in range(300):
        server.do(Op.ADD, 1, hashes(5000 + part, 1))
    return server


def contents(data: Path) -> dict[str, bytes]:
    """All that is in a folder, but for the index that SQLite makes anew and the lock."""
    kept = [path for path in data.rglob("*") if path.is_file() and path.suffix != ".sqlite-shm"]
    return {str(path.relative_to(data)): path.read_bytes() for path in kept}


def last(data: Path, suffix: str = "") -> Path:
    """The last segment, or what SQLite has beside it."""
    return Path(f"{segment_path(log_folder(data), segments(log_folder(data))[-1])}{suffix}")


def change(path: Path, at: int, flip: int = 0xFF) -> None:
    """Change one byte."""
    raw = bytearray(path.read_bytes())
    raw[at] ^= flip
    path.write_bytes(raw)


def altered(data: Path, segment: int, statement: str) -> None:
    """Let a statement of SQL loose on a closed segment."""
    path = segment_path(log_folder(data), segment)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute(statement).rowcount > 0


def refused(data: Path) -> str:
    """Start where it must be refused, twice, which changes nothing; why."""
    before, whys = contents(data), []
    for _ in range(2):  # as `Restart=always` would
        with pytest.raises(errors.CorruptData) as caught:
            recover(data)
        whys.append(str(caught.value))
        assert contents(data) == before
    assert whys[0] == whys[1]
    return whys[0]


def test_an_operation_of_a_newer_bloomery(tmp_path: Path) -> None:
    """A row that is whole and whose operation nobody knows, as after a rollback, is no row to be
    left out."""
    server = filled(tmp_path / "data")
    server.log.append([(1, 99, b"")], server.now)
    server.do(Op.ADD, 1, hashes(1, 1))
    why = refused(server.killed(tmp_path / "copy"))
    assert "operation 99" in why
    assert "upgrade bloomery" in why
    server.log.close()


@pytest.mark.parametrize("name", ["middle", "create"])
def test_a_damaged_row(tmp_path: Path, name: str) -> None:
    """A row in the middle that is not as it was written, an ADD or the CREATE of a filter."""
    server = Server(tmp_path)
    server.create("counting")
    for number in range(50):
        server.do(Op.ADD, 1, hashes(number, 3))
    server.log.close()
    seq = {"middle": 25, "create": 1}[name]
    altered(tmp_path, 1, f"UPDATE log SET data = X'00' || data WHERE seq = {seq}")
    assert "00000001.sqlite" in refused(tmp_path)


def test_a_byte_of_a_write_ahead_file(tmp_path: Path) -> None:
    """One byte in the middle of a write-ahead file, behind which SQLite reads nothing any more."""
    server = filled(tmp_path / "data")
    data = server.killed(tmp_path / "copy")
    wal = last(data, "-wal")
    change(wal, wal.stat().st_size // 2)
    assert wal.name in refused(data)
    server.log.close()


def without_wal(data: Path) -> None:
    """Lose the write-ahead file of the last segment."""
    last(data, "-wal").unlink()


def without_wal_and_index(data: Path) -> None:
    """Lose it with its index."""
    last(data, "-wal").unlink()
    last(data, "-shm").unlink()


def cut_wal(data: Path) -> None:
    """Lose its last bytes."""
    wal = last(data, "-wal")
    wal.write_bytes(wal.read_bytes()[:-100])


def without_last(data: Path) -> None:
    """Lose the last segment."""
    for suffix in ("-wal", "-shm", ""):
        last(data)
        Path(f"{last(data)}{suffix}").unlink()


def without_middle(data: Path) -> None:
    """Lose a closed segment."""
    segment_path(log_folder(data), segments(log_folder(data))[-2]).unlink()


def swapped(data: Path) -> None:
    """Let two closed segments have each other's names."""
    one, other = (segment_path(log_folder(data), n) for n in segments(log_folder(data))[-3:-1])
    raw = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(raw)


def one_for_the_other(data: Path) -> None:
    """Let a closed segment be in the place of the next."""
    one, other = (segment_path(log_folder(data), n) for n in segments(log_folder(data))[-3:-1])
    shutil.copy(one, other)


def without_newest(data: Path) -> None:
    """Lose the newest generation, and the log since then."""
    number = snapshots.generations(data)[-1]
    shutil.rmtree(snapshots.folder_of(data, number))
    for one in segments(log_folder(data)):
        if one >= number:
            for path in log_folder(data).glob(f"{one:08}.*"):
                path.unlink()


def without_anything(data: Path) -> None:
    """Lose all generations and all of the log."""
    shutil.rmtree(log_folder(data))
    shutil.rmtree(data / "snapshots")


def without_rows(data: Path) -> None:
    """Lose rows in the middle."""
    altered(data, segments(log_folder(data))[-2], "DELETE FROM log WHERE seq % 7 = 3")


def without_the_end_of_a_segment(data: Path) -> None:
    """Lose the last rows of a closed segment."""
    altered(
        data,
        segments(log_folder(data))[-2],
        "DELETE FROM log WHERE seq > (SELECT max(seq) - 3 FROM log)",
    )


def no_segment(data: Path) -> None:
    """Have zeros in place of a segment."""
    path = segment_path(log_folder(data), segments(log_folder(data))[-2])
    path.write_bytes(bytes(path.stat().st_size))


DAMAGES = [
    without_wal,
    without_wal_and_index,
    cut_wal,
    without_last,
    without_middle,
    swapped,
    one_for_the_other,
    without_newest,
    without_anything,
    without_rows,
    without_the_end_of_a_segment,
    no_segment,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_gone_or_another(tmp_path: Path, damage: Damage) -> None:
    """Files of the log that are gone, cut off, doubled or in each other's place are missed."""
    server = filled(tmp_path / "data")
    data = server.killed(tmp_path / "copy")
    damage(data)
    assert "--accept-loss" in refused(data)
    server.log.close()


def test_a_segment_that_is_there_twice(tmp_path: Path) -> None:
    """A copy of a segment as the last one brings nothing new: all is there, and that is said."""
    server = filled(tmp_path / "data")
    data = server.killed(tmp_path / "copy")
    found = segments(log_folder(data))
    shutil.copy(*(segment_path(log_folder(data), number) for number in (found[-2], found[-1] + 1)))
    recovery = recover(data)
    assert any("is there again" in problem for problem in recovery.problems)
    assert_same(recovery.state, server.state)
    assert recover(data).problems == []
    server.log.close()


def test_an_older_copy_of_the_log(tmp_path: Path) -> None:
    """The last segment as it was a while ago, put back, is less than was acknowledged."""
    server = filled(tmp_path / "data")
    older = server.killed(tmp_path / "older")
    server.do(Op.ADD, 1, hashes(7, 7))
    data = server.killed(tmp_path / "copy")
    shutil.rmtree(log_folder(data))
    shutil.copytree(log_folder(older), log_folder(data))
    assert "--accept-loss" in refused(data)
    server.log.close()


def test_a_row_for_no_filter(tmp_path: Path) -> None:
    """A row whose filter is not there is not left out."""
    server = filled(tmp_path / "data")
    server.log.append([(77, Op.ADD, hashes(1, 1))], server.now)
    assert "filter number 77" in refused(server.killed(tmp_path / "copy"))
    server.log.close()


def test_after_a_clean_end(tmp_path: Path) -> None:
    """A server that ended in order is missed too, if its last rows are gone."""
    server = filled(tmp_path)
    server.log.close()
    assert_same(recover(tmp_path).state, server.state)
    path = last(tmp_path)
    altered(tmp_path, segments(log_folder(tmp_path))[-1], "DELETE FROM log WHERE seq % 300 = 299")
    assert "--accept-loss" in refused(tmp_path)
    path.unlink()
    assert "--accept-loss" in refused(tmp_path)


def test_a_generation_by_another_number(tmp_path: Path) -> None:
    """A copy of a generation under a later number is not that generation: what is whole is used."""
    server = filled(tmp_path / "data")
    data = server.killed(tmp_path / "copy")
    older, newer = snapshots.generations(data)
    shutil.rmtree(snapshots.folder_of(data, newer))
    shutil.copytree(snapshots.folder_of(data, older), snapshots.folder_of(data, newer))
    found = recover(data)
    assert any(f"snapshot {newer}" in problem for problem in found.problems)
    assert found.generation == older
    assert_same(found.state, server.state)
    server.log.close()


def test_an_operation_with_other_fields(tmp_path: Path) -> None:
    """An operation that lacks what it needs cannot be done again, and is not left out."""
    server = filled(tmp_path / "data")
    server.log.append([(3, Op.CREATE, operations.fields(settings={}))], server.now)
    assert "CREATE" in refused(server.killed(tmp_path / "copy"))
    server.log.close()


# Once the loss is accepted.


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_loss_that_is_accepted(tmp_path: Path, damage: Damage) -> None:
    """What is left is taken, the files as they were found are set aside, and the next start finds
    nothing wrong; they stay there, whatever is saved and pruned."""
    server = filled(tmp_path / "data")
    data = server.killed(tmp_path / "copy")
    damage(data)
    before = contents(data)
    brave = Server(data, accept_loss=True)
    assert brave.recovery.problems
    (aside,) = quarantine.find(data)
    assert aside.lost
    assert aside.problems == brave.recovery.problems
    kept = contents(aside.folder)
    del kept["report.json"]
    assert kept == before
    if damage is not without_anything:
        for number in (1, 2):  # what is in the older generation, at least
            assert missing(brave.state.filters[number].filter, hashes(5, 3)) == 0
    brave.create("bloom", "new")
    for _ in range(3):
        brave.snapshot()
    brave.log.close()
    again = recover(data)
    assert again.problems == []
    assert_same(again.state, brave.state)
    assert quarantine.find(data) == [aside]
    assert {name: raw for name, raw in contents(aside.folder).items() if name in kept} == before
    server.log.close()


def test_a_damaged_generation_is_set_aside(tmp_path: Path) -> None:
    """A generation that is damaged where nothing is lost is set aside alone, and is no base for
    another one."""
    server = filled(tmp_path / "data")
    data = server.killed(tmp_path / "copy")
    older, newer = snapshots.generations(data)
    change(snapshots.folder_of(data, newer) / "1.bloomery", 700)
    found = recover(data)
    assert_same(found.state, server.state)
    (aside,) = quarantine.find(data)
    assert not aside.lost
    assert f"snapshot {newer}" in aside.problems[0]
    files = {str(Path(name).parent) for name in contents(aside.folder)} - {"."}
    assert files == {f"snapshots/{newer:08}"}
    left = snapshots.generations(data)
    assert (left[0], len(left)) == (older, 2)
    again = recover(data)
    assert (again.problems, again.generation) == ([], left[1])
    assert_same(again.state, server.state)
    server.log.close()


# A power cut.


@pytest.fixture
def reboot(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let the machine have been started anew."""
    return lambda: monkeypatch.setattr(control, "boot_id", lambda: b"another boot id.")


def torn(data: Path, rows: int) -> None:
    """Lose the end of the write-ahead file of the last segment: so many commits of one page each,
    in the middle of which a sector of zeros is left."""
    wal = last(data, "-wal")
    raw = bytearray(wal.read_bytes())
    page = 24 + 2048
    raw[-rows * page : -rows * page + 512] = bytes(512)
    wal.write_bytes(raw)


def test_the_torn_tail_of_a_power_cut(tmp_path: Path, reboot: Callable[[], None]) -> None:
    """What was not synced may be torn or gone when the machine went down, and only then: it starts
    with all that was synced, and says how much is lost."""
    server = Server(tmp_path / "data", fsync="everysec")
    number = server.create("counting", capacity=3000)
    for part in range(100):
        server.do(Op.ADD, number, hashes(part, 1))
    server.log.sync()
    synced = server.log.seq
    expected = recover(server.killed(tmp_path / "synced")).state
    for part in range(10):
        server.do(Op.ADD, number, hashes(1000 + part, 1))
    data = server.killed(tmp_path / "copy")
    torn(data, 10)
    assert "--accept-loss" in refused(data)
    reboot()
    found = recover(data)
    assert found.seq >= synced
    assert_same(found.state, expected)
    lost = server.log.seq - found.seq
    assert lost == 10
    assert any(f"the last {lost} were not synced" in problem for problem in found.problems)
    assert quarantine.find(data) == []
    assert recover(data).problems == []
    server.log.close()


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_what_was_synced_is_no_torn_tail(
    tmp_path: Path, reboot: Callable[[], None], fsync: str
) -> None:
    """A power cut takes nothing that was synced: if that is gone the start is refused."""
    server = Server(tmp_path / "data", fsync=fsync)  # type: ignore[arg-type]
    number = server.create("counting", capacity=3000)
    for part in range(100):
        server.do(Op.ADD, number, hashes(part, 1))
    if fsync == "everysec":
        server.log.sync()
    data = server.killed(tmp_path / "copy")
    torn(data, 1)
    reboot()
    assert "--accept-loss" in refused(data)
    server.log.close()


def test_a_segment_that_never_reached_the_disk(tmp_path: Path, reboot: Callable[[], None]) -> None:
    """A segment that was begun just before a power cut may be empty, or not there."""
    server = filled(tmp_path / "data")
    server.log.cut()
    server.log.close()
    for name, how in (("empty", lambda path: path.write_bytes(b"")), ("gone", Path.unlink)):
        data = server.killed(tmp_path / name)
        how(last(data))
        reboot()
        assert_same(recover(data).state, server.state)


# Versions.


def test_the_control_file(tmp_path: Path) -> None:
    """It says how far the log was written, exactly, and synced; a number that was left half stored
    is not taken, and one that is damaged twice is refused."""
    server = filled(tmp_path / "data")
    seq = server.log.seq
    assert Control.read(server.data) == Control(written=seq, synced=0, rebooted=False)
    data = server.killed(tmp_path / "copy")
    raw = control_file(data).read_bytes()
    place = 512 if int.from_bytes(raw[512:520], "little") == seq else 1024
    change(control_file(data), place)
    found = Control.read(data)
    assert found is not None
    assert found.written == seq - 1
    assert_same(recover(data).state, server.state)
    change(control_file(data), 1536 - place)
    assert "control" in refused(data)
    server.log.close()


@pytest.mark.parametrize("how", [Path.unlink, lambda path: path.write_bytes(b"short")])
def test_without_the_control_file(tmp_path: Path, how: Damage) -> None:
    """A folder whose control file is gone is not taken for one of version 1."""
    server = filled(tmp_path / "data")
    data = server.killed(tmp_path / "copy")
    how(control_file(data))
    assert "control" in refused(data)
    assert_same(recover(data, accept_loss=True).state, server.state)
    server.log.close()


def test_a_newer_folder(tmp_path: Path) -> None:
    """A folder of a newer version is refused with both versions, whatever is accepted."""
    server = filled(tmp_path / "data")
    data = server.killed(tmp_path / "copy")
    raw = bytearray(control_file(data).read_bytes())
    raw[8:12] = (FORMAT + 7).to_bytes(4, "little")
    raw[32:36] = zlib.crc32(raw[:32]).to_bytes(4, "little")
    control_file(data).write_bytes(raw)
    for accept_loss in (False, True):
        with pytest.raises(errors.UnsupportedVersion, match=rf"{FORMAT + 7}.*up to {FORMAT}"):
            recover(data, accept_loss=accept_loss)
    server.log.close()


def test_a_newer_segment(tmp_path: Path) -> None:
    """So is a folder with a segment of a newer version."""
    server = filled(tmp_path)
    server.log.close()
    path = segment_path(log_folder(tmp_path), segments(log_folder(tmp_path))[-2])
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA user_version={FORMAT + 7}")
    why = refused(tmp_path)
    assert f"version {FORMAT + 7}" in why
    assert f"up to {FORMAT}" in why


def test_a_newer_manifest(tmp_path: Path) -> None:
    """A snapshot of a newer version is refused, and not passed over for the one before."""
    server = filled(tmp_path)
    server.log.close()
    path = snapshots.folder_of(tmp_path, snapshots.generations(tmp_path)[-1]) / snapshots.MANIFEST
    body = json.loads(path.read_bytes())["manifest"] | {"format": 9}
    path.write_text(json.dumps({"manifest": body, "checksum": snapshots._sum(body)}))
    assert "version 9, and this bloomery knows 1" in refused(tmp_path)


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Server, Path]:
    """A server of version 1, from before there were versions, and its folder when it is killed."""
    with monkeypatch.context() as before:
        before.setattr(log, "FORMAT", 0)
        server = filled(tmp_path / "data")
    data = server.killed(tmp_path / "copy")
    control_file(data).unlink()
    return server, data


def test_version_1_is_upgraded(older: tuple[Server, Path]) -> None:
    """A folder of before is taken as it is, and is one of this version from then on."""
    server, data = older
    upgraded = Server(data)
    assert upgraded.recovery.problems == []
    assert_same(upgraded.state, server.state)
    upgraded.do(Op.ADD, 1, hashes(8, 8))
    upgraded.log.close()
    assert Control.read(data) == Control(upgraded.log.seq, 0, False)
    assert_same(recover(data).state, upgraded.state)
    server.log.close()


@pytest.mark.parametrize("damage", [cut_wal, without_wal])
def test_version_1_that_is_cut_off(older: tuple[Server, Path], damage: Damage) -> None:
    """Of a folder of before, what SQLite's index says is missing is refused, again and again."""
    server, data = older
    damage(data)
    assert "cut off" in refused(data)
    server.log.close()
