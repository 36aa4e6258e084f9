"""What a client says when something is wrong: before it sends, on the way, and from the server."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

import bloomery
from bloomery import errors
from bloomery.client.request import error_of
from bloomery.service.http import problems

pytestmark = pytest.mark.slow

CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, errors.BloomeryError)
]


@pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.code)
def test_every_error_crosses_the_wire(error: type[errors.BloomeryError]) -> None:
    """Each error of the catalogue, told as a problem, is raised again as the same class."""
    answer = problems.response(error("what is wrong"))
    told = error_of(httpx.Response(answer.status_code, content=bytes(answer.body)))
    assert type(told) is error
    assert str(told) == "what is wrong"
    assert answer.status_code >= 400


def test_a_code_of_a_newer_server() -> None:
    """A problem whose code this client does not know is the base of all errors, with its text."""
    body = json.dumps({"code": "not-yet-known", "detail": "why"})
    told = error_of(httpx.Response(418, text=body))
    assert type(told) is errors.BloomeryError
    assert str(told) == "why"


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (502, "<html>", errors.ServerUnavailable),
        (503, "", errors.ServerUnavailable),
        (404, "<html>", errors.BloomeryError),
        (500, '["a"]', errors.BloomeryError),
        (302, "", errors.BloomeryError),
    ],
)
def test_answers_of_somebody_else(status: int, body: str, error: type[Exception]) -> None:
    """What a proxy, or no server of ours, answers is an error that has its status."""
    told = error_of(httpx.Response(status, text=body))
    assert type(told) is error
    assert str(status) in str(told)


def test_without_httpx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without httpx both clients say which extra to install; importing bloomery needs none."""
    monkeypatch.setitem(sys.modules, "httpx", None)
    for make in (bloomery.Client, bloomery.AsyncClient):
        with pytest.raises(errors.MissingExtra, match=r"bloomery\[client\]"):
            make("http://127.0.0.1:1")


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8100", "redis://127.0.0.1", "http://", "http://[::"]
)
def test_urls_that_are_none(url: str) -> None:
    """A URL that cannot be a server's HTTP port is refused when the client is made."""
    for make in (bloomery.Client, bloomery.AsyncClient):
        with pytest.raises(errors.InvalidParameter, match="http://127"):
            make(url)


def test_credentials_go_together() -> None:
    """A token, or user and password: anything between is refused when the client is made."""
    wrong: list[dict[str, Any]] = [
        {"token": "t", "user": "u", "password": "p"},
        {"user": "u"},
        {"password": "p"},
    ]
    for options in wrong:
        with pytest.raises(errors.InvalidParameter):
            bloomery.Client("http://127.0.0.1:1", **options)


def test_no_secret_is_shown() -> None:
    """Neither a client, nor a filter, nor what is raised shows a token or a password."""
    urls: list[tuple[str, dict[str, Any]]] = [
        ("http://u:secret@127.0.0.1:1", {}),
        ("http://127.0.0.1:1", {"token": "secret"}),
        ("http://127.0.0.1:1", {"user": "u", "password": "secret"}),
    ]
    for url, options in urls:
        with bloomery.Client(url, **options) as client:
            assert "secret" not in repr(client)
            assert "secret" not in repr(client["seen"])
            with pytest.raises(errors.ServerUnavailable) as raised:
                client["seen"].add("a")
            assert "secret" not in str(raised.value)


def test_empty_names() -> None:
    """A name that no path can hold is refused at once."""
    with bloomery.Client("http://127.0.0.1:1") as client:
        for name in ("", b""):
            with pytest.raises(errors.InvalidParameter, match="empty"):
                client.filter(name)


def test_nobody_there() -> None:
    """Where nothing listens, ServerUnavailable says where that is and what to look at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (
        bloomery.Client(f"http://127.0.0.1:{port}") as client,
        pytest.raises(errors.ServerUnavailable, match=f"{port}.*bloomery serve"),
    ):
        client.snapshot()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A port that takes connections; what it says to them is the test's."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def url_of(listening: socket.socket) -> str:
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_a_server_that_hangs(listener: socket.socket) -> None:
    """A server that takes a request and is silent: ServerUnavailable after the timeout; of a write
    it says that it may have been done, of a question it does not."""
    with bloomery.Client(url_of(listener), timeout=0.2) as client:
        with pytest.raises(errors.ServerUnavailable, match="whether it was done is not known"):
            client["seen"].add("a")
        with pytest.raises(errors.ServerUnavailable, match="in time: try again"):
            client["seen"].info()


def closing(listening: socket.socket, *rounds: list[bytes]) -> threading.Thread:
    """Answer each connection with what is said for it, a request each, and close it."""

    def run() -> None:
        for answers in rounds:
            connection, _ = listening.accept()
            with connection, suppress(ConnectionError):  # a client may reset it
                for answer in answers:
                    data = b""
                    while b"\r\n\r\n" not in data:
                        data += (part := connection.recv(65536))
                        if not part:
                            raise ConnectionError
                    connection.sendall(answer)
                connection.recv(65536)  # the next request, which nobody answers

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def answer(value: Any) -> bytes:
    body = json.dumps(value).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


def test_a_connection_that_went_stale(listener: socket.socket) -> None:
    """A question on a kept connection that the server closes is asked once more, on a new one."""
    info = answer({"kind": "bloom"})
    thread = closing(listener, [info], [info, info])
    with bloomery.Client(url_of(listener)) as client:
        assert client["seen"].kind == "bloom"
        assert client["seen"].kind == "bloom"
        assert client["seen"].kind == "bloom"
    thread.join(10)


def test_a_write_is_never_sent_twice(listener: socket.socket) -> None:
    """A write on a connection that the server closes is not repeated: it may have been done."""
    thread = closing(listener, [answer({"new": True})])
    with bloomery.Client(url_of(listener), timeout=1) as client:
        assert client["seen"].add("a") is True
        with pytest.raises(errors.ServerUnavailable, match="whether it was done is not known"):
            client["seen"].add("a")
    thread.join(10)


def test_importing_is_light() -> None:
    """Whoever imports bloomery and never makes a client waits for none of what clients need."""
    heavy = "{'asyncio', 'httpx', 'json', 'ssl', 'tempfile'}"
    program = f"import sys, bloomery; print(*{heavy} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.split() == []
