"""`kill -9` at random moments under load: nothing that was acknowledged is lost."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from bloomery.service.durability.folder import snapshots_folder
from conftest import effort
from integration.durability.exports import differences, exports
from integration.durability.load import RATE, Writer
from integration.resp.wire import Connection, Refused, Word, ask, request
from integration.servers import BloomeryServer, Serve, wait_until

pytestmark = pytest.mark.slow
WRITERS = 4
# A log of 64 KiB calls for a snapshot: there is nearly always one under way.
BUSY = ("--set", "snapshot-log-bytes=65536")


def children(pid: int) -> list[int]:
    """The processes that a process has started, in any thread."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            found += map(int, (thread / "children").read_text().split())
    return found


class Story:
    """A server that is killed again and again, and the clients that write to it."""

    def __init__(self, server: BloomeryServer, seed: int, *, saving: bool = True) -> None:
        self.server = server
        self.saving = saving
        self.random = random.Random(seed)
        self.seed = seed
        self.writers = [Writer(number, seed) for number in range(WRITERS)]
        self.rounds = 0

    def load(self, seconds: float) -> None:
        """Let the clients write for a while; they still do when this returns."""
        self.rounds += 1
        again = [
            Writer(number, self.seed * 1000 + self.rounds, one.names)
            for number, one in enumerate(self.writers)
        ]
        for one in again:
            one.saving = self.saving
        self.writers = [one.begin(self.server.resp_port) for one in again]
        time.sleep(seconds)  # a kill comes at any moment

    def verify(self) -> None:
        """End the clients, and ask the server for all that was acknowledged."""
        for writer in self.writers:
            writer.end()
        for writer in self.writers:
            writer.verify(self.server.resp_port)

    def kill_recovery(self) -> None:
        """Start the server, and kill it before it is ready."""
        limit = time.monotonic() + self.random.uniform(0.3, 1.5)
        self.server.spawn()
        wait_until(lambda: self.server.ready() or time.monotonic() > limit, 5)
        self.server.kill()

    def copy(self, to: Path) -> None:
        """Copy the data folder of the killed server, when its snapshotter has ended too."""
        folder = snapshots_folder(self.server.data)
        folder.mkdir(exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            shutil.copytree(self.server.data, to)


def on_threads(count: int) -> tuple[str, str]:
    """Return the option for a number of workers."""
    return "--set", f"threads={count}"


@pytest.mark.parametrize(
    ("layout", "fsync", "threads"),
    [
        ("bloomery", "everysec", 4),
        ("redisbloom", "always", 2),
        pytest.param("bloomery", "everysec", 2, marks=pytest.mark.soak),
        pytest.param("redisbloom", "always", 4, marks=pytest.mark.soak),
    ],
)
def test_killed_under_load(
    serve: Serve, tmp_path: Path, layout: str, fsync: str, threads: int
) -> None:
    """Every acknowledged key, removal, count, name and time is there after any number of kills, of
    the server while it serves, while it makes snapshots and while it recovers. An interrupted
    recovery leads to the same memory as a complete one, and replay to the memory of the live
    server."""
    options = ("--bf-layout", layout, "--fsync", fsync, *on_threads(threads))
    story = Story(serve(*BUSY, *options), seed=len(layout))
    for number in range(effort(2, 2, 50)):
        story.load(story.random.uniform(0.1, 1.2))
        if story.random.random() < 0.5:
            with Connection(story.server.resp_port) as connection:
                with contextlib.suppress(Refused):
                    connection.ask("BGSAVE")
                time.sleep(story.random.uniform(0, 0.6))
        story.server.kill()
        left = tmp_path / f"left {number}"
        interrupted = story.random.random() < 0.5
        if interrupted:
            story.copy(left)
            story.kill_recovery()
        story.server.start()
        story.verify()
        if interrupted:
            other = serve(*options, data=left)
            assert differences(exports(other), exports(story.server)) == []
            other.kill()
            shutil.rmtree(left)
        assert "recovery:" not in story.server.printed()
    story.load(0.3)
    story.verify()
    live = exports(story.server)
    story.server.kill()
    story.server.start()
    wrong = differences(live, exports(story.server))
    assert not wrong, "\n".join(["replay is not live memory", *wrong])
    assert sum(writer.acknowledged for writer in story.writers) > 0


def test_killed_snapshotter(serve: Serve) -> None:
    """A snapshotter that is killed costs a snapshot, which is said; the next one is made, and
    nothing is lost."""
    story = Story(serve(*on_threads(2)), seed=7, saving=False)
    for _ in range(effort(1, 1, 20)):
        story.load(0.3)
        port = story.server.resp_port
        with Connection(port, timeout=300) as connection:  # a snapshot waits for busy cores
            before = connection.info()["last_snapshot"]
            wait_until(lambda: connection.info()["rdb_bgsave_in_progress"] == "0")

            def killed() -> bool:
                """Whether a snapshotter was killed before it had ended."""
                connection.ask("BGSAVE")
                assert wait_until(lambda: children(story.server.pid), pause=0.001)
                for pid in children(story.server.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                assert wait_until(lambda: connection.info()["rdb_bgsave_in_progress"] == "0")
                return connection.info()["rdb_last_bgsave_status"] == "err"

            assert wait_until(killed)
            assert connection.info()["last_snapshot_problem"]
            connection.ask("SAVE")
            assert connection.info()["last_snapshot_problem"] == ""
            assert int(connection.info()["last_snapshot"]) > int(before)
        story.verify()
        story.server.kill()
        story.server.start()
        story.verify()


def test_terminated_under_load(serve: Serve) -> None:
    """SIGTERM under load ends with code 0, loses nothing that was acknowledged, and leaves a
    snapshot of everything: the next start has nothing to replay."""
    story = Story(serve(*BUSY, *on_threads(4)), seed=11)
    for _ in range(effort(1, 2, 30)):
        story.load(story.random.uniform(0.2, 0.8))
        assert story.server.stop() == 0, story.server.printed()
        story.server.start()
        with Connection(story.server.resp_port) as connection:
            facts = connection.info()
        assert facts["recovered_rows"] == "0", facts
        assert facts["recovery_problems"] == "0"
        story.verify()


def test_terminated_after_a_kill(serve: Serve) -> None:
    """What a start has replayed is in the snapshot that the next end makes, written to or not."""
    server = serve()
    ask(server.resp_port, "BF.ADD", "a", "x")
    ask(server.resp_port, "SAVE")
    ask(server.resp_port, "BF.ADD", "a", "y")
    server.kill()
    server.start()
    with Connection(server.resp_port) as connection:
        assert connection.info()["recovered_rows"] == "1"
    assert server.stop() == 0
    server.start()
    with Connection(server.resp_port) as connection:
        assert connection.info()["recovered_rows"] == "0"
        assert connection.ask("BF.MEXISTS", "a", "x", "y") == [1, 1]


def test_the_time_goes_on_while_it_is_away(serve: Serve) -> None:
    """A filter whose time ran out while no server ran is gone after the start."""
    server = serve()
    ask(server.resp_port, "BF.ADD", "short", "a")
    ask(server.resp_port, "BF.ADD", "long", "a")
    ask(server.resp_port, "PEXPIRE", "short", 300)
    ask(server.resp_port, "PEXPIRE", "long", 3_600_000)
    server.kill()
    time.sleep(0.4)  # by the real clock: nobody runs who could be asked
    server.start()
    assert ask(server.resp_port, "KEYS", "*") == [b"long"]
    assert 3_500 < ask(server.resp_port, "TTL", "long") <= 3_600


WHOLE: dict[str, tuple[tuple[Word, ...], ...]] = {
    "COPY": (("COPY", "large", "copied"),),
    "BF.CLEAR": (("BF.CLEAR", "large"),),
    "BF.MERGE": (("BF.MERGE", "large", "source"),),
    "growth": (("BF.MADD", "layers", *range(1000, 3000)),),
}


def test_killed_while_a_thread_works_on_a_filter(serve: Serve) -> None:
    """Of what is done to all of a filter, all is there or nothing, and of what came before it
    everything. Others are answered meanwhile."""
    server = serve("--set", "bf-layout=redisbloom")
    port = server.resp_port
    keys = range(1000)
    for name, first in (("large", 0), ("source", 5000)):
        ask(port, "BF.RESERVE", name, RATE, 8_000_000, "KIND", "bloom")
        ask(port, "BF.MADD", name, *range(first, first + 1000))
    ask(port, "BF.RESERVE", "layers", RATE, 1000, "EXPANSION", 4000)
    ask(port, "BF.MADD", "layers", *keys)
    for operation, commands in WHOLE.items():
        with Connection(server.resp_port) as asking, Connection(server.resp_port) as other:
            for words in commands:
                asking.send(request(*words))
            assert other.ask("BF.ADD", f"beside {operation}", "key") == 1
            server.kill()
        server.start()
        port = server.resp_port
        assert ask(port, "BF.EXISTS", f"beside {operation}", "key") == 1
        assert ask(port, "BF.MEXISTS", "layers", *keys) == [1] * 1000
        assert len(set(ask(port, "BF.MEXISTS", "large", *keys))) == 1, operation
        if operation == "COPY" and ask(port, "EXISTS", "copied"):
            assert ask(port, "BF.MEXISTS", "copied", *keys) == [1] * 1000
        if operation != "growth":
            ask(port, "BF.MADD", "large", *keys)
            merged = set(ask(port, "BF.MEXISTS", "large", *range(5000, 6000)))
            assert len(merged) == 1, operation
        assert "recovery:" not in server.printed()
