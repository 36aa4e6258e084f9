"""Asking a server over HTTP: with httpx, and byte by byte."""

import json
import socket
from typing import Any
from urllib.parse import quote

import httpx

from integration.servers import BloomeryServer

PROBLEM = "application/problem+json"


class Http:
    """A client of one server. Each call says which status it expects."""

    def __init__(self, server: BloomeryServer) -> None:
        self.server = server
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{server.http_port}", timeout=30)

    def __enter__(self) -> "Http":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def ask(
        self, method: str, path: str, body: Any = None, status: int = 200, **options: Any
    ) -> Any:
        """The JSON of an answer, which is a problem exactly if its status says so."""
        if body is not None:
            options["json"] = body
        answer = self.client.request(method, path, **options)
        assert answer.status_code == status, (method, path, answer.status_code, answer.text)
        if status >= 400:
            told = answer.json()
            assert answer.headers["content-type"] == PROBLEM
            assert told["status"] == status
            assert told["type"] == f"urn:bloomery:{told['code']}"
            return told
        return answer.json() if answer.content else None

    def create(self, name: str, capacity: int = 1000, **more: Any) -> Any:
        """Make a filter."""
        return self.ask("POST", "/filters", {"name": name, "capacity": capacity, **more}, 201)

    def keys(self, name: str | bytes, operation: str, *keys: Any, **more: Any) -> Any:
        """The answers for some keys."""
        (found,) = self.ask("POST", f"{at(name)}/{operation}", {"keys": keys, **more}).values()
        return found


def at(name: str | bytes) -> str:
    """Where a filter is."""
    return f"/filters/{quote(name, safe='')}"


class Raw:
    """A connection, byte by byte."""

    def __init__(self, port: int, timeout: float = 30) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.rest = b""

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.socket.sendall(data)

    def request(self, path: str, body: bytes, **headers: str) -> None:
        """Send a whole POST."""
        self.send(post(path, body, **headers))

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the next answer."""
        while b"\r\n\r\n" not in self.rest:
            self.more()
        head, _, self.rest = self.rest.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        length = int(headers.get("content-length", "0"))
        while len(self.rest) < length:
            self.more()
        body, self.rest = self.rest[:length], self.rest[length:]
        return int(first.split(" ")[1]), headers, body

    def ended(self) -> bool:
        """Whether the server closes the connection, and says no more before."""
        try:
            return self.rest == b"" and self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def more(self) -> None:
        data = self.socket.recv(65_536)
        assert data, f"the connection ended after {self.rest!r}"
        self.rest += data


def post(path: str, body: bytes, **headers: str) -> bytes:
    """The bytes of a request."""
    head = {
        "Host": "localhost",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
    }
    head |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def problem(body: bytes) -> str:
    """The code of a problem."""
    code: str = json.loads(body)["code"]
    return code
