"""A real server that is watched: samples in SQLite and PostgreSQL and over HTTP, and metrics."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from conftest import require
from integration.http.asking import Http, at
from integration.policies.test_clock_jumps import Jumping
from integration.servers import PostgresServer, Serve, wait_until

OFTEN = ("--set", "sample-seconds=1")


@pytest.fixture(params=["sqlite", "postgresql"])
def registry(request: pytest.FixtureRequest) -> list[str]:
    """Options for a registry of either sort."""
    if request.param == "sqlite":
        return []
    require("psycopg")
    return ["--registry", str(request.getfixturevalue("postgres_url"))]


def sampled(http: Http, name: str, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """What is told about a filter, once its last sample is as wanted."""

    def last() -> dict[str, Any]:
        found = http.ask("GET", at(name))["sample"]
        return found if found is not None and wanted(found) else {}

    assert wait_until(lambda: bool(last()))
    return last() or http.ask("GET", at(name))["sample"]


def metrics(http: Http) -> dict[tuple[str, str], float]:
    """Every figure, by its name and its filter."""
    answer = http.client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (one.name, one.labels.get("filter", "")): one.value
        for family in parse(answer.text)
        for one in family.samples
    }


def test_samples_survive_the_server(serve: Serve, registry: list[str]) -> None:
    """What was sampled is in SQL when the server has ended, raw and for the minute and the hour,
    and the next one shows it."""
    server = serve(*OFTEN, *registry)
    began = time.time()
    with Http(server) as http:
        http.create("users", 10_000)
        sampled(http, "users", lambda one: True)
        keys = [f"key {number}" for number in range(500)]
        http.keys("users", "add", *keys)
        http.keys("users", "contains", *keys, *(f"absent {number}" for number in range(500)))
        told = sampled(http, "users", lambda one: one["items"] >= 499)
        assert told["nbytes"] > 0
        assert told["canary_probes"] == 256
        sampled(http, "users", lambda one: one["adds_per_second"] == 0)
    assert server.stop() == 0
    server.start()
    with Http(server) as http:
        ask = f"{at('users')}/samples"
        raw = http.ask("GET", ask)["samples"]
        assert len(raw) >= 3
        assert all(began - 1 < one["at"] < time.time() + 1 for one in raw)
        assert [one["at"] for one in raw] == sorted(one["at"] for one in raw)
        for span in (0, 60, 3600):
            rows = http.ask("GET", ask, params={"span": span})["samples"]
            known = [one for one in rows if one["adds_per_second"] is not None]
            assert sum(one["adds_per_second"] * one["seconds"] for one in known) == (
                pytest.approx(500)
            )
            checks = sum(one["checks_per_second"] * one["seconds"] for one in known)
            assert checks == pytest.approx(1000)
        assert http.ask("GET", ask, params={"until": began - 60})["samples"] == []
        assert len(http.ask("GET", ask, params={"limit": 1})["samples"]) == 1
        http.ask("GET", f"{at('nobody')}/samples", status=404)


def test_samples_without_their_database(
    serve: Serve, postgres: PostgresServer, postgres_url: str
) -> None:
    """While PostgreSQL is away the last sample is told all the same, and older ones later."""
    server = serve(*OFTEN, "--registry", postgres_url)
    with Http(server) as http:
        http.create("users")
        sampled(http, "users", lambda one: True)
        ask = f"{at('users')}/samples"
        assert wait_until(lambda: http.client.get(ask).status_code == 200)
        postgres.kill()
        http.ask("GET", ask, status=503)
        http.keys("users", "add", "alice")
        sampled(http, "users", lambda one: one["items"] == 1)
        assert postgres.password not in http.client.get(ask).text
        postgres.start()
        assert wait_until(lambda: http.client.get(ask).status_code == 200)
    assert postgres.password not in server.printed()


def test_an_overfull_filter_is_seen(serve: Serve) -> None:
    """A filter that is let run over errs more often than asked; the canary measures how often,
    about as often as it does for a client that asks for keys that nobody added."""
    server = serve(*OFTEN)
    with Http(server) as http:
        http.create("over", 1000, kind="bloom", on_full="alert", error_rate=0.01)
        http.keys("over", "add", *(f"key {number}" for number in range(4000)))
        maybes = http.keys("over", "contains", *(f"absent {number}" for number in range(20_000)))
        true = sum(maybes) / 20_000
        assert true > 0.2

        def measured(one: dict[str, Any]) -> bool:
            return bool(one["observed_error_rate"] == pytest.approx(true, rel=0.25))

        told = sampled(http, "over", measured)
        assert told["forecast"] == "full"
        assert told["estimated_error_rate"] == pytest.approx(true, rel=0.25)
        found = metrics(http)
        low = found["bloomery_filter_observed_error_rate_low", "over"]
        high = found["bloomery_filter_observed_error_rate_high", "over"]
        assert 0.01 < low < high
        assert found["bloomery_filter_error_rate", "over"] == 0.01
        assert found["bloomery_filter_adds_total", "over"] == 4000
        assert found["bloomery_filter_checks_total", "over"] == 20_000  # the canary's are none
        assert found["bloomery_alert_active", "over"] == 1


def test_clocks_that_jump(tmp_path: Path) -> None:
    """A year forward, two back, and ten years ahead at the next start: samples are of the time that
    really passes, no rate is below 0, and none is removed."""
    server = Jumping(tmp_path)
    server.arguments = OFTEN
    began = time.time()

    def use(http: Http, number: int) -> None:
        http.keys("users", "add", f"key {number}")
        sampled(http, "users", lambda one: one["items"] == number)

    try:
        server.start()
        with Http(server) as http:
            http.create("users")
            for number, off in enumerate(("+0", "+365d", "-365d"), 1):
                server.jump(off)
                use(http, number)
        assert server.stop() == 0
        server.jump("+3650d")
        server.start()
        with Http(server) as http:
            ask, before = f"{at('users')}/samples", time.time() + 86400
            old = http.ask("GET", ask, params={"since": 0, "until": before, "span": 0})["samples"]
            use(http, 4)
            use(http, 5)  # another round, at the end of which old ones would be removed
            wait_until(lambda: http.client.get("/metrics").status_code == 200)
            after = {"since": 0, "until": before, "span": 0, "limit": 10_000}
            assert http.ask("GET", ask, params=after)["samples"] == old
        times = [one["at"] for one in old]
        assert times == sorted(times)
        assert len(set(times)) == len(times) >= 3
        assert began - 1 < times[0]
        assert times[-1] < time.time() + 1
        assert all(one["adds_per_second"] >= 0 for one in old if one["seconds"])
    finally:
        server.kill()


def test_sampling_can_be_turned_off_and_on(serve: Serve) -> None:
    """With sample-seconds 0 there are no samples, until CONFIG SET says otherwise."""
    redis = require("redis")
    server = serve("--set", "sample-seconds=0")
    with Http(server) as http, redis.Redis(port=server.resp_port) as client:
        http.create("users")
        time.sleep(1.2)  # in which there would be a sample
        assert http.ask("GET", at("users"))["sample"] is None
        assert client.config_set("sample-seconds", 1)
        sampled(http, "users", lambda one: True)
        assert client.config_get("sample-keep")["sample-keep"] == "3600"
