"""A server whose log is damaged does not come up, whoever starts it again and again; once the loss
is accepted, an alert stays until somebody has moved the damaged files away."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bloomery.service.access import users
from bloomery.service.access.permissions import Role
from bloomery.service.durability.log import Log
from integration.conftest import open_folder
from integration.resp.wire import Connection, ask
from integration.servers import BloomeryServer, Serve, free_port, wait_until
from unit.service.durability.damaging import change, frames

pytestmark = pytest.mark.slow
KEYS = [f"key-{number}" for number in range(300)]


@pytest.fixture(scope="module")
def killed() -> Iterator[Path]:
    """A folder with a log of 300 keys, each acknowledged by itself, and no snapshot."""
    with open_folder() as above:
        server = BloomeryServer(above)
        server.start()
        with Connection(server.resp_port) as connection:
            connection.ask("BF.RESERVE", "seen", 1e-7, 10_000)
            for key in KEYS:
                connection.ask("BF.ADD", "seen", key)
        server.kill()
        yield server.data


def segment(data: Path) -> Path:
    """The only segment."""
    return data / "log" / "00000001.log"


def damage_row(data: Path, number: int) -> None:
    """Change the last byte of a row, which is a commit of its own."""
    change(segment(data), sum(map(len, frames(segment(data))[: number + 1])) - 1)


def unknown_operation(data: Path) -> None:
    """A row of a newer bloomery, before a rollback."""
    log = Log(data / "log", segment=2, seq=301)
    log.append([(1, 99, b"")])
    log.close()


def damaged_row(data: Path) -> None:
    """A row in the middle."""
    damage_row(data, 150)


def damaged_create(data: Path) -> None:
    """The row that made the filter."""
    damage_row(data, 1)


def damaged_end(data: Path) -> None:
    """The last row, which could be taken for one that a crash cut off."""
    damage_row(data, 301)


def asked(server: BloomeryServer, path: str) -> bytes:
    """What HTTP answers."""
    with urllib.request.urlopen(server.url + path, timeout=60) as answer:
        found: bytes = answer.read()
    return found


def alerts(server: BloomeryServer) -> list[dict[str, Any]]:
    """What is wrong, of this sort."""
    found = json.loads(asked(server, "/alerts"))["alerts"]
    return [one for one in found if one["kind"] == "data-damaged"]


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (unknown_operation, "operation 99"),
        (damaged_row, "operations 150 to 150 are lost"),
        (damaged_create, "operations 1 to 1 are lost"),
        (damaged_end, "ends with operation 300"),
    ],
)
def test_a_damaged_log(
    serve: Serve, killed: Path, tmp_path: Path, damage: Callable[[Path], None], word: str
) -> None:
    """It is refused with what is wrong and what to do, as often as it is tried; with --accept-loss
    it serves the rest, and tells so until the damaged files are moved away."""
    data = Path(shutil.copytree(killed, tmp_path / "copy"))
    damage(data)
    server = BloomeryServer(tmp_path, data=data)
    for _ in range(2):
        message = server.refused()
        assert word in message
        assert "--accept-loss" in message
    brave = serve("--accept-loss", data=data)
    (alert,) = alerts(brave)
    assert (alert["level"], alert["lost"]) == ("error", True)
    assert word in alert["text"]
    assert alert["text"] in brave.printed()
    figures = asked(brave, "/metrics").decode()
    assert 'bloomery_alert_active{alert="data-damaged",filter=""} 1.0' in figures
    assert "bloomery_recovery_problems 0.0" not in figures
    for _ in range(3):
        ask(brave.resp_port, "BF.ADD", "another", "key")
        ask(brave.resp_port, "SAVE")
    assert brave.stop() == 0
    server.start()  # without --accept-loss
    try:
        assert alerts(server)[0]["text"] == alert["text"]
        assert "bloomery_recovery_problems 0.0" in asked(server, "/metrics").decode()
        shutil.rmtree(data / "damaged" / alert["folder"])
        assert wait_until(lambda: not alerts(server))
    finally:
        server.kill()


def test_nobody_is_told_that_it_is_ready(killed: Path, tmp_path: Path) -> None:
    """While a start is refused, no one who asks /readyz is sent any clients."""
    data = Path(shutil.copytree(killed, tmp_path / "copy"))
    damaged_row(data)
    port = free_port()
    server = BloomeryServer(tmp_path, "--http-port", str(port), data=data)
    server.spawn()
    answers = set()
    while server.process is not None and server.process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
                answers.add(answer.status)
        except urllib.error.HTTPError as refused:
            answers.add(refused.code)
        except OSError:
            pass  # not yet, or not any more
    assert server.process is not None
    assert server.process.wait(60) == 2
    assert answers <= {503}


def test_a_damaged_snapshot(serve: Serve, killed: Path, tmp_path: Path) -> None:
    """A snapshot that is damaged where nothing is lost does not keep the server from starting: it
    has all keys, and tells until the snapshot that was set aside is moved away."""
    data = Path(shutil.copytree(killed, tmp_path / "copy"))
    server = serve(data=data)
    ask(server.resp_port, "SAVE")
    server.kill()
    (file,) = (data / "snapshots").glob("*/1.bloomery")
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    server.start()
    assert all(ask(server.resp_port, "BF.MEXISTS", "seen", *KEYS))
    (alert,) = alerts(server)
    assert alert["lost"] is False
    assert "nothing is lost" in alert["text"]
    aside = data / "damaged" / alert["folder"]
    assert (aside / file.relative_to(data)).read_bytes() == bytes(raw)
    aside.rename(tmp_path / "elsewhere")
    assert wait_until(lambda: not alerts(server))


def test_users_that_are_gone(tmp_path: Path) -> None:
    """A server that had users, and whose file of them is gone, is not open to all: it is refused,
    and so is one whose file is damaged."""
    data = tmp_path / "data"
    data.mkdir()
    with users.changing(data) as found:
        found.add(users.Account("ann", Role.ADMIN))
    users.users_file(data).write_bytes(users.users_file(data).read_bytes()[:-10])
    server = BloomeryServer(tmp_path, data=data)
    assert "not a whole file of users" in server.refused()
    users.users_file(data).unlink()
    assert "users.json: gone" in server.refused()
