"""Who is there: GET /nodes, BF.NODES, `bloomery nodes` and metrics tell the same."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import httpx

from bloomery import __version__
from integration.nodes.conftest import StartFleet
from integration.servers import RedisServer, Serve, wait_until


def nodes(url: str) -> list[dict[str, Any]]:
    """What GET /nodes says, by when each came."""
    found: list[dict[str, Any]] = httpx.get(f"{url}/nodes").raise_for_status().json()["nodes"]
    return sorted(found, key=lambda one: one["id"])


def shown(url: str, *more: str) -> str:
    """What the command prints."""
    words = (sys.executable, "-m", "bloomery", "nodes", "--server", url, *more)
    done = subprocess.run(words, capture_output=True, check=True, timeout=60)
    return (done.stdout + done.stderr).decode()


def test_all_nodes_are_told_by_each(start_fleet: StartFleet, redis_server: RedisServer) -> None:
    """Where each is, its version, how far it is, and which one decides; in every form the same."""
    fleet = start_fleet(f"redis://127.0.0.1:{redis_server.port}/0", nodes=2)
    urls = [one.url for one in fleet.nodes]

    def complete() -> bool:
        found = [nodes(url) for url in urls]
        return all(
            len(one) == 2
            and all(node["resp"] and node["position"] for node in one)
            and sum(node["holds_lease"] for node in one) == 1
            for one in found
        )

    assert wait_until(complete), [nodes(url) for url in urls]
    first, second = (nodes(url) for url in urls)
    assert [one["id"] for one in first] == [one["id"] for one in second]
    assert sorted(one["resp"] for one in first) == sorted(
        f"127.0.0.1:{port}" for port, _ in fleet.ports
    )
    for one in first:
        assert one["version"] == __version__
        assert (one["operations"] >= 1, one["older"]) == (True, False)
        assert one["lag_seconds"] < 5
        assert one["requests_a_second"] >= 0
        assert one["heard_seconds_ago"] < 60
    here = [[one["here"] for one in found].index(True) for found in (first, second)]
    assert sorted(here) == [0, 1]
    with fleet.client(0, protocol=3) as client:
        for one in client.execute_command("BF.NODES"):
            text = {name.decode(): value for name, value in one.items()}
            (same,) = [node for node in first if node["id"].encode() == text["id"]]
            assert text["http"].decode() == same["http"]
            assert bool(text["holds_lease"]) == same["holds_lease"]
    metrics = httpx.get(f"{urls[0]}/metrics").text
    assert "bloomery_store_nodes 2.0" in metrics
    assert "bloomery_store_older_nodes 0.0" in metrics
    leases = [float(fleet.figures(at)["holds_lease"]) for at in (0, 1)]
    assert sorted(leases) == [0.0, 1.0]
    listed = json.loads(shown(urls[0], "--json"))
    assert sorted(one["id"] for one in listed) == [one["id"] for one in first]
    table = shown(urls[1])
    assert "lease" in table
    assert "here" in table
    assert all(one["id"] in table for one in first)


def test_a_server_alone_has_no_nodes(serve: Serve) -> None:
    """It says so, and is no error."""
    server = serve()
    assert nodes(server.url) == []
    assert "a server alone" in shown(server.url)
    assert json.loads(shown(server.url, "--json")) == []
