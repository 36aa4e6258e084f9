"""Look-ups inside a server: what is kept of them, and how answers are told."""

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime, time, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from bloomery import errors
from bloomery.guard.answer import ABSENT, Answer
from bloomery.service.commands import Commands
from bloomery.service.config.settings import Settings
from bloomery.service.config.sources import SourceSettings
from bloomery.service.durability.folder import log_folder
from bloomery.service.lookup import lookups
from bloomery.service.lookup.answers import for_json, for_resp
from bloomery.service.lookup.lookups import Lookups
from unit.service.driven import Driven


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[Driven]:
    """The filters of a server."""
    made = Driven(log_folder(tmp_path))
    yield made
    made.close()


@pytest.fixture
def commands(tmp_path: Path, driven: Driven) -> Commands:
    """The commands of a server with two sources of one table."""
    with sqlite3.connect(tmp_path / "names.db") as database:
        database.execute("CREATE TABLE names (name TEXT PRIMARY KEY, age INTEGER)")
        database.execute("INSERT INTO names VALUES ('alice', 42)")
    database.close()
    settings = Settings(data=str(tmp_path))
    url = f"sqlite:///{tmp_path}/names.db"
    sources = {
        name: SourceSettings(name=name, url=url, table="names", key="name", value="age")
        for name in ("people", "others")
    }
    return Commands(driven.engine, settings, Lookups(driven.engine, settings, sources))


LookUp = Callable[..., list[Answer]]


@pytest.fixture
def look_up(driven: Driven, commands: Commands) -> LookUp:
    """Look keys up in a filter."""
    return lambda name, *keys: driven.run(commands.lookup(name, list(keys)))


def test_a_filter_is_asked_and_then_its_source(
    driven: Driven, commands: Commands, look_up: LookUp
) -> None:
    """Answers are exact; another binding asks another source, and none is refused."""
    driven.run(commands.create(b"seen", capacity=100, source="people"))
    driven.run(commands.add(b"seen", ["alice", "bob"]))
    found = look_up(b"seen", "alice", "bob", "carol")
    assert found == [Answer(True, 42, "source"), Answer(False, None, "source"), ABSENT]
    assert look_up(b"seen", b"alice") == [Answer(True, 42, "cache")]
    driven.run(commands.bind(b"seen", "others"))
    assert commands.info(commands.find(b"seen"))["lookups"]["answers"]["source"] == 2
    assert look_up(b"seen", "alice") == [Answer(True, 42, "source")]
    told = commands.info(commands.find(b"seen"))
    assert (told["source"], told["lookups"]["answers"]["source"]) == ("others", 1)
    driven.run(commands.bind(b"seen", None))
    with pytest.raises(errors.InvalidParameter, match="seen is not bound to a source"):
        look_up(b"seen", "alice")
    assert commands.lookups.waiting == 0


def test_what_is_cached_is_forgotten(driven: Driven, commands: Commands, look_up: LookUp) -> None:
    """By whoever asks for it, by an entry of another node, and when a node loads a snapshot; all
    filters of a source share its cache."""
    engine, cached = commands.engine, [Answer(True, 42, "cache")]
    for name in (b"seen", b"other"):
        driven.run(commands.create(name, capacity=100, source="people"))
        driven.run(commands.add(name, ["alice"]))
    entry = commands.find(b"seen")

    def asked_anew() -> bool:
        anew = look_up(b"seen", "alice") == [Answer(True, 42, "source")]
        return anew and look_up(b"other", b"alice") == cached

    assert asked_anew()
    driven.run(commands.forget(b"other", [b"alice", 7, UUID(int=1)]))
    assert asked_anew()
    engine.on_forget(entry, commands.lookups.cached_names(entry, [b"alice"]))
    assert asked_anew()
    engine.on_exchange()
    assert asked_anew()
    entry.settings["source"] = "not of this node"
    engine.on_forget(entry, [b"alice"])
    with pytest.raises(errors.InvalidParameter, match="does not have"):
        driven.run(commands.forget(b"seen", ["alice"]))


def test_sources_that_cannot_start_change_nothing(
    driven: Driven, commands: Commands, tmp_path: Path
) -> None:
    """A queue that cannot be read is said, and the sources before it go on; mended, the next try
    starts it."""
    queued = replace(commands.lookups.sources["people"].settings, on_outage="queue")
    file = tmp_path / "queues" / "people.sqlite"
    said: list[str] = []

    def say(text: str, level: str = "info", **fields: Any) -> None:
        said.append(text)

    async def exchange(damage: bool) -> list[str]:
        try:
            prepared = commands.lookups.prepare({"people": queued})
            if damage:
                file.write_bytes(b"no database" * 1000)
            return await commands.lookups.exchange(prepared, say)
        finally:
            await commands.lookups.stop()

    before = commands.lookups.sources
    assert driven.run(exchange(damage=True)) == []
    assert commands.lookups.sources is before
    assert "the sources stay as they were: " in said[0]
    for left in file.parent.iterdir():
        left.unlink()
    assert driven.run(exchange(damage=False)) == [
        "the source others was removed",
        "the source people is another",
    ]


def test_only_so_many_filters_are_kept_count_of(
    driven: Driven, commands: Commands, look_up: LookUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was not asked for longest begins anew; a dropped one is forgotten."""
    monkeypatch.setattr(lookups, "_MOST_BOUND", 2)
    names = [b"one", b"two", b"three"]
    for name in names:
        driven.run(commands.create(name, capacity=100, source="people"))
    for name in (b"one", b"two", b"one", b"three"):
        look_up(name, "absent")
    known = [commands.info(commands.find(name))["lookups"] is not None for name in names]
    assert known == [True, False, True]
    entry = commands.find(b"one")
    driven.run(commands.drop(b"one"))
    assert commands.lookups.info(entry) is None


def test_a_changed_filter_is_observed_anew(
    driven: Driven, commands: Commands, look_up: LookUp
) -> None:
    """What was seen of a filter before it was cleared says nothing of it now."""
    entry = driven.run(commands.create(b"seen", capacity=100, source="people"))
    look_up(b"seen", "a", "b")
    seen = commands.lookups.observed(entry)
    assert seen is not None
    assert seen.true_negatives == 2
    driven.run(commands.clear(b"seen"))
    assert commands.lookups.observed(entry) is None
    look_up(b"seen", "c")
    seen = commands.lookups.observed(entry)
    assert seen is not None
    assert seen.true_negatives == 1


@pytest.mark.parametrize(
    ("value", "plain", "text"),
    [
        ("é", "é", "é".encode()),
        (42, 42, b"42"),
        (True, True, b"true"),
        (1.5, 1.5, b"1.5"),
        (float("nan"), None, b"null"),
        (None, None, None),
        (b"\x00\xff", {"base64": "AP8="}, b"\x00\xff"),
        (Decimal("1.50"), "1.50", b"1.50"),
        (UUID(int=7), str(UUID(int=7)), str(UUID(int=7)).encode()),
        (date(2026, 1, 31), "2026-01-31", b"2026-01-31"),
        (time(12, 30), "12:30:00", b"12:30:00"),
        (
            datetime(2026, 1, 31, tzinfo=timezone.utc),
            "2026-01-31T00:00:00+00:00",
            b"2026-01-31T00:00:00+00:00",
        ),
        ({"a": [Decimal(1), None]}, {"a": ["1", None]}, b'{"a": ["1", null]}'),
    ],
)
def test_values_are_told_so(value: Any, plain: Any, text: bytes | None) -> None:
    """Each type of value has one form in JSON and one in the Redis protocol."""
    answer = Answer(True, value, "cache")
    assert for_json(answer) == {"found": True, "value": plain, "by": "cache"}
    assert for_resp(answer) == [True, text, b"cache"]
