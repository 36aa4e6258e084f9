"""What a signature index weighs and lets through, before it is built: the pure maths.

Of a row's `length` bits its values set `total`, with repetitions, so that a share
`1 - (1 - 1/length)^total` is set. A row passes a question if all of the question's bits are set: by
a column that is equal (of d values one row in d), by another of the bits in the same place, or by
chance. The false matches are those that pass and are not equal in every column.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bloomery.errors import InvalidParameter

MAX_LENGTH = 4096
# Measured (docs/decisions/0039-bit-slices.md): a question costs so much whatever it finds, each row
# for each bitmap that is read, and a candidate to be compared; and a row in a scan of one column.
_QUESTION_NS, _BIT_NS, _CANDIDATE_NS, _SCAN_NS = 200_000.0, 0.015, 12.0, 0.5


def fill(length: int, bits: Iterable[float]) -> float:
    """The expected share of a signature's bits that are set."""
    return float(1 - (1 - 1 / length) ** sum(bits))


def passing(length: int, total: float, asked: Iterable[tuple[int, float]]) -> tuple[float, float]:
    """The share of rows that pass a question, and of those that are equal in all of its columns;
    of each column, how many bits it sets and which share of rows is equal in it."""
    # By how many of the question's bits are those of columns that are equal.
    shares, needed, equal = {0: 1.0}, 0, 1.0
    for bits, same in asked:
        grown: dict[int, float] = {}
        for held, share in shares.items():
            grown[held] = grown.get(held, 0.0) + share * (1 - same)
            grown[held + bits] = grown.get(held + bits, 0.0) + share * same
        shares, needed, equal = grown, needed + bits, equal * same
    through = 0.0
    for held, share in shares.items():
        for taken, chance in _draws(length, max(0.0, total - held), held, needed):
            share *= taken + (1 - taken) * chance
        through += share
    return through, equal


def _draws(length: int, total: float, held: int, needed: int) -> Iterator[tuple[float, float]]:
    """For each bit of a question that no equal column sets: how likely it is one of the bits before
    it, and else how likely a row's `total` other bits set it too. Those that set the bits before it
    do not set this one: they are spent."""
    mean = total / length
    spent = mean / -math.expm1(-mean) if mean else 1.0
    places = 0.0
    for drawn in range(held, needed):
        taken = fill(length, [drawn])
        left = max(0.0, total - places * spent)
        yield taken, 1 - (1 - 1 / max(1.0, length - places)) ** left
        places += 1 - taken


def btree_bytes(rows: float, width: float) -> float:
    """About what PostgreSQL's B-tree of one column weighs: an entry has a head of 8 bytes, its
    value in whole 8 bytes and a pointer of 4, and pages are filled to nine tenths."""
    return rows * (12 + 8 * math.ceil(max(1.0, width) / 8)) / 0.9


@dataclass(frozen=True)
class SignaturePlan:
    """An index that is to be: its size, and what questions of so many columns let through."""

    rows: int
    length: int
    bits: dict[str, int]
    nbytes: int
    """Of the bitmaps."""
    fill_ratio: float
    false_matches: dict[int, float]
    """Rows that pass and are not equal, by how many columns are asked for."""
    suggested_length: int
    suggested_bits: int
    """A column, where questions have two columns and fewer than one false match is wanted."""
    btree_nbytes: float
    """Of one B-tree for each column, of 8 bytes a value."""
    advice: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"{self.rows:,} rows x {len(self.bits)} columns, {self.length} bits a row: "
            f"{self.nbytes:,} bytes; a B-tree for each column: {self.btree_nbytes:,.0f} bytes",
            *(
                f"{count} column{'s' * (count > 1)} asked: {matches:,.1f} false matches expected"
                for count, matches in self.false_matches.items()
            ),
            *self.advice,
        ]
        return "\n".join(lines)


def plan(
    rows: int,
    columns: int | Sequence[str] | Mapping[str, int | None],
    *,
    length: int = 80,
    bits: int | Mapping[str, int] = 2,
) -> SignaturePlan:
    """Say what an index of so many rows would weigh, and what it would let through.

    `columns` are their number or names, or for each name how many distinct values it has (None:
    unknown, taken for many); `length` and `bits` are as for `SignatureIndex.build`.
    """
    distinct = _columns(columns)
    if type(rows) is not int or rows < 0:
        raise InvalidParameter(f"rows is {rows!r}, must be an int of at least 0")
    if type(length) is not int or not 1 <= length <= MAX_LENGTH:
        raise InvalidParameter(f"length is {length!r}, must be an int from 1 to {MAX_LENGTH}")
    given = dict.fromkeys(distinct, bits) if isinstance(bits, int) else dict(bits)
    each = {name: given.get(name, 2) for name in distinct}
    wrong = [n for n in each.values() if type(n) is not int or not 1 <= n <= length]
    if wrong or not each:
        raise InvalidParameter(f"bits is {bits!r}, must be ints from 1 to the length, {length}")
    total = sum(each.values())
    same = {name: 1 / max(1, count) if count else 0.0 for name, count in distinct.items()}

    def false(names: Sequence[str]) -> float:
        through, equal = passing(length, total, [(each[name], same[name]) for name in names])
        return rows * (through - equal)

    # The columns that filter least come first: what is said of two columns is the worst of pairs.
    order = sorted(each, key=lambda name: -passing(length, total, [(each[name], same[name])])[0])
    matches = {count: false(order[:count]) for count in range(1, len(order) + 1)}
    best = suggest(rows, len(each))
    return SignaturePlan(
        rows=rows,
        length=length,
        bits=each,
        nbytes=-(-rows // 512) * 64 * length,
        fill_ratio=fill(length, [total]),
        false_matches=matches,
        suggested_length=best[0],
        suggested_bits=best[1],
        btree_nbytes=len(each) * btree_bytes(rows, 8),
        advice=_advice(rows, each, matches, best),
    )


def suggest(rows: int, columns: int, asked: int = 2) -> tuple[int, int]:
    """The shortest length, and the bits a column, at which a question of `asked` columns expects
    less than one false match, with half of all bits set: the textbook optimum."""
    for length in range(16, MAX_LENGTH + 1, 16):
        bits = max(1, round(length * math.log(2) / columns))
        through, _ = passing(length, columns * bits, [(bits, 0.0)] * min(asked, columns))
        if rows * through < 1:
            break
    return length, bits


def _columns(columns: int | Sequence[str] | Mapping[str, int | None]) -> dict[str, int | None]:
    if isinstance(columns, Mapping):
        return dict(columns)
    if isinstance(columns, int):
        return {f"column {number}": None for number in range(1, columns + 1)}
    if isinstance(columns, str):
        raise InvalidParameter(f"columns is {columns!r}, must be a number or a list of names")
    return dict.fromkeys(columns)


def _advice(
    rows: int, bits: Mapping[str, int], matches: Mapping[int, float], best: tuple[int, int]
) -> list[str]:
    notes = []
    each = sum(bits.values()) / len(bits)
    for count, false in matches.items():
        index = _QUESTION_NS + rows * each * count * _BIT_NS + false * _CANDIDATE_NS
        if index > rows * _SCAN_NS * count:
            notes.append(
                f"{count} column{'s' * (count > 1)} asked: a plain scan is as fast; more bits or a "
                "longer signature leave fewer candidates to compare"
                if false > rows / 1000
                else f"{count} column{'s' * (count > 1)} asked: so few rows are scanned as fast"
            )
    if len(bits) == 1 or (len(matches) > 1 and matches[1] < 1):
        notes.append("one column at a time, of many values: a B-tree or a hash index is faster")
    notes.append(f"for two columns and less than one false match: length={best[0]}, bits={best[1]}")
    return notes
