"""A real server and its registry: what it makes, renames and drops is soon in the tables."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import redis

from conftest import require
from integration.servers import BloomeryServer, PostgresServer, Serve
from waiting import wait_until

psycopg = require("psycopg")


def client_of(server: BloomeryServer) -> "redis.Redis":
    """A client of redis-py, connected to it."""
    return redis.Redis(port=server.resp_port, socket_timeout=30)


def names_in(file: Path) -> list[str]:
    """The names in a registry of SQLite's; none while it is not there."""
    if not file.exists():  # or else this would make it
        return []
    try:
        with closing(sqlite3.connect(file)) as connection:
            found = connection.execute("SELECT name FROM BloomFilterConfig ORDER BY name")
            return [name for (name,) in found]
    except sqlite3.OperationalError:
        return []


def when(expected: list[str], names: Callable[[], list[str]]) -> None:
    """Wait until the registry shows these names."""
    assert wait_until(lambda: names() == expected)


def test_the_tables_follow_the_server(serve: Serve, tmp_path: Path) -> None:
    """Beside the running server, SQL shows its filters: made, renamed and dropped."""
    server = serve(data=tmp_path / "what? #1 %41")  # signs that mean something in a URL
    file = server.data / "registry.sqlite"
    with client_of(server) as client:
        client.execute_command("BF.RESERVE", "users", 0.01, 1000)
        client.execute_command("BF.ADD", b"\x00\xff", "a")
        when(["\\x00\\xff", "users"], lambda: names_in(file))
        client.rename("users", "people")
        client.delete(b"\x00\xff")
        when(["people"], lambda: names_in(file))


def test_a_removed_registry_is_made_anew(serve: Serve) -> None:
    """A registry that is gone when the server starts again is filled from the server's data."""
    server = serve()
    with client_of(server) as client:
        client.execute_command("BF.ADD", "users", "a")
    server.kill()
    (server.data / "registry.sqlite").unlink()
    server.start()
    when(["users"], lambda: names_in(server.data / "registry.sqlite"))
    with client_of(server) as client:
        assert client.execute_command("BF.EXISTS", "users", "a") == 1


def test_the_server_goes_on_without_postgresql(
    serve: Serve, postgres: PostgresServer, postgres_url: str
) -> None:
    """With PostgreSQL killed in mid-run the server takes writes; after it is back, so are rows."""
    server = serve("--registry", postgres_url)

    def names() -> list[str]:
        with psycopg.connect(postgres_url) as connection:
            found = connection.execute("SELECT name FROM BloomFilterConfig ORDER BY name")
            return [name for (name,) in found]

    with client_of(server) as client:
        client.execute_command("BF.ADD", "before", "a")
        assert wait_until(
            lambda: bool(postgres.run("SELECT to_regclass('bloomfilterconfig')")[0][0])
        )
        when(["before"], names)
        postgres.kill()
        client.execute_command("BF.ADD", "meanwhile", "a")
        assert client.execute_command("BF.EXISTS", "before", "a") == 1
        postgres.start()
        when(["before", "meanwhile"], names)
    assert postgres.password not in server.printed()
    assert server.stop() == 0


def test_the_server_starts_without_postgresql(serve: Serve, postgres: PostgresServer) -> None:
    """A registry that is away at the start does not keep the server from serving."""
    nobody = f"postgresql://bloomery:{postgres.password}@127.0.0.1:1/postgres"
    server = serve("--registry", nobody)
    with client_of(server) as client:
        assert client.execute_command("BF.ADD", "users", "a") == 1
    assert postgres.password not in server.printed()
    assert server.stop() == 0


def test_a_row_inserted_into_a_registry_that_servers_share(serve: Serve, postgres_url: str) -> None:
    """Each of many rows is a filter of exactly one of two servers, soon, and its row tells the
    truth; one with a hopeless rate says so."""
    servers = [serve("--registry", postgres_url), serve("--registry", postgres_url)]
    values = "(name, expected_elements, fp_rate, m_bits, k_hashes)"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        assert wait_until(
            lambda: bool(
                connection.execute("SELECT to_regclass('bloomfilterconfig')").fetchone()[0]
            )
        )
        connection.execute(
            f"INSERT INTO BloomFilterConfig {values}"
            " SELECT 'filter ' || n, 1000, 0.01, 9586, 7 FROM generate_series(1, 20) n"
        )
        connection.execute(
            f"INSERT INTO BloomFilterConfig {values} VALUES ('hopeless', 10, 'NaN', 1, 1)"
        )
        undone = "SELECT count(*) FROM BloomFilterConfig WHERE number IS NULL AND problem IS NULL"
        assert wait_until(lambda: connection.execute(undone).fetchone() == (0,))
        shown = connection.execute("SELECT name, number, m_bits, problem FROM BloomFilterConfig")
        rows = {name: more for name, *more in shown.fetchall()}
    number, _, problem = rows.pop("hopeless")
    assert number is None
    assert "nan" in problem
    names: list[str] = []
    for server in servers:
        with client_of(server) as client:
            names += [name.decode() for name in client.execute_command("KEYS", "*")]
    assert sorted(names) == sorted(rows)
    assert {m_bits for _, m_bits, _ in rows.values()} == {10240}
    assert {problem for *_, problem in rows.values()} == {None}
