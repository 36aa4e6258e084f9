"""`bloomery build` from a real PostgreSQL: types, memory, restarts, kills and mistakes."""

import json
import signal
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import bloomery
from bloomery import building, errors
from integration.servers import PostgresServer
from waiting import wait_until

ROWS = 200_000


@pytest.fixture
def urls(postgres: PostgresServer, postgres_url: str) -> str:
    """A database with a table of URLs, of which the first 100 have no day."""
    postgres.run(
        "CREATE TABLE urls (id bigint PRIMARY KEY, url text, day int);"
        "INSERT INTO urls SELECT i, 'https://example.org/' || i, nullif(i / 100, 0)"
        f" FROM generate_series(0, {ROWS - 1}) AS i; ANALYZE urls"
    )
    return postgres_url


def all_urls() -> list[str]:
    """Every key there is."""
    return [f"https://example.org/{number}" for number in range(ROWS)]


def built(source: str, out: Path, *, build: Any = None, **options: Any) -> building.Built:
    """Open, build and close."""
    rows = building.open_rows(source, **options)
    try:
        return building.build(rows, out, **(build or {}))
    finally:
        rows.close()


def command(*arguments: str) -> list[str]:
    """The command."""
    return [sys.executable, "-m", "bloomery", "build", *arguments]


def test_columns_keep_their_types_and_nulls_are_counted(
    postgres: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    """Text, integers, UUIDs, times and bytes are found as what Python has for them; a NULL in any
    column of the key leaves the row out."""
    postgres.run(
        "CREATE TABLE t (t text, v varchar(9), i int, b bigint, u uuid, z timestamptz,"
        " n timestamp, y bytea);"
        "INSERT INTO t VALUES ('ä%s', 'v', -1, 5000000000,"
        " '00000000-0000-0000-0000-000000000007', '2026-05-04 03:02:01.000005+02',"
        " '2026-05-04', '\\xff00'), (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    )
    expected: dict[str, Any] = {
        "t": "ä%s",
        "v": "v",
        "i": -1,
        "b": 5_000_000_000,
        "u": UUID(int=7),
        "z": datetime(2026, 5, 4, 1, 2, 1, 5, tzinfo=timezone.utc),
        "n": datetime(2026, 5, 4),
        "y": b"\xff\0",
    }
    for name, value in expected.items():
        made = built(postgres_url, tmp_path / name, table="t", columns=[name])
        assert value in made.filter, name
        assert (made.rows, made.nulls) == (2, 1), name
    query = "SELECT i, t FROM t UNION ALL SELECT 2, NULL"
    made = built(postgres_url, tmp_path / "tuple", query=query)
    assert (-1, "ä%s") in made.filter
    assert made.nulls == 2


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("1.5", "numeric"),
        ("1.5::float8", "float8"),
        ("now()::date", "date"),
        ("'a'::char(3)", "bp"),
    ],
)
def test_types_that_are_no_keys_are_refused_before_reading(
    postgres_url: str, expression: str, kind: str
) -> None:
    """The error names the column and its type, and says how to cast it."""
    with pytest.raises(errors.InvalidSource, match=rf"'x' is of type {kind}.*\"x\"::"):
        building.open_rows(postgres_url, query=f"SELECT {expression} AS x")


def test_the_capacity_is_counted_or_estimated(urls: str, tmp_path: Path) -> None:
    """The count is exact and of the moment that is read; the planner's is near it."""
    made = built(urls, tmp_path / "a", query="SELECT url FROM urls WHERE url LIKE '%9'")
    assert (made.filter.capacity, made.rows) == (ROWS // 10, ROWS // 10)
    made = built(urls, tmp_path / "b", table="urls", columns=["url"], build={"estimate": True})
    assert ROWS <= made.filter.capacity <= 1.5 * ROWS
    assert not made.filter.info()["saturated"]


def test_it_reads_one_moment(postgres: PostgresServer, urls: str, tmp_path: Path) -> None:
    """What is deleted while it reads, or moved to where it has read already, was there when it
    began, and is in."""

    def meanwhile(progress: Any) -> None:
        if progress.rows == 10_000:
            postgres.run(
                "DELETE FROM urls WHERE id > 100000; UPDATE urls SET day = 1 WHERE day IS NULL"
            )

    options = {"table": "urls", "columns": ["url"], "order_by": "day"}
    made = built(urls, tmp_path / "out", **options, build={"on_batch": meanwhile})
    assert made.rows == ROWS
    assert all(made.filter.contains_many(all_urls()))


def test_memory_does_not_grow_with_the_rows(
    postgres: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    """200,000 rows of 500 bytes, 100 MB, pass through a process that grows by far less."""
    postgres.run(
        "CREATE TABLE wide AS SELECT i, repeat('x', 490) || i AS url"
        f" FROM generate_series(1, {ROWS}) AS i"
    )
    program = (  # not getrusage, whose peak begins with that of the tests that started it
        "import re, sys\nfrom bloomery import building\n"
        "def peak():\n"
        "    with open('/proc/self/status') as status:\n"
        "        return int(re.search(r'VmHWM:\\s+(\\d+) kB', status.read())[1]) >> 10\n"
        "rows = building.open_rows(sys.argv[1], query='SELECT url FROM wide')\n"
        "before = peak()\n"
        "building.build(rows, sys.argv[2])\n"
        "print(peak() - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, postgres_url, str(tmp_path / "out")],
        capture_output=True,
        check=True,
    )
    assert int(done.stdout) < 50, "MB"


def test_a_restart_of_the_database_is_survived(
    postgres: PostgresServer, urls: str, tmp_path: Path
) -> None:
    """With an order it connects again and goes on, and no key is missing."""
    restarted: list[int] = []

    def restart(progress: Any) -> None:
        if progress.rows >= 50_000 and not restarted:
            restarted.append(progress.rows)
            postgres.restart()

    options = {"table": "urls", "columns": ["url"]}
    made = built(urls, tmp_path / "out", **options, build={"on_batch": restart})
    assert restarted
    assert made.rows == ROWS  # by its primary key, each once
    assert all(made.filter.contains_many(all_urls()))


def test_ties_and_nulls_in_the_order_are_not_lost(
    postgres: PostgresServer, urls: str, tmp_path: Path
) -> None:
    """100 rows share each day, 100 have none; a restart in mid-day loses none of either."""
    restarted: list[int] = []

    def restart(progress: Any) -> None:
        if progress.rows >= 30_000 and not restarted:
            restarted.append(progress.rows)
            postgres.restart()

    query = "SELECT url, day FROM urls WHERE url LIKE '%'"  # a % of its own, beside a parameter
    options = {"query": query, "columns": ["url"], "order_by": "day"}
    made = built(urls, tmp_path / "out", **options, build={"on_batch": restart})
    assert restarted
    assert made.rows >= ROWS
    assert all(made.filter.contains_many(all_urls()))


def test_without_an_order_a_lost_connection_ends_it(
    postgres: PostgresServer, urls: str, tmp_path: Path
) -> None:
    """It says that the source is away, and leaves nothing half done."""

    def stop(progress: Any) -> None:
        if progress.rows:
            postgres.stop()

    with pytest.raises(errors.SourceUnavailable):
        built(urls, tmp_path / "out", query="SELECT url FROM urls", build={"on_batch": stop})
    assert list(tmp_path.iterdir()) == []


def wait_until_kept(path: Path, rows: int, process: subprocess.Popen[bytes]) -> None:
    """Until more rows than so many are kept."""

    def kept() -> bool:
        assert process.poll() is None, process.communicate()
        return path.exists() and json.loads(path.read_text())["progress"]["rows"] > rows

    assert wait_until(kept, pause=0.002), "nothing was kept"


def test_killed_in_mid_build_it_goes_on(
    postgres: PostgresServer, urls: str, tmp_path: Path
) -> None:
    """After kill -9 the same command finishes with every key; the password is in no file and no
    line, and the file is there only at the end."""
    out, resume = tmp_path / "out", tmp_path / "out.resume"
    password = tmp_path / "password"
    password.write_text(postgres.password + "\n")
    arguments = command(
        *("--from", urls.replace(f":{postgres.password}@", "@")),
        *("--password-file", str(password), "--table", "urls", "--column", "url"),
        *("--out", str(out), "--checkpoint", "0"),
    )
    rows = 0
    for _ in range(2):
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_until_kept(resume, rows, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not out.exists()
        rows = json.loads(resume.read_text())["progress"]["rows"]
        assert 0 < rows < ROWS
        assert postgres.password not in resume.read_text()
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{out}: {ROWS:,} keys in ")
    assert postgres.password not in done.stdout + done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "password"]
    assert all(bloomery.BloomFilter.load(out).contains_many(all_urls()))


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        (("127.0.0.1:", "127.0.0.2:"), {}, "connection failed"),
        (("/postgres", "/none"), {}, 'database "none" does not exist'),
        (("", ""), {"query": "SELEC"}, "syntax error"),
        (("", ""), {"query": "SELECT x FROM urls"}, 'column "x" does not exist'),
        (("", ""), {"query": None, "table": "no.urls", "columns": ["url"]}, "does not exist"),
        (("", ""), {"columns": ["nope"]}, "no column 'nope', only url"),
    ],
)
def test_mistakes_are_one_clear_error(
    postgres: PostgresServer,
    postgres_url: str,
    change: tuple[str, str],
    options: dict[str, Any],
    said: str,
) -> None:
    """Wrong host, database, query, table and column: what, where, and no password."""
    postgres.run("CREATE TABLE urls (url text)")
    with pytest.raises((errors.SourceUnavailable, errors.InvalidSource), match=said) as caught:
        building.open_rows(
            postgres_url.replace(*change), **{"query": "SELECT url FROM urls", **options}
        )
    assert postgres.password not in str(caught.value)


def test_a_wrong_password_is_one_line(
    postgres: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    """The command shows no password, neither the wrong one nor the right one of the URL."""
    wrong = postgres_url.replace(postgres.password, "wrong-one")
    arguments = ("--query", "SELECT 1 AS x", "--out", str(tmp_path / "out"))
    done = subprocess.run(
        command("--from", wrong, *arguments), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert "password authentication failed" in done.stderr
    assert "wrong-one" not in done.stderr
    assert list(tmp_path.iterdir()) == []
