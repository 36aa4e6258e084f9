"""From a data folder to the filters of a server: the newest good snapshot, and the log after it.
What is damaged is said; what cannot be made whole is not passed over."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from bloomery import errors
from bloomery.storage import snapshots
from bloomery.storage.folder import log_folder
from bloomery.storage.log import Fsync, Log, segments
from bloomery.storage.logreader import LogReader
from bloomery.storage.replay import replay
from bloomery.storage.snapshots import Generation
from bloomery.storage.state import State

__all__ = ["Recovery", "recover"]


@dataclass(slots=True)
class Recovery:
    """What was found, and where the log goes on."""

    data: Path
    state: State
    segment: int  # the next one
    seq: int  # of the last row
    generation: int = 0  # of the snapshot; 0: the log alone
    rows: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    def log(self, fsync: Fsync = "everysec") -> Log:
        """Open the log for writing."""
        return Log(log_folder(self.data), segment=self.segment, seq=self.seq, fsync=fsync)


def recover(data: str | os.PathLike[str], *, accept_loss: bool = False) -> Recovery:
    """Bring the filters back.

    If something was damaged (`problems`), the state as it came out is written as a new snapshot, so
    that it is not built on damaged files again. CorruptData: no snapshot is whole; `accept_loss`
    then takes what is left of the newest.
    """
    began = time.monotonic()
    path = Path(data)
    problems: list[str] = []
    found = _from_snapshot(path, problems) or _from_nothing(path, problems)
    if found is None:
        if not accept_loss:
            raise errors.CorruptData(
                f"{os.fspath(data)}: no snapshot is whole: {'; '.join(problems)}: restore the "
                "folder from a copy, or start with --accept-loss, without what is damaged"
            )
        found = _from_remains(path, problems)
    state, generation = found
    rows = LogReader(log_folder(path), max(1, generation.number), generation.seq)
    replay(state, rows, problems)
    problems += rows.problems
    recovery = Recovery(path, state, _next(path), rows.last, generation.number, rows.rows)
    recovery.problems = problems
    if problems:
        try:
            recovery.log("always").close()  # a snapshot without its segment would lack something
            snapshots.write(path, state, recovery.segment, recovery.seq)
        except (OSError, errors.LogUnavailable) as problem:
            problems.append(f"no new snapshot could be written: {problem}")
        recovery.segment = _next(path)
    recovery.seconds = time.monotonic() - began
    return recovery


def _next(data: Path) -> int:
    """A number that neither a segment nor a generation has had."""
    return max([*segments(log_folder(data)), *snapshots.generations(data), 0]) + 1


def _from_snapshot(data: Path, problems: list[str]) -> tuple[State, Generation] | None:
    """The newest generation that is whole."""
    for number in reversed(snapshots.generations(data)):
        state = State()
        try:
            generation = Generation.read(data, number)
            for saved in generation.entries:
                state.put(generation.load(data, saved))
        except errors.CorruptData as problem:
            problems.append(f"snapshot {number} cannot be used: {problem}")
            continue
        _set(state, generation)
        return state, generation
    return None


def _from_nothing(data: Path, problems: list[str]) -> tuple[State, Generation] | None:
    """No filters, if the log has everything that was ever done."""
    found = segments(log_folder(data))
    if found and found[0] != 1:
        problems.append(f"{log_folder(data)}: the log begins with segment {found[0]}")
        return None
    if not found and problems:
        return None
    return State(), Generation(0, 0, 1, 0.0)


def _from_remains(data: Path, problems: list[str]) -> tuple[State, Generation]:
    """The filters that can still be read, of the newest generation that has a manifest; else what
    is left of the log."""
    for number in reversed(snapshots.generations(data)):
        state = State()
        try:
            generation = Generation.read(data, number)
        except errors.CorruptData:
            continue
        for saved in generation.entries:
            try:
                state.put(generation.load(data, saved))
            except errors.CorruptData as problem:
                problems.append(f"filter {saved.name!a} is lost: {problem}")
        _set(state, generation)
        return state, generation
    first = min(segments(log_folder(data)), default=1)
    return State(), Generation(first, 0, 1, 0.0)


def _set(state: State, generation: Generation) -> None:
    state.next_id = generation.next_id
    state.now = generation.now
