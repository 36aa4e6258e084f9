"""Rows that somebody inserts into the registry of a running server: filters, or words why not."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bloomery import errors
from bloomery.service.access.audit import audit_file
from bloomery.service.server import Server
from unit.service.inside import running
from waiting import wait_until_async

Row = dict[str, Any]
SHOWN = "name, number, problem, m_bits, k_hashes, expected_elements, kind"


def insert(data: Path, name: Any, elements: Any = 1000, rate: Any = 0.01, **more: Any) -> int:
    """Insert a row as a person would, beside the server; its id."""
    given = {"name": name, "expected_elements": elements, "fp_rate": rate} | more
    marks = ", ".join("?" * len(given))
    with closing(sqlite3.connect(data / "registry.sqlite", timeout=30)) as connection, connection:
        cursor = connection.execute(
            f"INSERT INTO BloomFilterConfig ({', '.join(given)}) VALUES ({marks})",
            list(given.values()),
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid


def row_at(data: Path, number: int) -> Row:
    """The row of an id."""
    with closing(sqlite3.connect(data / "registry.sqlite", timeout=30)) as connection:
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        connection.row_factory = sqlite3.Row
        found = connection.execute(f"SELECT {SHOWN} FROM BloomFilterConfig WHERE id = ?", [number])
        return dict(found.fetchone())


async def when(data: Path, number: int, wanted: Callable[[Row], bool]) -> Row:
    """The row of an id, once it is as wanted."""
    assert await wait_until_async(lambda: wanted(row_at(data, number))), row_at(data, number)
    return row_at(data, number)


def has_problem(row: Row) -> bool:
    """Does it say why it is no filter?"""
    return row["problem"] is not None


async def have_tables(server: Server) -> None:
    """Wait until the registry is there."""
    assert await asyncio.to_thread(server.parts.publisher.writer.flush, 30)


def test_a_row_becomes_a_filter(tmp_path: Path) -> None:
    """Within moments the filter is there, the row is its own and tells the truth, and keys that are
    added are found, also after a restart."""

    async def first() -> None:
        async with running(tmp_path) as server:
            await have_tables(server)
            plain = insert(tmp_path, "users", m_bits=1, k_hashes=99)
            rotating = insert(tmp_path, "recent", 500, 0.001, kind="rotating", window_seconds=60)
            escaped = insert(tmp_path, "a\\x00b", hasher="siphash", layout="classic")
            row = await when(tmp_path, plain, lambda one: one["number"] is not None)
            filter = server.parts.commands.find(b"users").filter
            assert (row["m_bits"], row["k_hashes"]) == (filter.num_bits, filter.num_hashes)
            assert (filter.capacity, filter.error_rate) == (1000, 0.01)
            assert (await server.parts.commands.add(b"users", [b"ann"]))[0] == b"\1"
            await when(tmp_path, rotating, lambda one: one["number"] is not None)
            assert server.parts.commands.find(b"recent").filter.window == 60
            await when(tmp_path, escaped, lambda one: one["number"] is not None)
            assert server.parts.commands.find(b"a\0b").filter.layout == "classic"

    async def second() -> None:
        async with running(tmp_path) as server:
            assert server.parts.commands.contains(b"users", [b"ann"]) == b"\1"

    asyncio.run(first())
    assert '"door": "registry"' in audit_file(tmp_path).read_text()
    asyncio.run(second())


def test_a_row_of_a_kind_without_an_error_rate_becomes_a_filter(tmp_path: Path) -> None:
    """Every row has an fp_rate; a kind that has no use for it is made all the same."""

    async def run() -> None:
        async with running(tmp_path) as server:
            await have_tables(server)
            cuckoo = insert(tmp_path, "seen", kind="rediscuckoo", expansion=2)
            await when(tmp_path, cuckoo, lambda one: one["number"] is not None or has_problem(one))
            assert row_at(tmp_path, cuckoo)["problem"] is None
            assert server.parts.commands.find(b"seen").settings["door"] == "cf"

    asyncio.run(run())


WRONG: list[tuple[Row, str]] = [
    ({"rate": 0.0}, "error_rate"),
    ({"rate": 2}, "error_rate"),
    ({"rate": "1%"}, "fp_rate is '1%' (str), must be a number"),
    ({"rate": float("inf")}, "error_rate"),
    ({"elements": 0}, "capacity must be"),
    ({"elements": -5}, "capacity must be"),
    ({"elements": 1.5}, "must be a whole number"),
    ({"elements": "many"}, "must be a whole number"),
    ({"elements": 2**62}, "max-capacity"),
    ({"elements": 10**9}, "does not fit into maxmemory (104,857,600 bytes)"),
    ({"kind": "blom"}, "kind is 'blom'"),
    ({"kind": "static"}, "cannot be created empty"),
    ({"kind": b"\0"}, "must be text"),
    ({"counter_bits": 4}, "must be left out for the kind bloom"),
    ({"layout": "odd"}, "layout"),
    ({"hasher": "md5"}, "hasher"),
    ({"seed": "one"}, "seed is 'one'"),
    ({"seed": "99999999999999999999"}, "seed"),
    ({"expires_at": "whenever"}, "expires_at is given"),
    ({"name": "back\\slash"}, "no printed name"),
    ({"name": "a\tb"}, "no printed name"),
    ({"name": "a\0b"}, "no printed name"),
    ({"name": "x" * 2000}, "no printed name"),
    ({"name": b"\xff\xfe"}, "must be text"),
]


def test_a_row_that_cannot_be_a_filter_says_why(tmp_path: Path) -> None:
    """Whatever is wrong with rows, each says it in words, the registry stays healthy, and rows
    beside them are made."""

    async def main() -> None:
        async with running(tmp_path, maxmemory="100mb") as server:
            await have_tables(server)
            rows = [
                (insert(tmp_path, **{"name": f"n{at}"} | wrong), word)
                for at, (wrong, word) in enumerate(WRONG)
            ]
            with closing(sqlite3.connect(tmp_path / "registry.sqlite")) as connection, connection:
                undecodable = connection.execute(
                    "INSERT INTO BloomFilterConfig (name, expected_elements, fp_rate)"
                    " VALUES (CAST(x'ff6162' AS TEXT), 10, 0.01)"
                ).lastrowid
            assert undecodable is not None
            good = insert(tmp_path, "good")
            await when(tmp_path, good, lambda one: one["number"] is not None)
            for number, word in [*rows, (undecodable, "no printed name")]:
                row = await when(tmp_path, number, has_problem)
                assert word in row["problem"], row
                assert row["number"] is None
            assert [entry.name for entry in server.parts.engine.state.filters.values()] == [b"good"]
            assert server.parts.publisher.writer.healthy

    asyncio.run(main())


def test_a_filter_that_was_there_before_the_row(tmp_path: Path) -> None:
    """It stays as it is; the row becomes its own and says so."""

    async def main() -> None:
        async with running(tmp_path) as server:
            await have_tables(server)
            writer, put = server.parts.publisher.writer, server.parts.publisher.writer.put
            writer.put = lambda rows: None  # type: ignore[method-assign]  # a registry that is late
            await server.parts.commands.create(b"users", capacity=77)
            writer.put = put  # type: ignore[method-assign]
            number = insert(tmp_path, "users")
            row = await when(tmp_path, number, has_problem)
            assert "there is a filter named" in row["problem"]
            assert (row["expected_elements"], row["number"]) == (77, 1)
            assert server.parts.commands.find(b"users").filter.capacity == 77

    asyncio.run(main())


@pytest.mark.slow
def test_a_row_while_writes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so, and is made when writes are taken again, or when somebody clears the problem."""
    monkeypatch.setattr("bloomery.service.registry.registry.TRY_AGAIN", 0.0)

    async def main() -> None:
        async with running(tmp_path) as server:
            await have_tables(server)
            engine = server.parts.engine
            engine.frozen = True  # or the next second would take writes again
            engine.refuse(errors.LogUnavailable("the disk is full"))
            number = insert(tmp_path, "users")
            row = await when(tmp_path, number, has_problem)
            assert "the disk is full" in row["problem"]
            engine.frozen = False
            engine.accept()
            row = await when(tmp_path, number, lambda one: one["number"] is not None)
            assert row["problem"] is None

    asyncio.run(main())
