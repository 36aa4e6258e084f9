"""Backups: every key comes back, and a file that is not whole makes no data folder."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import IO, Any, cast

import pytest

from bloomery import errors
from bloomery.service.domain import operations
from bloomery.service.domain.operations import Op
from bloomery.service.durability import snapshots
from bloomery.service.durability.backup import Backup, restore, verify
from bloomery.service.durability.folder import lock
from bloomery.service.durability.recovery import recover
from bloomery.service.durability.snapshots import MANIFEST, SnapshotManifest
from conftest import effort
from unit.service.durability.serving import SETTINGS, Server, assert_same, hashes

AT = 1_700_000_000


def file_of(server: Server) -> bytes:
    """The backup of a server."""
    number = server.snapshot()
    folder = snapshots.folder_of(server.data, number)
    raw = (folder / MANIFEST).read_bytes()
    taken = Backup(folder, SnapshotManifest.read(server.data, number), raw, AT)
    made = b"".join(taken.blocks())
    assert len(made) == taken.nbytes
    return made


@pytest.fixture
def server(tmp_path: Path) -> Server:
    """A server with a filter of every kind, one of which ends."""
    server = Server(tmp_path / "of")
    for kind in SETTINGS:
        number = server.create(kind)
        server.do(Op.ADD, number, hashes(1, 15, kind))
    server.do(Op.EXPIRE, 1, operations.fields(at=server.now + 3600))
    return server


@pytest.fixture
def small(tmp_path: Path) -> bytes:
    """A backup of few bytes."""
    server = Server(tmp_path / "small")
    server.do(Op.ADD, server.create("bloom", capacity=10), hashes(1, 5))
    return file_of(server)


def test_every_kind_comes_back(tmp_path: Path, server: Server) -> None:
    """Filters of all kinds are as they were, with their names, settings and ends; the folder goes
    on from there as any other."""
    (tmp_path / "file").write_bytes(file_of(server))
    content = restore(tmp_path / "file", tmp_path / "made")
    assert (len(content.manifest.entries), content.taken_at) == (len(SETTINGS), AT)
    found = recover(tmp_path / "made")
    assert (found.problems, found.seq) == ([], server.log.seq)
    assert_same(found.state, server.state)
    assert found.state.filters[1].expires_at == server.now + 3600
    after = Server(tmp_path / "made")
    after.do(Op.ADD, 2, hashes(2, 15, "scalable"))
    after.snapshot()
    after.log.close()
    again = recover(tmp_path / "made")
    assert again.problems == []
    assert_same(again.state, after.state)


def test_a_server_without_filters(tmp_path: Path) -> None:
    """A backup of nothing is one, too."""
    (tmp_path / "file").write_bytes(file_of(Server(tmp_path / "of")))
    restore(tmp_path / "file", tmp_path / "made")
    assert recover(tmp_path / "made").state.filters == {}


def test_a_flipped_byte_is_refused(small: bytes) -> None:
    """Whichever byte is another one: what the padding has, too."""
    for at in range(0, len(small), effort(7, 1, 1)):
        damaged = bytearray(small)
        damaged[at] ^= 0x20
        with pytest.raises(errors.CorruptData):
            verify(io.BytesIO(damaged))


def test_a_cut_off_file_is_refused(small: bytes) -> None:
    """Wherever it ends, and if there is more behind its end."""
    for length in range(0, len(small), effort(64, 1, 1)):
        with pytest.raises(errors.CorruptData):
            verify(io.BytesIO(small[:length]))
    with pytest.raises(errors.CorruptData):
        verify(io.BytesIO(small + bytes(512)))


def test_a_refused_file_makes_no_folder(tmp_path: Path, small: bytes) -> None:
    """The message names the file; nothing is written."""
    for number, data in enumerate((small[:-1], b"", b"PK" + bytes(2000), small[:700])):
        path = tmp_path / f"file {number}"
        path.write_bytes(data)
        with pytest.raises(errors.CorruptData, match=f"file {number}: (not a backup|cut off)"):
            restore(path, tmp_path / "made")
    assert not (tmp_path / "made").exists()


def forged(small: bytes, change: Callable[[Any, Any], object]) -> io.BytesIO:
    """A backup that somebody made with tar."""
    made = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(small)) as old,
        tarfile.open(fileobj=made, mode="w") as tar,
    ):
        members = {one.name: cast("IO[bytes]", old.extractfile(one)).read() for one in old}
        about, body = json.loads(members["backup.json"]), json.loads(members[MANIFEST])["manifest"]
        change(about, body)
        members["backup.json"] = json.dumps(about).encode()
        summed = {"manifest": body, "checksum": snapshots.manifest_sum(body)}
        members[MANIFEST] = json.dumps(summed).encode()
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return made


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda about, body: about.update(format=2), "format 2 by bloomery"),
        (lambda about, body: about.update(taken_at="now"), "backup.json"),
        (lambda about, body: body.update(number="/../../x"), "cannot be right"),
        (lambda about, body: body.update(number=0), "cannot be right"),
        (lambda about, body: body.update(seq=1 << 70), "cannot be right"),
        (lambda about, body: body["entries"][0].update(name=["a"]), "cannot be right"),
        (lambda about, body: body["entries"][0].update(file="../1.bloomery"), "no file of it"),
        (lambda about, body: body["entries"][0].update(id="1"), "cannot be right"),
        (lambda about, body: body["entries"][0].update(nbytes=-1), "cannot be right"),
        (lambda about, body: body["entries"].append(body["entries"][0]), "cannot be right"),
        (lambda about, body: body.update(format=9), "version 9"),
    ],
)
def test_forged_files_are_refused(small: bytes, change: Any, why: str) -> None:
    """Other versions, and names and numbers that would lead out of the folder."""
    with pytest.raises(errors.CorruptData, match=why):
        verify(forged(small, change))


def test_a_used_folder_is_refused(tmp_path: Path, small: bytes) -> None:
    """A folder that has something in it stays as it is; so does that of a server that runs."""
    (tmp_path / "file").write_bytes(small)
    used = tmp_path / "used"
    used.mkdir()
    (used / "users.json").write_text("{}")
    with pytest.raises(errors.InvalidParameter, match="not empty"):
        restore(tmp_path / "file", used)
    assert [one.name for one in used.iterdir()] == ["users.json"]
    with closing(lock(tmp_path / "served")), pytest.raises(errors.FolderInUse):
        restore(tmp_path / "file", tmp_path / "served")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be led astray")
def test_root_follows_no_link_of_who_owns_the_folder(tmp_path: Path, small: bytes) -> None:
    """A `lock` that is a link does not have root write to what it names."""
    (tmp_path / "file").write_bytes(small)
    secret, theirs = tmp_path / "secret", tmp_path / "theirs"
    secret.write_text("of root")
    theirs.mkdir()
    (theirs / "lock").symlink_to(secret)
    (theirs / "other").touch()
    os.chown(theirs, 65534, 65534)
    with pytest.raises(errors.InvalidParameter, match="not empty"):
        restore(tmp_path / "file", theirs)
    assert secret.read_text() == "of root"


def test_json_without_end_is_refused(small: bytes) -> None:
    """A member that nests deeper than Python reads is damage like any other."""
    for name in ("backup.json", MANIFEST):
        with pytest.raises(errors.CorruptData, match=name):
            verify(nested(small, name))


def nested(small: bytes, name: str) -> io.BytesIO:
    """A backup one member of which is brackets alone."""
    made = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(small)) as old,
        tarfile.open(fileobj=made, mode="w") as tar,
    ):
        for one in old:
            content = cast("IO[bytes]", old.extractfile(one)).read()
            content = b"[" * 60_000 if one.name == name else content
            one.size = len(content)
            tar.addfile(one, io.BytesIO(content))
    return made


def test_a_restore_that_ends_early(tmp_path: Path, small: bytes) -> None:
    """At whatever point it is killed, a server does not start on what it left; if it fails, it
    leaves nothing."""
    (tmp_path / "file").write_bytes(small)
    made, copies, read = tmp_path / "made", list[Path](), 0

    def progress(nbytes: int) -> None:
        nonlocal read
        read += nbytes
        if read > len(small):  # it was verified, and is being written
            copies.append(shutil.copytree(made, tmp_path / f"killed {len(copies)}"))
        if read >= 2 * len(small):
            raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        restore(tmp_path / "file", made, progress)
    assert not made.exists()
    assert copies
    for copy in copies:
        with pytest.raises(errors.CorruptData, match="not started"):
            recover(copy)
