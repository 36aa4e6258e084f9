"""`bloomery migrate` between two servers, and from a Redis that has no filters."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from threading import Thread

import pytest

from integration.resp.wire import Wire, check, dump, shown
from integration.servers import BloomeryServer, RedisServer, Serve, wait_until

BLOOMERY = [sys.executable, "-m", "bloomery"]


@pytest.fixture
def pair(serve: Serve) -> tuple[BloomeryServer, BloomeryServer]:
    """A source whose BF filters are RedisBloom's bit for bit, and an empty target."""
    return serve("--bf-layout", "redisbloom"), serve()


def migrate(source: str, target: str, *more: str, code: int = 0) -> str:
    """Run the command; what it printed, or what it said if it failed."""
    done = subprocess.run(
        [*BLOOMERY, "migrate", source, "--to", target, *more],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def urls(source: BloomeryServer, target: BloomeryServer) -> tuple[str, str]:
    """The URLs of both."""
    return (
        f"redis://127.0.0.1:{source.resp_port}",
        f"bloomery://127.0.0.1:{target.resp_port}",
    )


def test_all_filters_are_copied(pair: tuple[BloomeryServer, BloomeryServer]) -> None:
    """BF and CF filters of several layers, of RedisBloom's kind and of bloomery's, with names that
    are no text, arrive with the same dump, the same answers and the same expiry; a second run
    skips them."""
    source, target = pair
    with Wire(source.resp_port) as one, Wire(target.resp_port) as other:
        one.ask("BF.RESERVE", "layers", "0.001", 1000)
        one.ask("BF.MADD", "layers", *range(20_000))
        one.ask("BF.RESERVE", b"\xff\x00 raw", "0.01", 100, "NONSCALING")
        one.ask("BF.MADD", b"\xff\x00 raw", *range(50))
        one.ask("CF.RESERVE", "cuckoo", 1000, "EXPANSION", 2)
        one.ask("CF.INSERT", "cuckoo", "ITEMS", *range(5000))
        one.ask("BF.RESERVE", "window", "0.01", 1000, "KIND", "rotating", "WINDOW", "7d")
        one.ask("BF.MADD", "window", *range(500))
        one.ask("EXPIRE", "layers", 10_000)
        report = json.loads(migrate(*urls(*pair), "--json"))
        assert sorted(report["copied"]) == sorted(["layers", r"\xff\x00 raw", "cuckoo", "window"])
        assert report["skipped"] == []
        copies: list[tuple[str | bytes, str, int]] = [
            *(("layers", "BF", 20_000), (b"\xff\x00 raw", "BF", 50)),
            *(("cuckoo", "CF", 5000), ("window", "BF", 500)),
        ]
        for name, family, count in copies:
            for words in [(f"{family}.MEXISTS", name, *range(count * 2)), (f"{family}.INFO", name)]:
                assert one.ask(*words) == other.ask(*words), words[:2]
            command = f"{family}.SCANDUMP"
            if name != "window":  # whose header has the time of the last rotation
                assert dump(one, command, name) == dump(other, command, name)
        assert 9_000 < int(shown(other.ask("TTL", "layers"))[1:]) <= 10_000
        check(other, 2, "TTL cuckoo => :-1\nDBSIZE => :4")
        one.ask("BF.ADD", "later", "x")
        other.ask("BF.ADD", "layers", "of the target")
        again = json.loads(migrate(*urls(*pair), "--json"))
        assert again["copied"] == ["later"]
        assert len(again["skipped"]) == 4
        assert other.ask("BF.EXISTS", "layers", "of the target") == b":1\r\n"
        assert "5 filters copied" in migrate(*urls(*pair), "--replace")
        assert other.ask("BF.EXISTS", "layers", "of the target") == b":0\r\n"


def test_an_interrupted_run_continues(pair: tuple[BloomeryServer, BloomeryServer]) -> None:
    """If the run is killed, no filter of the target is incomplete, and the next run copies the
    others."""
    source, target = pair
    filters = [f"filter-{number:02}" for number in range(20)]
    with Wire(source.resp_port) as one, Wire(target.resp_port) as other:
        for name in filters:
            one.ask("BF.RESERVE", name, "0.01", 300_000)
            one.ask("BF.MADD", name, *range(100))
        first = subprocess.Popen([*BLOOMERY, "migrate", urls(*pair)[0], "--to", urls(*pair)[1]])
        try:
            assert wait_until(lambda: other.ask("EXISTS", filters[2]) == b":1\r\n")
        finally:
            first.kill()
            first.wait()
        present = [name for name in filters if other.ask("EXISTS", name) == b":1\r\n"]
        for name in present:
            assert dump(one, "BF.SCANDUMP", name) == dump(other, "BF.SCANDUMP", name)
        report = json.loads(migrate(*urls(*pair), "--json"))
        assert report["copied"] + report["skipped"] == [*report["copied"], *present]
        for name in filters:
            assert dump(one, "BF.SCANDUMP", name) == dump(other, "BF.SCANDUMP", name)


def test_a_filter_that_changes_is_not_placed(
    pair: tuple[BloomeryServer, BloomeryServer],
) -> None:
    """While clients write to a filter, its copy never takes its name: it could lack keys."""
    source, target = pair
    with Wire(source.resp_port) as one, Wire(target.resp_port) as other, ExitStack() as ends:
        one.ask("BF.RESERVE", "busy", "0.01", 20_000_000)
        writing = [True]

        def write() -> None:
            with Wire(source.resp_port) as writer:
                number = 0
                while writing[0]:
                    writer.ask("BF.ADD", "busy", number)
                    number += 1

        thread = Thread(target=write)
        thread.start()
        ends.callback(thread.join)
        ends.callback(lambda: writing.__setitem__(0, False))
        assert "clients write to filter busy" in migrate(*urls(*pair), code=2)
        assert other.ask("EXISTS", "busy") == b":0\r\n"
        assert other.ask("DBSIZE") == b":0\r\n"


def test_servers_without_filters_are_reported(
    redis_server: RedisServer, server: BloomeryServer
) -> None:
    """A Redis without RedisBloom, on either side, and one that cannot be reached, are one clear
    error each."""
    own = f"bloomery://127.0.0.1:{server.resp_port}"
    said = migrate(redis_server.url, own, code=2)
    assert "has no BF.SCANDUMP: it is a Redis without RedisBloom" in said
    assert len(said.splitlines()) == 1
    assert "has no BF.LOADCHUNK" in migrate(own, redis_server.url, code=2)
    assert "cannot be reached" in migrate("redis://127.0.0.1:1", own, code=2)
    migrate("nonsense", own, code=2)
