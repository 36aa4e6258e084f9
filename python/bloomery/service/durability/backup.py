"""Backups: all filters of a running server in one file, and a data folder made of it again.

    backup.json     {"format": 1, "bloomery": "0.1.0", "taken_at": 1700000000}
    manifest.json   the snapshot's own: each filter's name, settings, end, size and checksum
    1.bloomery …    the filters, as the snapshot has them
    SHA256          of every byte before it: a file without it is cut off

It is a tar archive, so that anybody can look into it. A backup is a snapshot that is made when it
is asked for: its files get a second name until they are sent, so that later snapshots do not take
them away. Whoever reads it goes by the manifest, never by names that the archive has.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
import tarfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from bloomery import __version__, errors
from bloomery.service.access.users import as_owner
from bloomery.service.durability import redundant_files, snapshots
from bloomery.service.durability.control import ControlWriter
from bloomery.service.durability.folder import lock, log_folder
from bloomery.service.durability.log import Log
from bloomery.service.durability.schedule import SnapshotSchedule
from bloomery.service.durability.snapshots import MANIFEST, SnapshotManifest
from bloomery.service.registry.server_id import server_id
from bloomery.storage import files

_FORMAT = 1
_ABOUT, _END = "backup.json", "SHA256"
_BLOCK = tarfile.BLOCKSIZE
_SENT = 256 << 10  # bytes that are read and sent at once: some 0.2 ms of the loop
_MOST_ABOUT = 64 << 10
RATE = 50_000_000  # bytes a second, unless somebody chooses another
_MOST = 2  # backups at a time: one that ends is not in the way of the next
Progress = Callable[[int], None]  # called with bytes that were read


def _header(name: str, nbytes: int, at: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = nbytes, at, 0o600
    return member.tobuf(tarfile.GNU_FORMAT)  # which has files of more than 8 GB


def _member(name: str, content: bytes, at: int) -> bytes:
    return _header(name, len(content), at) + content + _padding(len(content))


def _padding(nbytes: int) -> bytes:
    return bytes(-nbytes % _BLOCK)


def _end(digest: str, at: int) -> bytes:
    return _member(_END, f"{digest}\n".encode(), at) + bytes(2 * _BLOCK)


# Taking one.


@dataclass(frozen=True)
class Backup:
    """A snapshot whose files are held in `folder` until they are sent."""

    folder: Path
    manifest: SnapshotManifest
    raw: bytes  # the manifest's
    taken_at: int

    def _about(self) -> bytes:
        about = {"format": _FORMAT, "bloomery": __version__, "taken_at": self.taken_at}
        return json.dumps(about).encode()

    @property
    def nbytes(self) -> int:
        """How long the file is."""
        own = [len(self._about()), len(self.raw)]
        sizes = own + [saved.nbytes for saved in self.manifest.entries]
        return sum(_BLOCK + size + -size % _BLOCK for size in sizes) + len(_end("", 0))

    def blocks(self) -> Iterator[bytes]:
        """The bytes of the file, in blocks of one size."""
        digest, waiting = hashlib.sha256(), bytearray()
        for part in self._parts():
            digest.update(part)
            waiting += part
            while len(waiting) >= _SENT:
                yield bytes(waiting[:_SENT])
                del waiting[:_SENT]
        yield bytes(waiting) + _end(digest.hexdigest(), self.taken_at)

    def _parts(self) -> Iterator[bytes]:
        yield _member(_ABOUT, self._about(), self.taken_at)
        yield _member(MANIFEST, self.raw, self.taken_at)
        for saved in self.manifest.entries:
            yield _header(saved.file, saved.nbytes, self.taken_at)
            with (self.folder / saved.file).open("rb") as file:
                yield from snapshots.read_chunks(file)
            yield _padding(saved.nbytes)

    async def send(self, rate: int) -> AsyncIterator[bytes]:
        """The blocks, read by a thread, at most `rate` bytes a second."""
        blocks, due = self.blocks(), 0.0
        while block := await asyncio.to_thread(next, blocks, b""):
            await asyncio.sleep(due - time.monotonic())
            yield block
            # A client that was slow for a while does not get the rest faster.
            due = max(due, time.monotonic()) + len(block) / rate


class Backups:
    """The backups that a running server sends."""

    def __init__(self, snapshots: SnapshotSchedule, data: Path, *, is_node: bool) -> None:
        self._snapshots, self._data, self._is_node = snapshots, data, is_node
        self._sent = 0  # at this moment
        for left in data.glob("backup-*.tmp"):  # by a server that was killed
            shutil.rmtree(left, ignore_errors=True)

    async def begin(self) -> Backup:
        """Make a snapshot of all that was acknowledged, and hold its files until `end`."""
        if self._is_node:
            raise errors.InvalidParameter(
                "this server is a node, whose filters are in Redis: back that Redis up "
                "(docs/backup.md, Nodes)"
            )
        if self._sent >= _MOST:
            raise errors.ServerUnavailable(f"{_MOST} backups are being taken: try again later")
        self._sent += 1
        folder = self._data / f"backup-{secrets.token_hex(8)}.tmp"
        try:
            await self._snapshots.save()
            return await asyncio.to_thread(self._hold, self._snapshots.snapshot_number, folder)
        except BaseException:
            self.end(folder)
            raise

    def _hold(self, number: int, folder: Path) -> Backup:
        """Give the files of a snapshot, which may go when there are two newer, second names."""
        source = snapshots.folder_of(self._data, number)
        try:
            manifest = SnapshotManifest.read(self._data, number)
            folder.mkdir(mode=0o700)
            for saved in manifest.entries:
                redundant_files.link(source / saved.file, saved, folder / saved.file)
                snapshots.check_file(folder / saved.file, saved)
            raw = (source / MANIFEST).read_bytes()
        except (OSError, errors.CorruptData) as problem:
            raise errors.SnapshotFailed(f"no backup of snapshot {number}: {problem}") from None
        return Backup(folder, manifest, raw, int(time.time()))

    def end(self, folder: Path) -> None:
        """Let go of the files, in a thread: there may be a million."""
        self._sent -= 1
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, partial(shutil.rmtree, folder, ignore_errors=True))


# Reading one.


class _Reader:
    """A backup as it is read: every byte once, in order, and summed."""

    def __init__(self, file: BinaryIO, progress: Progress) -> None:
        file.seek(0, os.SEEK_END)
        self.left = file.tell()
        file.seek(0)
        self.digest = hashlib.sha256()
        self._file, self._progress = file, progress

    def take(self, nbytes: int) -> bytes:
        """Read exactly so many bytes; CorruptData if there are fewer."""
        data = self._file.read(nbytes) if nbytes <= self.left else b""
        if len(data) != nbytes:
            raise errors.CorruptData("cut off, or damaged: take another backup")
        self.left -= nbytes
        self.digest.update(data)
        self._progress(nbytes)
        return data

    def header(self, name: str) -> tarfile.TarInfo:
        """The header of the member that must be next."""
        raw = self.take(_BLOCK)
        try:
            member = tarfile.TarInfo.frombuf(raw, "ascii", "backslashreplace")
        except (tarfile.TarError, ValueError, OverflowError):
            member = None
        if member is None or member.name != name or not member.isreg() or member.size < 0:
            text = "not a backup of bloomery" if name == _ABOUT else f"damaged: {name} is not there"
            raise errors.CorruptData(text)
        return member

    def content(self, name: str, most: int | None = None) -> bytes:
        """The content of the member that must be next."""
        nbytes = self.header(name).size
        if most is not None and nbytes > most:
            raise errors.CorruptData(f"damaged: {name} has {nbytes} bytes, may have {most}")
        data = self.take(nbytes)
        self.take(len(_padding(nbytes)))
        return data


class _Content:
    """The bytes of one member, as a file that is read."""

    def __init__(self, reader: _Reader, nbytes: int) -> None:
        self._reader, self._left = reader, nbytes

    def read(self, nbytes: int) -> bytes:
        data = self._reader.take(min(nbytes, self._left))
        self._left -= len(data)
        return data


@dataclass(frozen=True)
class BackupContent:
    """What a backup that was read says about itself."""

    manifest: SnapshotManifest
    raw: bytes  # the manifest's
    bloomery: str  # the version of the server that it is of
    taken_at: int  # Unix time
    nbytes: int


def _read(file: BinaryIO, into: Path | None, progress: Progress) -> BackupContent:
    """Read a backup whole, and write its filters into a folder; CorruptData unless every byte is as
    it was written."""
    reader = _Reader(file, progress)
    nbytes = reader.left
    about = _parse_about(reader.content(_ABOUT, _MOST_ABOUT))
    raw = reader.content(MANIFEST)
    manifest = SnapshotManifest.parse(raw, Path(MANIFEST))
    _check(manifest)
    for saved in manifest.entries:
        if reader.header(saved.file).size != saved.nbytes:
            raise errors.CorruptData(f"damaged: {saved.file} has not the length that it should")
        with contextlib.ExitStack() as stack:
            raw_file = None if into is None else stack.enter_context((into / saved.file).open("wb"))
            target = None if raw_file is None else snapshots.PacedFile(raw_file)
            content = cast("BinaryIO", _Content(reader, saved.nbytes))
            place = Path(f"filter {saved.name!a}")
            redundant_files.read(content, saved, cast("BinaryIO | None", target), place)
            if raw_file is not None:
                raw_file.flush()
                os.fsync(raw_file.fileno())
        reader.take(len(_padding(saved.nbytes)))
    end = _end(reader.digest.hexdigest(), about["taken_at"])
    if reader.left != len(end) or reader.take(len(end)) != end:
        raise errors.CorruptData("cut off, or damaged: its SHA-256 does not hold")
    return BackupContent(manifest, raw, about["bloomery"], about["taken_at"], nbytes)


def _parse_about(raw: bytes) -> dict[str, Any]:
    try:
        about: dict[str, Any] = json.loads(raw)
        version, at = about["format"], about["taken_at"]
        if not isinstance(about["bloomery"], str) or type(at) is not int or not 0 <= at < 1 << 33:
            raise ValueError
    except (KeyError, TypeError, ValueError, RecursionError):
        raise errors.CorruptData(f"damaged: {_ABOUT} cannot be read") from None
    if version != _FORMAT:
        raise errors.UnsupportedVersion(
            f"a backup of format {version!a:.20} by bloomery {about['bloomery']!a:.20}, and this "
            f"bloomery knows {_FORMAT}: restore it with the version that took it"
        )
    return about


def _check(manifest: SnapshotManifest) -> None:
    """Raise CorruptData for numbers that no server writes: paths are made of them."""
    numbers = [manifest.number, manifest.seq, manifest.next_id]
    numbers += [number for saved in manifest.entries for number in (saved.id, saved.nbytes)]
    right = all(type(number) is int and 0 <= number < 1 << 63 for number in numbers)
    names = {saved.name for saved in manifest.entries if type(saved.name) is str}
    unique = len(names) == len({saved.file for saved in manifest.entries}) == len(manifest.entries)
    if not right or not unique or manifest.number == 0:
        raise errors.CorruptData(f"damaged: {MANIFEST} cannot be right")


def verify(file: BinaryIO, progress: Progress = lambda _: None) -> BackupContent:
    """Read a backup whole; CorruptData unless every byte of it is as it was written."""
    return _read(file, None, progress)


def restore(
    path: str | os.PathLike[str],
    data: str | os.PathLike[str],
    progress: Progress = lambda _: None,
) -> BackupContent:
    """Make a data folder of a backup, which is verified before anything is written. The folder must
    be empty or not be there; FolderInUse if a server has it."""
    folder = Path(data)
    _require_empty(folder)
    with files.naming(path), open(path, "rb") as file:
        content = verify(file, progress)
        made = not folder.exists()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with as_owner(folder), contextlib.closing(lock(folder)):
            _require_empty(folder)
            try:
                _write(file, folder, content, progress)
            except BaseException:
                for left in folder.iterdir():
                    shutil.rmtree(left) if left.is_dir() else left.unlink()
                if made:
                    folder.rmdir()
                raise
    return content


def _require_empty(data: Path) -> None:
    if data.is_dir() and any(file.name != "lock" for file in data.iterdir()):
        if Path(data, "lock").exists():
            with contextlib.suppress(PermissionError), as_owner(data):
                lock(data).close()  # a server that runs there is the better reason
        raise errors.InvalidParameter(
            f"{data}: not empty: a backup is restored into an empty folder: name another, or move "
            "this one away"
        )


def _write(file: BinaryIO, data: Path, content: BackupContent, progress: Progress) -> None:
    """Write the folder. Its control file is first: a server that finds it without the rest of a
    restore that was killed takes it for a loss, and does not start."""
    number, seq = content.manifest.number, content.manifest.seq
    free = shutil.disk_usage(data).free
    if free < content.nbytes:
        raise OSError(
            errno.ENOSPC, f"{free:,} bytes are free, {content.nbytes:,} needed", str(data)
        )
    ControlWriter(data, seq, "always").close()
    Log(log_folder(data), segment=number, seq=seq, fsync="always").close()
    server_id(data, new=True, problems=[])
    with snapshots.temporary(data, number) as folder:
        if _read(file, folder, progress).raw != content.raw:
            raise errors.CorruptData("it was changed while it was restored")
        with (folder / MANIFEST).open("wb") as manifest:
            manifest.write(content.raw)
            manifest.flush()
            os.fsync(manifest.fileno())
        files.sync_folder(str(folder))
        snapshots.publish(data, folder, number)
    files.sync_folder(str(data.absolute().parent))  # the folder may be new
