"""Four tiny filters side by side: what each step did to their cells, and what they answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from bloomery import BloomFilter, CountingBloomFilter, DeletableBloomFilter, errors
from bloomery.filters import internals
from bloomery.service.playground.words import candidates

BITS, HASHES = range(4, 129), range(1, 9)
MOST_STEPS = 100
MOST_KEY = 100  # characters
_LINE = 512
_BLOCKED_HASHES = 4
_COUNTERS = _LINE // 4
_COUNTING_HASHES = 3
_DELETABLE = (60, 0.15)  # one line, three hashes, 64 regions
_REGIONS = 64
_TRIES = 4_000  # words: some milliseconds

Action = Literal["add", "remove"]


class TinyStep(NamedTuple):
    """Something done with a key."""

    action: Action
    key: str


class _Tiny:
    """A filter whose cells can be seen."""

    name: str
    filter: Any

    def cells(self) -> list[int]:
        """What each cell holds."""
        number = self._memory()
        return [number >> at & 1 for at in range(self.filter.num_bits)]

    def flags(self) -> list[int]:
        """A flag for each region, where there are any."""
        return []

    def places(self, key: str) -> list[int]:
        """The key's cells, without repeats."""
        return list(dict.fromkeys(self.filter.positions(key)))

    def remove(self, key: str) -> str:
        """Take a key out, and tell what came of it."""
        return "cannot"  # bits say nothing about who set them

    def _memory(self) -> int:
        return int.from_bytes(bytes(internals.sections(self.filter)[0]), "little")


class _Classic(_Tiny):
    name = "classic"

    def __init__(self, num_bits: int, num_hashes: int) -> None:
        # For one key: the capacity that suits a few bits may be one at which it errs too often.
        self.filter = BloomFilter.with_shape(num_bits, num_hashes, capacity=1)


class _Blocked(_Tiny):
    name = "blocked"

    def __init__(self) -> None:
        self.filter = BloomFilter.with_shape(_LINE, _BLOCKED_HASHES, "blocked")


class _Counting(_Tiny):
    name = "counting"

    def __init__(self) -> None:
        self.filter = CountingBloomFilter.with_shape(_LINE, _COUNTING_HASHES)

    def cells(self) -> list[int]:
        number = self._memory()
        return [number >> (4 * at) & 15 for at in range(_COUNTERS)]

    def remove(self, key: str) -> str:
        return "removed" if self.filter.discard(key) else "absent"


class _TinyDeletable(_Tiny):
    name = "deletable"

    def __init__(self) -> None:
        self.filter = DeletableBloomFilter(*_DELETABLE)
        self._size = _LINE // _REGIONS  # bits of a region, the flag included

    def cells(self) -> list[int]:
        number = self._memory()
        return [number >> self._bit(cell) & 1 for cell in range(_LINE - _REGIONS)]

    def flags(self) -> list[int]:
        number = self._memory()
        return [number >> (self._size * (at + 1) - 1) & 1 for at in range(_REGIONS)]

    def places(self, key: str) -> list[int]:
        return list(dict.fromkeys(internals.cells_of(self.filter, key)))

    def remove(self, key: str) -> str:
        if key not in self.filter:
            return "absent"
        return "removed" if self.filter.discard(key) else "stuck"

    def _bit(self, cell: int) -> int:
        """Where a cell is in the line: the top bit of each region is its flag (docs/format.md)."""
        return cell + cell // (self._size - 1)


def play(
    steps: Sequence[TinyStep], asked: str | None, num_bits: int = 10, num_hashes: int = 3
) -> dict[str, Any]:
    """The four filters after these steps, and what they answer for a key, ready for JSON."""
    _check(steps, asked, num_bits, num_hashes)
    filters: list[_Tiny] = [
        _Classic(num_bits, num_hashes),
        _Counting(),
        _TinyDeletable(),
        _Blocked(),
    ]
    present: list[str] = []  # keys that are in, each as often as it was added and not removed
    views = []
    for tiny in filters:
        present = []
        results = [_do(tiny, step, present) for step in steps]
        views.append(_view(tiny, steps, results, asked))
    return {
        "filters": views,
        "present": list(dict.fromkeys(present)),
        "asked": asked,
        "false_positive": false_positive(filters[0].filter, [step.key for step in steps]),
    }


def _do(tiny: _Tiny, step: TinyStep, present: list[str]) -> str:
    if step.action == "add":
        present.append(step.key)
        return "new" if tiny.filter.add(step.key) else "maybe there"
    if step.key in present:
        present.remove(step.key)
    return tiny.remove(step.key)


def _view(
    tiny: _Tiny, steps: Sequence[TinyStep], results: list[str], asked: str | None
) -> dict[str, Any]:
    keys = dict.fromkeys(step.key for step in steps)
    answer = None
    cells = tiny.cells()
    if asked is not None:
        places = tiny.places(asked)
        answer = {
            "maybe": asked in tiny.filter,
            "places": places,
            "holds": [cells[p] for p in places],
        }
    return {
        "name": tiny.name,
        "cells": cells,
        "flags": tiny.flags(),
        "hashes": _hashes(tiny),
        "keys": [
            {"key": key, "places": tiny.places(key), "maybe": key in tiny.filter} for key in keys
        ],
        "results": results,
        "answer": answer,
    }


def _hashes(tiny: _Tiny) -> int:
    if isinstance(tiny.filter, BloomFilter):
        return tiny.filter.num_hashes
    return _COUNTING_HASHES


def false_positive(filter: BloomFilter, keys: Sequence[str]) -> dict[str, Any] | None:
    """A word that was never added and is a *maybe*, and which keys set its bits; None if none of
    many words is one."""
    bits = {key: set(filter.positions(key)) for key in keys}
    alone: dict[str, Any] | None = None
    for tried, word in enumerate(candidates(_TRIES), 1):
        if word in bits or word not in filter:
            continue
        places = list(dict.fromkeys(filter.positions(word)))
        owners = [[key for key in bits if at in bits[key]] for at in places]
        example = {"key": word, "places": places, "owners": owners, "tried": tried}
        if not any(set(places) <= own for own in bits.values()):
            return example  # it takes two to make it: what people mean by a false positive
        alone = alone or example
    return alone


def _check(steps: Sequence[TinyStep], asked: str | None, num_bits: int, num_hashes: int) -> None:
    if len(steps) > MOST_STEPS:
        raise errors.InvalidParameter(f"{len(steps)} steps are too many: at most {MOST_STEPS}")
    for key in (*(step.key for step in steps), *([] if asked is None else [asked])):
        if not 1 <= len(key) <= MOST_KEY:
            raise errors.InvalidParameter(f"a key here has 1 to {MOST_KEY} characters")
    if num_bits not in BITS or num_hashes not in HASHES:
        raise errors.InvalidParameter(
            f"bits must be {BITS[0]} to {BITS[-1]} and hashes {HASHES[0]} to {HASHES[-1]}"
        )
