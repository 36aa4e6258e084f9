"""Streams of keys over HTTP: taken as they come, in constant memory, logged before they count."""

from __future__ import annotations

import io
import itertools
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from bloomery import Client
from conftest import require
from integration.resp.wire import Connection
from integration.servers import BloomeryServer, Serve
from waiting import wait_until

pa = require("pyarrow")
NUMBERS = itertools.count()
ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"


@pytest.fixture
def name(client: Client) -> str:
    """The name of a filter for many keys."""
    made = f"stream-{next(NUMBERS)}"
    client.create(made, 1_000_000, 1e-4)
    return made


def sent(
    server: BloomeryServer,
    path: str,
    body: Any,
    media: str = NDJSON,
    accept: str = "*/*",
    status: int = 200,
) -> httpx.Response:
    """The response to a stream."""
    headers = {"Content-Type": media, "Accept": accept}
    response = httpx.post(server.url + path, content=body, headers=headers, timeout=60)
    assert response.status_code == status, response.text
    return response


def arrow(*columns: Any, names: tuple[str, ...] = ("key",)) -> bytes:
    """Columns as an Arrow IPC stream."""
    file = io.BytesIO()
    table = pa.table(dict(zip(names, columns, strict=True)))
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


def lines(keys: Any) -> bytes:
    return b"".join(json.dumps(key).encode() + b"\n" for key in keys)


def test_summaries(server: BloomeryServer, client: Client, name: str) -> None:
    """A stream is answered with how many keys there were, and how many were new, maybe there, or
    removed."""
    keys = list(range(5_000))
    path = f"/filters/{name}"
    assert sent(server, f"{path}/add", lines(keys)).json() == {"keys": 5000, "new": 5000}
    body = arrow(pa.array(range(4_000, 6_000)))
    assert sent(server, f"{path}/add", body, ARROW).json() == {"keys": 2000, "new": 1000}
    assert sent(server, f"{path}/contains", lines(keys)).json() == {"keys": 5000, "maybe": 5000}
    counting = client.create(f"{name}-counting", 1000, kind="counting")
    counting.update(range(500))
    removed = sent(server, f"/filters/{name}-counting/remove", lines(range(500)))
    assert removed.json() == {"keys": 500, "removed": 500}
    assert sent(server, f"{path}/contains", b"").json() == {"keys": 0, "maybe": 0}


@pytest.mark.parametrize("media", [ARROW, NDJSON])
@pytest.mark.parametrize("accept", [ARROW, NDJSON])
def test_answers(server: BloomeryServer, name: str, media: str, accept: str) -> None:
    """An answer for each key, in the form that is asked for, whatever the keys came in."""
    path = f"/filters/{name}"
    sent(server, f"{path}/add", arrow(pa.array(range(0, 100_000, 2))), ARROW)
    keys = range(100_000)
    body = lines(keys) if media == NDJSON else arrow(pa.array(keys))
    response = sent(server, f"{path}/contains", body, media, accept)
    assert response.headers["content-type"] == accept
    if accept == NDJSON:
        found = [line == "true" for line in response.text.splitlines()]
    else:
        found = pa.ipc.open_stream(response.content).read_all().column(0).to_pylist()
    assert len(found) == 100_000
    assert all(found[::2])
    assert sum(found[1::2]) < 100


def test_a_column_is_named(server: BloomeryServer, name: str) -> None:
    """`?column=` picks a column by its name; else it is the first."""
    body = arrow(pa.array([1.5, 2.5]), pa.array(["a", "b"]), names=("x", "y z"))
    path = f"/filters/{name}/add"
    assert sent(server, f"{path}?column=y+z", body, ARROW).json() == {"keys": 2, "new": 2}
    assert sent(server, path, body, ARROW, status=422).json()["code"] == "unsupported-batch"
    told = sent(server, f"{path}?column=q", body, ARROW, status=422).json()
    assert told["code"] == "invalid-parameter"


@pytest.mark.parametrize("position", [0, 3, 50_000])
def test_wrong_in_mid_stream(server: BloomeryServer, name: str, position: int) -> None:
    """What is wrong in mid-stream is a problem that says how many keys were done; those are in, and
    none behind it."""
    keys: list[Any] = list(range(100_000))
    keys[position] = None
    path = f"/filters/{name}"
    told = sent(server, f"{path}/add", lines(keys), status=422).json()
    assert told["code"] == "null-key"
    assert told["done"] == position
    assert (f"{position} keys before it" in told["detail"]) is (position > 0)
    found = sent(server, f"{path}/contains", lines(range(100_000)), accept=NDJSON).text
    answers = [line == "true" for line in found.splitlines()]
    assert all(answers[:position])
    assert sum(answers[position:]) < 100


@pytest.mark.parametrize(
    "line",
    [
        b'{"base64": "AA==", "base64": "AQ=="}',
        b'{"base64": "AA==", "base6\\u0034": "AA=="}',
        b'["a", {"uuid": "x", "uuid": "12345678-1234-5678-1234-567812345678"}]',
    ],
)
def test_a_member_twice(server: BloomeryServer, name: str, line: bytes) -> None:
    """A member that comes twice is refused in a line as it is in a body of JSON; the lines before
    it are done."""
    path = f"/filters/{name}"
    told = sent(server, f"{path}/add", b'"before"\n%b\n"behind"\n' % line, status=400).json()
    assert (told["code"], told["done"]) == ("invalid-request", 1)
    assert "line 2: " in told["detail"]
    assert "comes twice" in told["detail"]
    body = b'{"keys": [%b]}' % line
    assert "comes twice" in sent(server, f"{path}/add", body, "application/json", status=400).text
    found = sent(server, f"{path}/contains", b'"before"\n"behind"\n', accept=NDJSON).text
    assert found == "true\nfalse\n"


@pytest.mark.parametrize(
    ("body", "media", "code"),
    [
        (b"{", NDJSON, "unsupported-batch"),
        (b"1.5", NDJSON, "unsupported-key"),
        (b"\xff", NDJSON, "unsupported-batch"),
        (b"", ARROW, None),
        (b"garbage garbage", ARROW, "unsupported-batch"),
        (b"\xff\xff\xff\xff\xf8\xff\xff\x7f", ARROW, "unsupported-batch"),
        (arrow(pa.array([1, 2]))[:-20], ARROW, "unsupported-batch"),
        (arrow(pa.array([1, None])), ARROW, "null-key"),
        (arrow(pa.array([[1]])), ARROW, "unsupported-batch"),
    ],
)
def test_hostile_bodies(
    server: BloomeryServer, name: str, body: bytes, media: str, code: str | None
) -> None:
    """Bytes that are no stream are a problem of their own, and the server goes on."""
    response = sent(server, f"/filters/{name}/add", body, media, status=422 if code else 200)
    if code:
        assert response.json()["code"] == code
    assert sent(server, f"/filters/{name}/add", b"1\n").json()["keys"] == 1


def test_media_types(server: BloomeryServer, name: str) -> None:
    """A body that is neither JSON nor a stream is a 415 that says what is taken."""
    told = sent(server, f"/filters/{name}/add", b"a", "text/plain", status=415).json()
    assert NDJSON in told["detail"]
    assert ARROW in told["detail"]


def slowly(
    blocks: int, told: threading.Event, go: threading.Event, keys: int = 200_000
) -> Iterator[bytes]:
    """An endless-looking stream: half of the blocks, a pause until it is told, and the rest."""
    for block in range(blocks):
        if block == blocks // 2:
            told.set()
            assert go.wait(60)
        yield lines(range(block * keys, (block + 1) * keys))


def test_others_are_served_meanwhile(server: BloomeryServer, client: Client, name: str) -> None:
    """While one client is in mid-stream, its keys so far are there for others, whose requests are
    answered over either door."""
    told, go = threading.Event(), threading.Event()
    done: list[Any] = []

    def run() -> None:
        body = slowly(2, told, go, 20_000)
        done.append(sent(server, f"/filters/{name}/add", body).json())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert told.wait(60)
        assert wait_until(lambda: 19_999 in client[name])
        assert np.asarray(client[name].contains_many(range(20_000))).all()
        with Connection(server.resp_port) as resp:
            assert resp.ask("BF.ADD", f"{name}-other", "a") == 1
        assert client.create(f"{name}-http", 10).add("a")
        assert done == []
    finally:
        go.set()
        thread.join(60)
    assert done == [{"keys": 40_000, "new": 40_000}]


def resident(server: BloomeryServer) -> int:
    """Bytes of memory that a server has."""
    assert server.process is not None
    with open(f"/proc/{server.process.pid}/status") as status:
        (found,) = (line for line in status if line.startswith("VmRSS"))
    return int(found.split()[1]) << 10


def test_constant_memory(server: BloomeryServer, name: str) -> None:
    """A stream of hundreds of megabytes is taken in constant memory."""
    keys = pa.array(np.zeros(1 << 18, dtype="int64"))  # 2 MiB
    path = f"/filters/{name}/contains"
    sent(server, path, _messages(pa.chunked_array([keys] * 4)), ARROW)
    before = resident(server)
    done = sent(server, path, _messages(pa.chunked_array([keys] * 120)), ARROW).json()
    assert done["keys"] == 120 << 18
    assert resident(server) - before < 48 << 20


def _messages(column: Any) -> Iterator[bytes]:
    schema = pa.schema([("key", column.type)])
    yield schema.serialize().to_pybytes()
    for chunk in column.chunks:
        yield pa.record_batch([chunk], schema=schema).serialize().to_pybytes()


def test_killed_in_mid_stream(serve: Serve) -> None:
    """Of a stream in which the server is killed, every key that another client had seen added, and
    every key of an acknowledged stream, is there after a restart."""
    server = serve()
    told, go = threading.Event(), threading.Event()
    with Client(server.url) as client:
        filter = client.create("seen", 2_000_000, 1e-4)
        filter.update(np.arange(1_000_000, 1_100_000))

        def run() -> None:
            with pytest.raises(httpx.TransportError):
                sent(server, "/filters/seen/add", slowly(2, told, go, 50_000))

        thread = threading.Thread(target=run)
        thread.start()
        assert told.wait(60)
        assert wait_until(lambda: 49_999 in filter)
        seen = filter.info()["items"]
        server.kill()
        go.set()
        thread.join(60)
    server.start()
    with Client(server.url) as client:
        assert np.asarray(client["seen"].contains_many(np.arange(1_000_000, 1_100_000))).all()
        assert np.asarray(client["seen"].contains_many(np.arange(50_000))).all()
        assert client["seen"].info()["items"] >= seen


def test_a_client_that_goes_away(server: BloomeryServer, client: Client, name: str) -> None:
    """A client that hangs up in mid-stream leaves what it sent so far; the server goes on."""

    def broken() -> Iterator[bytes]:
        yield lines(range(3_000))
        raise InterruptedError

    with pytest.raises(InterruptedError):
        sent(server, f"/filters/{name}/add", broken())
    assert wait_until(lambda: 2_999 in client[name])
    assert all(client[name].contains_many(range(3_000)))
    assert client[name].add("after")
