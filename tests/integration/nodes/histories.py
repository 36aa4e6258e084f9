"""Linearizability of operations on names: a model of a server that runs one operation at a time,
and a search for an order of concurrent operations that explains every reply.

An operation took effect at one moment between its request and its reply. So two operations may
change places in the order unless one was answered before the other was sent. If no such order gives
the replies that clients got, the nodes did something that a single server cannot do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Keys = frozenset[str]
Filters = Mapping[str, Keys]  # the keys of each filter, by the filter's name
Words = tuple[str, ...]
Reply = int | str | tuple[int, ...]  # a string is an error; OK is 1

DUMPED: Keys = frozenset({"dumped"})  # the keys of the filter that RESTORE makes

NO_SUCH_KEY = "no such key"
NOT_FOUND = "not found"
EXISTS = "item exists"
BUSY = "Target key name already exists"
ERRORS = (NO_SUCH_KEY, NOT_FOUND, EXISTS, BUSY)  # of a single server
UNKNOWN = "unknown: "  # before the text of any other error: the operation was done, or not


@dataclass(frozen=True)
class Operation:
    """One request of a client, and its reply."""

    node: int
    words: Words
    sent: float
    replied: float
    reply: Reply

    @property
    def is_unknown(self) -> bool:
        """Whether the reply does not say if it was done."""
        return isinstance(self.reply, str) and self.reply.startswith(UNKNOWN)

    @property
    def ends(self) -> float:
        """The time by which it has taken effect, infinite if that is unknown."""
        return math.inf if self.is_unknown else self.replied


def outcome(filters: Filters, words: Words) -> tuple[Reply, Filters]:
    """Run an operation on a single server. Return its reply and the filters after it."""
    name = words[1]
    match words:
        case ("BF.RESERVE", _):
            return (EXISTS, filters) if name in filters else (1, {**filters, name: frozenset()})
        case ("RESTORE", _, *options):
            busy = name in filters and "REPLACE" not in options
            return (BUSY, filters) if busy else (1, {**filters, name: DUMPED})
        case ("DEL", _):
            return int(name in filters), _without(filters, name)
        case ("BF.ADD", _, key):
            return _added(filters, name, key)
        case ("BF.INSERT", _, "NOCREATE", key):
            return _added(filters, name, key) if name in filters else (NOT_FOUND, filters)
        case ("BF.MEXISTS", _, *keys):
            return tuple(int(key in filters.get(name, ())) for key in keys), filters
        case ("RENAME" | "RENAMENX", _, to):
            if name not in filters:
                return NO_SUCH_KEY, filters
            if words[0] == "RENAMENX" and to in filters:
                return 0, filters
            return 1, {**_without(filters, name), to: filters[name]}
        case ("COPY", _, to, *options):
            if name not in filters or (to in filters and "REPLACE" not in options):
                return 0, filters
            return 1, {**filters, to: filters[name]}
    raise AssertionError(f"the model has no such operation: {words}")


def _without(filters: Filters, name: str) -> Filters:
    return {other: keys for other, keys in filters.items() if other != name}


def _added(filters: Filters, name: str, key: str) -> tuple[Reply, Filters]:
    keys = filters.get(name, frozenset())
    return int(key not in keys), {**filters, name: keys | {key}}


def explain(start: Filters, history: Sequence[Operation]) -> list[Operation] | None:
    """Return an order of the operations that gives every reply, or None if there is none."""
    hopeless: set[tuple[frozenset[int], frozenset[tuple[str, Keys]]]] = set()

    def search(left: frozenset[int], filters: Filters) -> list[Operation] | None:
        if all(history[at].is_unknown for at in left):
            return []
        state = (left, frozenset(filters.items()))
        if state in hopeless:
            return None
        first_end = min(history[at].ends for at in left)
        for at in left:
            one = history[at]
            if one.sent > first_end:
                continue  # another operation was answered before this one was sent
            reply, after = outcome(filters, one.words)
            if one.is_unknown or one.reply == reply:
                rest = search(left - {at}, after)
                if rest is not None:
                    return [one, *rest]
        hopeless.add(state)
        return None

    return search(frozenset(range(len(history))), start)


def described(start: Filters, history: Sequence[Operation]) -> str:
    """Return a history as text, for the message of a test that fails."""
    began = min(one.sent for one in history)
    lines = [
        f"{1e3 * (one.sent - began):7.1f} to {1e3 * (one.replied - began):7.1f} ms, "
        f"node {one.node}: {' '.join(one.words)} -> {one.reply}"
        for one in sorted(history, key=lambda one: one.sent)
    ]
    first = {name: sorted(keys) for name, keys in start.items()}
    return "\n".join([f"no single server replies like this; at first {first}", *lines])
