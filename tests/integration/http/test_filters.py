"""Filters over HTTP: made, listed, shown, changed, dropped; and what is done to whole ones."""

import itertools
import threading
import time
from typing import Any

import httpx
import pytest

from integration.http.asking import PROBLEM, Http, at
from integration.resp.wire import Wire
from integration.servers import BloomeryServer, Serve

KINDS: dict[str, dict[str, Any]] = {
    "bloom": {"layout": "classic", "hasher": "murmur3", "seed": 7},
    "scalable": {"growth": 2},
    "counting": {"counter_bits": 8},
    "deletable": {"regions": 64},
    "cuckoo": {"grow": True},
    "rotating": {"window": "12h", "generations": 3},
    "bank": {},
    "redisbloom": {"expansion": 4},
    "rediscuckoo": {"bucket_size": 4, "max_iterations": 50},
}
SHOWN: dict[str, dict[str, Any]] = {
    "bloom": {"layout": "classic", "hasher": "murmur3", "seed": 7, "capacity": 1000},
    "counting": {"counter_bits": 8, "error_rate": 0.01},
    "rotating": {"window": 12 * 3600.0, "generations": 3},
    "bank": {"keys_per_filter": 1000},
    "redisbloom": {"expansion": 4},
    "rediscuckoo": {"bucket_size": 4, "max_iterations": 50},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_made_with_its_parameters_and_used(http: Http, kind: str) -> None:
    """A filter of any kind can be made, takes keys, shows what it was made with, and is dropped."""
    name = f"kind-{kind}"
    made = http.create(name, kind=kind, **KINDS[kind])
    assert (made["name"], made["kind"]) == (name, kind)
    for field, value in SHOWN.get(kind, {}).items():
        assert made[field] == value
    assert http.keys(name, "add", "alice", "bob") == [True, True]
    assert http.keys(name, "contains", "alice", "carol") == [True, False]
    shown = http.ask("GET", at(name))
    assert (shown["items"], shown["adds"], shown["checks"], shown["maybes"]) == (2, 2, 2, 1)
    assert shown["estimated_count"] == 2
    http.ask("DELETE", at(name), status=204)
    assert http.ask("GET", at(name), status=404)["code"] == "unknown-filter"


def test_a_kind_follows_from_the_policy(http: Http) -> None:
    """Without a kind, a filter is of the one that its policy needs, and shows the policy."""
    for on_full, kind in (
        ("grow", "scalable"),
        ("rotate", "rotating"),
        ("reject", "bloom"),
        ("alert", "bloom"),
    ):
        made = http.create(f"policy-{on_full}", on_full=on_full)
        assert (made["kind"], made["policy"]["on_full"]) == (kind, on_full)


def test_a_name_is_any_bytes(http: Http) -> None:
    """What the URL has percent-encoded and JSON has printed is one name, the same as in RESP."""
    for name, printed in (
        (b"a/b?c=d&e#f", "a/b?c=d&e#f"),
        (b"%2F", "%2F"),
        (b"\x00\xff\\", "\\x00\\xff\\\\"),
        ("schön 🎈".encode(), "schön 🎈"),
        (b"samples", "samples"),
        (b"tab\t", "tab\\x09"),
    ):
        assert http.create(printed)["name"] == printed
        assert http.keys(name, "add", "x") == [True]
        assert http.ask("GET", at(name))["name"] == printed
        with Wire(http.server.resp_port) as wire:
            assert wire.ask("BF.EXISTS", name, "x") == b":1\r\n"
        http.ask("DELETE", at(name), status=204)


WRONG: tuple[Any, ...] = (
    {"capacity": 10},
    {"name": "", "capacity": 10},
    {"name": "x"},
    {"name": "x", "capacity": 0},
    {"name": "x", "capacity": "10"},
    {"name": "x", "capacity": True},
    {"name": "x", "capacity": 10, "error_rate": 1},
    {"name": "x", "capacity": 10, "eror_rate": 0.1},
    {"name": "x", "capacity": 10, "kind": "counting", "layout": "blocked"},
    {"name": "x", "capacity": 10, "kind": "static"},
    {"name": "x", "capacity": 10, "kind": 7},
    {"name": "x\\q", "capacity": 10},
    {"name": "n" * 1025, "capacity": 10},
    {"name": "x", "capacity": 1 << 40, "error_rate": 1e-9, "kind": "bloom"},
    {"name": "x", "capacity": 10, "on_full": "shrink"},
    {"name": "x", "capacity": 10, "kind": "bloom", "on_full": "grow"},
    [],
    "x",
)


def test_what_cannot_be_made_is_refused(http: Http) -> None:
    """A taken name, a wrong or unknown parameter, a wrong kind: each has its status and code."""
    http.create("taken")
    taken = http.ask("POST", "/filters", {"name": "taken", "capacity": 10}, 409)
    assert taken["code"] == "filter-exists"
    for wrong in WRONG:
        told = http.ask("POST", "/filters", wrong, 422)
        assert told["code"] == "invalid-parameter", wrong
    empty = {"Content-Type": "application/json"}
    assert http.ask("POST", "/filters", status=400, headers=empty)["code"] == "invalid-request"
    assert http.ask("GET", at("x"), status=404)["code"] == "unknown-filter"


TOLD: tuple[tuple[dict[str, Any], str], ...] = (
    ({"error_rte": 0.1}, "body.error_rte: there is no such field; did you mean error_rate?"),
    ({"fp_rate": 0.1}, "body.fp_rate: there is no such field; did you mean error_rate?"),
    ({"kind": "blom"}, "body: kind must be one of bloom, scalable, "),
    ({"window": "7d"}, "body.window: goes with kind rotating"),
    ({"kind": "rotating", "window": "7 days"}, "body.window: must be seconds, or text such as "),
    ({"warn_within": "soon"}, "body.warn_within: must be seconds, or text such as '15min'"),
    ({"error_rate": 2}, "body.error_rate: must be less than or equal to 0.5"),
    ({"expires_at": 5}, "body.expires_at: is set by PATCH /filters/{name}"),
    ({"capacity": None}, "body.capacity: must be a valid integer"),
    ({"name": "a\\q"}, r"body.name: must be text; a backslash in it is \\, "),
)


def test_a_refusal_says_what_would_be_right(http: Http) -> None:
    """A wrong field is told once, by its name, with what may stand there or what was meant."""
    for given, right in TOLD:
        told = http.ask("POST", "/filters", {"name": "x", "capacity": 10, **given}, 422)
        assert told["detail"].startswith(right), told["detail"]
        assert len(told["errors"]) == 1
    missing = http.ask("POST", "/filters", {"kind": "bloom"}, 422)
    assert missing["detail"] == "body.name: is missing; body.capacity: is missing"
    http.create("fixed")
    told = http.ask("PATCH", at("fixed"), {"capacity": 5}, 422)
    assert told["detail"] == "body.capacity: cannot be changed"
    told = http.ask("POST", f"{at('fixed')}/merge", {"sources": ["ok", 7]}, 422)
    assert told["detail"] == "body.sources[1]: must be a valid string"


def test_a_parameter_that_there_is_not_is_refused(http: Http) -> None:
    """A misspelt parameter of a URL is not ignored: another column, or all filters, would be."""
    http.create("asked")
    for method, path, right in (
        ("GET", "/filters?limt=3", "there is no parameter 'limt' here; did you mean limit?"),
        ("GET", "/filters?x=3", "there is no parameter 'x' here: there are pattern, limit, cursor"),
        ("POST", f"{at('asked')}/add?colum=n", "there is no parameter 'colum' here; did you mean "),
        ("DELETE", f"{at('asked')}?force=1", "there is no parameter 'force' here"),
    ):
        told = http.ask(method, path, {"key": "k"} if method == "POST" else None, 400)
        assert told["detail"].startswith(right), told["detail"]
    assert http.ask("GET", at("asked"))["items"] == 0


def test_a_list_has_every_filter_once(http: Http) -> None:
    """From page to page, by a pattern or without, each filter comes once."""
    names = {f"listed-{number:03}" for number in range(25)}
    for name in names:
        http.create(name, 10)

    def pages(limit: int, **query: str) -> list[str]:
        found: list[str] = []
        cursor: int | None = 0
        while cursor is not None:
            params = {"limit": limit, "cursor": cursor, **query}
            page = http.ask("GET", "/filters", params=params)
            assert len(page["filters"]) <= limit
            found += [one["name"] for one in page["filters"]]
            cursor = page["cursor"]
        return found

    for limit in (1, 7, 1000):
        found = pages(limit)
        assert len(found) == len(set(found))
        assert set(found) >= names
        assert sorted(pages(limit, pattern="listed-01?")) == sorted(
            name for name in names if "-01" in name
        )
    assert pages(10, pattern="no-such") == []
    for wrong in ({"limit": 0}, {"limit": 1001}, {"limit": "x"}, {"cursor": -1}):
        http.ask("GET", "/filters", params=wrong, status=422)


def test_a_filter_changes_its_policy_name_and_end(http: Http) -> None:
    """PATCH sets what is given and leaves the rest; null takes an end or a policy back."""
    http.create("changed", 100, kind="bloom")
    http.keys("changed", "add", "alice")
    end = time.time() + 3600
    told = http.ask("PATCH", at("changed"), {"expires_at": end, "warn_at": 0.5})
    assert (told["expires_at"], told["policy"]["warn_at"]) == (end, 0.5)
    told = http.ask("PATCH", at("changed"), {"name": "changed\\x01", "on_full": "alert"})
    assert (told["name"], told["expires_at"]) == ("changed\\x01", end)
    assert told["policy"]["on_full"] == "alert"
    told = http.ask("PATCH", at(b"changed\x01"), {"expires_at": None, "warn_at": None})
    assert (told["expires_at"], told["policy"]["warn_at"]) == (None, 0.8)
    assert http.keys(b"changed\x01", "contains", "alice") == [True]
    http.ask("GET", at("changed"), status=404)
    http.ask("PATCH", at(b"changed\x01"), {"expires_at": 1.0}, 204)
    http.ask("GET", at(b"changed\x01"), status=404)


def test_a_change_that_is_refused_changes_nothing(http: Http) -> None:
    """A name that is taken, a policy its kind has not, an unknown field: nothing of it is done."""
    http.create("kept", 100, kind="bloom")
    http.create("other", 100)
    before = http.ask("GET", at("kept"))
    end = time.time() + 3600
    taken = http.ask("PATCH", at("kept"), {"expires_at": end, "name": "other"}, 409)
    assert taken["code"] == "filter-exists"
    http.ask("PATCH", at("kept"), {"expires_at": end, "on_full": "grow"}, 422)
    http.ask("PATCH", at("kept"), {"expires_at": end, "capacity": 5}, 422)
    http.ask("PATCH", at("kept"), {"expires_at": end, "name": "é" * 1000}, 422)
    http.ask("PATCH", at("nobody"), {"expires_at": end}, 404)
    assert http.ask("GET", at("kept")) | {"sample": None} == before | {"sample": None}


GOOD_CHANGES: list[dict[str, Any]] = [
    {"warn_at": 0.25},
    {"on_full": "alert", "full_at": 0.5},
    {"expires_at": 9e9},
    {"expires_at": 1.0},
    {"name": "patched-new"},
]
BAD_CHANGES: list[tuple[dict[str, Any], int]] = [
    ({"source": "missing"}, 422),
    ({"on_full": "grow"}, 422),
    ({"grace": 5}, 422),
    ({"name": "patched-taken"}, 409),
    ({"name": "é" * 1000}, 422),
    ({"name": "\\x00rebuild:x"}, 422),
]


def test_a_patch_changes_all_or_nothing(http: Http) -> None:
    """A request with right and wrong fields, in any order, is refused and leaves the filter
    unchanged; one with right fields only does all of it."""
    for name in ("patched", "patched-taken"):
        http.create(name, 100, kind="bloom")
    http.keys("patched", "add", "alice")
    before = http.ask("GET", at("patched")) | {"sample": None}
    for right, (wrong, status) in itertools.product(GOOD_CHANGES, BAD_CHANGES):
        for body in (right | wrong, wrong | right):
            if right.keys() & wrong.keys():
                continue
            http.ask("PATCH", at("patched"), body, status)
            after = http.ask("GET", at("patched")) | {"sample": None}
            assert after == before, body
    everything = {
        name: value
        for right in GOOD_CHANGES[:3] + GOOD_CHANGES[4:]
        for name, value in right.items()
    }
    http.ask("PATCH", at("patched"), everything | {"source": None})
    told = http.ask("GET", at("patched-new"))
    assert (told["expires_at"], told["policy"]["on_full"]) == (9e9, "alert")
    assert (told["policy"]["warn_at"], told["policy"]["full_at"]) == (0.25, 0.5)
    http.ask("PATCH", at("patched-new"), {"warn_at": 0.5, "expires_at": 1.0, "name": "x"}, 204)
    for name in ("patched", "patched-new", "x"):
        http.ask("GET", at(name), status=404)


def test_whole_filters(http: Http) -> None:
    """Clear forgets, merge unites, rotate begins a new generation; each says how it is then."""
    for name in ("one", "two"):
        http.create(name, 1000, kind="bloom")
        http.keys(name, "add", f"only in {name}")
    told = http.ask("POST", f"{at('one')}/merge", {"sources": ["two"]})
    assert told["items"] == 2
    assert http.keys("one", "contains", "only in one", "only in two") == [True, True]
    assert http.ask("POST", f"{at('one')}/clear")["items"] == 0
    assert http.keys("one", "contains", "only in one") == [False]
    http.create("larger", 5000, kind="bloom")
    unlike = http.ask("POST", f"{at('one')}/merge", {"sources": ["larger"]}, 409)
    assert unlike["code"] == "incompatible-filters"
    http.ask("POST", f"{at('one')}/merge", {"sources": ["missing"]}, 404)
    http.ask("POST", f"{at('one')}/merge", {"sources": []}, 422)
    assert http.ask("POST", f"{at('one')}/rotate", status=409)["code"] == "read-only-filter"
    http.create("window", 1000, kind="rotating", window="1h", generations=2)
    http.keys("window", "add", "old")
    for _ in range(2):
        http.ask("POST", f"{at('window')}/rotate")
    assert http.keys("window", "contains", "old") == [True]
    http.ask("POST", f"{at('window')}/rotate")
    assert http.keys("window", "contains", "old") == [False]


def test_a_change_is_acknowledged_even_if_the_filter_is_dropped_then(
    server: BloomeryServer,
) -> None:
    """Another client drops the filter while a thread counts the bits of it for the reply, which it
    does because the filter is large: it was created all the same."""
    new = {"name": "brief", "capacity": 16_000_000, "kind": "bloom"}
    dropped: list[int] = []
    over = threading.Event()

    def drop() -> None:
        with httpx.Client(base_url=server.url, timeout=30) as other:
            while not over.is_set():
                if other.delete("/filters/brief").status_code == 204:
                    dropped.append(1)

    dropping = threading.Thread(target=drop)
    dropping.start()
    try:
        with httpx.Client(base_url=server.url, timeout=30) as own:
            statuses = {own.post("/filters", json=new).status_code for _ in range(40)}
    finally:
        over.set()
        dropping.join()
    assert dropped
    assert statuses <= {201, 409}


def test_what_was_answered_survives_a_kill(serve: Serve) -> None:
    """Filters, keys, changes and a snapshot that were answered are there after `kill -9`."""
    server = serve()
    with Http(server) as http:
        http.create("a", 1000, on_full="reject")
        http.create("gone", 1000)
        assert http.keys("a", "add", *map(str, range(100))) == [True] * 100
        made = http.ask("POST", "/snapshot")
        assert made["generation"] > 0
        http.keys("a", "add", "after the snapshot")
        http.ask("PATCH", at("a"), {"name": "b", "warn_at": 0.5})
        http.ask("DELETE", at("gone"), status=204)
        server.kill()
    server.start()
    with Http(server) as http:
        assert [one["name"] for one in http.ask("GET", "/filters")["filters"]] == ["b"]
        told = http.ask("GET", at("b"))
        assert (told["items"], told["policy"]["warn_at"]) == (101, 0.5)
        assert all(http.keys("b", "contains", *map(str, range(100)), "after the snapshot"))


def test_paths_and_methods_that_are_not_there(http: Http) -> None:
    """An unknown path is 404, a method it has not 405 with those that it has, as a problem."""
    assert http.ask("GET", "/nowhere", status=404)["code"] == "invalid-request"
    http.ask("GET", "/filters/", status=404)
    answer = http.client.put("/filters")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")
    assert answer.headers["content-type"] == PROBLEM
    answer = http.client.request("OPTIONS", "/filters/x")
    assert (answer.status_code, answer.headers["allow"]) == (405, "DELETE, GET, PATCH")


def test_samples_of_a_filter(http: Http) -> None:
    """Samples come from the registry, by time and span; a filter without any has none yet."""
    http.create("sampled", 1000)
    told = http.ask("GET", f"{at('sampled')}/samples", params={"since": 0, "span": 3600})
    assert told == {"samples": []}
    http.ask("GET", f"{at('sampled')}/samples", params={"span": 7}, status=422)
    http.ask("GET", f"{at('nobody')}/samples", status=404)
