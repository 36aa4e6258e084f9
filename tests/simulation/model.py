"""Filters as plain sets: what the shared log is applied to in the simulation.

A payload is operations with `;` between them: `A name key key…` adds, `C name` clears, `E name ms`
lets a filter be cleared after so long, `D node` is a decision of a lease holder, `H name` makes a
filter that takes much memory and drops it. Operations on filters with numbers are in `numbered`; a
payload has one of those, and nothing else.
"""

from __future__ import annotations

import json
from functools import lru_cache

from bloomery import errors
from simulation.numbered import NumberedFilters, operation


class ModelReplica:
    """Exact sets by name, with TTLs, and filters with numbers."""

    make_numbered: type[NumberedFilters] = NumberedFilters

    def __init__(self) -> None:
        self.filters: dict[str, set[int]] = {}
        self.expires: dict[str, int] = {}
        self.decisions: list[str] = []
        self.numbered = self.make_numbered()

    def apply(self, payload: bytes, at_ms: int) -> tuple[bool, ...]:
        """Do operations; for each added key, whether it was new."""
        one = operation(payload)
        if one is not None:
            return self.numbered.apply(one)
        new: list[bool] = []
        for op, name, arguments in parsed(payload):
            if op == "A":
                keys = self.filters.setdefault(name, set())
                for key in arguments:
                    new.append(key not in keys)
                    keys.add(key)
            elif op == "C":
                self.filters[name] = set()
            elif op == "E":
                self.expires[name] = at_ms + arguments[0]
            elif op == "H":
                self.make_huge()
            else:
                self.decisions.append(name)
        return tuple(new)

    @property
    def keys(self) -> set[tuple[str, int]]:
        """All keys, with the names of their filters."""
        return {(name, key) for name, keys in self.filters.items() for key in keys}

    def make_huge(self) -> None:
        """Make a filter that takes much memory, and drop it."""

    def unchanged(self, payload: bytes) -> tuple[bool, ...] | None:
        """Return the reply if nothing would change."""
        one = operation(payload)
        if one is not None:
            return self.numbered.unchanged(one)
        count = 0
        for op, name, keys in parsed(payload):
            if op != "A" or not self.filters.get(name, set()).issuperset(keys):
                return None
            count += len(keys)
        return (False,) * count

    def additions(self, payload: bytes) -> bytes | None:
        """Return the operations that add."""
        one = operation(payload)
        if one is not None:
            return self.numbered.addition(one)
        return b";".join(one for one in payload.split(b";") if one.startswith(b"A")) or None

    def pass_time(self, now_ms: int) -> None:
        """Clear what is over."""
        for name, at in list(self.expires.items()):
            if at <= now_ms:
                del self.expires[name]
                self.filters[name] = set()

    def dump(self) -> bytes:
        """Return all of it as bytes, the same for equal ones."""
        filters = {name: sorted(keys) for name, keys in sorted(self.filters.items())}
        parts = [filters, sorted(self.expires.items()), self.decisions, self.numbered.dump()]
        return json.dumps(parts).encode()

    @classmethod
    def load(cls, data: bytes) -> ModelReplica:
        """Return what was dumped."""
        replica = cls()
        filters, expires, replica.decisions, numbered = json.loads(data)
        replica.numbered.load(numbered)
        replica.filters = {name: set(keys) for name, keys in filters.items()}
        replica.expires = dict(expires)
        return replica


class SmallReplica(ModelReplica):
    """One of a node with little memory."""

    def make_huge(self) -> None:
        raise errors.NotEnoughMemory("for a filter that is dropped at once")


@lru_cache(10_000)
def parsed(payload: bytes) -> list[tuple[str, str, list[int]]]:
    """Return the operations of a payload on filters without numbers: what, to which filter, with
    which numbers."""
    found: list[tuple[str, str, list[int]]] = []
    if operation(payload) is not None:
        return found
    for one in payload.decode().split(";"):
        op, name, *numbers = one.split()
        found.append((op, name, [int(number) for number in numbers]))
    return found
