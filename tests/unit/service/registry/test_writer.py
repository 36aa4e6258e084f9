"""The projection: the registry follows the server, and never holds it up."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bloomery.service.registry import writer as module
from bloomery.service.registry.registry import Registry
from bloomery.service.registry.rows import RegistryRow
from bloomery.service.sampling.sample import RAW
from unit.service.follower import SOON, Follower
from unit.service.rows import NOW, row, sample
from waiting import wait_until


class SqliteFollower(Follower):
    """With its registry in a file."""

    def __init__(self, path: Path, server: str) -> None:
        super().__init__(f"sqlite:///{path}", server)
        self.path = path

    def ask(self, sql: str) -> list[tuple[object, ...]]:
        """What the tables say."""
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(sql).fetchall()

    def names(self) -> list[object]:
        """The names that the registry has."""
        return [name for (name,) in self.ask("SELECT name FROM BloomFilterConfig ORDER BY name")]


Follow = Callable[..., SqliteFollower]


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Follow]:
    """Make a follower at the path; it is closed at the end."""
    made = []

    def make(name: str = "registry.sqlite", server: str = "here") -> SqliteFollower:
        made.append(SqliteFollower(tmp_path / name, server))
        return made[-1]

    yield make
    for one in made:
        one.writer.close()


def test_it_starts_with_all_there_is(follow: Follow) -> None:
    """Filters that were there before the projection are in the registry after its start."""
    one = follow()
    one.filters = {1: row(1, b"a"), 2: row(2, b"b")}
    assert one.writer.behind > 0
    one.start()
    assert one.writer.flush(SOON)
    assert one.names() == ["a", "b"]
    assert one.writer.healthy
    assert one.writer.behind == 0


def test_changes_follow(follow: Follow) -> None:
    """What is put, changed, dropped and sampled is soon in the tables, without reading all."""
    one = follow()
    one.start()
    assert one.writer.flush(SOON)
    one.put(row(1, b"a"), row(2, b"b"))
    assert one.writer.flush(SOON)
    one.put(row(1, b"c"))
    one.writer.drop([2])
    one.writer.add_samples([sample(1, NOW), sample(1, NOW + 10), sample(2)])
    assert one.writer.flush(SOON)
    assert one.names() == ["c"]
    one.writer.prune({RAW: NOW + 5})
    assert one.writer.flush(SOON)
    assert one.ask("SELECT count(*) FROM BloomFilterStats") == [(1,)]
    assert one.reads == 1


def test_of_many_changes_the_last_is_written(
    follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter that changes faster than the database writes costs one row, its newest."""
    one = follow()
    one.start()
    assert one.writer.flush(SOON)
    written = []
    put = Registry.put

    def counted(self: Registry, rows: Iterable[RegistryRow]) -> dict[int, str]:
        rows = list(rows)
        written.extend(rows)
        return put(self, rows)

    monkeypatch.setattr(Registry, "put", counted)
    with closing(sqlite3.connect(one.path)) as other:
        other.execute("BEGIN IMMEDIATE")  # the projection waits for this
        for items in range(5000):
            one.put(row(1, b"a", items=items))
        other.rollback()
    assert one.writer.flush(SOON)
    assert one.ask("SELECT items FROM BloomFilterConfig") == [(4999,)]
    assert len(written) < 50


def test_the_server_never_waits(follow: Follow) -> None:
    """While somebody holds the database, handing over changes takes no time."""
    one = follow()
    one.start()
    assert one.writer.flush(SOON)
    with closing(sqlite3.connect(one.path)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.perf_counter()
        for number in range(1000):
            one.put(row(number))
        assert time.perf_counter() - began < 10
        assert one.writer.behind > 0
        assert not one.writer.flush(0.05)
        other.rollback()
    assert one.writer.flush(SOON)
    assert len(one.names()) == 1000


def test_a_lost_database_is_made_right_again(follow: Follow) -> None:
    """With the file removed in mid-run, the next change brings all of it back."""
    one = follow()
    one.start()
    one.put(row(1, b"a"))
    assert one.writer.flush(SOON)
    one.path.unlink()
    one.put(row(2, b"b"))
    assert wait_until(lambda: one.writer.flush(SOON))
    assert one.names() == ["a", "b"]
    assert one.writer.healthy
    assert one.reads == 2


def test_a_database_that_is_away(follow: Follow, tmp_path: Path) -> None:
    """It says what is wrong, keeps nothing, and catches up when the database is there."""
    one = follow("later/registry.sqlite")
    one.start()
    assert wait_until(lambda: not one.writer.healthy)
    assert "unable to open database file" in str(one.writer.last_error)
    for number in range(100):
        one.put(row(number))
    one.writer.add_samples([sample(1)])
    assert not one.writer.flush(0.05)
    assert one.writer.lost_samples == 1
    behind = one.writer.behind
    assert wait_until(lambda: one.writer.behind > behind)
    (tmp_path / "later").mkdir()
    assert one.writer.flush(SOON) or one.writer.flush(SOON)
    assert len(one.names()) == 100
    assert one.writer.last_error is None


def test_too_much_at_once_is_read_again(follow: Follow, monkeypatch: pytest.MonkeyPatch) -> None:
    """More changes than may wait are not kept: all is read instead, and comes out the same."""
    monkeypatch.setattr(module, "MOST_FILTERS", 10)
    one = follow()
    one.start()
    assert one.writer.flush(SOON)
    one.put(*(row(number) for number in range(50)))
    assert one.writer.flush(SOON)
    assert one.reads == 2
    assert len(one.names()) == 50
    monkeypatch.setattr(module, "MOST_SAMPLES", 10)
    one.writer.add_samples(sample(1) for _ in range(25))
    assert one.writer.flush(SOON)
    assert one.writer.lost_samples == 15
    assert one.ask("SELECT count(*) FROM BloomFilterStats") == [(10,)]


@pytest.mark.slow
def test_a_name_that_another_server_has(follow: Follow, caplog: pytest.LogCaptureFixture) -> None:
    """The conflict is said, in `last_error` and the log; once the name is free, it is taken."""
    one, two = follow(), follow(server="there")
    one.start()
    one.put(row(1, b"shared"))
    assert one.writer.flush(SOON)
    two.start()
    two.put(row(1, b"shared"), row(2, b"own"))
    assert not two.writer.flush(SOON)
    assert wait_until(lambda: not two.writer.healthy and one.names() == ["own", "shared"])
    said = "filter shared of server there is left out: server here has that name"
    assert two.writer.last_error == said
    assert said in caplog.text
    one.writer.drop([1])
    assert wait_until(lambda: two.writer.healthy)
    assert two.ask("SELECT server, name FROM BloomFilterConfig ORDER BY name") == [
        ("there", "own"),
        ("there", "shared"),
    ]


def test_a_renamed_filter_ends_the_conflict(follow: Follow) -> None:
    """A filter that was left out is in as soon as it has a name of its own."""
    one, two = follow(), follow(server="there")
    one.filters = {1: row(1, b"shared")}
    one.start()
    assert one.writer.flush(SOON)
    two.start()
    two.put(row(7, b"shared"))
    assert wait_until(lambda: not two.writer.healthy)
    two.put(row(7, b"other"))
    assert wait_until(lambda: two.writer.healthy)
    assert one.names() == ["other", "shared"]


def test_whatever_fails_is_survived(follow: Follow) -> None:
    """A failure that nobody thought of is said, and tried again; the thread does not die."""
    one = follow()
    rows, failing = one.read, threading.Event()
    failing.set()

    def read() -> Iterable[RegistryRow]:
        if failing.is_set():
            raise ZeroDivisionError("of the server")
        return rows()

    one.read = read  # type: ignore[method-assign]
    one.put(row(1, b"a"))
    one.start()
    assert wait_until(lambda: one.writer.last_error == "of the server")
    failing.clear()
    assert wait_until(lambda: one.writer.flush(SOON))
    assert one.names() == ["a"]


def test_closing_writes_what_waits(follow: Follow) -> None:
    """`close` loses nothing while the database is there, and says so."""
    one = follow()
    one.start()
    assert one.writer.flush(SOON)
    one.put(*(row(number) for number in range(500)))
    assert one.writer.close(SOON)
    assert len(one.names()) == 500


def test_closing_does_not_wait_for_a_lost_database(follow: Follow) -> None:
    """`close` returns at once when the database is away, and says that something was left."""
    one = follow("no/registry.sqlite")
    one.start()
    assert wait_until(lambda: not one.writer.healthy)
    began = time.monotonic()
    assert not one.writer.close(SOON)
    assert time.monotonic() - began < 15  # of 30


def test_closing_before_the_start(follow: Follow) -> None:
    """A server that fails while it starts can close what it has not started."""
    assert not follow().writer.close()


def test_of_several_nodes_one_writes(follow: Follow) -> None:
    """One that is paused writes and keeps nothing, and is not late; when it goes on it makes the
    registry right by all that there is, under the id that nodes share."""
    one, other = follow(server="nodes"), follow(server="nodes")
    other.writer.pause(True)
    for each in (one, other):
        each.start()
        each.put(row(1, b"a"))
        each.put(row(2, b"b"))
    assert one.writer.flush(SOON)
    assert other.writer.behind == 0
    assert one.names() == ["a", "b"]
    assert other.reads == 0
    one.writer.pause(True)
    one.put(row(3, b"never written"))
    one.writer.add_samples([sample(1, NOW)])
    one.writer.claim_soon()
    for each in (one, other):
        each.drop(1)
        each.put(row(4, b"c"))
    other.writer.pause(False)
    assert other.writer.flush(SOON)
    assert one.names() == ["b", "c"]
    assert (one.writer.lost_samples, one.writer.behind, one.reads) == (0, 0.0, 1)
    assert one.writer.close(SOON)
