"""Cached answers that are forgotten: what was changed in the source is asked for anew."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bloomery import AsyncClient, Client
from integration.conftest import started
from integration.http.asking import Http
from integration.lookup.places import DATABASE, LOCKED, configuration, server, url
from integration.lookup.test_waiting import UNLOCK, waiting
from integration.resp.wire import Wire
from integration.servers import BloomeryServer, PostgresServer, RedisServer, wait_until


def retitle(postgres: PostgresServer, number: int, title: str) -> None:
    """Change a row past the server."""
    postgres.run(f"UPDATE urls SET title = '{title}' WHERE url = '{url(number)}'", DATABASE)


def looked_up(http: Http, name: str, key: Any) -> tuple[Any, str]:
    """The value of a key, and who told it."""
    answer = http.ask("POST", f"/filters/{name}/lookup", {"key": key})
    return answer["value"], answer["by"]


@pytest.mark.parametrize("source", ["urls", "shared"])
@pytest.mark.parametrize("door", ["resp", "http"])
def test_a_forgotten_answer_is_asked_for_anew(
    http: Http, wire: Wire, table: PostgresServer, source: str, door: str
) -> None:
    """In the memory of the server and in Redis, over both doors; other keys stay cached."""
    name, number = f"forget-{source}-{door}", 1700 + len(source) * 10 + 3 * (door == "http")
    http.create(name, source=source)
    http.keys(name, "add", url(number), url(number + 1))
    retitle(table, number, "before")
    assert looked_up(http, name, url(number)) == ("before", "source")
    looked_up(http, name, url(number + 1))
    retitle(table, number, "after")
    assert looked_up(http, name, url(number)) == ("before", "cache")
    if door == "resp":
        assert wire.ask("BF.FORGET", name, url(number), "never asked for") == b"+OK\r\n"
    else:
        http.ask("POST", f"/filters/{name}/forget", {"keys": [url(number), "never"]}, 204)
    assert looked_up(http, name, url(number)) == ("after", "source")
    assert looked_up(http, name, url(number)) == ("after", "cache")
    assert looked_up(http, name, url(number + 1))[1] == "cache"


def test_every_form_of_a_key_is_forgotten(http: Http, wire: Wire, table: PostgresServer) -> None:
    """A number is cached as such and as its digits: who forgets one forgets both."""
    table.run("INSERT INTO numbers VALUES (77)", DATABASE)
    http.create("forget-forms", source="numbers")
    http.keys("forget-forms", "add", 77, "77")
    for key in (77, "77"):
        looked_up(http, "forget-forms", key)
        assert looked_up(http, "forget-forms", key)[1] == "cache"
    assert wire.ask("BF.FORGET", "forget-forms", "77") == b"+OK\r\n"
    assert [looked_up(http, "forget-forms", key)[1] for key in (77, "77")] == ["source"] * 2
    table.run("DELETE FROM numbers WHERE id = 77", DATABASE)


@pytest.mark.parametrize("cache", ["local", "redis"])
def test_a_look_up_under_way_does_not_bring_it_back(
    table: PostgresServer, redis_server: RedisServer, holder: Any, tmp_path: Path, cache: str
) -> None:
    """What the source was asked before a key was forgotten is answered, and is not cached."""
    place = "local" if cache == "local" else f"redis://127.0.0.1:{redis_server.port}/0"
    lines = f'query = "{LOCKED}"\ncache = "{place}"\nconnections = 2\n'
    config = configuration(tmp_path, table, slow=lines)
    with started(server(tmp_path, config), kill=True) as one, Http(one) as http:
        http.create("race", source="slow")
        http.keys("race", "add", url(1))
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(http.ask, "POST", "/filters/race/lookup", {"key": url(1)})
            with Http(one) as other:
                assert wait_until(lambda: waiting(other) == 1)
                other.ask("POST", "/filters/race/forget", {"key": url(1)}, 204)
            holder.execute(UNLOCK)
            assert asked.result()["value"] == "title 1"
        assert looked_up(http, "race", url(1)) == ("title 1", "source")
        assert looked_up(http, "race", url(1)) == ("title 1", "cache")


def test_what_cannot_be_forgotten(http: Http, wire: Wire) -> None:
    """A filter that is not there, or not bound; no keys; more than a look-up may have."""
    http.create("forget-unbound")
    http.create("forget-bound", source="urls")
    assert b"not found" in wire.ask("BF.FORGET", "nobody", "a")
    assert b"is not bound" in wire.ask("BF.FORGET", "forget-unbound", "a")
    assert b"wrong number" in wire.ask("BF.FORGET", "forget-bound")
    many = {"keys": [str(number) for number in range(10_001)]}
    assert http.ask("POST", "/filters/forget-bound/forget", many, 413)["code"] == (
        "request-too-large"
    )
    http.ask("POST", "/filters/nobody/forget", {"key": "a"}, 404)
    http.ask("POST", "/filters/forget-bound/forget", {"keys": []}, 204)


def test_our_clients_forget(client: Client, bound: BloomeryServer, table: PostgresServer) -> None:
    """`forget_many` of both clients, of batches in any number of requests."""
    seen = client.create("forgetful", 10_000, source="urls")
    keys = [url(number) for number in range(1800, 1850)]
    seen.update(keys)
    retitle(table, 1800, "before")
    assert seen.lookup(url(1800)).value == "before"
    retitle(table, 1800, "after")
    seen.forget_many([*keys, *(f"no {number}" for number in range(2000))])
    assert seen.lookup(url(1800)).value == "after"
    retitle(table, 1800, "last")

    async def forget() -> None:
        async with AsyncClient(bound.url) as other:
            await other["forgetful"].forget_many([url(1800)])

    asyncio.run(forget())
    assert seen.lookup(url(1800)).value == "last"
