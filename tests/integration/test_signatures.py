"""PostgreSQL's own bloom index beside ours, and the advice for it, on a real server."""

import datetime as dt
import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bloomery.errors import InvalidParameter, InvalidSource, SourceUnavailable
from bloomery.signatures.advice import advise
from bloomery.signatures.postgres import read_table
from conftest import effort, require
from integration.servers import PostgresServer

pa = require("pyarrow")
psycopg = require("psycopg")
from bloomery.signatures import SignatureIndex  # noqa: E402

ROWS = 20_000
DAY = dt.date(2024, 1, 1)


def rows_of(seed: int) -> dict[str, list[Any]]:
    """Columns of few and of many values, with nulls, text beyond ASCII, negative numbers, dates."""
    rng = random.Random(seed)

    def column(make: Any, nulls: float) -> list[Any]:
        return [None if rng.random() < nulls else make() for _ in range(ROWS)]

    return {
        "id": list(range(ROWS)),
        "few": column(lambda: rng.randrange(-20, 20), 0.1),
        "many": column(lambda: rng.randrange(-(2**31), 2**31) % 3000, 0.0),
        "city": column(
            lambda: rng.choice(["", "Łódź", "Köln", "北京"]) + str(rng.randrange(30)), 0.2
        ),
        "code": column(lambda: f"c{rng.randrange(700)}", 0.0),
        "day": column(lambda: DAY + dt.timedelta(rng.randrange(400)), 0.05),
    }


TYPES = {"id": "int", "few": "int", "many": "int", "city": "text", "code": "varchar", "day": "date"}


@pytest.fixture
def table(postgres_url: str) -> dict[str, list[Any]]:
    """A table `orders`, analysed, with the extension that the bloom index comes in."""
    columns = rows_of(18)
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE EXTENSION bloom")
        listed = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
        connection.execute(f"CREATE TABLE orders ({listed})")
        with connection.cursor().copy("COPY orders FROM STDIN") as copy:
            for row in zip(*columns.values(), strict=True):
                copy.write_row(row)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE orders")
    return columns


def test_postgres_gives_the_same_rows(table: dict[str, list[Any]], postgres_url: str) -> None:
    """For many random questions on any columns our index and PostgreSQL's, which its plan shows,
    give the same rows: ints, text, dates, and nulls, which equal nothing."""
    rng = random.Random(5)
    kinds = {"few": pa.int32(), "many": pa.int32(), "day": pa.date32()}
    arrays = {name: pa.array(values, kinds.get(name)) for name, values in table.items()}
    ours = SignatureIndex.build(pa.table(arrays), ["few", "many", "city", "code", "day"])
    with psycopg.connect(postgres_url) as connection:
        connection.execute(
            "CREATE OPERATOR CLASS date_ops DEFAULT FOR TYPE date USING bloom AS"
            " OPERATOR 1 =, FUNCTION 1 hashint4(int4)"
        )
        connection.execute(
            "CREATE INDEX orders_bloom ON orders USING bloom (few, many, city, code, day)"
        )
        connection.execute("SET enable_seqscan = off")
        found = empty = 0
        for _ in range(effort(40, 150, 2000)):
            names = rng.sample(ours_columns := list(ours.bits), rng.randint(1, len(ours_columns)))
            row = rng.randrange(ROWS)
            asked = {name: table[name][row] for name in names}
            if rng.random() < 0.3:  # most of these no row has
                asked = {name: table[name][rng.randrange(ROWS)] for name in names}
            where = " AND ".join(f"{name} = %({name})s" for name in names)
            # A parameter of an unknown type is NULL of none: cast, as a program would.
            for name in names:
                where = where.replace(f"%({name})s", f"%({name})s::{TYPES[name]}")
            sql = f"SELECT id FROM orders WHERE {where} ORDER BY id"
            theirs = [number for (number,) in connection.execute(sql, asked)]
            assert ours.find(asked, ["id"]).column("id").to_pylist() == theirs, asked
            found, empty = found + bool(theirs), empty + (not theirs)
            if None not in asked.values():
                plan = "\n".join(line for (line,) in connection.execute(f"EXPLAIN {sql}", asked))
                assert "Bitmap Index Scan on orders_bloom" in plan, plan
        assert found > 10
        assert empty > 5
        size = connection.execute("SELECT pg_relation_size('orders_bloom')").fetchone()
        assert size is not None
        assert ours.nbytes < size[0]


def advised(url: str, *options: str) -> str:
    """What the command prints."""
    done = subprocess.run(
        [sys.executable, "-m", "bloomery", "pgindex", "advise", url, "orders", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--columns", "few,many,code,city,day", "--operator-classes"),
        ("--queries", "few,city", "--queries", "many,code,few"),
    ],
    ids=["all", "classes", "queries"],
)
def test_advice_is_what_happens(
    table: dict[str, list[Any]],
    postgres: PostgresServer,
    postgres_url: str,
    options: tuple[str, ...],
) -> None:
    """What is printed is SQL that PostgreSQL takes as it is; the index then has the size that was
    expected, and the rows removed by its recheck are as many."""
    printed = advised(postgres_url, *options)
    postgres.run(printed)
    told = json.loads(advised(postgres_url, *options, "--json"))
    assert all(f"{statement};" in printed for statement in told["statements"][-1:])
    with psycopg.connect(postgres_url) as connection:
        connection.execute("SET enable_seqscan = off")
        sizes = connection.execute(
            "SELECT pg_relation_size(indexrelid) FROM pg_index WHERE indrelid = 'orders'::regclass"
        ).fetchall()
        assert [size for (size,) in sizes] == [pytest.approx(told["index_bytes"], rel=0.05)]
        rng = random.Random(9)
        expected = observed = 0.0
        for question in told["questions"]:
            for _ in range(30):
                row = rng.randrange(ROWS)
                asked = {name: table[name][row] for name in question["columns"]}
                if None in asked.values():
                    continue
                where = " AND ".join(f"{n} = %({n})s::{TYPES[n]}" for n in asked)
                sql = f"EXPLAIN (ANALYZE, TIMING OFF) SELECT * FROM orders WHERE {where}"
                plan = "\n".join(line for (line,) in connection.execute(sql, asked))
                assert "Bitmap Index Scan on orders_" in plan
                removed = re.search(r"Rows Removed by Index Recheck: (\d+)", plan)
                observed += int(removed[1]) if removed else 0
                expected += question["false_matches"]
        # Of columns with few values some happen to share bits, others not.
        assert observed == pytest.approx(expected, rel=0.6, abs=60)


def test_advice_names_what_cannot_be_indexed(
    table: dict[str, list[Any]], postgres: PostgresServer, postgres_url: str
) -> None:
    """A date needs an operator class, an xml column none could help; what is there is listed, and
    a varchar is text to it."""
    postgres.run("ALTER TABLE orders ADD note xml; CREATE INDEX orders_few ON orders (few)")
    printed = advised(postgres_url)
    assert "-- day (date) is left out" in printed
    assert "-- note (xml) is left out" in printed
    assert '"code"' in printed.splitlines()[-1]
    assert "-- there already: CREATE INDEX orders_few" in printed
    assert "a B-tree on id" in printed
    assert "B-tree for each of its columns" in printed
    postgres.run("DROP EXTENSION bloom")
    assert "CREATE EXTENSION IF NOT EXISTS bloom;" in advised(postgres_url)


def test_advice_is_refused_clearly(
    table: dict[str, list[Any]], postgres: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    """No table, no statistics, no such column, another database, a wrong password: one error each,
    and never the password."""
    postgres.run("CREATE TABLE fresh (a int); CREATE VIEW seen AS SELECT * FROM orders")
    wrong: list[tuple[str, type[Exception], str]] = [
        ("nowhere", InvalidSource, "does not exist"),
        ("fresh", InvalidSource, "run ANALYZE"),
        ("seen", InvalidSource, "is no table"),
    ]
    for name, error, message in wrong:
        with pytest.raises(error, match=message):
            read_table(postgres_url, name)
    with pytest.raises(InvalidParameter, match="must be PostgreSQL's"):
        read_table("sqlite:///a.db", "orders")
    found = read_table(postgres_url, "public.orders")
    with pytest.raises(InvalidParameter, match="no column 'z'"):
        advise(found, ["z"])
    with pytest.raises(InvalidParameter, match="no operator class"):
        advise(found, questions=[["day", "few"]])
    secret = tmp_path / "password"
    secret.write_text("hunter2\n")
    with pytest.raises((InvalidSource, SourceUnavailable)) as caught:
        read_table(postgres_url, "orders", "hunter2")
    assert "hunter2" not in str(caught.value)
    assert postgres.password not in str(caught.value)
