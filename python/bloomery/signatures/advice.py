"""Length and bits a column for PostgreSQL's own bloom index, out of a table's statistics.

The index is read from end to end for each question, and every row that passes is fetched and
compared. So a longer signature costs pages of the index, and saves pages of the table. Costs are in
the planner's units, with its defaults: a page read in order is 1, one anywhere 4. For each length
bits are given one by one to the column that gains most by it, and the cheapest is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from bloomery.errors import InvalidParameter
from bloomery.signatures.plan import MAX_LENGTH, fill, passing

MAX_COLUMNS = 32
MAX_BITS = 4095
PAGE = 8192
_ROOM = PAGE - 24 - 8  # without a page's head, and bloom's own words at its end
_POINTER = 6  # to the row, with each signature
_RANDOM, _ROW = 4.0, 0.01
_FEW = 100  # rows that a B-tree on one column alone would fetch in no time
_PAIRS = 64  # questions of two columns that are looked at, where none are named
LENGTHS = [*range(16, 257, 16), *range(320, 1025, 64), *range(1280, MAX_LENGTH + 1, 256)]


@dataclass(frozen=True)
class TableColumn:
    """A column as PostgreSQL's statistics have it."""

    name: str
    type: str
    distinct: float
    null_share: float
    width: float
    supported: bool = True  # has bloom an operator class for its type?
    operator_class: str | None = None  # the statement that makes one, if there can be


@dataclass(frozen=True)
class Table:
    """A table as PostgreSQL's statistics have it; its name is as SQL takes it."""

    name: str
    rows: float
    pages: int
    columns: Sequence[TableColumn]
    indexes: Sequence[str] = ()
    extension: bool = True  # is `bloom` installed?


@dataclass(frozen=True)
class Question:
    """What one question is expected to do."""

    columns: list[str]
    matches: float
    false_matches: float
    """Rows removed by the recheck."""
    heap_pages: float


@dataclass(frozen=True)
class Advice:
    """The index that suits a table."""

    statements: list[str]
    length: int
    bits: dict[str, int]
    rows: int
    index_bytes: int
    btree_bytes: dict[str, int]
    questions: list[Question]
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def index_bytes(rows: float, length: int) -> int:
    """The size of a bloom index: signatures of whole 16 bits with a pointer each, in pages."""
    entry = _POINTER + 2 * math.ceil(length / 16)
    return PAGE * (1 + math.ceil(rows / (_ROOM // entry)))


def btree_bytes(rows: float, column: TableColumn) -> int:
    """About the size of a B-tree on a column: equal values share one entry."""
    distinct = min(column.distinct, rows)
    entry = 12 + 8 * math.ceil(max(1.0, column.width) / 8)
    return PAGE * (1 + math.ceil((distinct * entry + (rows - distinct) * _POINTER) / 0.9 / PAGE))


def advise(
    table: Table,
    columns: Sequence[str] = (),
    questions: Sequence[Sequence[str]] = (),
    *,
    operator_classes: bool = False,
) -> Advice:
    """Choose the index for questions of these columns; without any, for all pairs of columns.

    `operator_classes`: take columns too whose types need an operator class that is not there yet.
    """
    notes: list[str] = []
    chosen = _chosen(table, columns, questions, operator_classes, notes)
    names = [column.name for column in chosen]
    asked = [list(question) for question in questions]
    if not asked:
        pairs = list(combinations(names, min(2, len(names))))
        asked = [list(pair) for pair in pairs[:: math.ceil(len(pairs) / _PAIRS)]]
    length, bits = _best(table, chosen, asked)
    expected = [_question(table, chosen, bits, length, question) for question in asked]
    statements = [] if table.extension else ["CREATE EXTENSION IF NOT EXISTS bloom"]
    for column in chosen:
        statement = column.operator_class
        if not column.supported and statement and statement not in statements:
            statements.append(statement)
    options = ", ".join(f"col{number}={size}" for number, size in enumerate(bits, 1))
    quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
    statements.append(
        f"CREATE INDEX ON {table.name} USING bloom ({quoted}) WITH (length={length}, {options})"
    )
    size = index_bytes(table.rows, length)
    notes += _notes(table, chosen, expected, size)
    return Advice(
        statements=statements,
        length=length,
        bits=dict(zip(names, bits, strict=True)),
        rows=round(table.rows),
        index_bytes=size,
        btree_bytes={column.name: btree_bytes(table.rows, column) for column in chosen},
        questions=expected,
        notes=notes,
    )


def _chosen(
    table: Table,
    columns: Sequence[str],
    questions: Sequence[Sequence[str]],
    operator_classes: bool,
    notes: list[str],
) -> list[TableColumn]:
    known = {column.name: column for column in table.columns}
    named = list(dict.fromkeys([*columns, *(name for question in questions for name in question)]))
    for name in named:
        if name not in known:
            raise InvalidParameter(f"{table.name} has no column {name!r}, only {', '.join(known)}")
    chosen = []
    for column in [known[name] for name in named] or table.columns:
        if column.supported or (operator_classes and column.operator_class):
            chosen.append(column)
            continue
        step = "its type has no hash function"
        if column.operator_class:
            step = "with --operator-classes it is taken, and the class is created first"
        notes.append(
            f"{column.name} ({column.type}) is left out: bloom has no operator class for it; {step}"
        )
    asked = {name for question in questions for name in question}
    for name in asked - {column.name for column in chosen}:
        raise InvalidParameter(
            f"a query asks for {name}, which bloom has no operator class for: try "
            "--operator-classes, or leave it out of the query"
        )
    if not chosen:
        raise InvalidParameter(
            f"no column of {table.name} can be in a bloom index: it takes int4 and text, and with "
            "--operator-classes what has a hash function"
        )
    if len(chosen) > MAX_COLUMNS:
        chosen = sorted(chosen, key=lambda column: -column.distinct)[:MAX_COLUMNS]
        notes.append(f"an index has {MAX_COLUMNS} columns at most: those of most values are taken")
    return chosen


def _best(
    table: Table, columns: Sequence[TableColumn], asked: Sequence[Sequence[str]]
) -> tuple[int, list[int]]:
    """The length and the bits of each column at which the questions cost least, all together."""
    best = (math.inf, LENGTHS[0], [1] * len(columns))
    counts = [sum(column.name in question for question in asked) for column in columns]
    for length in LENGTHS:
        if index_bytes(table.rows, length) / PAGE * len(asked) > best[0]:
            break  # the index alone is more
        bits = [1] * len(columns)
        while sum(bits) <= length:
            cost = sum(
                _cost(table, length, _question(table, columns, bits, length, question))
                for question in asked
            )
            if cost < best[0]:
                best = (cost, length, list(bits))
            elif fill(length, bits) > 0.5:
                break  # more than half of all bits set is worse for any column
            share = fill(length, bits)
            gains = [
                often * _gain(share, column, n)
                for often, column, n in zip(counts, columns, bits, strict=True)
            ]
            where = max(range(len(bits)), key=gains.__getitem__)
            if bits[where] >= min(MAX_BITS, length):
                break
            bits[where] += 1
    return best[1], best[2]


def _gain(share: float, column: TableColumn, bits: int) -> float:
    """How much less one more bit lets pass of a column alone, as a share of what passes."""
    same = _same(column)
    return 1 - (same + (1 - same) * share ** (bits + 1)) / (same + (1 - same) * share**bits)


def _same(column: TableColumn) -> float:
    """The share of rows that are equal to a value."""
    return (1 - column.null_share) / max(1.0, column.distinct)


def _question(
    table: Table,
    columns: Sequence[TableColumn],
    bits: Sequence[int],
    length: int,
    asked: Iterable[str],
) -> Question:
    # A NULL sets no bit.
    total = sum(n * (1 - column.null_share) for column, n in zip(columns, bits, strict=True))
    given = {column.name: (n, _same(column)) for column, n in zip(columns, bits, strict=True)}
    names = list(asked)
    through, equal = passing(length, total, [given[name] for name in names])
    pages = max(1, table.pages)
    fetched = pages * (1 - math.exp(-table.rows * through / pages))
    return Question(names, table.rows * equal, table.rows * (through - equal), fetched)


def _cost(table: Table, length: int, question: Question) -> float:
    """As the planner counts a bitmap scan: the more of the pages, the more they are in order."""
    share = question.heap_pages / max(1, table.pages)
    each = _RANDOM - (_RANDOM - 1) * math.sqrt(min(1.0, share))
    rows = question.matches + question.false_matches
    return index_bytes(table.rows, length) / PAGE + question.heap_pages * each + rows * _ROW


def _notes(
    table: Table, columns: Sequence[TableColumn], questions: Sequence[Question], size: int
) -> list[str]:
    notes = []
    single = [column for column in columns if table.rows / max(1.0, column.distinct) <= _FEW]
    if single:
        notes.append(
            f"a B-tree on {' or '.join(column.name for column in single[:3])} alone finds "
            f"{_FEW} rows or fewer for a value: for questions that always have it, that is faster"
        )
    scan = table.pages
    slow = [question for question in questions if size / PAGE + question.heap_pages > scan]
    if slow:
        names = " and ".join(slow[0].columns)
        notes.append(
            f"for {names} the index and the pages that it leads to are more than the table itself "
            f"({scan:,} pages): a plain scan is as fast"
        )
    notes += [f"there already: {index}" for index in table.indexes]
    return notes
