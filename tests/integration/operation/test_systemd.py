"""The systemd unit, and what the server tells systemd."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import missing
from docs.pages import TREE
from integration.servers import Serve

UNIT = TREE / "deploy" / "bloomery.service"
# What systemd's own scale calls safe ends at 2.0: more means that something was left open.
MOST_EXPOSURE = 1.5


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that is there, which `verify` asks for."""
    if shutil.which("systemd-analyze") is None:
        missing("systemd-analyze (scripts/servers installs it)")
    text = UNIT.read_text("utf-8")
    program = "/opt/bloomery/bin/bloomery"
    assert program in text
    path = tmp_path / UNIT.name
    path.write_text(text.replace(program, sys.executable), "utf-8")
    return path


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze."""
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_verify(unit: Path) -> None:
    """systemd finds nothing wrong in it, not even a name that it does not know."""
    done = analyze("verify", "--man=no", str(unit))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    unit.write_text(unit.read_text("utf-8").replace("ProtectClock=", "ProtectClocks="), "utf-8")
    assert "ProtectClocks" in analyze("verify", "--man=no", str(unit)).stderr


def test_hardening(unit: Path) -> None:
    """Little of the machine is in its reach, by systemd's own measure."""
    done = analyze("security", "--offline=true", "--no-pager", str(unit))
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found, done
    assert float(found[1]) <= MOST_EXPOSURE, done.stdout


def test_what_systemd_is_told(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """READY=1 when it can be used, WATCHDOG=1 while it lives, STOPPING=1 when it ends; SIGHUP, as
    ExecReload sends it, does not end it."""
    where = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", where)
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(where)
        systemd.settimeout(60)
        server = serve()
        status = f"STATUS=resp=127.0.0.1:{server.resp_port} http=127.0.0.1:{server.http_port}"
        assert systemd.recv(4096).decode().split("\n") == ["READY=1", status]
        assert server.process is not None
        server.process.send_signal(signal.SIGHUP)
        assert systemd.recv(4096) == b"WATCHDOG=1"
        assert systemd.recv(4096) == b"WATCHDOG=1"
        assert server.stop() == 0
        said = systemd.recv(4096)
        while said == b"WATCHDOG=1":
            said = systemd.recv(4096)
        assert said == b"STOPPING=1"
