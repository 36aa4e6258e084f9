"""Alive and ready: while loading, while serving, while draining; and what is shown to watchers."""

import json
import time
from pathlib import Path

import httpx
import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from bloomery.service.domain import operations
from bloomery.service.domain.operations import Op, named
from bloomery.service.durability.log import Row
from bloomery.service.durability.recovery import recover
from integration.http.asking import Http, Raw, at, post, problem
from integration.resp.wire import Wire
from integration.servers import BloomeryServer, Serve, free_port, wait_until


def test_ready_while_serving(http: Http) -> None:
    """A server that serves is alive and ready, to GET and to HEAD."""
    for path in ("/healthz", "/readyz", "/readyz?writes=false"):
        answer = http.client.get(path)
        assert (answer.status_code, answer.text) == (200, "ok\n")
        head = http.client.head(path)
        assert (head.status_code, head.content) == (200, b"")
    http.ask("GET", "/readyz?writes=perhaps", status=422)


def test_not_ready_while_loading(tmp_path: Path) -> None:
    """While a long log is read again the server is alive and not ready, and says so to whoever
    asks for more; then it has everything."""
    log = recover(tmp_path / "data").log("never")
    settings = {"kind": "scalable", "capacity": 1000, "error_rate": 0.01}
    hashes = np.random.default_rng(1).integers(0, 2**63, 4_000_000, dtype=np.uint64)
    rows: list[Row] = [
        (time.time(), 1, Op.CREATE, named(b"large", operations.fields(settings=settings)))
    ]
    rows += [
        (time.time(), 1, Op.ADD, named(b"large", part.tobytes())) for part in np.split(hashes, 100)
    ]
    log.write(rows)
    log.close()
    port = free_port()
    again = BloomeryServer(tmp_path, "--http-port", str(port), data=tmp_path / "data")
    again.spawn()
    try:
        seen = set()
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:

            def ask(path: str) -> httpx.Response | None:
                try:
                    return client.get(path)
                except httpx.TransportError:
                    return None  # it does not listen yet

            assert wait_until(lambda: ask("/healthz") is not None)
            while (ready := ask("/readyz")) is not None and ready.status_code == 503:
                assert int(ready.headers["retry-after"]) > 0
                alive, refused = ask("/healthz"), ask(f"{at('large')}")
                assert alive is not None
                assert refused is not None
                seen.add((alive.status_code, ready.text, refused.status_code))
                if refused.status_code == 503:
                    assert refused.json()["code"] == "server-unavailable"
                    assert int(refused.headers["retry-after"]) > 0
            assert (200, "loading\n", 503) in seen
            assert ready is not None
            assert ready.status_code == 200
            told = client.get(at("large")).json()
            assert told["items"] >= 3_900_000
    finally:
        again.kill()


def test_draining(serve: Serve) -> None:
    """SIGTERM: first not ready, and still serving, for `drain-seconds`; then a request that has
    begun is answered, idle connections end, and the server ends with everything saved."""
    server = serve("--set", "drain-seconds=3")
    port = server.http_port
    assert server.process is not None
    with Http(server) as http, Raw(port) as begun, Raw(port) as idle:
        http.create("drained")
        body = b'{"key":"begun"}'
        begun.send(post(f"{at('drained')}/add", b"", Content_Length=str(len(body))))
        idle.request(f"{at('drained')}/add", b'{"key":"idle"}')
        assert idle.answer()[0] == 200
        server.process.terminate()

        def draining() -> bool:
            answer = http.client.get("/readyz")
            return (answer.status_code, answer.text) == (503, "draining\n")

        assert wait_until(draining)
        assert http.client.get("/healthz").status_code == 200
        assert http.keys("drained", "add", "late") == [True]
        with Wire(server.resp_port) as wire:
            assert wire.ask("BF.ADD", "drained", "by resp") == b":1\r\n"
        assert idle.ended()  # the doors are closed
        begun.send(body)
        status, headers, told = begun.answer()
        assert (status, json.loads(told)) == (200, {"new": True})
        assert headers["connection"] == "close"
        assert begun.ended()
    assert server.process.wait(60) == 0
    server.process = None
    server.start()
    with Http(server) as http:
        assert http.keys("drained", "contains", "begun", "idle", "late", "by resp") == [True] * 4


def test_a_request_that_does_not_end_does_not_hold_up_the_end(serve: Serve) -> None:
    """A body that never comes ends with the server, some seconds after SIGTERM."""
    server = serve()
    with Raw(server.http_port) as raw:
        with Http(server) as http:
            http.create("stuck")
        head = {"Content_Length": "100", "Expect": "100-continue"}
        raw.send(post(f"{at('stuck')}/add", b"", **head))
        assert raw.answer()[0] == 100  # the server has read it
        assert server.stop() == 0
        assert raw.ended()


def test_metrics(http: Http) -> None:
    """The figures parse as Prometheus reads them, and have the filter that was asked."""
    http.create("measured", 1234)
    http.keys("measured", "add", "a", "b")
    answer = http.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {
        sample.name: sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if sample.labels.get("name", sample.labels.get("filter")) == "measured"
    }
    assert (found["bloomery_filter_items"], found["bloomery_filter_capacity"]) == (2, 1234)


def test_alerts(http: Http) -> None:
    """A filter that is nearly full is among the alerts, until it is gone."""

    def about() -> list[str]:
        found = http.ask("GET", "/alerts")["alerts"]
        return [one["kind"] for one in found if "nearly" in json.dumps(one) and of(one)]

    def of(alert: dict[str, object]) -> bool:
        return "alerted" in json.dumps(alert)

    http.create("alerted", 10, on_full="alert")
    assert about() == []
    http.keys("alerted", "add", *"abcdefghi")
    assert about() == ["nearly-full"]
    http.ask("DELETE", at("alerted"), status=204)
    assert wait_until(lambda: about() == [])


def test_loading_is_no_problem_of_a_wrong_path(http: Http) -> None:
    """The document needs no login and no filters: it is always there."""
    document = http.ask("GET", "/openapi.json")
    assert document["openapi"].startswith("3.1")
    with Raw(http.server.http_port) as raw:
        raw.send(b"GET /openapi.json HTTP/1.0\r\n\r\n")
        status, headers, body = raw.answer()
        assert (status, json.loads(body)) == (200, document)
        assert headers["connection"] == "close"
    with Raw(http.server.http_port) as raw:
        raw.send(b"GET * HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert problem(raw.answer()[2]) == "invalid-request"
