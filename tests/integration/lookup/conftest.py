"""One server, bound to one PostgreSQL, for most tests of look-ups."""

from collections.abc import Iterator
from typing import Any

import pytest

from bloomery import Client
from conftest import require
from integration.conftest import open_folder, started
from integration.http.asking import Http
from integration.lookup.places import DATABASE, LOCKED, PLAIN, configuration, prepare, server
from integration.resp.wire import Wire
from integration.servers import BloomeryServer, PostgresServer, RedisServer


@pytest.fixture(scope="session")
def _table(_postgres: PostgresServer) -> PostgresServer:
    if _postgres.process is None:
        _postgres.start()
    prepare(_postgres)
    return _postgres


@pytest.fixture
def table(_table: PostgresServer, postgres: PostgresServer) -> PostgresServer:
    """A PostgreSQL that runs and has the table."""
    return postgres


@pytest.fixture(scope="session")
def _bound(_table: PostgresServer, _redis: RedisServer) -> Iterator[BloomeryServer]:
    columns = '["title", "number", "price", "at", "data", "more"]'
    with open_folder() as folder:
        config = configuration(
            folder,
            _table,
            urls=PLAIN,
            rows=f'table = "urls"\nkey = "url"\nvalue = {columns}\ncache = "none"\n',
            shared=f'{PLAIN}cache = "redis://127.0.0.1:{_redis.port}/0"\n',
            numbers='table = "numbers"\nkey = "id"\nkey-type = "integer"\n',
            untyped='table = "numbers"\nkey = "id"\n',
            slow=f'query = "{LOCKED}"\ncache = "none"\nconnections = 2\n',
        )
        with started(server(folder, config), kill=True) as one:
            yield one


@pytest.fixture
def bound(
    _bound: BloomeryServer, table: PostgresServer, redis_server: RedisServer
) -> BloomeryServer:
    """A server with sources, which run, that tests share: each takes names of its own."""
    return _bound


@pytest.fixture
def holder(table: PostgresServer) -> Iterator[Any]:
    """A connection to the table's database that has the lock for which slow look-ups wait."""
    with require("psycopg").connect(table.url(DATABASE), autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(7)")
        yield connection


@pytest.fixture
def http(bound: BloomeryServer) -> Iterator[Http]:
    """A client of its HTTP."""
    with Http(bound) as asking:
        yield asking


@pytest.fixture
def wire(bound: BloomeryServer) -> Iterator[Wire]:
    """A client of its Redis protocol."""
    with Wire(bound.resp_port) as connection:
        yield connection


@pytest.fixture
def client(bound: BloomeryServer) -> Iterator[Client]:
    """Our own client of it."""
    with Client(bound.url) as made:
        yield made
