"""A server that others can reach has users and TLS, or does not start."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import redis

from conftest import missing
from integration.servers import BloomeryServer, Serve, free_port
from unit.service.certificates import Pairs

PASSWORD = "correct horse battery"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with a user in it."""
    folder = tmp_path / "with-users"
    adding = ["user", "add", "ops", "--role", "admin", "--data", str(folder), "--password-stdin"]
    subprocess.run(
        [sys.executable, "-m", "bloomery", *adding],
        input=PASSWORD.encode() + b"\n",
        capture_output=True,
        check=True,
    )
    return folder


def refusal(folder: Path, data: Path, *arguments: str) -> list[str]:
    """What a server prints that must not start."""
    server = BloomeryServer(folder, *arguments, data=data)
    server.spawn()
    assert server.process is not None
    code = server.process.wait(60)
    server.process = None
    assert code == 2, server.printed()
    return server.printed().splitlines()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_without_users_and_tls_it_does_not_start(tmp_path: Path, host: str) -> None:
    """It says what to do about each, and makes no data folder."""
    lines = refusal(tmp_path, tmp_path / "data", "--host", host)
    assert len(lines) == 2
    assert "bloomery user add NAME --role admin --data" in lines[0]
    assert "--tls-cert FILE --tls-key FILE; or --insecure" in lines[1]
    assert not (tmp_path / "data").exists()


def test_one_of_the_two_is_not_enough(tmp_path: Path, data: Path, pairs: Pairs) -> None:
    """Users without TLS, and TLS without users, are refused for what is missing."""
    (line,) = refusal(tmp_path, data, "--host", "0.0.0.0")
    assert "no TLS" in line
    cert, key = pairs.make("server")
    tls = ("--tls-cert", cert, "--tls-key", key)
    (line,) = refusal(tmp_path, tmp_path / "data", "--host", "0.0.0.0", *tls)
    assert "no users" in line


def test_users_and_tls(serve: Serve, data: Path, pairs: Pairs) -> None:
    """With both it serves others, by users only and in TLS only."""
    cert, key = pairs.make("server")
    server = serve("--host", "0.0.0.0", "--tls-cert", cert, "--tls-key", key, data=data)
    at, trust = ("localhost", server.resp_port), pairs.trust()
    with (
        redis.Redis(*at, ssl=True, ssl_ca_certs=trust) as nobody,
        pytest.raises(redis.AuthenticationError),
    ):
        nobody.ping()
    with redis.Redis(*at, username="ops", password=PASSWORD, ssl=True, ssl_ca_certs=trust) as ops:
        assert ops.ping()


def test_insecure(serve: Serve, data: Path) -> None:
    """With --insecure it serves others in the clear, and says each time that it starts so."""
    server = serve("--host", "0.0.0.0", "--insecure", data=data)
    assert "others can listen in: there is no TLS" in server.printed()
    with redis.Redis("localhost", server.resp_port, username="ops", password=PASSWORD) as ops:
        assert ops.ping()


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_ipv6(serve: Serve) -> None:
    """::1 is loopback too, and takes nothing; the ready line has it in brackets."""
    if not _has_ipv6():
        missing("IPv6")
    server = serve("--host", "::1")
    assert f"resp=[::1]:{server.resp_port} http=[::1]:{server.http_port}" in server.printed()
    with redis.Redis("::1", server.resp_port) as client:
        assert client.ping()
        assert client.config_get("bind") == {"bind": "::1"}
    assert httpx.get(f"http://[::1]:{server.http_port}/healthz").status_code == 200


def test_a_name_with_several_addresses(serve: Serve) -> None:
    """All addresses of `localhost` are served, at one port."""
    server = serve("--host", "localhost")
    for address in {str(one[4][0]) for one in socket.getaddrinfo("localhost", None)}:
        with redis.Redis(address, server.resp_port) as client:
            assert client.ping()


def test_a_port_that_is_taken_at_one_address(tmp_path: Path) -> None:
    """It says which address and port, and exits."""
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        (line,) = refusal(tmp_path, tmp_path / "data", "--resp-port", str(port))
    assert f"cannot serve at 127.0.0.1:{port}: {os.strerror(98)}" in line
