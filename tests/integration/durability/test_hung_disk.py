"""A disk that does not follow: replies to writes wait, so that a power cut takes two seconds at the
most; checks go on; and an end says what it is waiting for."""

from __future__ import annotations

import contextlib
import re
import select
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration.durability.disks import Hung, fill, registry_in
from integration.resp.wire import Connection, Refused, Wire, ask, request
from integration.servers import BloomeryServer, wait_until
from limits import small_disk

pytestmark = pytest.mark.slow
Start = Callable[..., BloomeryServer]


@pytest.fixture
def disk(tmp_path: Path) -> Hung:
    """A disk that hangs when told to."""
    return Hung(tmp_path / "hung")


@pytest.fixture
def start(disk: Hung, tmp_path: Path) -> Iterator[Start]:
    """Start a server whose log is on that disk: `start("--fsync", "always", data=folder)`."""
    servers: list[BloomeryServer] = []

    def started(*arguments: str, data: Path | None = None) -> BloomeryServer:
        server = disk.server(tmp_path, *arguments, data=data)
        server.start()
        servers.append(server)
        return server

    yield started
    disk.release()
    for server in servers:
        server.kill()


def is_late(connection: Connection) -> bool:
    """Whether replies wait for the disk."""
    return connection.info()["log_late"] == "1"


def add_until_late(server: BloomeryServer, watching: Connection) -> tuple[Connection, list[str]]:
    """Add keys until a reply does not come; who waits for it, and the keys, with that one."""
    writing = Connection(server.resp_port)
    keys: list[str] = []

    def unanswered() -> bool:
        keys.append(f"key-{len(keys)}")
        words = [b"BF.ADD", b"filter", keys[-1].encode()]
        packed = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
        writing.socket.sendall(b"*3\r\n" + packed)
        while not select.select([writing.socket], [], [], 0.02)[0]:
            if is_late(watching) and not select.select([writing.socket], [], [], 0)[0]:
                return True  # it was not answered just before the disk became late
        assert writing.socket.recv(100) == b":1\r\n"
        return False

    assert wait_until(unanswered), server.printed()
    return writing, keys


def test_replies_wait_for_the_disk(disk: Hung, start: Start) -> None:
    """When a sync does not end, writes are answered for two seconds more and then held; who asks is
    answered, and INFO, /metrics and an alert tell. When it ends they are answered, and survive."""
    server = start()
    with Connection(server.resp_port) as watching:
        watching.ask("BF.RESERVE", "filter", 1e-7, 100_000)
        disk.hang()
        began = time.monotonic()
        writing, keys = add_until_late(server, watching)
        assert time.monotonic() - began > 1  # nothing is held before the disk is late
        assert len(keys) > 1
        assert watching.ask("BF.EXISTS", "filter", keys[0]) == 1
        facts = watching.info()
        assert (facts["aof_delayed_fsync"], facts["aof_pending_bio_fsync"]) == ("1", "1")
        assert float(facts["log_unsynced_seconds"]) >= 2
        assert wait_until(lambda: "alert=log-late state=raised" in server.printed())
        with urllib.request.urlopen(f"{server.url}/metrics") as page:
            figures = page.read().decode()
        assert "bloomery_log_delayed_fsync_total 1.0" in figures
        assert "bloomery_log_late 1.0" in figures
        assert not select.select([writing.socket], [], [], 0)[0]  # still nothing
        disk.release()
        assert writing.socket.recv(100) == b":1\r\n"
        assert wait_until(lambda: not is_late(watching))
        assert wait_until(lambda: "alert=log-late state=cleared" in server.printed())
        assert watching.ask("BF.ADD", "filter", "after") == 1
    writing.close()
    server.kill()
    server.start()
    with Connection(server.resp_port) as connection:
        assert all(connection.ask("BF.MEXISTS", "filter", "after", *keys))


def test_the_end_says_what_it_waits_for(disk: Hung, start: Start) -> None:
    """Told to stop while the disk hangs, a server says again and again what it waits for; when the
    disk is back it ends as ever, with a snapshot of everything."""
    server = start()
    with Connection(server.resp_port) as watching:
        watching.ask("BF.RESERVE", "filter", 1e-7, 100_000)
        disk.hang()
        writing, keys = add_until_late(server, watching)
    assert server.process is not None
    server.process.send_signal(signal.SIGTERM)
    assert wait_until(lambda: server.printed().count("stopping: ") > 1), server.printed()
    assert " s\n" in server.printed().rpartition("stopping: ")[2]
    disk.release()
    assert server.stop() == 0, server.printed()
    assert "Traceback" not in server.printed()
    writing.close()
    server.start()
    with Connection(server.resp_port) as connection:
        assert connection.info()["recovered_rows"] == "0"
        assert all(connection.ask("BF.MEXISTS", "filter", *keys))


def test_a_long_pipeline_to_a_slow_disk(disk: Hung, start: Start) -> None:
    """However long each commit takes, a client that takes its replies is answered to the end, and
    what cannot be done yet waits at the client's: it does not pile up in the server."""
    server = start("--fsync", "always", "--set", "max-input-bytes=4mb")
    count, sent, replies = 100_000, [0], [0]
    data = b"".join(request("BF.INSERT", "c", "ITEMS", n) for n in range(count))
    with Wire(server.resp_port) as wire, Wire(server.resp_port) as watching:

        def send() -> None:
            with contextlib.suppress(OSError):  # the count of replies tells
                for at in range(0, len(data), 1 << 16):
                    wire.send(data[at : at + (1 << 16)])
                    sent[0] = at

        def receive() -> None:
            with contextlib.suppress(OSError):
                while replies[0] < count and (some := wire.socket.recv(1 << 16)):
                    replies[0] += some.count(b"*")

        threads = [threading.Thread(target=work, daemon=True) for work in (send, receive)]
        for thread in threads:
            thread.start()

        def stands() -> bool:
            before, seen[0] = seen[0], sent[0]
            return before == sent[0]

        while threads[1].is_alive():
            disk.hang()
            seen = [-1]
            wait_until(lambda: disk.waiting() > 0 or not threads[1].is_alive())
            wait_until(stands)
            for waiting in re.findall(rb"qbuf=(\d+)", watching.ask("CLIENT", "LIST")):
                assert int(waiting) < 2 << 20
            disk.release()
            wait_until(lambda: disk.waiting() == 0)
        assert replies[0] == count
        threads[0].join()


def test_terminated_during_a_retry(disk: Hung, start: Start, tmp_path: Path) -> None:
    """SIGTERM while what a full disk had kept out of the log is being written: the end waits for
    it, and nothing of the log's thread is lost."""
    with small_disk(tmp_path / "small", 12 << 20) as small:
        server = start("--fsync", "always", *registry_in(tmp_path), data=small / "data")
        done: list[str] = []
        with Connection(server.resp_port) as connection:
            connection.ask("BF.RESERVE", "filter", 1e-7, 100_000)

            def add() -> None:
                connection.ask("BF.ADD", "filter", f"key-{len(done)}")
                done.append(f"key-{len(done)}")

            # Some before the disk is full: the first add after that may be refused already.
            for _ in range(100):
                add()
            ballast = fill(small, leave=100_000)

            with contextlib.suppress(Refused):
                while len(done) < 1_000_000:
                    add()
            disk.hang()
            assert wait_until(lambda: disk.waiting() > 0), server.printed()  # the sync of a second
        ballast.unlink()
        assert wait_until(lambda: disk.waiting() == 2)  # and the retry
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        assert wait_until(lambda: "stopping: " in server.printed())
        disk.release()
        assert server.stop() == 0, server.printed()
        assert "ended by an error" not in server.printed()
        server.start()
        assert all(ask(server.resp_port, "BF.MEXISTS", "filter", *done))
        server.kill()
