"""Filters of the configuration: made at the start, kept, and reported where they differ."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from integration.resp.wire import Connection
from integration.servers import BloomeryServer, RedisServer, Serve, wait_until

SEEN = """
[filters.seen]
capacity = {capacity}
error_rate = 0.001
policy = "{policy}"
"""


def configured(folder: Path, text: str) -> tuple[str, str]:
    """The arguments for a server of this configuration."""
    file = folder / "bloomery.toml"
    file.write_text(text)
    return "--config", str(file)


def alerts(server: BloomeryServer) -> list[str]:
    """The texts of the alerts about filters that differ."""
    found = httpx.get(f"{server.url}/alerts").json()["alerts"]
    assert all(one["filter"] for one in found)
    return [one["text"] for one in found if one["kind"] == "filter-differs"]


def info(server: BloomeryServer, name: str = "seen") -> Any:
    """All that is known about a filter."""
    return httpx.get(f"{server.url}/filters/{name}").raise_for_status().json()


def test_a_filter_is_made_once_and_kept(serve: Serve, tmp_path: Path) -> None:
    """The first start makes it, as it is declared; the next one leaves it alone, with its keys."""
    right = configured(tmp_path, SEEN.format(capacity=1000, policy="reject"))
    server = serve(*right)
    made = info(server)
    assert (made["kind"], made["capacity"], made["error_rate"]) == ("bloom", 1000, 0.001)
    assert made["policy"]["on_full"] == "reject"
    with Connection(server.resp_port) as wire:
        assert wire.ask("BF.ADD", "seen", "alice") == 1
    server.kill()
    server.start()
    with Connection(server.resp_port) as wire:
        assert wire.ask("BF.EXISTS", "seen", "alice") == 1
    assert info(server)["created_at"] == made["created_at"]
    assert alerts(server) == []


def test_a_difference_is_reported_and_nothing_is_lost(serve: Serve, tmp_path: Path) -> None:
    """Of a filter that is otherwise than declared there is an alert, in the log and the metrics
    too, until it is as declared; no key of it is touched. One that is dropped is missed as well."""
    server = serve(*configured(tmp_path, SEEN.format(capacity=1000, policy="reject")))
    with Connection(server.resp_port) as wire:
        wire.ask("BF.ADD", "seen", "alice")
    server.kill()
    configured(tmp_path, SEEN.format(capacity=2000, policy="alert"))
    server.start()
    (text,) = alerts(server)
    assert "on_full is 'reject', not 'alert'; capacity is 1000, not 2000" in text
    assert text in server.printed()
    assert 'bloomery_alert_active{alert="filter-differs"' in httpx.get(f"{server.url}/metrics").text
    with Connection(server.resp_port) as wire:
        assert wire.ask("BF.EXISTS", "seen", "alice") == 1
        wire.ask("DEL", "seen")
        wire.ask("BF.RESERVE", "seen", "0.001", 2000, "KIND", "bloom", "ONFULL", "alert")
        assert wait_until(lambda: alerts(server) == [])
        wire.ask("DEL", "seen")
        assert wait_until(lambda: alerts(server))
    assert "seen of the configuration is not there: it was dropped" in alerts(server)[0]


def test_a_reload_makes_what_is_new(serve: Serve, tmp_path: Path) -> None:
    """On SIGHUP a new section is made, another is compared, and one that is gone leaves its filter
    as it was; the log says which."""
    text = SEEN.format(capacity=1000, policy="reject")
    server = serve(*configured(tmp_path, text + "[filters.old]\ncapacity = 10"))
    configured(
        tmp_path, SEEN.format(capacity=2000, policy="reject") + "[filters.new]\ncapacity = 5"
    )
    assert server.process is not None
    server.process.send_signal(signal.SIGHUP)
    assert wait_until(lambda: "filters.new is new" in server.printed()), server.printed()
    assert "filters.seen is another" in server.printed()
    assert "filters.old is gone" in server.printed()
    assert (info(server, "new")["capacity"], info(server, "old")["capacity"]) == (5, 10)
    (found,) = alerts(server)
    assert "capacity is 1000, not 2000" in found


def test_what_is_wrong_refuses_the_start(tmp_path: Path) -> None:
    """A wrong value is one line with its place, and exit code 2."""
    wrong = configured(tmp_path, SEEN.format(capacity=0, policy="reject"))
    told = BloomeryServer(tmp_path, *wrong).refused()
    assert "bloomery.toml:3: filters.seen: capacity is '0', must be greater" in told


def test_one_that_cannot_be_made_keeps_nobody_from_the_others(serve: Serve, tmp_path: Path) -> None:
    """What there is no memory for is an alert; the other filters are served. A reload tries again,
    though its section is the same."""
    text = '[filters.huge]\ncapacity = 20_000_000\nkind = "bloom"\n[filters.small]\ncapacity = 10'
    server = serve(*configured(tmp_path, f'maxmemory = "10mb"\n{text}'))
    (found,) = alerts(server)
    assert "the filter huge of the configuration is not there" in found
    assert info(server, "small")["kind"] == "scalable"
    configured(tmp_path, f'maxmemory = "100mb"\n{text}')
    assert server.process is not None
    server.process.send_signal(signal.SIGHUP)
    assert wait_until(lambda: alerts(server) == []), server.printed()
    assert info(server, "huge")["capacity"] == 20_000_000


@pytest.mark.slow
def test_nodes_that_start_at_once_make_it_once(redis_server: RedisServer, tmp_path: Path) -> None:
    """Of two nodes of one store one makes the filter, and what is added by one the other knows."""
    right = configured(tmp_path, "[filters.seen]\ncapacity = 1000")
    own = (*right, f"--set=store={redis_server.url}", "--set=store-prefix=declared")
    nodes = []
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        nodes.append(BloomeryServer(tmp_path / str(number), *own))
    try:
        for node in nodes:
            node.spawn()
        assert wait_until(lambda: all(node.ready() for node in nodes)), nodes[0].printed()
        assert info(nodes[0])["policy"]["on_full"] == "grow"
        with Connection(nodes[0].resp_port) as one, Connection(nodes[1].resp_port) as other:
            one.ask("BF.ADD", "seen", "alice")
            assert wait_until(lambda: other.ask("BF.EXISTS", "seen", "alice") == 1)
        assert alerts(nodes[0]) == alerts(nodes[1]) == []
    finally:
        for node in nodes:
            node.kill()
