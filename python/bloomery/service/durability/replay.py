"""Replays a log: applies its records to filters again."""

from __future__ import annotations

from collections.abc import Iterable

from bloomery import errors
from bloomery.service.domain import operations
from bloomery.service.domain.operations import Op
from bloomery.service.domain.state import State
from bloomery.service.durability.log_reader import Row

# Keys for filters that do not depend on the time are joined: records of one key each then take as
# long as a batch. This many bytes wait at most, of all filters together.
_MAX_JOINED = 4 << 20


class DamagedSnapshot(errors.CorruptData):
    """A file of the snapshot that the log is replayed onto cannot be used."""


class _Replay:
    """A replay under way."""

    def __init__(self, state: State, problems: list[str]) -> None:
        self._state, self._problems = state, problems
        self._joined: dict[tuple[int, bytes], list[bytes]] = {}  # by filter and name
        self._joined_bytes = 0
        self.damaged = 0

    def apply(self, op: int, filter_id: int, data: bytes, at: float) -> None:
        """Apply a record. One that the server refused is refused again, and changes nothing."""
        try:
            self._state.apply(op, filter_id, data, at)
        except (operations.DamagedRecord, operations.UnknownOperation) as problem:
            self.damaged += 1
            if self.damaged == 1:
                text = f"an operation on filter number {filter_id} cannot be applied: {problem}"
                self._problems.append(text)
        except (errors.NotEnoughMemory, DamagedSnapshot):
            raise
        except errors.BloomeryError:
            pass

    def join(self, filter_id: int, data: bytes) -> bool:
        """Keep keys to be added together with others; False if the filter does not allow it."""
        entry = self._state.filters.get(filter_id)
        if entry is None or entry.needs_python or entry.settings.get("kind") == "rotating":
            return False
        start = len(operations.named(b"")) + int.from_bytes(data[:2], "little")
        self._joined.setdefault((filter_id, data[:start]), []).append(data[start:])
        self._joined_bytes += len(data)
        return True

    def flush(self, at: float, least: int = 0) -> None:
        """Add the keys that were kept, if they are this many bytes."""
        if self._joined_bytes > least:
            joined, self._joined, self._joined_bytes = self._joined, {}, 0
            for (number, name), parts in joined.items():
                self.apply(Op.ADD, number, name + b"".join(parts), at)


def replay(state: State, rows: Iterable[Row], problems: list[str]) -> None:
    """Apply all rows. A record that cannot be applied, because an earlier one is lost or a newer
    version of bloomery wrote it, is added to the problems. DamagedSnapshot: as `State.filter_of`
    raises it."""
    work = _Replay(state, problems)
    for _, at, filter_id, op, data in rows:
        if op == Op.ADD and work.join(filter_id, data):
            work.flush(at, _MAX_JOINED)
        else:
            work.flush(at)
            work.apply(op, filter_id, data, at)
    work.flush(state.now)
    if work.damaged > 1:
        problems.append(f"{work.damaged - 1} more operations cannot be applied")
