"""`signatures`: equality on three of ten columns, by `SignatureIndex`, by scans, and by PostgreSQL.

Ten columns of 64-bit ints, each of as many values as a tenth of the rows: a value has ten rows. A
question is what one row has in three columns; every way must return the same rows. PostgreSQL has
the same values as `int`, for which its bloom index has an operator class, and is left as it is
installed, but for `enable_seqscan = off`: the index is what is measured. Its times are over a local
connection, the others' in this process.

The bound is what memory gives one thread: six of as many bitmaps as the index has, ANDed by NumPy
in steps of the best size, with nothing asked and nothing found.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa

from benchmarks.lines import Line, missing, word
from benchmarks.report import Column, table
from benchmarks.service import servers
from benchmarks.settings import Record, Settings
from benchmarks.timing import progress, quiet, rotated
from bloomery.signatures import SignatureIndex
from bloomery.signatures.index import DEFAULT_LENGTH

OURS, POLARS = "SignatureIndex.find", "Polars filter"
BOUND = "AND of six bitmaps alone, NumPy"
BLOOM, TREES = "PostgreSQL, bloom index", "PostgreSQL, three B-trees"
COLUMNS = [f"c{number}" for number in range(10)]
ASKED = ["c1", "c4", "c8"]
QUESTIONS = 30
SLOW = 10
"""PostgreSQL gets one in so many of the questions."""
BOUND_WORDS = 1 << 15
"""Of 2^10 to 2^17 the best."""

Question = dict[str, int]
Way = Callable[[Question], int]


def run(settings: Settings) -> list[Record]:
    rows = settings.signature_rows
    rng = np.random.default_rng(18)
    values = {name: rng.integers(0, max(10, rows // 10), rows) for name in COLUMNS}
    arrow = pa.table(values)
    places = rng.integers(0, rows, QUESTIONS)
    questions = [{name: int(values[name][at]) for name in ASKED} for at in places]
    progress.step(f"signatures: an index of {rows:,} rows")
    began = time.perf_counter()
    index = SignatureIndex.build(arrow)
    built = time.perf_counter() - began
    records: list[Record] = [
        {"table": "sizes", "what": "SignatureIndex", "seconds": built, "nbytes": index.nbytes}
    ]
    records += _false_matches(index, values, questions)
    with _postgres() as connection:
        records += _filled(connection, arrow)
        local = {OURS: _find(index), "SignatureIndex.candidates": _candidates(index)}
        local |= {BOUND: _bound(rows)} | _scans(arrow)
        remote = {
            BLOOM: _query(connection),
            TREES: _query(connection),
        }
        best: dict[str, float] = {}
        lost: dict[str, int] = {}
        for number in range(settings.rounds):
            for name, way in rotated(list((local | remote).items()), number):
                progress.step(f"signatures: round {number + 1}, {name}")
                few = questions[:: SLOW if name in remote else 1]
                if name in remote:
                    _hide(connection, bloom=name != BLOOM)
                    way(few[0])  # what was planned before is planned anew
                with quiet():
                    start = time.perf_counter()
                    found = [way(question) for question in few]
                    spent = (time.perf_counter() - start) / len(few)
                best[name] = min(spent, best.get(name, spent))
                lost[name] = sum(count < 1 for count in found)
    records += [
        {
            "table": "questions",
            "way": name,
            "rows": rows,
            "ms": best[name] * 1e3,
            "times_ours": best[name] / best[OURS],
            "lost_rows": lost[name],
        }
        for name in best
    ]
    return records


def _false_matches(
    index: SignatureIndex, values: dict[str, Any], questions: list[Question]
) -> list[Record]:
    """Candidates that are not equal, beside what the plan expects."""
    plan = index.plan(dict.fromkeys(COLUMNS, max(10, index.num_rows // 10)))
    records = []
    for count in (1, 2, 3):
        false = []
        for question in questions:
            asked = {name: question[name] for name in ASKED[:count]}
            found = index.candidates(asked)
            equal = np.logical_and.reduce([values[n][found] == v for n, v in asked.items()])
            false.append(len(found) - int(equal.sum()))
        records.append(
            {
                "table": "false",
                "columns": count,
                "expected": plan.false_matches[count],
                "observed": float(np.mean(false)),
            }
        )
    return records


def _find(index: SignatureIndex) -> Way:
    return lambda question: int(index.find(question).num_rows)


def _candidates(index: SignatureIndex) -> Way:
    return lambda question: len(index.candidates(question))


def _bound(rows: int) -> Way:
    """Six bitmaps of other ones each time, as those of questions are."""
    rng = np.random.default_rng(80)
    bitmaps = rng.integers(0, 2**63, (DEFAULT_LENGTH, -(-rows // 64)), np.int64)
    steps = [bitmaps[:, at : at + BOUND_WORDS] for at in range(0, bitmaps.shape[1], BOUND_WORDS)]
    both = np.empty(BOUND_WORDS, np.int64)
    sixes = itertools.cycle([rng.permutation(DEFAULT_LENGTH)[:6] for _ in range(QUESTIONS)])

    def anded(question: Question) -> int:
        first, *others = next(sixes)
        for step in steps:
            out = both[: step.shape[1]]
            np.bitwise_and(step[first], step[others[0]], out=out)
            for other in others[1:]:
                np.bitwise_and(out, step[other], out=out)
        return rows

    return anded


def _scans(arrow: pa.Table) -> dict[str, Way]:
    import duckdb
    import polars as pl

    frame = pl.DataFrame(pl.from_arrow(arrow))
    narrow = frame.with_columns(pl.all().cast(pl.Int32))
    connection = duckdb.connect()
    connection.register("arrow", arrow)
    connection.execute("CREATE TABLE own AS SELECT * FROM arrow")
    where = " AND ".join(f"{name} = ?" for name in ASKED)

    def polars(frame: Any) -> Way:
        return lambda question: (
            frame.filter(*[pl.col(name) == value for name, value in question.items()]).height
        )

    def database(name: str) -> Way:
        sql = f"SELECT * FROM {name} WHERE {where}"
        return lambda question: len(connection.execute(sql, list(question.values())).fetchall())

    return {
        POLARS: polars(frame),
        "Polars filter, columns of 32 bits": polars(narrow),
        "DuckDB, its own table": database("own"),
        "DuckDB, the Arrow table": database("arrow"),
    }


@contextlib.contextmanager
def _postgres() -> Iterator[psycopg.Connection[Any]]:
    # The tests' own server: how PostgreSQL is made and started is written once.
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
    from integration.servers import PostgresServer

    with servers.scratch() as folder:
        folder.chmod(0o755)  # PostgreSQL may run as another user
        (folder / "postgres").mkdir()
        database = PostgresServer(folder / "postgres")
        database.start()
        try:
            with psycopg.connect(database.url("postgres"), autocommit=True) as connection:
                yield connection
        finally:
            database.stop()


def _filled(connection: psycopg.Connection[Any], arrow: pa.Table) -> list[Record]:
    """The table and its indexes: what each weighs, and how long it takes to make."""
    import polars as pl

    progress.step(f"signatures: PostgreSQL, a table of {arrow.num_rows:,} rows")
    sql = connection.execute
    sql("CREATE EXTENSION bloom")
    sql(f"CREATE TABLE rows ({', '.join(f'{name} int' for name in COLUMNS)})")
    with connection.cursor().copy("COPY rows FROM STDIN (FORMAT csv)") as copy:
        for batch in arrow.to_batches(max_chunksize=200_000):
            text = io.BytesIO()
            pl.DataFrame(pl.from_arrow(batch)).write_csv(text, include_header=False)
            copy.write(text.getvalue())
    sql("VACUUM (ANALYZE) rows")
    sql("SET enable_seqscan = off")
    indexes = {"PostgreSQL, bloom index": f"USING bloom ({', '.join(COLUMNS)})"}
    indexes |= {f"PostgreSQL, B-tree on {name}": f"({name})" for name in ASKED}
    records = []
    for number, (what, columns) in enumerate(indexes.items()):
        progress.step(f"signatures: {what}")
        began = time.perf_counter()
        sql(f"CREATE INDEX index_{number} ON rows {columns}")
        seconds = time.perf_counter() - began
        row = sql(f"SELECT pg_relation_size('index_{number}')").fetchone()
        assert row is not None
        records.append({"table": "sizes", "what": what, "seconds": seconds, "nbytes": row[0]})
    return records


def _query(connection: psycopg.Connection[Any]) -> Way:
    sql = f"SELECT * FROM rows WHERE {' AND '.join(f'{name} = %s' for name in ASKED)}"
    return lambda question: len(connection.execute(sql, list(question.values())).fetchall())


def _hide(connection: psycopg.Connection[Any], *, bloom: bool) -> None:
    """Take the bloom index, or the B-trees, for unfinished ones: no plan is made with those."""
    connection.execute(
        "UPDATE pg_index SET indisvalid = (indexrelid = 'index_0'::regclass) <> %s"
        " WHERE indrelid = 'rows'::regclass",
        [bloom],
    )


def render(records: list[Record]) -> str:
    sizes = [
        [r["what"], f"{r['nbytes'] / 1e6:,.1f} MB", f"{r['seconds']:,.1f} s"]
        for r in records
        if r["table"] == "sizes"
    ]
    asked = [
        [r["way"], f"{r['ms']:,.3f}", f"{r['times_ours']:,.1f}x", str(r["lost_rows"])]
        for r in records
        if r["table"] == "questions"
    ]
    false = [
        [str(r["columns"]), f"{r['expected']:,.1f}", f"{r['observed']:,.1f}"]
        for r in records
        if r["table"] == "false"
    ]
    rows = next(r["rows"] for r in records if r["table"] == "questions")
    return "\n\n".join(
        [
            table(
                f"{rows:,} rows x {len(COLUMNS)} columns",
                [Column("index", left=True), Column("size"), Column("to build")],
                sizes,
            ),
            table(
                "Equality on three columns, best mean of a round",
                [Column("way", left=True), *map(Column, ("ms", "of ours", "lost"))],
                asked,
            ),
            table(
                "False matches a question",
                list(map(Column, ("columns", "expected", "observed"))),
                false,
            ),
        ]
    )


def judge(records: list[Record]) -> list[Line]:
    what = "SignatureIndex, three of ten columns"
    must = ">= 10x faster than a Polars filter, or <= 1.3x the AND of its bitmaps"
    size_what, size_must = "SignatureIndex, size", "<= PostgreSQL's bloom index"
    ways = {r["way"]: r for r in records if r["table"] == "questions"}
    sizes = {r["what"]: r["nbytes"] for r in records if r["table"] == "sizes"}
    if POLARS not in ways or BLOOM not in sizes:
        return [missing(what, must), missing(size_what, size_must)]
    faster, bound = ways[POLARS]["times_ours"], 1 / ways[BOUND]["times_ours"]
    measured = f"{faster:.1f}x, {ways[OURS]['ms']:.2f} ms, {bound:.2f}x the AND"
    share = sizes["SignatureIndex"] / sizes[BLOOM]
    return [
        Line(what, must, "-", measured, word(faster >= 10 or bound <= 1.3)),
        Line(size_what, size_must, "-", f"{share:.2f}x", word(share <= 1)),
    ]
