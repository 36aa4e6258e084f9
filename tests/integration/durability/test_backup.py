"""`bloomery backup` of a server that is written to, and `bloomery restore`."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

import nursery
from integration.durability.load import KINDS
from integration.resp.wire import Connection
from integration.servers import BloomeryServer, Serve, wait_until

COMMAND = (sys.executable, "-m", "bloomery")
# Each kind, and one that takes several blocks to send.
FILTERS = {**KINDS, "large": ("BF.RESERVE", 1e-7, 300_000, "KIND", "bloom")}


def run(*words: str | Path, code: int = 0) -> str:
    """What the command printed, on either side."""
    done = nursery.run([*map(str, words)])
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode() + done.stderr.decode()


def command_for(kind: str, verb: str) -> str:
    return f"{'CF' if kind == 'rediscuckoo' else 'BF'}.{verb}"


class Load(threading.Thread):
    """A client that adds keys to every filter until it is told to end."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.acknowledged = 0  # rounds: key n is in all filters for each n below
        self.ending = threading.Event()

    def run(self) -> None:
        with Connection(self.port) as connection:
            for kind, (command, *settings) in FILTERS.items():
                connection.ask(command, kind, *settings)
            while not self.ending.is_set():
                key = f"key {self.acknowledged}"
                connection.ask_all([(command_for(kind, "ADD"), kind, key) for kind in FILTERS])
                self.acknowledged += 1


def test_every_acknowledged_key_is_in_a_backup(serve: Serve, tmp_path: Path) -> None:
    """Each key that was acknowledged before a backup began is there after a restore, of every kind,
    while clients go on writing and another snapshot is made."""
    server = serve()
    load = Load(server.resp_port)
    load.start()
    assert wait_until(lambda: load.acknowledged > 200)
    with Connection(server.resp_port) as connection:
        connection.ask("EXPIRE", "bloom", 5000)
        connection.ask("BGSAVE")
    before = load.acknowledged
    text = run("backup", tmp_path / "file", "--url", server.url)
    assert f"file: {len(FILTERS)} filters" in text
    load.ending.set()
    load.join()
    assert load.acknowledged > before
    with Connection(server.resp_port) as connection:
        (ends,) = connection.ask_all([("PEXPIRETIME", "bloom")])
    run("restore", tmp_path / "file", "--data", tmp_path / "made")
    restored = serve(data=tmp_path / "made")
    with Connection(restored.resp_port) as connection:
        assert set(connection.ask("KEYS", "*")) == {kind.encode() for kind in FILTERS}
        for kind in FILTERS:
            keys = [f"key {number}" for number in range(before)]
            answers = connection.ask(command_for(kind, "MEXISTS"), kind, *keys)
            assert answers == [1] * before, kind
        assert connection.ask("PEXPIRETIME", "bloom") == ends
        assert connection.info()["recovery_problems"] == "0", restored.printed()
    said = run("restore", tmp_path / "file", "--data", tmp_path / "made", code=2)
    assert said.startswith("bloomery: ")
    assert "another server has this folder" in said


@pytest.fixture
def large(serve: Serve) -> BloomeryServer:
    """A server with a filter of 2 MB."""
    server = serve()
    with Connection(server.resp_port) as connection:
        connection.ask("BF.RESERVE", "large", 0.01, 2_000_000, "KIND", "bloom")
        connection.ask("BF.ADD", "large", "a")
    return server


def test_the_rate_holds(large: BloomeryServer) -> None:
    """A backup takes no less time than its bytes at the rate that was asked for, but for the first
    block."""
    with httpx.stream("GET", f"{large.url}/backup?rate=2000000", timeout=60) as response:
        began = time.monotonic()
        nbytes = sum(map(len, response.iter_raw(65536)))
        seconds = time.monotonic() - began
        assert int(response.headers["content-length"]) == nbytes > 2_000_000
    assert seconds >= (nbytes - (512 << 10)) / 2_000_000


def held(server: BloomeryServer) -> list[Path]:
    """What the server holds for backups that it sends."""
    return list(server.data.glob("backup-*.tmp"))


def test_few_backups_at_a_time(large: BloomeryServer) -> None:
    """A third one is refused until another is over, which it also is when its client goes."""
    url = f"{large.url}/backup?rate=65536"
    with (
        httpx.stream("GET", url, timeout=60) as first,
        httpx.stream("GET", url, timeout=60) as second,
    ):
        assert (first.status_code, second.status_code, len(held(large))) == (200, 200, 2)
        third = httpx.get(url, timeout=60)
        assert (third.status_code, third.json()["code"]) == (503, "server-unavailable")
    assert wait_until(lambda: not held(large))
    assert httpx.get(f"{large.url}/backup", timeout=60).status_code == 200


def test_a_killed_client_leaves_no_backup(large: BloomeryServer, tmp_path: Path) -> None:
    """A backup has its name only when it is whole; the server lets go of what it held."""
    words = ("backup", tmp_path / "file", "--url", large.url, "--rate", "70kB")
    client = subprocess.Popen([*COMMAND, *words])
    try:
        assert wait_until(lambda: held(large))
    finally:
        client.kill()
        client.wait()
    assert wait_until(lambda: not held(large))
    assert not (tmp_path / "file").exists()
    run("backup", tmp_path / "file", "--url", large.url)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_a_killed_server(large: BloomeryServer, tmp_path: Path) -> None:
    """A backup that breaks off is an error and no file; the server's next start clears up."""
    (tmp_path / "file").write_text("an older one")
    words = ("backup", tmp_path / "file", "--url", large.url, "--rate", "70kB")
    client = subprocess.Popen([*COMMAND, *words], stderr=subprocess.PIPE)
    assert wait_until(lambda: held(large))
    large.kill()
    said = client.communicate(timeout=60)[1].decode()
    assert (client.returncode, said.count("\n")) == (2, 1), said
    assert [one.name for one in tmp_path.glob("*file*")] == ["file"]
    assert (tmp_path / "file").read_text() == "an older one"
    large.start()
    assert not held(large)


def test_wrong_words(large: BloomeryServer, tmp_path: Path) -> None:
    """What is wrong with an address, a token or a file is one line."""
    (tmp_path / "token").write_text("")
    for words, why in (
        (("backup", tmp_path / "x", "--url", "http://127.0.0.1:1"), "no server can be reached"),
        (("backup", tmp_path / "x", "--token-file", tmp_path / "token"), "not a token"),
        (("backup", tmp_path / "x", "--url", large.url, "--rate", "1kB"), "rate"),
        (("restore", tmp_path / "x", "--data", tmp_path / "y"), "No such file"),
        (("restore", tmp_path / "token", "--data", tmp_path / "y"), "token: cut off"),
    ):
        said = run(*words, code=2)
        assert said.startswith("bloomery: "), said
        assert said.count("\n") == 1, said
        assert why in said, said
    assert not (tmp_path / "y").exists()
