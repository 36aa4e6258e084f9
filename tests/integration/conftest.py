"""Fixtures that start real servers: one of each for a test worker where tests can share it.

Under CI (CI=true) a missing program is a failure; else the test is skipped, and says what to
install. What is started is stopped at the end, whatever happened to it meanwhile.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from bloomery import Client
from integration.servers import (
    BloomeryServer,
    PostgresServer,
    RedisCluster,
    RedisServer,
    Sentinel,
    Serve,
    StartRedis,
)

# What `make test-fast` runs of these: one server, its own commands.
FAST = {"test_bf.py"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts servers as slow, but for a few."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.path.name not in FAST:
            item.add_marker(pytest.mark.slow)


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that another user can reach, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="bloomery-test-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def _redis() -> Iterator[RedisServer]:
    with open_folder() as folder:
        server = RedisServer(folder)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture
def redis_server(_redis: RedisServer) -> RedisServer:
    """A Redis server that runs and is empty."""
    if _redis.process is None:
        _redis.start()
    _redis.ask(b"FLUSHALL\r\n")
    return _redis


@pytest.fixture
def start_redis(tmp_path: Path) -> Iterator[StartRedis]:
    """Start a Redis of the test's own: `start_redis(appendonly="yes")`, as RedisServer."""
    with ExitStack() as ends:

        def start(**options: Any) -> RedisServer:
            one = RedisServer(Path(tempfile.mkdtemp(dir=tmp_path)), **options)
            one.start()
            ends.callback(one.kill)
            return one

        yield start


@pytest.fixture(scope="session")
def _cluster() -> Iterator[RedisCluster]:
    with open_folder() as folder:
        cluster = RedisCluster(folder)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.close()


@pytest.fixture
def redis_cluster(_cluster: RedisCluster) -> RedisCluster:
    """A Redis Cluster of three masters and three replicas, all well, and empty."""
    _cluster.restore()
    return _cluster


@pytest.fixture(scope="session")
def _sentinel() -> Iterator[Sentinel]:
    with open_folder() as folder:
        sentinel = Sentinel(folder)
        try:
            sentinel.start()
            yield sentinel
        finally:
            sentinel.close()


@pytest.fixture
def redis_sentinel(_sentinel: Sentinel) -> Sentinel:
    """A master, two replicas and three Sentinels, all well, and empty."""
    _sentinel.restore()
    return _sentinel


@pytest.fixture(scope="session")
def _postgres() -> Iterator[PostgresServer]:
    with open_folder() as folder:
        server = PostgresServer(folder)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture
def postgres(_postgres: PostgresServer) -> PostgresServer:
    """A PostgreSQL server that runs."""
    if _postgres.process is None:
        _postgres.start()
    return _postgres


@pytest.fixture
def postgres_database(postgres: PostgresServer) -> str:
    """The name of an empty database."""
    # Emptied and not made anew, which takes several times as long.
    postgres.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid();"
        "DROP SCHEMA public CASCADE; CREATE SCHEMA public"
    )
    return "postgres"


@pytest.fixture
def postgres_url(postgres: PostgresServer, postgres_database: str) -> str:
    """The URL of that database."""
    return postgres.url(postgres_database)


@pytest.fixture(scope="session")
def _shared() -> Iterator[BloomeryServer]:
    with open_folder() as folder:
        server = BloomeryServer(folder)
        server.fresh = True  # most tests ask this one: it is as people start it
        server.start()
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture
def server(_shared: BloomeryServer) -> BloomeryServer:
    """A `bloomery serve` that tests share: each takes names of its own, and ends nothing."""
    return _shared


@pytest.fixture
def client(server: BloomeryServer) -> Iterator[Client]:
    """A client of the server that tests share."""
    with Client(server.url) as made:
        yield made


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start a `bloomery serve` of the test's own, to be killed and restarted.

    `serve("--option", data=folder)`; without a folder, one that is new.
    """
    with ExitStack() as ends:

        def start(*arguments: str, data: Path | None = None) -> BloomeryServer:
            folder = Path(tempfile.mkdtemp(dir=tmp_path))
            one = BloomeryServer(folder, *arguments, data=data)
            one.start()
            ends.callback(one.kill)
            return one

        yield start
