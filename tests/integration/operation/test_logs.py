"""What a server tells: lines of JSON if asked for, and never a key or a secret."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
from pathlib import Path

import httpx
import pytest
import redis

import nursery
from integration.resp.wire import Connection, Refused
from integration.servers import BloomeryServer, Serve, free_port, wait_until

KEY = "key-of-a-client"
SECRETS = ["hunter22-registry", "hunter22-password", "hunter22-wrong", "hunter22-hook-path"]
PASSWORD, WRONG = SECRETS[1:3]


def lines(server: BloomeryServer) -> list[dict[str, object]]:
    """What it told on stderr, all of it JSON, and on stdout that it is ready."""
    found = [line for line in server.printed().splitlines() if not server.READY.match(line)]
    return [json.loads(line) for line in found]


def user(data: Path, *words: str) -> str:
    """Run `bloomery user`; what it prints."""
    done = nursery.run(["user", *words, "--data", str(data)], PASSWORD.encode() + b"\n")
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def test_no_key_and_no_secret(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys in commands right and wrong, in broken requests and in URLs; passwords and tokens right
    and wrong; secrets of the registry and of the webhook, neither of which can be reached: at the
    most talkative level neither the log nor the audit has any of them."""
    data = tmp_path / "data"
    user(data, "add", "ops", "--role", "admin", "--password-stdin")
    token = user(data, "token", "ops").split()[-1]
    assert token.startswith("bloomery_")
    hook = "0123456789-hunter22-hook"
    monkeypatch.setenv("BLOOMERY_WEBHOOK_SECRET", hook)
    monkeypatch.setenv("BLOOMERY_WEBHOOK_URL", f"http://127.0.0.1:{free_port()}/{SECRETS[3]}")
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
        assert shown["registry"] == shown["webhook-url"] == shown["webhook-secret"] == "***"
        about = str(client.info()) + str(shown) + str(client.client_list())
    for broken in (
        f"*1\r\n${KEY}\r\n",
        f"*{KEY}\r\n",
        f"GET /{KEY} HTTP/1.1\r\nHost: {KEY}\r\n\r\n",
        f"AUTH ops {WRONG}\r\n",
    ):
        with socket.create_connection(("127.0.0.1", server.resp_port), timeout=30) as raw:
            raw.sendall(broken.encode())
            with contextlib.suppress(OSError):  # it may have closed already
                raw.shutdown(socket.SHUT_WR)
                while raw.recv(4096):
                    pass
    at = f"http://127.0.0.1:{server.http_port}"
    basic = base64.b64encode(f"ops:{WRONG}".encode()).decode()
    right = {"Authorization": f"Bearer {token}", "X-Key": KEY}
    for route, body in (
        ("add", {"keys": [KEY, f"{KEY}-2"]}),
        ("contains", {"key": KEY}),
        ("contains", {"key": {KEY: KEY}}),
        (f"{KEY}?key={KEY}", {KEY: KEY}),
    ):
        httpx.post(f"{at}/filters/seen/{route}", json=body, headers=right)
    for authorization in (f"Bearer {WRONG}", f"Basic {basic}", WRONG):
        httpx.post(  # a wrong login is answered late
            f"{at}/filters/seen/add?key={KEY}",
            json={"key": KEY},
            headers={"Authorization": authorization},
            timeout=60,
        )
    # Neither can be reached, which is told.
    assert wait_until(lambda: "the registry is late" in server.printed())
    assert wait_until(lambda: "the webhook at" in server.printed()), server.printed()
    assert server.stop() == 0
    told = server.printed() + about
    for path in data.glob("audit*"):
        told += path.read_text("utf-8")
    for secret in (KEY, *SECRETS, basic, hook, token, token.rpartition("_")[2]):
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
    assert server.stop() == 0
    last, *_ = lines(server)  # and others, where the end takes seconds
    assert (last["level"], str(last["message"])[:10]) == ("info", "stopping: ")
