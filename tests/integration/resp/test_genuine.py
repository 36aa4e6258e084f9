"""Beside genuine RedisBloom, by what it answered: dumps load, and filters are built as it builds
them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conftest import require
from integration.resp.genuine import FOLDER, NAME, Beside, Record, plain, shown
from integration.servers import BloomeryServer

redis = require("redis")

RECORDS = {path.stem: path for path in sorted(FOLDER.glob("*.json"))}
MADE = [name for name, path in RECORDS.items() if Record(path).facts["command"]]
# Version 2.8 took error rates above a quarter as they were; later ones make them a quarter.
UNCAPPED = {"bf-0.5-cap10-exp2", "bf-0.9-cap100"}


@pytest.fixture(params=["redisbloom", "bloomery"])
def layout(request: pytest.FixtureRequest) -> str:
    """Either layout of new filters."""
    name: str = request.param
    return name


@pytest.fixture
def client(empty: BloomeryServer) -> Iterator[Any]:
    """A client of an empty server, whose replies come as they are."""
    with redis.Redis(port=empty.resp_port, protocol=2) as one:
        one.response_callbacks.clear()
        yield one


def choose(client: Any, layout: str) -> None:
    """Let BF commands make filters of this layout."""
    assert client.execute_command("CONFIG", "SET", "bf-layout", layout) == b"OK"


def expected(record: Record) -> dict[str, Any]:
    """What is asked of every filter, as the genuine one answered."""
    return {"absent": record.facts["absent"]["sha256_of_20000_answers"], "present": record.present}


def built(record: Record) -> dict[str, Any]:
    """How the genuine one was built."""
    facts = record.facts
    return {"info": facts["info"], "debug": facts["debug"], "dump": facts["dump_sha256"]}


def test_all_are_there() -> None:
    """Nothing of the record is left out."""
    assert len(RECORDS) == 36
    assert len(MADE) == 34


@pytest.mark.parametrize("name", [name for name in RECORDS if Record(RECORDS[name]).chunks])
def test_a_dump_loads(name: str, layout: str, client: Any) -> None:
    """In either layout a genuine dump answers as it did there, is the same dump again, and grows as
    it would have."""
    choose(client, layout)
    record = Record(RECORDS[name])
    beside = Beside(client, record)
    beside.load()
    assert beside.state() == built(record)
    assert beside.answers() == expected(record)
    if "then" in record.facts:
        assert beside.more() == record.facts["then"]


@pytest.mark.parametrize("name", [name for name in MADE if name not in UNCAPPED])
def test_a_filter_is_built_as_there(name: str, client: Any) -> None:
    """In RedisBloom's layout the same commands make the same filter, bit for bit."""
    choose(client, "redisbloom")
    record = Record(RECORDS[name])
    beside, facts = Beside(client, record), record.facts
    assert plain(client.execute_command(*facts["command"])) == facts["reply"]
    assert beside.add(record.keys) == facts["added"]
    if "deleted" in facts:
        gone = record.keys[slice(*_steps(facts["deleted"]))]
        replies = [client.execute_command("CF.DEL", NAME, key) for key in gone]
        assert shown(replies) == facts["deleted_replies"]
    if "compact" in facts:
        assert client.execute_command("CF.COMPACT", NAME) == b"OK"
    assert beside.state() == built(record)
    assert beside.answers() == expected(record)
    if "then" in facts:
        assert beside.more() == facts["then"]


def _steps(rule: str) -> list[int]:
    inside = rule[rule.index("range(") + 6 : rule.rindex(")")]
    return [int(number) for number in inside.split(",")]


@pytest.mark.parametrize("name", sorted(MADE))
def test_the_own_layout_takes_the_same_commands(name: str, client: Any) -> None:
    """In our own layout each filter is made by the same command, whatever its error rate, and no
    key that was added is denied."""
    choose(client, "bloomery")
    record = Record(RECORDS[name])
    beside, facts = Beside(client, record), record.facts
    assert plain(client.execute_command(*facts["command"])) == facts["reply"]
    added = beside.add(record.keys)
    if record.prefix == "CF":
        assert added == facts["added"]
        return
    assert len(added) == len(facts["added"]) or "e" in added
    there = [key for key, reply in zip(record.keys, added, strict=False) if reply != "e"]
    assert "0" not in beside.contains(there)
    assert plain(beside.ask("BF.INFO", NAME))[::2] == facts["info"][::2]


def test_debug_is_the_same_after_a_dump(layout: str, client: Any) -> None:
    """BF.DEBUG of a filter that was dumped and loaded is what it was."""
    choose(client, layout)
    ask = client.execute_command
    ask("BF.MADD", NAME, *range(500))
    before = ask("BF.DEBUG", NAME)
    beside = Beside(client, Record(RECORDS["bf-empty"]))
    chunks = beside.dump()
    ask("DEL", NAME)
    for iterator, data in chunks:
        ask("BF.LOADCHUNK", NAME, iterator, data)
    assert ask("BF.DEBUG", NAME) == before
