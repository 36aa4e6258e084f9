"""A filter's memory made visible: where it is how full, what its parts are, and which of its bits
answer for a key. By docs/format.md, from samples of the memory: a look takes milliseconds, however
large the filter is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from bloomery import BloomFilter
from bloomery.filters import internals

CELLS = 576  # of the heat map, at most
_LINE = 64  # bytes of the memory that are looked at for one of them
_TABLES = ("scalable", "cuckoo", "rotating")
_MOST_SLOTS = 8192  # that are looked at for the age of keys
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def anatomy(filter: Any) -> dict[str, Any]:
    """The heat map and the parts of a filter, ready for JSON; empty lists where a kind has none:
    `cells` are shares, of the first byte's place to the last's; `sampled` is the share of the
    memory that was looked at."""
    kind, of, parts, named = filter.kind, "bits", list[dict[str, Any]](), ""
    if kind == "bank":
        return {"cells": [], "of": of, "sampled": 1.0, "parts": parts, "named": named}
    sections = [memoryview(section).cast("B") for section in internals.sections(filter)]
    if kind in _TABLES:
        of, table = "slots", _SlotTable.of(filter)
        cells, sampled = _heat_of_slots(sections[0], table)
        if kind == "rotating":
            parts, named = _generations(filter, sections[0], table), "generations"
    elif kind == "counting":
        of, width = "counters", int(internals.facts(filter)["counter_bits"])
        cells, sampled = _heat(sections, lambda line: _nonzero(line, width))
    elif kind.startswith("redis"):  # the first section is the head of a dump
        share = (lambda line: _nonzero(line, 8)) if kind == "rediscuckoo" else _ones
        of = "slots" if kind == "rediscuckoo" else "bits"
        cells, sampled = _heat(sections[1:], share)
        parts, named = _layers(sections[1:], share), "layers"
    else:
        cells, sampled = _heat(sections, _ones)
    return {"cells": cells, "of": of, "sampled": sampled, "parts": parts, "named": named}


# The heat map.


def _heat(
    sections: list[memoryview], share: Callable[[memoryview], float]
) -> tuple[list[float], float]:
    """How full lines of the memory are, evenly over all of it; and the share that was looked at."""
    total = sum(map(len, sections))
    step = max(1, -(-total // (CELLS * _LINE))) * _LINE
    lines = [
        section[start : start + _LINE]
        for section in sections
        for start in range(0, len(section), step)
    ]
    return [share(line) for line in lines], sum(map(len, lines)) / max(1, total)


def _ones(line: memoryview) -> float:
    return int.from_bytes(line, "little").bit_count() / (8 * len(line))


def _nonzero(line: memoryview, width: int) -> float:
    """The share of counters of so many bits that are not 0."""
    if width == 8:
        return 1 - bytes(line).count(0) / len(line)
    return sum(bool(byte & 15) + bool(byte >> 4) for byte in line) / (2 * len(line))


def _heat_of_slots(body: memoryview, table: _SlotTable) -> tuple[list[float], float]:
    many = max(1, 8 * _LINE // table.width)
    step = max(1, -(-table.slots // (CELLS * many))) * many
    starts = range(0, table.slots, step)
    cells = []
    for start in starts:
        slots = range(start, min(start + many, table.slots))
        cells.append(sum(bool(table.slot(body, slot)) for slot in slots) / len(slots))
    return cells, min(1.0, len(starts) * many / max(1, table.slots))


# Parts.


def _layers(layers: list[memoryview], share: Callable[[memoryview], float]) -> list[dict[str, Any]]:
    """The layers of one of RedisBloom's filters, the oldest first."""
    total, rows = sum(map(len, layers)), []
    for number, layer in enumerate(layers, 1):
        cells, _ = _heat([layer], share)
        fill = sum(cells) / max(1, len(cells))
        row = {"name": f"layer {number}", "nbytes": len(layer), "fill": fill}
        rows.append(row | {"share": len(layer) / max(1, total)})
    return rows


def _generations(filter: Any, body: memoryview, table: _SlotTable) -> list[dict[str, Any]]:
    """How the keys are spread over generations, the current one first, by a sample of slots."""
    facts = internals.facts(filter)
    many, ages = int(facts["generations"]), dict[int, int]()
    for slot in range(0, table.slots, max(1, table.slots // _MOST_SLOTS)):
        value = table.slot(body, slot)
        if value:
            mark = value >> (table.width - table.mark_bits)
            age = (table.mark - mark) % (1 << table.mark_bits)
            ages[age] = ages.get(age, 0) + 1
    seen = sum(count for age, count in ages.items() if age <= many)
    each = None if facts["window"] is None else float(facts["window"]) / many
    return [
        {
            "name": "current" if age == 0 else f"{age} before",
            "share": ages.get(age, 0) / max(1, seen),
            "since": None if each is None else float(facts["generation_started"]) - age * each,
        }
        for age in range(many + 1)
    ]


class _SlotTable(NamedTuple):
    """A table of fingerprints, by the numbers of its header."""

    per_pair: int  # slots of two buckets
    buckets: int
    tag_bits: int
    stream_bits: int
    mark_bits: int
    width: int  # bits of a slot
    slots: int
    mark: int  # of the current generation

    @classmethod
    def of(cls, filter: Any) -> _SlotTable:
        """Read it from the header that a file would have."""
        head = internals.header(filter)
        word, last = (int.from_bytes(head[at : at + 8], "little") for at in (64, 104))
        buckets, tag, stream = word & ((1 << 48) - 1), word >> 48 & 63, word >> 54 & 31
        marks, per_pair = word >> 59, head[11]
        width = tag if per_pair == 8 else marks + tag + stream + 1
        slots = -(-buckets // 2) * per_pair
        return cls(per_pair, buckets, tag, stream, marks, width, slots, last >> 8 & 255)

    def slot(self, body: memoryview, number: int) -> int:
        """What a slot holds; 0: nothing."""
        byte, bit = divmod(number * self.width, 8)
        return int.from_bytes(body[byte : byte + 8], "little") >> bit & ((1 << self.width) - 1)

    def slots_of(self, bucket: int) -> range:
        """The numbers of a bucket's slots."""
        larger, odd = -(-self.per_pair // 2), bucket & 1
        first = bucket // 2 * self.per_pair + odd * larger
        return range(first, first + (self.per_pair - larger if odd else larger))

    def buckets_of(self, hash: int) -> Iterator[tuple[int, Callable[[int], bool]]]:
        """The two buckets of a key's hash, each with what tells whether a slot's value is its."""
        if self.per_pair == 8:
            tag = hash >> (64 - self.tag_bits) or 1
            turned = (hash << self.tag_bits | hash >> (64 - self.tag_bits)) & _MASK
            first = turned * self.buckets >> 64
            odd = ((tag * _GOLDEN & _MASK) * self.buckets >> 64) | 1
            for bucket in (first, (odd - first) % self.buckets):
                yield bucket, lambda value: value == tag
            return
        tag, level = hash & ((1 << self.tag_bits) - 1), self.buckets.bit_length() - 1
        for stream in (hash, hash ^ (((tag + 1) * _GOLDEN & _MASK) | 1 << 63)):
            yield stream >> (64 - level), partial(self._grown, tag=tag, stream=stream, level=level)

    def _grown(self, value: int, tag: int, stream: int, level: int) -> bool:
        """Whether a value of a table that grows has this tag, and knows these bits of the stream
        after those that name the bucket."""
        field = value & ((1 << (self.stream_bits + 1)) - 1)
        if value >> (self.stream_bits + 1) & ((1 << self.tag_bits) - 1) != tag or not field:
            return False
        ended = (field & -field).bit_length()  # the lowest 1 ends the bits that it knows
        known = self.stream_bits + 1 - ended
        return field >> ended == stream >> (64 - level - known) & ((1 << known) - 1)


# Which bits answer for a key.


NO_EVIDENCE: dict[str, Any] = {"of": "", "all": True, "places": []}


def evidence(filter: Any, key: Any) -> dict[str, Any]:
    """What in the memory answers for a key: places, what each holds, and whether it agrees that the
    key may be there. `all`: every place must agree for a *maybe*, else one is enough. No places:
    those of this kind cannot be shown."""
    kind = filter.kind
    if kind in _TABLES:
        return {"of": "slots", "all": False, "places": list(_fingerprints(filter, key))}
    if kind not in ("bloom", "deletable", "counting"):
        return NO_EVIDENCE
    body = memoryview(internals.sections(filter)[0]).cast("B")
    width = int(internals.facts(filter)["counter_bits"]) if kind == "counting" else 1
    at = filter.positions(key) if kind == "bloom" else internals.cells_of(filter, key)
    if kind == "deletable":
        at = [_bit_of_cell(cell, internals.header(filter)[64]) for cell in at]
    name, places = "counter" if kind == "counting" else "bit", list[dict[str, Any]]()
    for place in dict.fromkeys(at):  # two of a key's may be the same
        byte, bit = divmod(place * width, 8)
        holds = body[byte] >> bit & ((1 << width) - 1)
        places.append({"name": f"{name} {place:,}", "holds": holds, "agrees": holds > 0})
    return {"of": f"{name}s", "all": True, "places": places}


def _bit_of_cell(cell: int, regions: int) -> int:
    """The bit of a deletable filter's cell: the top bit of each region of a line is its flag."""
    line, within = divmod(cell, 512 - regions)
    return 512 * line + within + within // (512 // regions - 1)


def _fingerprints(filter: Any, key: Any) -> Iterator[dict[str, Any]]:
    """The slots of the key's two buckets: one that holds its fingerprint answers *maybe*."""
    table, body = _SlotTable.of(filter), memoryview(internals.sections(filter)[0]).cast("B")
    hash = BloomFilter(1, hasher=filter.hasher, seed=filter.seed).hash_of(key)
    for bucket, is_its in table.buckets_of(hash):
        for slot in table.slots_of(bucket):
            value = table.slot(body, slot)
            name = f"bucket {bucket:,}, slot {slot:,}"
            yield {"name": name, "holds": value, "agrees": value > 0 and is_its(value)}
