"""The registry of nodes: each filter once, whichever node writes, and samples of the traffic of
all of them."""

from __future__ import annotations

from typing import Any

import httpx
import psycopg

from integration.nodes.conftest import StartFleet
from integration.nodes.fleet import Fleet
from integration.servers import RedisServer, wait_until

ROWS = "SELECT name, server FROM BloomFilterConfig ORDER BY name"


class Tables:
    """The registry, as people see it."""

    def __init__(self, url: str) -> None:
        self._place = url.replace("postgresql+psycopg", "postgresql")

    def ask(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query; none while there are no tables."""
        try:
            with psycopg.connect(self._place, autocommit=True) as connection:
                done = connection.execute(sql, values)
                return done.fetchall() if done.description else []
        except psycopg.errors.UndefinedTable:
            return []

    @property
    def names(self) -> list[str]:
        """Of all filters."""
        return [name for name, _ in self.ask(ROWS)]

    @property
    def servers(self) -> set[str]:
        """Who has rows."""
        return {server for _, server in self.ask(ROWS)}


def holder_of(fleet: Fleet) -> int:
    """The node that decides for all, of those that run."""
    found: list[int] = []

    def held() -> bool:
        running = [at for at, one in enumerate(fleet.nodes) if one.process is not None]
        found[:] = [at for at in running if fleet.figures(at)["holds_lease"]]
        return len(found) == 1

    assert wait_until(held)
    return found[0]


def test_each_filter_has_one_row(
    start_fleet: StartFleet, redis_server: RedisServer, postgres_url: str
) -> None:
    """Whichever node makes, renames or drops it; also after the node that writes was killed, and
    another took over. A row that somebody inserts becomes one filter on all nodes."""
    store = f"redis://127.0.0.1:{redis_server.port}/0"
    fleet = start_fleet(store, nodes=2, registry=postgres_url, sample_seconds=1)
    tables = Tables(postgres_url)
    with fleet.client(0) as one, fleet.client(1) as two:
        one.execute_command("BF.RESERVE", "first", 0.01, 1000)
        two.execute_command("BF.RESERVE", "second", 0.01, 1000)
        assert wait_until(lambda: tables.names == ["first", "second"])
        two.rename("second", "third")
        assert wait_until(lambda: tables.names == ["first", "third"])
    tables.ask(
        "INSERT INTO BloomFilterConfig (name, kind, expected_elements, fp_rate)"
        " VALUES ('wished', 'bloom', 500, 0.01)"
    )
    for at in (0, 1):
        assert wait_until(lambda: has(fleet, at, "wished"))  # noqa: B023
    assert wait_until(lambda: len(tables.servers) == 1)
    (server,) = tables.servers
    holder = holder_of(fleet)
    fleet.nodes[holder].kill()
    other = 1 - holder
    with fleet.client(other) as client:
        client.execute_command("BF.RESERVE", "later", 0.01, 1000)
        client.delete("first")
    assert wait_until(lambda: tables.names == ["later", "third", "wished"])
    assert tables.servers == {server}
    fleet.nodes[holder].start()
    fleet.wait_ready()
    with fleet.client(holder) as client:
        client.execute_command("BF.RESERVE", "last", 0.01, 1000)
    assert wait_until(lambda: tables.names == ["last", "later", "third", "wished"])
    assert tables.servers == {server}


def has(fleet: Fleet, at: int, name: str) -> bool:
    """Whether a node has a filter."""
    return httpx.get(f"{fleet.nodes[at].url}/filters/{name}").status_code == 200


def test_samples_count_what_all_nodes_were_asked(
    start_fleet: StartFleet, redis_server: RedisServer, postgres_url: str
) -> None:
    """The node that writes samples has the checks and maybes of the others in them, and the keys
    that were added through them, also those that were there already and are not in the log; those
    samples are there once."""
    store = f"redis://127.0.0.1:{redis_server.port}/0"
    fleet = start_fleet(store, nodes=2, registry=postgres_url, sample_seconds=1)
    holder = holder_of(fleet)
    other = 1 - holder
    with fleet.client(other, strong=True) as client:
        client.execute_command("BF.RESERVE", "asked", 0.001, 10_000)
        assert wait_until(lambda: sampled(fleet, holder) is not None)
        keys = [f"key {number}" for number in range(1000)]
        assert sum(client.execute_command("BF.MADD", "asked", *keys)) > 950
        sums = [0.0, 0.0, 0.0]
        seen: set[float] = set()

        def take() -> None:
            sample = sampled(fleet, holder)
            if sample is not None and sample["at"] not in seen:
                seen.add(sample["at"])
                for at, name in enumerate(("adds_per_second", "checks_per_second")):
                    sums[at] += (sample[name] or 0) * sample["seconds"]
                sums[2] += (
                    (sample["maybe_share"] or 0)
                    * (sample["checks_per_second"] or 0)
                    * sample["seconds"]
                )

        for _ in range(5):
            assert sum(client.execute_command("BF.MADD", "asked", *keys)) == 0
            client.execute_command("BF.MEXISTS", "asked", *keys, *(f"not {key}" for key in keys))
            take()

        def counted() -> bool:
            take()
            return sums[0] >= 5_999 and sums[1] >= 9_999

        assert wait_until(counted, pause=0.1), sums
    assert 5_999 <= sums[0] <= 6_001
    assert 9_999 <= sums[1] <= 10_001
    assert 4_990 <= sums[2] <= 5_060
    written = Tables(postgres_url).ask(
        "SELECT sampled_at, count(*) FROM BloomFilterStats WHERE span = 0"
        " GROUP BY sampled_at, filter_id HAVING count(*) > 1"
    )
    assert written == []


def sampled(fleet: Fleet, at: int) -> dict[str, Any] | None:
    """The last sample of the filter that a node has."""
    found: dict[str, Any] | None = httpx.get(f"{fleet.nodes[at].url}/filters/asked").json()[
        "sample"
    ]
    return found
