"""Replays a log: does to filters again what its rows say."""

from __future__ import annotations

from collections.abc import Iterable

from bloomery import errors
from bloomery.service.domain.operations import Op
from bloomery.service.domain.state import State
from bloomery.service.durability.log_reader import Row

# Additions to filters that do not go by the time are gathered: rows of one key each then take a
# batch's time. Bytes of them that wait, of all filters together.
_GATHER_BYTES = 4 << 20


def replay(state: State, rows: Iterable[Row], problems: list[str]) -> None:
    """Do all that the rows say. An operation that cannot be done, since an earlier row is lost or a
    newer bloomery wrote it, is added to the problems."""
    waiting: dict[int, list[bytes]] = {}
    nbytes = 0
    refused = 0

    def apply(op: int, filter_id: int, data: bytes, at: float) -> None:
        nonlocal refused
        try:
            state.apply(op, filter_id, data, at)
        except errors.NotEnoughMemory:
            raise
        except errors.BloomeryError as problem:
            refused += 1
            if refused == 1:
                problems.append(
                    f"an operation on filter number {filter_id} cannot be done: {problem}"
                )

    for _, at, filter_id, op, data in rows:
        if op == Op.ADD:
            entry = state.filters.get(filter_id)
            if entry is not None and entry.settings.get("kind") != "rotating":
                waiting.setdefault(filter_id, []).append(data)
                nbytes += len(data)
                if nbytes < _GATHER_BYTES:
                    continue
                op = 0
        if waiting:
            for number, parts in waiting.items():
                apply(Op.ADD, number, b"".join(parts), at)
            waiting.clear()
            nbytes = 0
        if op:
            apply(op, filter_id, data, at)
    for number, parts in waiting.items():
        apply(Op.ADD, number, b"".join(parts), state.now)
    if refused > 1:
        problems.append(f"{refused - 1} more operations cannot be done")
