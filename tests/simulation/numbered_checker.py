"""What must hold of filters with numbers, as clients see it, in every history.

An add, copy, merge, rename or restore that was acknowledged *gives* keys to a name. They stay there
until an operation that may have come later takes them. What Redis has lost is excused: only writes
that began after the last loss count.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from simulation.numbered import NumberedFilters, Operation

if TYPE_CHECKING:
    from simulation.checker import WriteRecord

Key = tuple[str, int]


class NumberedChecker:
    """Notes what clients were told of filters with numbers."""

    def __init__(self, violation: type[AssertionError]) -> None:
        self._violation = violation
        self._about: dict[str, list[tuple[WriteRecord, Operation]]] = defaultdict(list)
        self._done: dict[str, list[tuple[WriteRecord, Operation]]] = defaultdict(list)
        self._given: dict[Key, list[tuple[WriteRecord, int]]] = defaultdict(list)
        self._numbers: set[int] = set()  # that clients drew
        self._floor = -1.0  # the last loss
        self._strayed: list[WriteRecord] = []  # which only a replaced server may have

    def lost(self, now: float) -> None:
        """Redis lost some of its log, or a copy replaced it."""
        self._floor = now

    # What clients do.

    def wrote(self, record: WriteRecord, one: Operation) -> None:
        """A client sends an operation."""
        if one.op in "nlk":
            self._numbers.add(one.new or one.number)
        for name in {one.name, one.to} - {""}:
            self._about[name].append((record, one))

    def told(self, record: WriteRecord, one: Operation, strayed: bool) -> None:
        """A client is told whether its operation was done."""
        if strayed:
            self._strayed.append(record)
        if strayed or not record.result or record.start <= self._floor:
            return
        self._check_order(record, one)
        for name in {*one.before, *one.after}:
            self._done[name].append((record, one))
        if one.op in "al":
            self._give(record, one.name, one.number, one.keys)
        elif one.op in "rkm":
            keys = [key for name, key in list(self._given) if name == one.name]
            moved = [
                key
                for key in keys
                if self._holder((one.name, key), record.start, record.end, record) is not None
            ]
            self._give(record, one.to, one.new or one.number, moved)

    def _give(
        self, record: WriteRecord, name: str, number: int, keys: list[int] | tuple[int, ...]
    ) -> None:
        for key in keys:
            self._given[name, key].append((record, number))

    def denied(self, key: Key, asked: float, horizon: float, now: float, how: str) -> None:
        """A client was told, now, that a key is not there."""
        record = self._holder(key, horizon, now)
        if record is not None:
            raise self._violation(
                f"{how}: {key} was denied at {now:.3f} (asked {asked:.3f}, must know what was "
                f"acknowledged before {horizon:.3f}), and {record.payload.decode()!r} was "
                f"acknowledged at {record.end:.3f}"
            )

    def check_kept(self, filters: NumberedFilters, now: float) -> None:
        """In the end all keys are there that no operation took."""
        for name, number in list(self._given):
            filter = filters.names.get(name)
            if filter is None or number not in filter.keys:
                self.denied((name, number), now, now, now, "in the end")

    # What follows from that.

    def _holder(
        self, key: Key, horizon: float, now: float, but: WriteRecord | None = None
    ) -> WriteRecord | None:
        """Return a write, acknowledged before the horizon, whose key no operation can have taken
        until now, other than one (`but`)."""
        for record, number in self._given.get(key, ()):
            known = self._floor < record.start and record.end < horizon
            if known and not self._taken(key, record, number, now, but):
                return record
        return None

    def _taken(
        self, key: Key, record: WriteRecord, number: int, now: float, but: WriteRecord | None
    ) -> bool:
        name, later = key[0], []
        for other, one in self._about[name]:
            after = other.start < now and _latest(other) > record.start
            if after and other is not record and other is not but:
                later.append(one)
        numbers = {number, *(one.number for one in later if one.op == "l" and key[1] in one.keys)}
        return any(_takes(one, name, key[1], numbers) for one in later)

    def _check_order(self, record: WriteRecord, one: Operation) -> None:
        """See that what this operation needs can have been so after each that was done before."""
        for name in {*one.before, *one.after}:
            for other, earlier in self._done[name]:
                if other.start <= self._floor:
                    continue
                follows = self._can_follow(name, other, earlier, record, one)
                overlaps = other.end >= record.start
                if not follows and not (
                    overlaps and self._can_follow(name, record, one, other, earlier)
                ):
                    raise self._violation(
                        f"{earlier.payload.decode()!r} and {one.payload.decode()!r} were both "
                        f"acknowledged, at {other.end:.3f} and {record.end:.3f}"
                    )

    def _can_follow(
        self,
        name: str,
        record: WriteRecord,
        one: Operation,
        later_record: WriteRecord,
        later: Operation,
    ) -> bool:
        """Return whether a name can have what the later operation needs, after the earlier one."""
        if name not in later.before or name not in one.after:
            return True
        needed = later.before[name]
        if needed == one.after[name] or (needed is not None and needed not in self._numbers):
            return True
        start, end = min(record.start, later_record.start), max(record.end, later_record.end)
        for other, between in self._about[name]:
            if other is record or other is later_record or between.after.get(name, 0) != needed:
                continue
            # If it was lost, nodes may bring it back, also one that was refused there.
            repeated = other.start <= self._floor or any(other is one for one in self._strayed)
            if other.start < end and (_latest(other) > start or repeated):
                return True
        return False


def _latest(record: WriteRecord) -> float:
    """Return until when a write can have been done; -1 if it was not."""
    if record.untouched or record.result == ():
        return -1.0
    return math.inf if record.result is None else record.end


def _takes(one: Operation, name: str, key: int, numbers: set[int]) -> bool:
    """Return whether an operation takes a key from a name, which has one of these numbers."""
    if name == one.name and one.op in "cdr":
        return one.number in numbers
    if name == one.name and one.op == "l":
        return key not in one.keys
    return name == one.to and one.op in "rk" and one.replace
