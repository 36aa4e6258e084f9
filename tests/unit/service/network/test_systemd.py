"""What systemd is told, at a real socket."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path

import pytest

from bloomery.service.network.systemd import notify, watched


@pytest.mark.parametrize("abstract", [False, True])
def test_a_datagram(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool) -> None:
    """The states go to the socket that NOTIFY_SOCKET names, in one datagram; @: an abstract one."""
    where = f"@bloomery-test-{secrets.token_hex(8)}" if abstract else str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", where)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + where[1:] if abstract else where)
        systemd.settimeout(10)
        notify("READY=1", "STATUS=resp=127.0.0.1:6380")
        assert systemd.recv(4096) == b"READY=1\nSTATUS=resp=127.0.0.1:6380"


@pytest.mark.parametrize("where", ["", "/no/such/socket", "relative", "vsock:2:1234"])
def test_nobody_listens(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Without a socket that can be reached nothing happens."""
    monkeypatch.setenv("NOTIFY_SOCKET", where)
    notify("READY=1")
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify("READY=1")


def test_a_full_socket_does_not_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If systemd does not read, the server goes on."""
    where = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", where)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(where)
        for _ in range(2000):
            notify("WATCHDOG=1")


def test_the_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is fed where systemd asks this process for it."""
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    assert not watched()
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    assert watched()
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    assert watched()
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert not watched()
