"""The registry's URL, its messages, and what is SQLite's own; tests/integration has the rest."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bloomery.errors import InvalidParameter, RegistryUnavailable
from bloomery.service.registry.registry import Registry
from conftest import require
from unit.service.rows import row, sample


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the registry is."""
    return tmp_path / "registry.sqlite"


@pytest.fixture
def registry(path: Path) -> Registry:
    """A registry that is empty."""
    made = Registry(f"sqlite:///{path}", "here")
    made.migrate()
    return made


def ask(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """What a person at the sqlite3 shell sees."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "has no scheme"),
        ("registry.sqlite", "has no scheme"),
        ("bloomery:hunter2@host/db", "has no scheme"),
        ("mysql://bloomery:hunter2@host/db", "begins with 'mysql'"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("postgresql://bloomery:hunter2@host:port/db", "cannot be read"),
    ],
)
def test_a_wrong_url_is_refused(url: str, said: str) -> None:
    """The message says what is wrong and what would be right, and shows no password."""
    with pytest.raises(InvalidParameter, match=said) as refused:
        Registry(url, "here")
    assert "must be sqlite:///path or postgresql://" in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://bloomery:hunter2@127.0.0.1:1/db",
        "postgres://bloomery:hunter2@127.0.0.1:1/db",
        "postgresql://bloomery:hun@ter2@127.0.0.1:1/db",
        "postgresql://bloomery:hun%40ter2@127.0.0.1:1/db",
        "postgresql://127.0.0.1:1/db?user=bloomery&password=hunter2",
    ],
)
def test_no_password_is_shown(url: str) -> None:
    """Neither the failure to connect nor the registry itself shows the password."""
    require("psycopg")
    registry = Registry(url, "here")
    with pytest.raises(RegistryUnavailable, match=r"127\.0\.0\.1") as failed:
        registry.migrate()
    for text in (str(failed.value), repr(failed.value), repr(registry)):
        assert "hun" not in text
        assert "ter2" not in text
    assert failed.value.__cause__ is None
    assert "\n" not in str(failed.value)


@pytest.mark.slow
def test_postgresql_without_its_driver_says_what_to_install() -> None:
    """Without psycopg, a URL of PostgreSQL is MissingExtra."""
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from bloomery.errors import MissingExtra\n"
        "from bloomery.service.registry.registry import Registry\n"
        "try: Registry('postgresql://host/db', 'here')\n"
        "except MissingExtra as missing: print(missing)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert b"pip install 'bloomery[postgresql]'" in done.stdout


def test_a_reader_works_while_it_is_written(path: Path, registry: Registry) -> None:
    """The file is in WAL mode: a reader in mid-transaction holds up no writer, and sees its own."""
    assert ask(path, "PRAGMA journal_mode") == [("wal",)]
    registry.put([row(1)])
    with closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        count = "SELECT count(*) FROM BloomFilterConfig"
        assert reader.execute(count).fetchone() == (1,)
        registry.put([row(2)])
        assert reader.execute(count).fetchone() == (1,)
        reader.rollback()
        assert reader.execute(count).fetchone() == (2,)


@pytest.mark.parametrize("also_wal", [False, True])
def test_a_removed_file_is_made_anew(path: Path, registry: Registry, also_wal: bool) -> None:
    """With the file gone a write fails rather than vanish, and after `migrate` all can be put."""
    registry.put([row(1), row(2)])
    path.unlink()
    if also_wal:
        path.with_name("registry.sqlite-wal").unlink(missing_ok=True)
    with pytest.raises(RegistryUnavailable, match=r"registry\.sqlite: no such table"):
        registry.put([row(3)])
    registry.migrate()
    registry.replace([row(2)])
    assert ask(path, "SELECT name FROM BloomFilterConfig") == [("name 2",)]


def test_a_file_that_is_no_database_is_said(path: Path) -> None:
    """Something else at the path is left as it is."""
    path.write_bytes(b"not a database, but precious" * 100)
    registry = Registry(f"sqlite:///{path}", "here")
    with pytest.raises(RegistryUnavailable, match="file is not a database"):
        registry.migrate()
    assert path.read_bytes().startswith(b"not a database, but precious")


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    """The message names the file that cannot be opened."""
    registry = Registry(f"sqlite:///{tmp_path}/no/registry.sqlite", "here")
    with pytest.raises(RegistryUnavailable, match=r"no/registry\.sqlite: unable to open"):
        registry.migrate()


def test_a_failure_leaves_nothing_half_done(path: Path, registry: Registry) -> None:
    """If reading the rows fails in the middle of `replace`, the tables are as before."""
    registry.put([row(1)])
    registry.add_samples([sample(1)])

    def rows() -> Any:
        yield row(2)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        registry.replace(rows())
    assert ask(path, "SELECT number FROM BloomFilterConfig") == [(1,)]
    assert ask(path, "SELECT count(*) FROM BloomFilterStats") == [(1,)]


def test_a_path_may_have_any_characters(tmp_path: Path) -> None:
    """A Path is the file of that name, also where a URL or Alembic would read signs into it."""
    folder = tmp_path / "100%s #1?cache=shared & done"
    folder.mkdir()
    Registry(folder / "registry.sqlite", "here").migrate()
    assert ask(folder / "registry.sqlite", "SELECT count(*) FROM BloomFilterConfig") == [(0,)]
