"""A filter that is built anew while another goes on: it gets what the other gets, and its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bloomery import errors
from bloomery.service.commands import Commands
from bloomery.service.config.settings import Settings
from bloomery.service.domain.operations import Op
from bloomery.service.domain.state import Entry, State
from bloomery.service.durability.log import Log, Row
from bloomery.service.durability.replay import replay
from bloomery.service.eagerly import eagerly
from bloomery.service.engine import Engine

OLD, NEW = b"seen", b"\x00new"


class Served:
    """An engine without a server."""

    def __init__(self, log: Path) -> None:
        self.engine = Engine(State(), Log(log, segment=1, seq=0))
        self.commands = Commands(self.engine, Settings())
        self.rows: list[Row] = []
        self.failures: list[str] = []

    def turn(self) -> None:
        """End a turn, as if it were logged."""
        self.rows += self.engine.end()
        self.engine.begin()

    def follow(self, kind: str, **settings: Any) -> tuple[Entry, Entry]:
        """A small filter and a larger one that is to replace it."""
        old = eagerly(self.commands.create(OLD, kind, capacity=100, error_rate=0.3, **settings))
        grow = {"grow": True} if kind == "cuckoo" else {}
        new = eagerly(self.commands.create(NEW, kind, capacity=10_000, error_rate=0.01, **grow))
        eagerly(self.engine.follow(old, new, self.failures.append))
        return old, new

    def replayed(self) -> State:
        """What the log leads to."""
        state = State()
        problems: list[str] = []
        replay(state, [(number, *row) for number, row in enumerate(self.rows)], problems)
        assert not problems
        return state


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """An engine on an empty log."""
    made = Served(tmp_path)
    yield made
    made.engine.log.close()


@pytest.mark.parametrize("kind", ["bloom", "scalable", "counting", "deletable", "cuckoo"])
def test_it_gets_every_key(served: Served, kind: str) -> None:
    """Also keys that the old filter, which errs often, takes for known: they changed nothing."""
    served.follow(kind, **({} if kind == "scalable" else {"on_full": "reject"}))
    keys = [f"key {number}" for number in range(100)]
    known = sum(1 - answer for answer in eagerly(served.commands.add(OLD, keys))[0])
    if kind in ("bloom", "deletable"):
        assert known > 0, "the test needs keys that the old filter errs about"
    served.turn()
    assert all(served.commands.contains(NEW, keys))
    assert not served.failures


def test_it_takes_the_place(served: Served) -> None:
    """Under the old name, with the old one's policy and end, and with what came in that turn."""
    old, new = served.follow("bloom", on_full="alert", warn_at=0.5)
    eagerly(served.commands.expire(OLD, 4e9))
    served.turn()
    eagerly(served.commands.add(OLD, ["at the last moment"]))
    eagerly(served.engine.succeed(old, 0))
    served.turn()
    assert served.commands.find(OLD) is new
    assert all(served.commands.contains(OLD, ["at the last moment"]))
    assert (new.expires_at, new.settings["warn_at"]) == (4e9, 0.5)
    assert (new.settings["capacity"], new.filter.capacity) == (10_000, 10_000)
    with pytest.raises(errors.UnknownFilter):
        served.commands.find(NEW)
    eagerly(served.commands.add(OLD, ["later"]))
    served.turn()
    assert not served.failures


def test_one_that_could_not_take_its_place_is_not_followed(served: Served) -> None:
    """A key that is there already changes nothing, and is not logged again and again."""
    old, _ = served.follow("bloom")
    eagerly(served.commands.add(OLD, ["a"]))
    served.turn()
    served.engine.refuse(errors.LogUnavailable("the disk is full"))
    with pytest.raises(errors.LogUnavailable):
        eagerly(served.engine.succeed(old, 0))
    served.engine.accept()
    before = len(served.rows)
    assert eagerly(served.commands.add(OLD, ["a"])) == (b"\x00", None)
    served.turn()
    assert served.rows[before:] == []


def test_nobody_is_told_of_keys(served: Served) -> None:
    """Nor that the filter has changed: the registry was written each time, thousands a second."""
    _, new = served.follow("bloom")
    told: list[Entry] = []
    served.engine.on_change.subscribe(told.append)
    before = new.changes
    eagerly(served.commands.add(OLD, ["a"]))
    served.turn()
    assert (told, new.changes, new.items) == ([], before, 1)


def test_a_successor_that_fails_fails_alone(served: Served) -> None:
    """Whatever it is: others wait for the end of that turn."""
    _, new = served.follow("bloom")
    new.filter = None
    eagerly(served.commands.add(OLD, ["a"]))
    served.turn()
    assert len(served.failures) == 1
    assert all(served.commands.contains(OLD, ["a"]))


def test_the_log_leads_to_the_same(served: Served) -> None:
    """Replayed to any turn, the name has every key that was acknowledged until then."""
    old, _ = served.follow("counting")
    added: list[str] = []
    for number in range(30):
        keys = [f"{number} {one}" for one in range(3)]
        assert eagerly(served.commands.add(OLD, keys))[1] is None
        added += keys
        if number == 20:
            eagerly(served.engine.succeed(old, 0))
        served.turn()
        found = served.replayed().names[OLD].filter
        assert all(found.contains_many(added))


def test_removals_are_not_followed(served: Served) -> None:
    """Nobody knows whether the new one has the key: to take it out could harm others."""
    served.follow("counting")
    eagerly(served.commands.add(OLD, ["a"]))
    served.turn()
    eagerly(served.commands.remove(OLD, ["a", "b"]))
    served.turn()
    assert served.commands.contains(NEW, ["a"]) == b"\x01"
    assert (2, Op.REMOVE) not in [(row[1], row[2]) for row in served.rows]


@pytest.mark.parametrize("what", ["clear", "merge", "drop"])
def test_it_ends_with_what_it_cannot_follow(served: Served, what: str) -> None:
    """Keys that come another way than by adding are not seen: then it is given up, and said why."""
    old, _ = served.follow("bloom")
    eagerly(served.commands.create(b"other", "bloom", capacity=100, error_rate=0.3))
    if what == "merge":
        eagerly(served.commands.merge(OLD, b"other"))
    elif what == "clear":
        eagerly(served.commands.clear(OLD))
    else:
        eagerly(served.commands.drop(OLD))
    assert len(served.failures) == 1
    assert ("dropped" if what == "drop" else what) in served.failures[0]
    with pytest.raises(errors.InvalidParameter, match="no successor"):
        eagerly(served.engine.succeed(old, 0))


def test_one_that_can_be_full_cannot_follow(served: Served) -> None:
    """A replayed key that finds no room is left out without a word: such a kind is refused."""
    old = eagerly(served.commands.create(OLD, "cuckoo", capacity=1000, grow=True))
    new = eagerly(served.commands.create(NEW, "cuckoo", capacity=10, grow=False))
    with pytest.raises(errors.InvalidParameter, match="grow"):
        eagerly(served.engine.follow(old, new, served.failures.append))


def test_other_hashes_cannot_follow(served: Served) -> None:
    """What is passed on are hashes: they mean nothing to a filter that hashes differently."""
    old = eagerly(served.commands.create(OLD, "bloom", capacity=1000))
    new = eagerly(served.commands.create(NEW, "bloom", capacity=1000, seed=7))
    with pytest.raises(errors.InvalidParameter, match="hasher"):
        eagerly(served.engine.follow(old, new, served.failures.append))
