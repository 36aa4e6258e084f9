"""What a server tells: lines of JSON if asked for, and never a key or a secret."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import redis

from integration.durability.connection import Connection, Refused
from integration.servers import BloomeryServer, Serve, free_port, wait_until

KEY = "key-of-a-client"
SECRETS = ["hunter22-registry", "hunter22-password", "hunter22-wrong"]
PASSWORD = SECRETS[1]


def lines(server: BloomeryServer) -> list[dict[str, object]]:
    """What it told on stderr, all of it JSON, and on stdout that it is ready."""
    found = [line for line in server.printed().splitlines() if not server.READY.match(line)]
    return [json.loads(line) for line in found]


def test_no_key_and_no_secret(serve: Serve, tmp_path: Path) -> None:
    """Keys in commands right and wrong, in broken requests and in URLs; passwords right and wrong,
    of users and of the registry: at the most talkative level neither the log nor the audit has any
    of them."""
    data = tmp_path / "data"
    adding = ["user", "add", "ops", "--role", "admin", "--data", str(data), "--password-stdin"]
    subprocess.run(
        [sys.executable, "-m", "bloomery", *adding],
        input=PASSWORD.encode() + b"\n",
        capture_output=True,
        check=True,
    )
    url = tmp_path / "registry.url"
    url.write_text(f"postgresql://u:{SECRETS[0]}@127.0.0.1:{free_port()}/d?application_name=x")
    server = serve(
        *("--log-format", "json", "--set", "log-level=debug"),
        *("--set", f"registry-file={url}", "--set", "slow-client-seconds=1"),
        data=data,
    )
    with redis.Redis(port=server.resp_port, username="ops", password=PASSWORD) as client:
        client.execute_command("BF.RESERVE", "seen", 0.01, 100, "NONSCALING")
        client.execute_command("BF.ADD", "seen", KEY)
        for words in (
            ("BF.ADD", KEY * 100, KEY),
            ("BF.ADD", "seen", KEY, KEY),
            ("BF.MADD", "seen", *(f"{KEY}-{n}" for n in range(1000))),
            ("NOSUCH", KEY),
            ("BF.NOSUCH", "seen", KEY),
            ("BF.LOADCHUNK", "other", 1, KEY),
            ("BF.INSERT", "seen", KEY, "ITEMS", KEY),
            ("CONFIG", "SET", "maxmemory", KEY),
        ):
            with contextlib.suppress(redis.ResponseError):
                client.execute_command(*words)
        shown = client.config_get("*")
        assert shown["registry"] == "***"
        about = str(client.info()) + str(shown) + str(client.client_list())
    for broken in (
        f"*1\r\n${KEY}\r\n",
        f"*{KEY}\r\n",
        f"GET /{KEY} HTTP/1.1\r\nHost: {KEY}\r\n\r\n",
        f"AUTH ops {SECRETS[2]}\r\n",
    ):
        with socket.create_connection(("127.0.0.1", server.resp_port), timeout=30) as raw:
            raw.sendall(broken.encode())
            raw.shutdown(socket.SHUT_WR)
            while raw.recv(4096):
                pass
    at = f"http://127.0.0.1:{server.http_port}"
    basic = base64.b64encode(f"ops:{SECRETS[2]}".encode()).decode()
    for authorization in (f"Bearer {SECRETS[2]}", f"Basic {basic}", SECRETS[2]):
        with contextlib.suppress(httpx.HTTPError):
            httpx.post(  # a wrong login is answered late
                f"{at}/filters/seen/add?key={KEY}",
                json={"key": KEY, KEY: KEY},
                headers={"Authorization": authorization, "X-Key": KEY},
                timeout=60,
            )
    # The registry cannot be reached, which is told: without its password.
    assert wait_until(lambda: "the registry is late" in server.printed(), 30)
    assert server.stop() == 0
    told = server.printed() + about
    for path in data.glob("audit*"):
        told += path.read_text("utf-8")
    for secret in (KEY, *SECRETS, basic):
        assert secret not in told
    assert lines(server)


def test_the_level_is_live(serve: Serve) -> None:
    """CONFIG SET log-level takes effect at once; a wrong one is refused."""
    server = serve("--log-format", "json", "--set", "log-level=error")
    with Connection(server.resp_port) as connection:
        assert connection.ask("CONFIG", "GET", "log-level") == [b"log-level", b"error"]
        assert connection.ask("CONFIG", "SET", "log-level", "info") == b"OK"
        with pytest.raises(Refused, match="must be one of debug"):
            connection.ask("CONFIG", "SET", "log-level", "loud")
        with pytest.raises(Refused, match="can only be set when the server starts"):
            connection.ask("CONFIG", "SET", "log-format", "text")
