"""The projection on a real PostgreSQL that is killed, locked and cut off while it is used."""

import random
import threading
import time
from collections.abc import Iterator

import pytest

from bloomery.service.registry.registry import Registry
from conftest import require
from integration.servers import PostgresServer
from unit.service.follower import SOON, Follower
from unit.service.rows import row, sample
from waiting import wait_until

psycopg = require("psycopg")


@pytest.fixture
def one(postgres_url: str) -> Iterator[Follower]:
    """A server in small, with its registry in PostgreSQL and up to date."""
    made = Follower(postgres_url)
    made.start()
    assert made.writer.flush(SOON)
    yield made
    made.writer.close()


def shown(url: str) -> dict[int, str]:
    """The registry's filters: number and name."""
    with psycopg.connect(url) as connection:
        return dict(connection.execute("SELECT number, name FROM BloomFilterConfig").fetchall())


def expected(one: Follower) -> dict[int, str]:
    """The same, as the server has them."""
    return {number: one.filters[number].name.decode() for number in one.filters}


def test_postgresql_killed_in_mid_run(
    one: Follower, postgres: PostgresServer, postgres_url: str
) -> None:
    """The server goes on as if nothing were; when PostgreSQL is back, so is every row."""
    one.put(row(1, b"before"), row(2, b"dropped meanwhile"))
    assert one.writer.flush(SOON)
    postgres.kill()
    began = time.perf_counter()
    for number in range(3, 1000):
        one.put(row(number))
    one.drop(2)
    one.writer.add_samples([sample(1)])
    assert time.perf_counter() - began < 5
    assert wait_until(lambda: not one.writer.healthy)
    assert postgres.password not in str(one.writer.last_error)
    assert one.writer.behind > 0
    postgres.start()
    assert wait_until(lambda: one.writer.flush(SOON))
    assert shown(postgres_url) == expected(one)
    assert one.writer.last_error is None
    one.put(row(5, b"and on it goes"))
    assert one.writer.flush(SOON)
    assert shown(postgres_url) == expected(one)


@pytest.mark.slow
def test_killed_again_and_again(one: Follower, postgres: PostgresServer, postgres_url: str) -> None:
    """Whenever it is killed, and whatever changed meanwhile, the tables come out right."""
    chance = random.Random(7)
    for _ in range(4):
        ends = time.monotonic() + chance.uniform(0.05, 0.5)
        while time.monotonic() < ends:
            number = chance.randrange(200)
            if number in one.filters and chance.random() < 0.4:
                one.drop(number)
            else:
                one.put(row(number, b"%d of %d" % (chance.randrange(10**9), number)))
            one.writer.add_samples([sample(number)])
            time.sleep(0.001)
        postgres.kill()
        one.put(row(0, b"while it is away"))
        postgres.start()
    assert wait_until(lambda: one.writer.flush(SOON))
    assert shown(postgres_url) == expected(one)


def test_a_connection_that_is_cut_is_made_again(one: Follower, postgres_url: str) -> None:
    """An idle connection ended by the database costs nothing: nothing is read again."""
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    one.put(row(1))
    assert one.writer.flush(SOON)
    assert one.reads == 1
    assert shown(postgres_url) == expected(one)


def test_a_locked_table_holds_up_nobody(one: Follower, postgres_url: str) -> None:
    """While somebody locks the table the server goes on, and the rows come after."""
    with psycopg.connect(postgres_url) as other:
        other.execute("LOCK TABLE BloomFilterConfig")
        began = time.perf_counter()
        for number in range(1000):
            one.put(row(number))
        assert time.perf_counter() - began < 5
        assert not one.writer.flush(0.1)
        assert one.writer.behind > 0
    assert one.writer.flush(SOON)
    assert shown(postgres_url) == expected(one)


def test_tables_that_somebody_dropped_are_made_again(one: Follower, postgres_url: str) -> None:
    """A registry that was wiped is filled again at the next change."""
    one.put(row(1))
    assert one.writer.flush(SOON)
    with psycopg.connect(postgres_url) as other:
        other.execute("DROP SCHEMA public CASCADE")
        other.execute("CREATE SCHEMA public")
    one.put(row(2))
    assert wait_until(lambda: one.writer.flush(SOON))
    assert shown(postgres_url) == expected(one)


def test_a_wrong_password_is_said_but_not_shown(postgres: PostgresServer) -> None:
    """The error names the user and the reason, and no password."""
    url = postgres.url("postgres").replace(postgres.password, "hunter2hunter2")
    one = Follower(url)
    one.start()
    assert wait_until(lambda: not one.writer.healthy)
    assert "password authentication failed" in str(one.writer.last_error)
    assert "hunter2" not in str(one.writer.last_error)
    assert not one.writer.close()


def test_servers_that_start_at_once(postgres_url: str) -> None:
    """Many servers that migrate one empty database at the same time all succeed."""
    failed = []

    def start(number: int) -> None:
        registry = Registry(postgres_url, f"server {number}")
        try:
            registry.migrate()
            registry.put([row(1, b"of %d" % number)])
        except OSError as failure:
            failed.append(failure)
        finally:
            registry.close()

    threads = [threading.Thread(target=start, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    with psycopg.connect(postgres_url) as connection:
        counted = connection.execute("SELECT count(*) FROM BloomFilterConfig").fetchone()
    assert counted == (6,)
