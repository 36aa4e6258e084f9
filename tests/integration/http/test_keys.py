"""Keys over HTTP: what can be one, what is answered, and that it is what RESP answers."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bloomery
from integration.http.asking import Http, Raw, at, problem
from integration.resp.wire import Wire
from integration.servers import BloomeryServer, Serve

JSON = {"Content-Type": "application/json"}


def test_one_key_or_many(http: Http) -> None:
    """One key gets one answer, many get a list in their order, none get an empty one."""
    http.create("either", kind="counting")
    assert http.ask("POST", f"{at('either')}/add", {"key": "a"}) == {"new": True}
    assert http.ask("POST", f"{at('either')}/add", {"keys": ["a", "b"]}) == {"new": [False, True]}
    assert http.ask("POST", f"{at('either')}/contains", {"key": "c"}) == {"maybe": False}
    assert http.ask("POST", f"{at('either')}/contains", {"keys": []}) == {"maybe": []}
    assert http.ask("POST", f"{at('either')}/remove", {"keys": ["b", "b"]}) == {
        "removed": [True, False]
    }
    assert http.ask("POST", f"{at('either')}/remove", {"key": "a"}) == {"removed": True}


def test_a_key_is_the_librarys(http: Http) -> None:
    """A filter that got its keys over HTTP says the same of them as one that got them here."""
    keys: list[Any] = ["a", "", "ü", 1, -1, 2**70, ["a", 1], [], ["a", ["b", [2]]], "[", "true"]
    same: list[Any] = ["a", "", "ü", 1, -1, 2**70, ("a", 1), (), ("a", ("b", (2,))), "[", "true"]
    http.create("library", 1000, kind="bloom")
    assert all(http.keys("library", "add", *keys))
    local = bloomery.BloomFilter(1000)
    local.update(same)
    file = http.client.get(f"{at('library')}/file")
    assert bloomery.BloomFilter.from_bytes(file.content) == local
    assert http.keys("library", "contains", *keys) == [True] * len(keys)
    assert http.keys("library", "contains", 1, "1", ["1"]) == [True, False, False]


def test_binary_keys(http: Http) -> None:
    """With encoding base64 a string is bytes; the same bytes as text are the same key."""
    http.create("binary", 1000)
    encoded = [base64.b64encode(key).decode() for key in (b"\x00\xff", b"", b"text")]
    assert http.keys("binary", "add", *encoded, encoding="base64") == [True] * 3
    assert http.keys("binary", "contains", "text", "") == [True, True]
    with Wire(http.server.resp_port) as wire:
        assert wire.ask("BF.EXISTS", "binary", b"\x00\xff") == b":1\r\n"
    for wrong in ("a", "####", "YQ", " YQ==", "YQ==\n", "é"):
        body = {"key": wrong, "encoding": "base64"}
        assert http.ask("POST", f"{at('binary')}/add", body, 422)["code"] == "invalid-key"


@pytest.mark.parametrize("operation", ["add", "contains", "remove"])
def test_what_is_no_key(http: Http, operation: str) -> None:
    """What cannot be a key is refused with the whole batch: none of it is done."""
    name = f"no-key-{operation}"
    http.create(name, kind="counting")
    for wrong, code in (
        (True, "unsupported-key"),
        (None, "null-key"),
        (1.5, "unsupported-key"),
        (1e3, "unsupported-key"),
        ({"a": 1}, "unsupported-key"),
        ([1, [False]], "unsupported-key"),
    ):
        for body in ({"key": wrong}, {"keys": ["good", wrong]}):
            told = http.ask("POST", f"{at(name)}/{operation}", body, 422)
            assert told["code"] in (code, "unsupported-key"), wrong
    told = http.ask("GET", at(name))
    assert (told["items"], told["adds"], told["checks"]) == (0, 0, 0)


def test_what_is_no_key_is_told_as_json_has_it(http: Http) -> None:
    """A refusal says which of the keys is none, and what of JSON would be one."""
    http.create("told")
    for wrong, right in (
        (1.5, "a number with a fraction is no key: a string, an integer, an array of these"),
        (None, "null is no key: leave it out"),
        ({"uuid": "x"}, "a key is not uuid, as 12345678-"),
        ({"base64": "x"}, "a key is not base64, as AP8= is"),
        ({"datetime": "x"}, "a key is not datetime, as 2026-01-31T12:00:00+00:00 is"),
    ):
        told = http.ask("POST", f"{at('told')}/add", {"keys": ["good", wrong]}, 422)
        assert told["detail"].startswith(f"keys[1]: {right}"), told["detail"]
        told = http.ask("POST", f"{at('told')}/contains", {"key": wrong}, 422)
        assert told["detail"].startswith(right), told["detail"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"null", 400),
        (b"[]", 400),
        (b"{}", 400),
        (b'{"key":"a","keys":["a"]}', 400),
        (b'{"key":"a","kex":1}', 400),
        (b'{"keys":"a"}', 400),
        (b'{"keys":null}', 400),
        (b'{"key":"a","key":"b"}', 400),
        (b'{"keys":["a"],"k\\u0065ys":["b"]}', 400),
        (b'{"key":"a"} x', 400),
        (b'{"key":NaN}', 400),
        (b'{"key":-Infinity}', 400),
        (b'{"key":"\xff"}', 400),
        (b'{"key":"\x00"}', 400),
        (b'\xef\xbb\xbf{"key":"a"}', 400),
        ('{"key":"a"}'.encode("utf-16"), 400),
        (b'{"key":' + b"9" * 5000 + b"}", 400),
        (b'{"key":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
        (b"[" * 1_000_000, 400),
        (b'{"a":' * 200_000, 400),
        (b'{"key":' + b"[" * 500 + b"]" * 500 + b"}", 422),
        (b'{"key":1e999}', 422),
        (b'{"key":"\\ud800"}', 422),
        (b'{"key":"a","encoding":"rot13"}', 422),
        (b'{"key":"a","encoding":["base64"]}', 422),
    ],
)
def test_bodies_that_are_refused(http: Http, body: bytes, status: int) -> None:
    """JSON that is none, means two things or nests without end gets a clear answer, at once."""
    name = "refusing"
    http.client.post("/filters", json={"name": name, "capacity": 10})
    answer = http.client.post(f"{at(name)}/add", content=body, headers=JSON)
    assert answer.status_code == status, answer.text
    assert len(answer.json()["detail"]) < 300
    assert http.ask("GET", at(name))["items"] == 0


def test_other_media_types_are_refused(http: Http) -> None:
    """A body that does not say it is JSON, as a page of another site would send it, is not read."""
    http.create("typed")
    for kind in ("text/plain", "application/x-www-form-urlencoded", "", "json"):
        for path in ("/filters", f"{at('typed')}/add", f"{at('typed')}/merge"):
            answer = http.client.post(path, content=b'{"key":"a"}', headers={"Content-Type": kind})
            assert answer.status_code == 415, (kind, path)
            url = f"http://127.0.0.1:{http.server.http_port}{path}"
            assert f"must be application/json{'' if path.endswith('add') else ':'}" in answer.text
            assert answer.json()["detail"].endswith(f": curl --json '{{…}}' {url}")
            assert ("curl -d" in answer.text) == ("form" in kind)
    good = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert http.client.post(f"{at('typed')}/add", content=b'{"key":"a"}', headers=good).is_success


def test_a_full_filter_says_which_key_it_refused(http: Http) -> None:
    """Keys before the one that found no room are in, and answered; the problem has its place."""
    http.create("full", 3, kind="bloom")
    told = http.ask("POST", f"{at('full')}/add", {"keys": list("abcde")}, 409)
    assert told["code"] == "filter-full"
    assert (told["refused_at"], told["new"]) == (3, [True, True, True])
    assert http.keys("full", "contains", *"abc") == [True] * 3
    assert http.ask("POST", f"{at('full')}/add", {"key": "e"}, 409)["code"] == "filter-full"
    assert http.keys("full", "add", "a") == [False]


def test_a_kind_that_cannot_remove(http: Http) -> None:
    """Removing from a filter whose kind cannot do that is a conflict, and changes nothing."""
    http.create("plain keys")
    http.keys("plain keys", "add", "a")
    told = http.ask("POST", f"{at('plain keys')}/remove", {"key": "a"}, 409)
    assert told["code"] == "read-only-filter"
    assert http.keys("plain keys", "contains", "a") == [True]


def test_no_memory_for_a_key(serve: Serve) -> None:
    """A key for which there is no memory is named, and is a 507; those before it are in."""
    with Http(serve("--maxmemory", "4mb")) as http:
        http.create("grows", 1000, kind="scalable")
        for start in range(0, 10_000_000, 100_000):
            batch = list(range(start, start + 100_000))
            answer = http.client.post(f"{at('grows')}/add", json={"keys": batch})
            if answer.status_code != 200:
                break
        assert answer.status_code == 507
        told = answer.json()
        assert told["code"] == "not-enough-memory"
        assert all(http.keys("grows", "contains", *batch[: told["refused_at"]]))
        large = {"name": "large", "capacity": 10**9}
        assert http.ask("POST", "/filters", large, 507)["code"] == "not-enough-memory"


def test_requests_sent_ahead_are_answered_in_order(server: BloomeryServer, http: Http) -> None:
    """A client may send several requests before it reads: the answers come in order."""
    http.create("ahead")
    with Raw(server.http_port) as raw:
        for key in ("a", "b", "a"):
            raw.request(f"{at('ahead')}/add", b'{"key":"%s"}' % key.encode())
        answers = [raw.answer() for _ in range(3)]
        assert [json.loads(body) for _, _, body in answers] == [
            {"new": True},
            {"new": True},
            {"new": False},
        ]
        raw.request("/nowhere", b"{}")
        raw.request(f"{at('ahead')}/contains", b'{"key":"b"}')
        assert raw.answer()[0] == 404
        assert json.loads(raw.answer()[2]) == {"maybe": True}


def test_a_chunked_body(server: BloomeryServer, http: Http) -> None:
    """A body without a length, in parts, is the same body."""
    http.create("chunked")
    with Raw(server.http_port) as raw:
        raw.send(post_chunked(f"{at('chunked')}/add"))
        for part in (b'{"ke', b'y":"a', b'"}'):
            raw.send(b"%x\r\n%s\r\n" % (len(part), part))
        raw.send(b"0\r\n\r\n")
        assert json.loads(raw.answer()[2]) == {"new": True}
        raw.send(post_chunked(f"{at('chunked')}/add") + b"zz\r\n")
        status, _, body = raw.answer()
        assert (status, problem(body)) == (400, "invalid-request")


def post_chunked(path: str) -> bytes:
    """The head of a request whose body comes in chunks."""
    head = "Host: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    return f"POST {path} HTTP/1.1\r\n{head}".encode()


KEYS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8), min_size=1, max_size=20
)
STEPS = st.lists(st.tuples(st.sampled_from(["add", "contains", "remove"]), KEYS), max_size=8)


@given(kind=st.sampled_from(["bloom", "counting", "cuckoo", "scalable", "deletable"]), steps=STEPS)
def test_both_doors_answer_alike(
    twins: tuple[Http, Wire], kind: str, steps: list[tuple[str, list[str]]]
) -> None:
    """Two filters, made alike, one asked over HTTP and one over RESP, never differ."""
    http, wire = twins
    http.client.delete(at("by-http"))
    wire.ask("DEL", "by-resp")
    http.create("by-http", 50, kind=kind)
    wire.ask("BF.RESERVE", "by-resp", "0.01", "50", "KIND", kind)
    commands = {"add": "BF.ADD", "contains": "BF.EXISTS", "remove": "BF.DEL"}
    for operation, keys in steps:
        answer = http.client.post(f"{at('by-http')}/{operation}", json={"keys": keys})
        told = answer.json()
        answers = told.get({"add": "new", "contains": "maybe", "remove": "removed"}[operation], [])
        replies = [wire.ask(commands[operation], "by-resp", key.encode()) for key in keys]
        assert [b":%d\r\n" % one for one in answers] == replies[: len(answers)]
        # A batch ends at the first key that is refused; one by one, those that are there go on.
        left = replies[len(answers) :]
        assert all(reply.startswith(b"-ERR") or reply == b":0\r\n" for reply in left), left
        assert not left or left[0].startswith(b"-ERR")
        assert answer.is_success is (len(answers) == len(keys))


@pytest.fixture(scope="module")
def twins(_shared: BloomeryServer) -> Any:
    """A client of either door."""
    with Http(_shared) as http, Wire(_shared.resp_port) as wire:
        yield http, wire
