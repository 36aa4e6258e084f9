"""Policies on nodes: one of them decides for all, and tells of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from integration.nodes.fleet import Fleet
from integration.policies.test_webhook import SECRET
from integration.servers import RedisServer, wait_until
from unit.service.policy.receiver import Receiver

CAPACITY = 1000


@contextmanager
def fleet_with(redis_server: RedisServer, folder: Path) -> Iterator[tuple[Fleet, Receiver]]:
    """Two nodes, and where their alerts go."""
    receiver = Receiver()
    (folder / "secret").write_text(SECRET)
    store = f"redis://127.0.0.1:{redis_server.port}/0"
    try:
        with Fleet(
            folder,
            store,
            nodes=2,
            sample_seconds=1,
            webhook_url=f"http://127.0.0.1:{receiver.port}/hook",
            webhook_secret_file=folder / "secret",
        ) as fleet:
            yield fleet, receiver
    finally:
        receiver.close()


def keys(of: str) -> list[str]:
    """More than enough: some of them a filter takes for known."""
    return [f"{of} {number}" for number in range(CAPACITY + 100)]


def told(receiver: Receiver, *kinds: str) -> list[tuple[str, str]]:
    """Alerts that arrived: the kind, and what is told of it."""
    alerts = [request.alert for request in receiver.requests]
    return [(one["kind"], one["state"]) for one in alerts if one["kind"] in kinds]


def holder_of(fleet: Fleet, *numbers: int) -> int:
    """The node that decides, as these tell, once there is one."""
    found: list[int] = []

    def held() -> bool:
        found[:] = [at for at in numbers if fleet.figures(at)["holds_lease"]]
        return len(found) == 1

    assert wait_until(held)
    return found[0]


def rotations(fleet: Fleet, at: int) -> float:
    """How often a node saw a filter rotate."""
    text = httpx.get(f"{fleet.nodes[at].url}/metrics").text
    lines = [line for line in text.splitlines() if 'alerts_total{alert="rotated"}' in line]
    return float(lines[0].split()[1]) if lines else 0.0


def file_of(fleet: Fleet, at: int, name: str) -> bytes:
    return httpx.get(f"{fleet.nodes[at].url}/filters/{name}/file").content


def pass_time(fleet: Fleet, at: int, entries: int = 4) -> None:
    """Wait until the shared log has so many entries more: some seconds' clock."""
    before = fleet.figures(at)["entries"]
    assert wait_until(lambda: fleet.figures(at)["entries"] >= before + entries)


def test_a_saturated_filter_rotates_once(redis_server: RedisServer, tmp_path: Path) -> None:
    """Both nodes fill it: it rotates once, on both, and one alert is told. Who decides is killed:
    another decides the next time."""
    with fleet_with(redis_server, tmp_path) as (fleet, receiver):
        holder = holder_of(fleet, 0, 1)
        other = 1 - holder
        with fleet.client(0) as one, fleet.client(1, strong=True) as two:
            one.execute_command(
                "BF.RESERVE", "seen", 0.01, CAPACITY, "ONFULL", "rotate", "GRACE", 0
            )
            first = keys("first")
            assert one.execute_command("BF.MADD", "seen", *first[:600])
            assert two.execute_command("BF.MADD", "seen", *first[600:])
        assert wait_until(lambda: [rotations(fleet, at) for at in (0, 1)] == [1, 1])
        assert wait_until(lambda: len(told(receiver, "rotated")) == 1)
        pass_time(fleet, other)
        assert [rotations(fleet, at) for at in (0, 1)] == [1, 1]
        assert fleet.answers("seen", first, strong=True) == [0, 0]  # the generation before
        assert wait_until(lambda: file_of(fleet, 0, "seen") == file_of(fleet, 1, "seen"))
        assert told(receiver, "rotated") == [("rotated", "event")]
        fleet.nodes[holder].kill()
        second = keys("second")
        with fleet.client(other) as client:
            assert client.execute_command("BF.MADD", "seen", *second)
        assert wait_until(lambda: rotations(fleet, other) == 2)
        assert holder_of(fleet, other) == other
        assert wait_until(lambda: len(told(receiver, "rotated")) == 2)
        with fleet.client(other) as client:
            assert all(client.execute_command("BF.MEXISTS", "seen", *second))
            kept = sum(client.execute_command("BF.MEXISTS", "seen", *first))
        assert kept < 0.1 * CAPACITY
        fleet.nodes[holder].start()
        fleet.wait_ready()
        assert wait_until(lambda: file_of(fleet, 0, "seen") == file_of(fleet, 1, "seen"))


def test_full_is_told_once_and_refused_by_all(redis_server: RedisServer, tmp_path: Path) -> None:
    """A filter that takes no more is full on all nodes at the same key; each knows the alert, and
    one tells it; one that grows does so on both alike."""
    with fleet_with(redis_server, tmp_path) as (fleet, receiver):
        holder_of(fleet, 0, 1)
        with fleet.client(0) as one, fleet.client(1) as two:
            one.execute_command("BF.RESERVE", "full", 0.01, CAPACITY, "ONFULL", "reject")
            one.execute_command("BF.RESERVE", "grows", 0.01, CAPACITY, "ONFULL", "grow")
            many: list[Any] = keys("a") + keys("b")
            for client, part in ((one, many[:1500]), (two, many[500:])):
                client.execute_command("BF.MADD", "full", *part)
                client.execute_command("BF.MADD", "grows", *part)
        for at in (0, 1):
            assert wait_until(lambda: alerts(fleet, at) == ["full", "nearly-full"])  # noqa: B023
        assert wait_until(lambda: len(told(receiver, "full", "nearly-full")) == 2)
        pass_time(fleet, 0)
        right = [("full", "raised"), ("nearly-full", "raised")]
        assert sorted(told(receiver, "full", "nearly-full")) == right
        assert fleet.answers("grows", many, strong=True) == [0, 0]
        for name in ("full", "grows"):
            assert file_of(fleet, 0, name) == file_of(fleet, 1, name)
        items = [httpx.get(f"{one.url}/filters/full").json()["items"] for one in fleet.nodes]
        assert items[0] == items[1]


def alerts(fleet: Fleet, at: int) -> list[str]:
    """The alerts of filters that a node has."""
    found = httpx.get(f"{fleet.nodes[at].url}/alerts").json()["alerts"]
    return sorted(one["kind"] for one in found if one["filter"])
