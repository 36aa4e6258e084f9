"""Filters that have a number as well as a name, as those of a server: what the operations on whole
filters do, decided where they are applied. An operation whose filter has another name or number by
then is a conflict: it does nothing, and its reply is empty.

| operation | what it does |
|---|---|
| `n x 7` | creates filter 7 as `x`, if `x` is free |
| `a x 7 key…` | adds keys |
| `c x 7`, `d x 7` | clears, drops |
| `r x>y 7 replace` | renames `x` to `y`; `replace` is 1 if it may replace a filter |
| `k x>y 7 8 replace` | copies `x`, as filter 8 |
| `m x>y 7 8` | merges filter 7 into filter 8 |
| `l x 7 key…` | restores: filter 7, with these keys, replaces the filter `x` |
| `i x 7 key…` | the same, if `x` is free: a restore that was lost and is repeated |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

Reply = tuple[bool, ...]
DONE: Reply = (True,)
CONFLICT: Reply = ()
OPERATIONS = frozenset("nacdrkmli")


class Operation(NamedTuple):
    """An operation on a filter, as a payload has it."""

    op: str
    name: str
    number: int
    to: str = ""  # of a rename, copy or merge
    new: int = 0  # the number of the copy, or of the filter that gets the keys of a merge
    replace: bool = False
    keys: tuple[int, ...] = ()

    @property
    def payload(self) -> bytes:
        """Its bytes; `operation` reads them."""
        names = f"{self.name}>{self.to}" if self.to else self.name
        numbers = [self.number, *self.keys]
        if self.op in "km":
            numbers.append(self.new)
        if self.op in "rk":
            numbers.append(int(self.replace))
        return f"{self.op} {names} {' '.join(map(str, numbers))}".encode()

    @property
    def before(self) -> dict[str, int | None]:
        """The numbers that names must have; None: the name is free."""
        if self.op in "nil":
            return {} if self.op == "l" else {self.name: None}
        needs: dict[str, int | None] = {self.name: self.number}
        if self.op == "m":
            needs[self.to] = self.new
        elif self.to and not self.replace:
            needs[self.to] = None
        return needs

    @property
    def after(self) -> dict[str, int | None]:
        """The numbers that names have afterwards."""
        if self.op == "d":
            return {self.name: None}
        if self.op == "r":
            return {self.name: None, self.to: self.number}
        has: dict[str, int | None] = {self.name: self.number}
        return has | {self.to: self.new} if self.to else has


@lru_cache(10_000)
def operation(payload: bytes) -> Operation | None:
    """Return the operation of a payload; None if it is about filters without numbers."""
    op, names, *texts = payload.decode().split()
    if op not in OPERATIONS:
        return None
    name, _, to = names.partition(">")
    number, *rest = map(int, texts)
    if not to:
        return Operation(op, name, number, keys=tuple(rest))
    new = rest[0] if op in "km" else 0
    return Operation(op, name, number, to, new, op in "rk" and bool(rest[-1]))


@dataclass(slots=True)
class NumberedFilter:
    """A filter: its number and its keys."""

    number: int
    keys: set[int] = field(default_factory=set)


class NumberedFilters:
    """Filters by name."""

    def __init__(self) -> None:
        self.names: dict[str, NumberedFilter] = {}
        self._copies: dict[tuple[int, str], int] = {}  # repeated renames, by number and new name

    def find(self, name: str, number: int) -> NumberedFilter | None:
        """Return the filter that an operation is for, or None: a conflict."""
        filter = self.names.get(name)
        return filter if filter is not None and filter.number == number else None

    def is_used(self, number: int) -> bool:
        """Return whether a filter has this number."""
        return any(filter.number == number for filter in self.names.values())

    def apply(self, one: Operation) -> Reply:
        """Do an operation; return its reply."""
        if one.op == "l":
            self.names[one.name] = NumberedFilter(one.number, set(one.keys))
            return DONE
        if one.op in "ni":
            if one.name in self.names or self.is_used(one.number):
                return CONFLICT
            self.names[one.name] = NumberedFilter(one.number, set(one.keys))
            return DONE
        filter = self.find(one.name, one.number)
        return CONFLICT if filter is None else self._change(one, filter)

    def _change(self, one: Operation, filter: NumberedFilter) -> Reply:
        if one.op == "a":
            new = tuple(key not in filter.keys for key in one.keys)
            filter.keys.update(one.keys)
            return new
        if one.op == "c":
            filter.keys.clear()
        elif one.op == "d":
            del self.names[one.name]
        elif one.op == "m":
            target = self.find(one.to, one.new)
            if target is None:
                return CONFLICT
            target.keys |= filter.keys
        elif one.to in self.names and not one.replace:
            return CONFLICT
        elif one.op == "r":
            self.names[one.to] = self.names.pop(one.name)
        elif self.is_used(one.new):
            return CONFLICT
        else:
            self.names[one.to] = NumberedFilter(one.new, set(filter.keys))
        return DONE

    def unchanged(self, one: Operation) -> Reply | None:
        """Return the reply if nothing would change."""
        filter = self.find(one.name, one.number) if one.op == "a" else None
        if filter is None or not filter.keys.issuperset(one.keys):
            return None
        return (False,) * len(one.keys)

    def addition(self, one: Operation) -> bytes | None:
        """Return the operation to repeat after a loss, or None, as the server does. It replaces no
        filter: that can be created later than this looks for one."""
        if one.op in "cd":
            return None
        if one.op == "l":
            one = one._replace(op="i")
        if one.op == "k":
            one = one._replace(replace=False)
        if one.op in "nki":
            return None if (one.to or one.name) in self.names else one.payload
        current = next(
            (name for name, held in self.names.items() if held.number == one.number), None
        )
        if one.op == "r":
            return self._copy_for(one, current)
        if one.op == "m":
            return one.payload
        if (one.number, one.name) in self._copies:
            return one._replace(number=self._copies[one.number, one.name]).payload
        if current is not None:
            return one._replace(name=current).payload
        return None if one.name in self.names else one.payload

    def _copy_for(self, one: Operation, current: str | None) -> bytes | None:
        """Return a copy in place of a rename that was lost: keys that were added to the old name
        since then stay there."""
        is_there = one.name not in self.names if current is None else current == one.name
        if one.to in self.names or not is_there:
            return None
        state = repr((one, self.dump(), len(self._copies))).encode()
        new = int.from_bytes(blake2b(state, digest_size=6).digest(), "little")
        self._copies[one.number, one.to] = new
        return Operation("k", one.name, one.number, one.to, new).payload

    def dump(self) -> Any:
        """Return all of it for JSON, the same for equal ones."""
        return [[n, one.number, sorted(one.keys)] for n, one in sorted(self.names.items())]

    def load(self, dumped: Any) -> None:
        """Have what was dumped."""
        self.names = {name: NumberedFilter(number, set(keys)) for name, number, keys in dumped}
