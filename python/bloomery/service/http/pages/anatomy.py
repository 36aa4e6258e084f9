"""A filter's memory made visible: where it is how full, what its parts are, and which of its bits
answer for a key. By docs/format.md, from samples of the memory: a look takes milliseconds, however
large the filter is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from bloomery import BloomFilter
from bloomery.filters import internals

CELLS = 576  # of the heat map, at most
_WINDOW = 64  # bytes of the memory that are looked at for one of them
_TABLES = ("scalable", "cuckoo", "rotating")
_GOLDEN = 0x9E3779B97F4A7C15
_MOST = (1 << 64) - 1


def anatomy(filter: Any) -> dict[str, Any]:
    """The heat map and the parts of a filter, ready for JSON; empty lists where a kind has none."""
    if filter.kind == "bank":
        return {"cells": [], "of": "", "sampled": 1.0, "parts": [], "named": ""}
    sections = [memoryview(one).cast("B") for one in internals.sections(filter)]
    table = _Table.of(filter) if filter.kind in _TABLES else None
    total = sum(map(len, sections))
    windows = list(_windows(sections, filter.kind))
    cells = [_fill(filter, table, window) for window in windows]
    parts, named = _parts(filter, sections, table)
    return {
        "cells": cells,
        "of": {"bloom": "bits", "deletable": "bits", "counting": "counters"}.get(
            filter.kind, "slots" if table is not None else "bits"
        ),
        "sampled": min(1.0, sum(map(len, windows)) / max(1, total)),
        "parts": parts,
        "named": named,
    }


def _windows(sections: list[memoryview], kind: str) -> Iterator[memoryview]:
    """Windows of the memory, evenly over all of it."""
    body = sections[1:] if kind.startswith("redis") else sections  # the first is a dump's head
    lengths = sum(map(len, body))
    step = max(_WINDOW, -(-lengths // CELLS))
    step = -(-step // _WINDOW) * _WINDOW
    for section in body:
        for start in range(0, len(section), step):
            yield section[start : start + _WINDOW]


def _fill(filter: Any, table: _Table | None, window: memoryview) -> float:
    """The share of a window's places that are taken."""
    number = int.from_bytes(window, "little")
    bits = 8 * len(window)
    if table is None:
        if filter.kind == "counting":
            return _taken(number, bits, filter.info()["counter_bits"])
        return number.bit_count() / bits
    return _taken(number, bits, table.width)


def _taken(number: int, bits: int, width: int) -> float:
    """The share of the places of so many bits that are not 0."""
    places, mask = bits // width, (1 << width) - 1
    return sum(bool(number >> (at * width) & mask) for at in range(places)) / max(1, places)


def _parts(
    filter: Any, sections: list[memoryview], table: _Table | None
) -> tuple[list[dict[str, Any]], str]:
    """Generations or layers, each with its share, and what they are called."""
    if filter.kind.startswith("redis"):
        layers = sections[1:]
        rows = [
            {
                "name": f"layer {number}",
                "nbytes": len(layer),
                "share": len(layer) / max(1, sum(map(len, layers))),
                "fill": sum(_fill(filter, None, window) for window in taken) / max(1, len(taken)),
            }
            for number, layer in enumerate(layers, 1)
            for taken in [list(_windows([layer], ""))[:CELLS]]
        ]
        return rows, "layers"
    if filter.kind == "rotating" and table is not None:
        return _generations(filter, sections[0], table), "generations"
    return [], ""


def _generations(filter: Any, body: memoryview, table: _Table) -> list[dict[str, Any]]:
    """How the keys are spread over generations, the current one first, by a sample of slots."""
    facts = internals.facts(filter)
    many, ages = int(facts["generations"]), dict[int, int]()
    step = max(1, table.slots // 8192)
    for slot in range(0, table.slots, step):
        value = table.slot(body, slot)
        if value:
            age = (table.mark - (value >> (table.width - table.marks))) % (1 << table.marks)
            ages[age] = ages.get(age, 0) + 1
    seen = sum(count for age, count in ages.items() if age <= many)
    window = facts["window"]
    each = None if window is None else float(window) / many
    return [
        {
            "name": "current" if age == 0 else f"{age} before",
            "share": ages.get(age, 0) / max(1, seen),
            "since": facts["generation_started"] - age * each if each is not None else None,
        }
        for age in range(many + 1)
    ]


class _Table(NamedTuple):
    """A table of fingerprints: the numbers of its header."""

    per_pair: int  # P: slots of two buckets
    buckets: int
    tag_bits: int
    stream_bits: int
    marks: int  # bits of a mark
    width: int  # bits of a slot
    slots: int
    mark: int  # of the current generation

    @classmethod
    def of(cls, filter: Any) -> _Table:
        """Read it from the header that a file would have."""
        head = internals.header(filter)
        word = int.from_bytes(head[64:72], "little")
        last = int.from_bytes(head[104:112], "little")
        buckets, tag = word & ((1 << 48) - 1), word >> 48 & 63
        stream, marks, per_pair = word >> 54 & 31, word >> 59, head[11]
        width = tag if per_pair == 8 else marks + tag + stream + 1
        slots = -(-buckets // 2) * per_pair
        return cls(per_pair, buckets, tag, stream, marks, width, slots, last >> 8 & 255)

    def slot(self, body: memoryview, number: int) -> int:
        """What a slot holds; 0: nothing."""
        bit = number * self.width
        eight = int.from_bytes(body[bit >> 3 : (bit >> 3) + 8], "little")
        return eight >> (bit & 7) & ((1 << self.width) - 1)

    def slots_of(self, bucket: int) -> range:
        """The numbers of a bucket's slots."""
        first = (bucket // 2) * self.per_pair + (bucket & 1) * -(-self.per_pair // 2)
        many = self.per_pair // 2 if bucket & 1 else -(-self.per_pair // 2)
        return range(first, first + many)


# Which bits answer for a key.


def evidence(filter: Any, key: Any) -> dict[str, Any]:
    """What in the memory answers for a key: places, what each holds, and whether it agrees that the
    key may be there; in words where the places of a kind cannot be shown."""
    kind = filter.kind
    if kind == "bloom":
        body = memoryview(internals.sections(filter)[0]).cast("B")
        places = list(dict.fromkeys(filter.positions(key)))
        rows = [_place(f"bit {at:,}", body[at >> 3] >> (at & 7) & 1) for at in places]
        return {"of": "bits", "places": rows, "all": True}
    if kind == "deletable":
        body = memoryview(internals.sections(filter)[0]).cast("B")
        places = list(dict.fromkeys(internals.cells_of(filter, key)))
        rows = [_place(f"bit {at:,}", body[at >> 3] >> (at & 7) & 1) for at in places]
        return {"of": "bits", "places": rows, "all": True}
    if kind == "counting":
        body = memoryview(internals.sections(filter)[0]).cast("B")
        width = int(internals.facts(filter)["counter_bits"])
        rows = []
        for at in dict.fromkeys(filter.positions(key)):
            bit = at * width
            rows.append(_place(f"counter {at:,}", body[bit >> 3] >> (bit & 7) & ((1 << width) - 1)))
        return {"of": "counters", "places": rows, "all": True}
    if kind in _TABLES:
        return _fingerprints(filter, key)
    return {"of": "", "places": [], "all": True}


def _place(name: str, value: int) -> dict[str, Any]:
    return {"name": name, "holds": value, "agrees": bool(value)}


def _fingerprints(filter: Any, key: Any) -> dict[str, Any]:
    """The slots of the key's two buckets: one that holds its fingerprint answers *maybe*."""
    table, head = _Table.of(filter), internals.sections(filter)[0]
    body = memoryview(head).cast("B")
    hash = BloomFilter(1, hasher=filter.hasher, seed=filter.seed).hash_of(key)
    rows = []
    for bucket, matches in _buckets(table, hash):
        for slot in table.slots_of(bucket):
            value = table.slot(body, slot)
            rows.append(
                {
                    "name": f"bucket {bucket:,}, slot {slot:,}",
                    "holds": value,
                    "agrees": bool(value) and matches(value),
                }
            )
    return {"of": "slots", "places": rows, "all": False}


def _buckets(table: _Table, hash: int) -> Iterator[tuple[int, Any]]:
    """The key's two buckets, each with what tells whether a slot's value is the key's."""
    if table.per_pair == 8:
        tag = hash >> (64 - table.tag_bits) or 1
        turned = (hash << table.tag_bits | hash >> (64 - table.tag_bits)) & _MOST
        one = turned * table.buckets >> 64
        odd = ((tag * _GOLDEN & _MOST) * table.buckets >> 64) | 1
        for bucket in (one, (odd - one) % table.buckets):
            yield bucket, lambda value: value == tag
        return
    tag, level = hash & ((1 << table.tag_bits) - 1), table.buckets.bit_length() - 1
    other = hash ^ (((tag + 1) * _GOLDEN & _MOST) | 1 << 63)
    for stream in (hash, other):

        def matches(value: int, stream: int = stream) -> bool:
            field = value & ((1 << (table.stream_bits + 1)) - 1)
            if value >> (table.stream_bits + 1) & ((1 << table.tag_bits) - 1) != tag or not field:
                return False
            ended = (field & -field).bit_length()  # the lowest 1 ends the bits that it knows
            known = table.stream_bits + 1 - ended
            mine = stream >> (64 - level - known) & ((1 << known) - 1)
            return field >> ended == mine

        yield stream >> (64 - level), matches
