"""The control file of a data folder: its format version, and how far its log was written and
synced.

A log that ends before that has lost something. The numbers are stored into the mapped file with
each commit (0.13 µs): a killed process leaves them as they were, and a power cut at most as old as
the last sync. Each is kept twice, in sectors of their own, and stored into the older one: one that
a kill or a power cut left half stored is not taken.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from bloomery import errors
from bloomery.service.durability.folder import FORMAT, check_version
from bloomery.storage import files

_MAGIC = b"bloomctl"
_HEAD = struct.Struct("<8sII16sI")  # magic, format, synced with each commit?, boot, checksum
_NUMBER = struct.Struct("<QQ")  # and its complement
WRITTEN, _SYNCED = (512, 1024), (1536, 2048)
_NBYTES = 4096
_ONES = 2**64 - 1


def control_file(data: str | os.PathLike[str]) -> Path:
    """Return the path of the control file."""
    return Path(data, "control")


def boot_id() -> bytes:
    """Which start of the machine this is, 16 bytes; zeros where nobody can tell."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text("ascii")
        return bytes.fromhex(text.strip().replace("-", ""))[:16].ljust(16, b"\0")
    except (OSError, ValueError):
        return bytes(16)


@dataclass(frozen=True, slots=True)
class ControlFile:
    """What the control file of a data folder says."""

    written: int  # the last row that was acknowledged
    synced: int  # the last one that a power cut cannot take
    rebooted: bool  # has the machine been started anew since then, as far as is known?

    @property
    def required(self) -> int:
        """The last row that must be there. As long as the machine runs, what was written stays."""
        return self.synced if self.rebooted else self.written

    @classmethod
    def read(cls, data: str | os.PathLike[str]) -> ControlFile | None:
        """Read it; None if there is none, CorruptData if it is not as it was written.

        UnsupportedVersion: another version of bloomery wrote this folder.
        """
        path = control_file(data)
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None
        if len(raw) < _NBYTES:
            raise errors.CorruptData(f"{path}: {len(raw)} bytes, expected {_NBYTES}")
        magic, version, always, boot, checksum = _HEAD.unpack_from(raw)
        if magic != _MAGIC or checksum != zlib.crc32(raw[: _HEAD.size - 4]):
            raise errors.CorruptData(f"{path}: damaged: its checksum does not hold")
        check_version(data, version)
        written, synced = (_newest(path, raw, offsets) for offsets in (WRITTEN, _SYNCED))
        now = boot_id()
        return cls(written, written if always else synced, boot != now or not any(now))


def _newest(path: Path, raw: bytes, offsets: tuple[int, int]) -> int:
    pairs = (_NUMBER.unpack_from(raw, offset) for offset in offsets)
    whole = [number for number, other in pairs if number == other ^ _ONES]
    if not whole:
        raise errors.CorruptData(f"{path}: damaged: how far the log was written is not known")
    return int(max(whole))


class ControlWriter:
    """The control file of a folder whose log is written; created from scratch, in one step. The
    native log stores which row was written last (`WRITTEN`)."""

    def __init__(self, data: str | os.PathLike[str], seq: int, fsync: str) -> None:
        """All rows up to `seq` are written, and on the disk unless fsync is "never"."""
        Path(data).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._synced = 0 if fsync == "never" else seq
        raw = bytearray(_NBYTES)
        head = _HEAD.pack(_MAGIC, FORMAT, fsync == "always", boot_id(), 0)[:-4]
        raw[: _HEAD.size] = head + zlib.crc32(head).to_bytes(4, "little")
        for offsets, number in ((WRITTEN, seq), (_SYNCED, self._synced)):
            for offset in offsets:
                _NUMBER.pack_into(raw, offset, number, number ^ _ONES)
        self.path = path = control_file(data)
        with files.replacing(path, mode=0o600) as file:
            file.write(raw)
        self._file = os.open(path, os.O_RDWR)
        self._map = mmap.mmap(self._file, _NBYTES)

    def synced(self, seq: int) -> None:
        """All rows up to this one are on the disk; by the thread that syncs."""
        if seq != self._synced:
            for offset in _SYNCED:
                _NUMBER.pack_into(self._map, offset, seq, seq ^ _ONES)
            os.fdatasync(self._file)
            self._synced = seq

    def close(self) -> None:
        """Let go of the file."""
        self._map.close()
        os.close(self._file)
