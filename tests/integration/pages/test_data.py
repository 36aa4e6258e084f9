"""What pages fetch, without a browser: the table, samples over time, the memory, files."""

import re
from collections.abc import Iterator

import httpx
import pytest
import redis

from integration.servers import BloomeryServer, Serve
from waiting import wait_until


@pytest.fixture
def http(server: BloomeryServer) -> Iterator[httpx.Client]:
    """A client of the server that tests share."""
    with httpx.Client(base_url=server.url, timeout=30) as client:
        yield client


def test_the_table_is_sorted_by_every_column(http: httpx.Client, server: BloomeryServer) -> None:
    """By each column, either way; what is not known comes last; a page beyond the last is the
    last."""
    with redis.Redis(port=server.resp_port) as client:
        for one, keys in (("few", 3), ("many", 70)):
            client.execute_command("BF.MADD", f"data {one}", *range(keys))
        client.execute_command("BF.RESERVE", "data none", 0.01, 10)
    asked = {"search": "data ", "page": "9"}
    sorts = ("name", "kind", "items", "nbytes", "state", "fill", "estimated", "observed", "adds")
    for sort in (*sorts, "checks", "full_in"):
        for order in ("up", "down"):
            answer = http.get("/ui/data/filters", params=asked | {"sort": sort, "order": order})
            told = answer.json()
            assert (told["number"], told["page"], told["pages"]) == (3, 1, 1), (sort, told)
    by_keys = http.get("/ui/data/filters", params=asked | {"sort": "items", "order": "down"}).json()
    assert [row["name"] for row in by_keys["rows"]] == ["data many", "data few", "data none"]
    assert {row["state"] for row in by_keys["rows"]} == {"healthy"}
    assert http.get("/ui/data/filters", params={"sort": "seed"}).status_code == 422
    assert http.get("/ui/data/filters", params={"what": "else"}).status_code == 400


def test_samples_over_any_time(serve: Serve) -> None:
    """From minutes to months the columns are of one length, in order of time, and have what was
    sampled, however long ago the first one is asked for."""
    server = serve("--set", "sample-seconds=1")
    with redis.Redis(port=server.resp_port) as client:
        client.execute_command("BF.MADD", "sampled", *range(50))
    with httpx.Client(base_url=server.url, timeout=30) as http:
        assert wait_until(
            lambda: (http.get("/filters/sampled").json()["sample"] or {}).get("items")
        )
    server.stop()  # then samples are written; else a quarter of a minute later
    server.start()
    with httpx.Client(base_url=server.url, timeout=30) as http:

        def columns(seconds: int) -> dict[str, list[float]]:
            answer = http.get("/ui/data/filters/sampled/series", params={"seconds": seconds})
            return dict(answer.json())

        # The registry is there a moment after the server.
        assert wait_until(lambda: 50 in columns(900).get("items", []), pause=0.1)
        for seconds in (60, 3600, 3601, 86400, 86401, 90 * 86400):
            told = columns(seconds)
            assert {len(column) for column in told.values()} == {len(told["at"])}
            assert told["at"] == sorted(told["at"])
            assert 50 in told["items"]
        assert http.get("/ui/data/filters/sampled/series?seconds=1").status_code == 422


def test_a_key_is_tested_in_a_body(http: httpx.Client, server: BloomeryServer) -> None:
    """One key, of any type; several, or none, are refused; an unknown filter is not made."""
    with redis.Redis(port=server.resp_port) as client:
        client.execute_command("BF.ADD", "data test", "a")
    at = "/ui/data/filters/data%20test/test"
    told = http.post(at, json={"key": "a"}).json()
    assert told["maybe"] is any(place["agrees"] for place in told["evidence"]["places"]) is True
    assert http.post(at, json={"key": ["a", 1]}).json()["maybe"] is False
    for body in ({"keys": ["a", "b"]}, {}, {"key": None}, {"key": 1.5}):
        assert http.post(at, json=body).status_code in (400, 422), body
    unknown = http.post("/ui/data/filters/data%20unknown/test", json={"key": "a"})
    assert unknown.status_code == 404
    assert http.get("/ui/filters/data%20unknown").status_code == 404


def test_files_are_kept_for_ever_under_their_hash(http: httpx.Client) -> None:
    """A file has an address with a hash, from which a browser need not ask again; another hash,
    another name and another folder are no files."""
    page = http.get("/ui/filters")
    [style] = re.findall('href="(/ui/static/[0-9a-f]+/bloomery.css)"', page.text)
    kept = http.get(style)
    assert kept.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert kept.headers["content-type"] == "text/css; charset=utf-8"
    assert page.headers["cache-control"] == "no-store"
    folder = style.removesuffix("/bloomery.css")
    for wrong in (
        "/ui/static/0000000000000000/bloomery.css",
        f"{folder}/nothing.css",
        f"{folder}/..%2Fframe.py",
        f"{folder}/../frame.py",
    ):
        assert http.get(wrong).status_code == 404, wrong


def test_audit_log_shows_names_that_are_not_text(
    http: httpx.Client, server: BloomeryServer
) -> None:
    """The page of the audit log prints a name that is not UTF-8 as other pages do."""
    # A filter that exists: deletions that fail share one line per minute with other tests' ones.
    with redis.Redis(port=server.resp_port) as client:
        client.execute_command("BF.RESERVE", b"\xffaudited", 0.01, 10)
    assert http.delete("/filters/%ffaudited").is_success

    def shown() -> bool:
        answer = http.get("/ui/data/audit")
        assert answer.status_code == 200, answer.text
        lines = [line for line in answer.json()["lines"] if line["operation"] == "drop"]
        return "\\xffaudited" in [name for line in lines for name in line.get("names", [])]

    assert wait_until(shown)
