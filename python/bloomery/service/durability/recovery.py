"""Recovery: loads the filters of a data folder from its newest good snapshot, and replays the log
since then.

A server never starts with less than was acknowledged unless a person has accepted that
(`accept_loss`): but for what a power cut may take from the end of the log, it refuses to start if
anything is damaged or missing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bloomery import errors
from bloomery.service.domain.state import State
from bloomery.service.durability import quarantine, snapshots
from bloomery.service.durability.control import ControlFile, ControlWriter, control_file
from bloomery.service.durability.folder import (
    check_log,
    log_folder,
    segment_path,
    segments,
    snapshots_folder,
)
from bloomery.service.durability.log import SEGMENT_BYTES, Fsync, Log
from bloomery.service.durability.log_reader import LogReader
from bloomery.service.durability.preload import Preload
from bloomery.service.durability.replay import replay
from bloomery.service.durability.snapshots import SnapshotManifest
from bloomery.storage import files

_MOST_LISTED = 5  # problems, in a message


@dataclass(slots=True)
class Recovery:
    """The filters that were loaded, and where the log goes on."""

    data: Path
    state: State
    segment: int  # the next one
    seq: int  # of the last row
    snapshot_number: int = 0  # 0: the log alone
    rows: int = 0
    problems: list[str] = field(default_factory=list)

    def log(self, fsync: Fsync = "everysec", segment_bytes: int = SEGMENT_BYTES) -> Log:
        """Open the log for writing."""
        if fsync != "never":
            _sync(log_folder(self.data))
        control = ControlWriter(self.data, self.seq, fsync)
        return Log(
            log_folder(self.data),
            segment=self.segment,
            seq=self.seq,
            fsync=fsync,
            segment_bytes=segment_bytes,
            control=control,
        )


def _sync(folder: Path) -> None:
    """Sync what a server wrote that was killed before it did."""
    for path in folder.glob("*.log"):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
    files.sync_folder(str(folder))


def recover(
    data: str | os.PathLike[str], *, accept_loss: bool = False, preload: Preload | None = None
) -> Recovery:
    """Load the filters of a data folder, of which `preload` may have read some.

    CorruptData: something that was acknowledged is lost, or may be; nothing was changed. With
    `accept_loss` all that can be read is taken, and the files as they were found are set aside
    (`quarantine`). So is a snapshot that is damaged where nothing is lost, since the one before and
    the log have everything. `problems` has all that was wrong; a new snapshot was then written, so
    that nothing is built on damaged files again.
    """
    path = Path(data)
    check_log(path)
    lost: list[str] = []
    control = _control(path, lost)
    bad: dict[int, str] = {}  # snapshots that are damaged

    def require(*others: str) -> None:
        """Go no further with less than was acknowledged, unless that is accepted."""
        if (lost or others) and not accept_loss:
            unsure = control is None or control.rebooted
            raise _refusal(path, [*dict.fromkeys([*bad.values(), *lost, *others])], unsure)

    loaded = _from_snapshot(path, bad, lost, preload) or _from_nothing(path, bad)
    if loaded is None:
        first = min(segments(log_folder(path)), default=None)
        begins = "has no segment" if first is None else f"begins with segment {first}"
        lost.append(f"no snapshot is whole, and {log_folder(path)} {begins}")
        require()
        loaded = _from_remains(path, lost)
    state, manifest = loaded
    first = max(1, manifest.number)
    rows = LogReader(log_folder(path), first, manifest.seq, salvage=accept_loss)
    require(*rows.problems)
    failed: list[str] = []
    replay(state, rows, failed)
    torn = _judge(path, control, rows, failed, lost)
    require()
    recovery = Recovery(path, state, _next_number(path), rows.last, manifest.number, rows.rows)
    recovery.problems = [*dict.fromkeys([*bad.values(), *lost, *torn])]
    if recovery.problems:
        _write_snapshot(recovery, bad, bool(lost))
    return recovery


def _control(data: Path, lost: list[str]) -> ControlFile | None:
    try:
        return ControlFile.read(data)
    except errors.UnsupportedVersion:
        raise  # whatever is accepted: nothing is lost for the one who wrote it
    except errors.CorruptData as problem:
        lost.append(str(problem))
    return None


def _judge(
    data: Path, control: ControlFile | None, rows: LogReader, failed: list[str], lost: list[str]
) -> list[str]:
    """Add to `lost` what is missing of the log; return what a power cut may take from its end. A
    write that a kill cut off is neither: it was not acknowledged."""
    tail = [] if rows.tail is None else [rows.tail]
    if control is None:
        lost += [*rows.problems, *tail, *failed]
        if rows.segments and not control_file(data).exists():
            lost.append(f"{control_file(data)}: missing: nobody can tell whether the log is whole")
        return []
    ends = f"{rows.folder}: ends with operation {rows.intact}"
    if failed or rows.intact < control.required:
        lost += [*rows.problems, *tail, *failed]
        if rows.intact < control.required:
            done = "on the disk" if control.rebooted else "acknowledged"
            lost.append(f"{ends}, and {control.required} were {done}")
    elif rows.broken is not None and rows.broken != max(rows.segments, default=0):
        lost += rows.problems
    else:
        torn = list(rows.problems)
        if rows.intact < control.written:
            unsynced = control.written - rows.intact
            text = f"{ends}: the last {unsynced} were not synced when the machine went down"
            torn += [*tail, f"{text}, and are lost"]
        return torn
    return []


def _refusal(data: Path, problems: list[str], unsure: bool) -> errors.CorruptData:
    listed = "; ".join(problems[:_MOST_LISTED])
    more = f"; and {len(problems) - _MOST_LISTED} more" if len(problems) > _MOST_LISTED else ""
    return errors.CorruptData(
        f"{data}: not started, since what was acknowledged is damaged or missing: {listed}{more}: "
        "restore the folder from a copy, or start once with --accept-loss"
        f"{' (as after a power cut)' if unsure else ''}: it goes on with what is left, and sets "
        f"the files aside in {quarantine.damaged_folder(data)}"
    )


def _write_snapshot(recovery: Recovery, bad: Iterable[int], lost: bool) -> None:
    """Write the state as a new snapshot; what is damaged is set aside before it goes."""
    data, problems = recovery.data, recovery.problems
    above = [log_folder(data), snapshots_folder(data), control_file(data)]
    damaged = above if lost else [snapshots.folder_of(data, number) for number in bad]
    damaged = [path for path in damaged if path.exists()]
    if damaged:
        quarantine.set_aside(data, damaged, problems, lost=lost)
    number = recovery.segment
    try:
        # A snapshot without its segment would lack something.
        Log(log_folder(data), segment=number, seq=recovery.seq, fsync="always").close()
        snapshots.write(data, recovery.state, number, recovery.seq)
        ControlWriter(data, recovery.seq, "always").close()  # what is lost is not asked for again
        if damaged:
            old = snapshots.snapshot_numbers(data)[:-1] if lost else bad
            for one in old:
                shutil.rmtree(snapshots.folder_of(data, one))
            for one in {*segments(log_folder(data))} - {number} if lost else ():
                segment_path(log_folder(data), one).unlink()
    except (OSError, errors.LogUnavailable) as problem:
        problems.append(f"no new snapshot could be written: {problem}")
    recovery.segment = _next_number(data)


def _next_number(data: Path) -> int:
    """A number that neither a segment nor a snapshot has had."""
    return max([*segments(log_folder(data)), *snapshots.snapshot_numbers(data), 0]) + 1


def _from_snapshot(
    data: Path, bad: dict[int, str], lost: list[str], preload: Preload | None
) -> tuple[State, SnapshotManifest] | None:
    """The newest snapshot that is whole; and newer ones that are not."""
    preloaded = (lambda path: None) if preload is None else preload.take()
    for number in reversed(snapshots.snapshot_numbers(data)):
        state = State()
        try:
            manifest = SnapshotManifest.read(data, number)
            for saved in manifest.entries:
                state.put(manifest.load(data, saved, preloaded))
        except errors.CorruptData as problem:
            bad[number] = f"snapshot {number} cannot be used: {problem}"
            if isinstance(problem, errors.UnsupportedVersion):
                lost.append(bad[number])  # not damaged: it may have what no older one has
            continue
        _set(state, manifest)
        return state, manifest
    return None


def _from_nothing(data: Path, bad: dict[int, str]) -> tuple[State, SnapshotManifest] | None:
    """No filters, if the log has everything that was ever done."""
    numbers = segments(log_folder(data))
    if (numbers and numbers[0] != 1) or (bad and not numbers):
        return None
    return State(), SnapshotManifest(0, 0, 1, 0.0)


def _from_remains(data: Path, problems: list[str]) -> tuple[State, SnapshotManifest]:
    """The filters that can still be read, of the newest snapshot that has a manifest; else what
    is left of the log."""
    for number in reversed(snapshots.snapshot_numbers(data)):
        state = State()
        try:
            manifest = SnapshotManifest.read(data, number)
        except errors.CorruptData:
            continue
        for saved in manifest.entries:
            try:
                state.put(manifest.load(data, saved))
            except errors.CorruptData as problem:
                problems.append(f"filter {saved.name!a} is lost: {problem}")
        _set(state, manifest)
        return state, manifest
    first = min(segments(log_folder(data)), default=1)
    return State(), SnapshotManifest(first, 0, 1, 0.0)


def _set(state: State, manifest: SnapshotManifest) -> None:
    state.next_id = manifest.next_id
    state.now = manifest.now
