"""`bloomery cluster up` as people use it: Redis, nodes and HAProxy come up, serve, are killed one
by one, and end together."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.exceptions import ConnectionError, ResponseError, TimeoutError
from redis.retry import Retry

from integration.conftest import open_folder
from integration.servers import PATIENCE, RedisServer, Server, wait_until

_PLACE = re.compile(r"(\w+)=127\.0\.0\.1:(\d+)")


class ClusterUp(Server):
    """The command, with any free ports."""

    tries = 1

    def __init__(self, folder: Path, *arguments: str) -> None:
        super().__init__(folder)
        self.arguments = arguments

    def command(self) -> list[str]:
        command = [sys.executable, "-m", "bloomery", "cluster", "up", *self.arguments]
        return [*command, "--resp-port", "0", "--http-port", "0"]

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "TMPDIR": str(self.folder)}

    def ready(self) -> bool:
        return "\ntry: " in self.printed()

    def ports(self, start: str = "bloomery cluster ready") -> dict[str, int]:
        """Of what a line that begins so tells of."""
        found = re.search(rf"^{start}: .*", self.printed(), re.M)
        assert found is not None, self.printed()
        return {door: int(port) for door, port in _PLACE.findall(found[0])}

    def client(self, start: str = "bloomery cluster ready") -> redis.Redis:
        """For HAProxy, or for the node of that name; it connects again when it must."""
        retry = Retry(ConstantBackoff(0.1), 100)
        port = self.ports(start)["resp"]
        return redis.Redis(port=port, retry=retry, retry_on_error=[ConnectionError, TimeoutError])

    def children(self) -> dict[str, int]:
        """The processes that it has started, by a word of each command."""
        found = {}
        for thread in Path(f"/proc/{self.pid}/task").glob("*/children"):
            for child in _read(thread).split():
                words = _read(Path(f"/proc/{child}/cmdline")).replace("\0", " ").split()
                folder = [Path(word).name for word in words if "/node-" in word]
                if words:  # else it has ended
                    found[folder[0] if folder else Path(words[0]).name] = int(child)
        return found


def _read(path: Path) -> str:
    """What the kernel says there; nothing of a thread or a process that has ended meanwhile."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def gone(pids: list[int]) -> bool:
    """Whether none of these processes is there, or all of them are dead and nobody has noticed."""
    return not any(_state(pid) not in ("", "Z") for pid in pids)


def _state(pid: int) -> str:
    return "".join(_read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()[:1])


def added(client: Any, key: str) -> bool:
    """Whether a key could be added: not while Redis is away."""
    try:
        client.execute_command("BF.ADD", "seen", key)
    except ResponseError:
        return False
    return True


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterUp]:
    """Three nodes, on a folder; one test after the other, and the last ones end it."""
    with open_folder() as folder:
        one = ClusterUp(folder, "--nodes", "3", "--data", str(folder / "data"))
        one.start()
        try:
            yield one
        finally:
            one.stop()


def test_what_one_node_takes_all_nodes_have(cluster: ClusterUp) -> None:
    """A key that is added through HAProxy is found through it by either protocol, and at each node;
    there are four doors, and the line to try works."""
    assert set(cluster.ports()) == {"resp", "http", "stats", "redis"}
    with cluster.client() as client:
        assert client.execute_command("BF.ADD", "seen", "alice") == 1
    for number in (1, 2, 3):
        with cluster.client(f"node {number}") as node:
            assert wait_until(lambda node=node: known(node, "alice"))  # type: ignore[misc]
    url = f"http://127.0.0.1:{cluster.ports()['http']}/filters/seen/contains"
    assert httpx.post(url, json={"keys": ["alice", "bob"]}).json() == {"maybe": [True, False]}
    told = re.search(r"^try: redis-cli -p (\d+) BF.ADD seen alice", cluster.printed(), re.M)
    assert told is not None
    assert int(told[1]) == cluster.ports()["resp"]


def known(client: Any, key: str) -> bool:
    """Whether a node knows a key of a filter that it may not have heard of yet."""
    try:
        return bool(client.execute_command("BF.EXISTS", "seen", key))
    except ResponseError:
        return False


@pytest.mark.parametrize("name", ["node-2", "haproxy", "redis-server"])
def test_one_that_is_killed_is_started_again(cluster: ClusterUp, name: str) -> None:
    """After `kill -9` of any of them: it is told, it is there again at the same port, and what was
    added before and is added after it is found."""
    before = cluster.children()
    assert len(before) == 5
    with cluster.client() as client:
        assert added(client, f"before {name}")
        os.kill(before[name], signal.SIGKILL)
        assert wait_until(lambda: cluster.children().get(name, before[name]) != before[name])
        assert wait_until(lambda: added(client, f"after {name}"))
        assert wait_until(lambda: known(client, f"before {name}"))
    place = {"node-2": "node 2", "redis-server": "redis"}.get(name, name)
    assert re.search(
        rf"^{place} was ended by SIGKILL.*; it is started again$", cluster.printed(), re.M
    )
    with cluster.client("node 2") as node:
        assert wait_until(lambda: known(node, f"after {name}"))
    left = {one: pid for one, pid in cluster.children().items() if one != name}
    assert left.items() <= before.items()


def test_a_folder_is_for_one_cluster(cluster: ClusterUp, tmp_path: Path) -> None:
    """Another one on the same folder is refused, and harms nothing."""
    said = refused(tmp_path, "--data", str(cluster.folder / "data"))
    assert "another server has this folder" in said


def test_all_end_together(cluster: ClusterUp) -> None:
    """SIGTERM: exit code 0, and no process is left. On the same folder all is there again, with
    another number of nodes; and if the command is killed, all it started end by themselves."""
    with cluster.client() as client:
        client.execute_command("BF.ADD", "kept", "alice")
    children = list(cluster.children().values())
    assert cluster.stop() == 0
    assert gone(children)
    cluster.arguments = ("--nodes", "1", *cluster.arguments[2:])
    cluster.start()
    with cluster.client() as client:
        assert client.execute_command("BF.MEXISTS", "kept", "alice", "bob") == [1, 0]
    children = list(cluster.children().values())
    assert len(children) == 3
    cluster.kill()
    assert wait_until(lambda: gone(children))


def test_a_redis_that_is_there_already(redis_server: RedisServer, tmp_path: Path) -> None:
    """With --store none is started, and it is left as it is; Ctrl-C ends the rest with exit code 0,
    and without --data no file is left."""
    one = ClusterUp(tmp_path, "--nodes", "1", "--store", redis_server.url)
    one.stop_signal = signal.SIGINT
    one.start()
    try:
        assert sorted(one.children()) == ["haproxy", "node-1"]
        assert one.ports()["redis"] == redis_server.port
        with one.client() as client:
            assert client.execute_command("BF.ADD", "seen", "alice") == 1
    finally:
        code = one.stop()
    assert code == 0
    assert redis_server.run("EXISTS", "{bloomery}:log") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_stopped_before_it_is_up(tmp_path: Path) -> None:
    """SIGTERM while nodes are starting: all end, with exit code 0, and nothing is left."""
    one = ClusterUp(tmp_path, "--nodes", "2")
    one.spawn()
    try:
        assert wait_until(lambda: len(one.children()) == 3)
        children = list(one.children().values())
    finally:
        code = one.stop()
    assert (code, gone(children)) == (0, True)
    assert not one.ready()
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_tour(tmp_path: Path) -> None:
    """It shows each thing, ends by itself with exit code 0, and leaves nothing."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "bloomery", "cluster", "up", "--tour", "--nodes", "2"),
            *("--resp-port", "0", "--http-port", "0"),
        ],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done
    said = done.stdout
    assert re.findall(r"^tour (\d) of 4", said, re.M) == ["1", "2", "3", "4"]
    assert [line[-1] for line in said.splitlines() if "BF.ADD tour:once" in line] == ["1", "0"]
    assert (
        len(re.findall(r"by the source, then by the cache; .* no, by the filter$", said, re.M)) == 2
    )
    assert "every node began its second generation" in said
    assert re.search(r"node \d, which decided for all, was killed", said)
    assert re.search(r"^node \d was ended by SIGKILL", done.stderr, re.M)
    assert said.endswith("the tour is over: all was as it is promised\n")
    assert list(tmp_path.iterdir()) == []


def refused(folder: Path, *arguments: str, **environment: str) -> str:
    """What it says last where it must not come up; nothing temporary is left."""
    done = subprocess.run(
        [sys.executable, "-m", "bloomery", "cluster", "up", *arguments],
        env={**os.environ, "TMPDIR": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, ""), done
    assert list(folder.iterdir()) == []
    return done.stderr.splitlines()[-1]


def test_what_keeps_it_from_starting(tmp_path: Path) -> None:
    """A program that is missing, a port that is taken, a Redis that does not answer, too many
    nodes: one line each, before anything is started."""
    assert "apt-get install redis-server" in refused(tmp_path, PATH=str(tmp_path))
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        for option in ("--resp-port", "--http-port", "--redis-port"):
            others = {"--resp-port": "0", "--http-port": "0", "--redis-port": "0", option: port}
            said = refused(tmp_path, *(word for pair in others.items() for word in pair))
            assert f"cannot serve at 127.0.0.1:{port}: Address already in use" in said
            assert f"{option} 0 takes any free port" in said
    said = refused(tmp_path, "--resp-port", "0", "--store", "redis://:secret@127.0.0.1:1")
    assert "cannot be reached" in said
    assert "secret" not in said
    assert "17 is not in the range" in refused(tmp_path, "--nodes", "17")
    assert "leave --store out" in refused(tmp_path, "--tour", "--store", "redis://127.0.0.1:1")
    assert "--nodes 2 or more" in refused(tmp_path, "--tour", "--nodes", "1")


def test_a_node_that_does_not_come_up_ends_all(tmp_path: Path) -> None:
    """The last line says which one it was, and why."""
    ports = ("--resp-port", "0", "--http-port", "0")
    said = refused(tmp_path, "--nodes", "1", *ports, "--set", "nonsense=1")
    assert said == (
        "bloomery: node 1 ended with exit code 2: bloomery: --set nonsense: there is no setting "
        "named 'nonsense'; the cluster was stopped"
    )
