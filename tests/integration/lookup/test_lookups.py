"""Look-ups over both doors: exact answers, and who gave them."""

import asyncio
from pathlib import Path

import pytest

from bloomery import AsyncClient, BloomFilter, Client, errors
from bloomery.guard import Answer
from integration.http.asking import Http
from integration.lookup.places import url
from integration.resp.wire import Wire, check
from integration.servers import BloomeryServer, RedisServer

SOURCES = "urls, rows, shared, numbers, untyped, slow"
THERE, WRONG, ABSENT = url(1901), "never there", "never added"


def test_answers_are_exact_and_say_by_whom(http: Http) -> None:
    """A no is the filter's; a maybe is the source's, and the cache's from then on."""
    http.create("exact", source="urls")
    http.keys("exact", "add", THERE, WRONG)
    keys = [THERE, WRONG, ABSENT]
    for by in ("source", "cache"):
        assert http.keys("exact", "lookup", *keys) == [
            {"found": True, "value": "title 1901", "by": by},
            {"found": False, "value": None, "by": by},
            {"found": False, "value": None, "by": "filter"},
        ]
    one = http.ask("POST", "/filters/exact/lookup", {"key": THERE})
    assert one == {"found": True, "value": "title 1901", "by": "cache"}
    told = http.ask("GET", "/filters/exact")
    assert told["source"] == "urls"
    assert told["lookups"]["queries"] >= 1
    answers = {"filter": 2, "cache": 3, "source": 2, "stale": 0, "unconfirmed": 0}
    assert told["lookups"]["answers"] == answers
    metrics = http.client.get("/metrics").text
    for by, count in answers.items():
        assert f'bloomery_lookups_total{{by="{by}",filter="exact"}} {count}.0' in metrics
    assert 'bloomery_source_up{source="urls"} 1.0' in metrics


def test_values_as_json_has_them(http: Http, wire: Wire) -> None:
    """Several columns are an object; what JSON has no value for is text, bytes are base64."""
    http.create("forms", source="rows")
    http.keys("forms", "add", url(7), url(9))
    seven, nine = http.keys("forms", "lookup", url(7), url(9))
    assert seven["value"] == {
        "title": "title 7",
        "number": 7,
        "price": "7.50",
        "at": seven["value"]["at"],
        "data": {"base64": "AP8="},
        "more": [1, None],
    }
    assert seven["value"]["at"].startswith("2026-01-31T")
    assert nine["value"]["title"] is None
    reply = wire.ask("BF.LOOKUP", "forms", url(7))
    assert b'"price": "7.50"' in reply


@pytest.mark.parametrize("protocol", [2, 3])
def test_the_redis_protocol(bound: BloomeryServer, http: Http, protocol: int) -> None:
    """BF.LOOKUP answers found, value and by whom for each key; BF.BIND and UNBIND change it."""
    name, one, other, number = f"resp{protocol}", 10 + protocol, 20 + protocol, 40 + protocol
    http.create(name)
    script = f"""
        BF.LOOKUP {name} a => -ERR {name} is not bound to a source: BF.BIND it to one, or PATCH it
        BF.LOOKUP nobody a => -ERR not found
        BF.BIND {name} nothing => -ERR there is no source named 'nothing' in the server's configuration: there are {SOURCES}
        BF.BIND nobody urls => -ERR not found
        BF.BIND {name} urls => +OK
        BF.MADD {name} 'url {one}' 'url {other}' {number} => [:1, :1, :1] | [#t, #t, #t]
        BF.LOOKUP {name} 'url {one}' none => [[:1, "title {one}", "source"], [:0, nil, "filter"]]
        BF.LOOKUP {name} 'url {one}' 'url {other}' => [[:1, "title {one}", "cache"], [:1, "title {other}", "source"]]
        BF.BIND {name} numbers => +OK
        BF.LOOKUP {name} {number} 'url {one}' => [[:1, "true", "source"], [:0, nil, "source"]]
        BF.UNBIND {name} => +OK
        BF.LOOKUP {name} => -ERR wrong number of arguments for 'bf.lookup' command
        MULTI => +OK
        BF.LOOKUP {name} a => -ERR Command not allowed inside a transaction
        EXEC => -EXECABORT Transaction discarded because of previous errors.
        """  # noqa: E501  # a line is a command
    if protocol == 3:
        script = script.replace('[:1, "', '[#t, "').replace("[:0, nil", "[#f, null")
    with Wire(bound.resp_port, protocol) as wire:
        check(wire, protocol, script)


def test_our_clients_look_up(client: Client, bound: BloomeryServer) -> None:
    """`lookup` and `lookup_many` give a guard's answers, of batches in any number of requests."""
    seen = client.create("clients", 10_000, source="urls")
    seen.update([url(number) for number in range(1500)])
    assert seen.lookup(url(1403)) == Answer(True, "title 1403", "source")
    keys = [url(number) for number in range(2500)]
    found = seen.lookup_many(keys)
    assert [answer.value for answer in found[:2]] == ["title 0", "title 1"]
    assert all(found[:1500])
    assert {answer.by for answer in found[:1500]} == {"source", "cache"}

    async def ask() -> Answer:
        async with AsyncClient(bound.url) as other:
            (answer,) = await other["clients"].lookup_many([url(3)])
            assert await other["clients"].lookup(url(3)) == answer
            return answer

    assert asyncio.run(ask()) == Answer(True, "title 3", "cache")
    with pytest.raises(errors.InvalidParameter, match="not bound"):
        client.create("unbound", 10).lookup("a")


def test_what_is_wrong_has_one_clear_error(http: Http) -> None:
    """Keys of a type that the column cannot have, no source of that name, too many keys."""
    http.create("wrong", source="untyped")
    http.keys("wrong", "add", "text")
    told = http.ask("POST", "/filters/wrong/lookup", {"key": "text"}, 502)
    assert (told["code"], "key-type" in told["detail"]) == ("invalid-source", True)
    wrong = {"name": "other", "capacity": 10, "source": "nothing"}
    assert "no source named 'nothing'" in http.ask("POST", "/filters", wrong, 422)["detail"]
    http.ask("PATCH", "/filters/wrong", {"source": "nothing"}, 422)
    many = {"keys": list(range(10_001))}
    told = http.ask("POST", "/filters/wrong/lookup", many, 413)
    assert told["detail"] == "a look-up of 10,001 keys, may have 10,000: ask for fewer at once"
    http.ask("POST", "/filters/wrong/lookup", {"key": None}, 422)
    http.ask("PATCH", "/filters/wrong", {"source": None})
    told = http.ask("POST", "/filters/wrong/lookup", {"key": "a"}, 422)
    assert told["code"] == "invalid-parameter"


def test_a_binding_stays_with_its_filter(client: Client, wire: Wire, tmp_path: Path) -> None:
    """Renamed, copied, or replaced by a saved one: the filter is bound as before."""
    seen = client.create("kept", 100, source="urls")
    seen.add(url(1801))
    assert seen.lookup(url(1801)).by == "source"
    seen.rename("kept on")
    assert seen.lookup(url(1801)).by == "cache"
    assert wire.ask("COPY", "kept on", "a copy") == b":1\r\n"
    assert client["a copy"].lookup(url(1801)).by == "cache"
    saved = BloomFilter(100)
    saved.add(url(1802))
    saved.save(tmp_path / "saved.bloom")
    seen.load(tmp_path / "saved.bloom")
    assert seen.lookup(url(1802)) == Answer(True, "title 1802", "source")
    assert seen.lookup(url(1801)).by == "filter"


def test_a_cache_in_redis_is_shared_and_may_be_away(
    client: Client, redis_server: RedisServer
) -> None:
    """Answers are in Redis; without it the source answers, and no look-up fails."""
    seen = client.create("in redis", 100, source="shared")
    seen.update([url(1), url(2)])
    assert seen.lookup(url(1)).by == "source"
    assert seen.lookup(url(1)).by == "cache"
    assert b"bloomery:cache:shared:" in redis_server.ask(b"KEYS *\r\n")
    redis_server.stop()
    assert seen.lookup_many([url(1), url(2)]) == [Answer(True, f"title {i}") for i in (1, 2)]
    assert seen.info()["lookups"]["cache_failures"] > 0
