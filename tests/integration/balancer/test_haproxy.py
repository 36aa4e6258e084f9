"""deploy/haproxy.cfg as it stands: three nodes, and what becomes of requests when one of them is
killed, stopped, or hangs."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from conftest import missing
from docs.pages import DOCS, TREE, blocks
from integration.access.conftest import PASSWORD, add_users
from integration.balancer.traffic import KEYS, NAME, traffic
from integration.conftest import open_folder
from integration.servers import BloomeryServer, HaProxy, free_ports, wait_until
from integration.servers.haproxy import CONFIGURATION
from unit.service.certificates import Pairs

PAGE = DOCS / "balancer.md"


class Nodes:
    """Three servers that know the same keys, each at ports that it keeps, and the balancer."""

    def __init__(self, folder: Path, ends: ExitStack) -> None:
        ports = free_ports(6)
        self.servers = []
        for number in range(3):
            own = folder / f"node-{number}"
            own.mkdir()
            resp, http = ports[2 * number : 2 * number + 2]
            options = ("--resp-port", str(resp), "--http-port", str(http))
            one = BloomeryServer(own, *options, "--set", "drain-seconds=6")
            one.start()
            ends.callback(one.kill)
            with redis.Redis(port=one.resp_port) as client:
                client.execute_command("BF.MADD", NAME, *KEYS)
            self.servers.append(one)
        (folder / "balancer").mkdir()
        at = [(one.resp_port, one.http_port) for one in self.servers]
        self.balancer = HaProxy(folder / "balancer", at)
        self.balancer.start()
        ends.callback(self.balancer.close)

    def busiest(self) -> BloomeryServer:
        """The one with most clients of RESP, so that its end is noticed."""
        clients = self.balancer.clients("resp")
        assert max(clients) > 0
        return self.servers[clients.index(max(clients))]

    def all_up_but(self, one: BloomeryServer, state: str) -> list[str]:
        """The states of all."""
        return [state if server is one else "UP" for server in self.servers]


@pytest.fixture(scope="module")
def _nodes() -> Iterator[Nodes]:
    with open_folder() as folder, ExitStack() as ends:
        yield Nodes(folder, ends)


@pytest.fixture
def nodes(_nodes: Nodes) -> Nodes:
    """All three run, and are in."""
    for one in _nodes.servers:
        one.thaw()
        if one.process is None:
            one.start()
    _nodes.balancer.wait_for("UP", "UP", "UP")
    return _nodes


def test_a_node_that_is_killed(nodes: Nodes) -> None:
    """`kill -9` under load: each client of RESP fails at most once, in what it had asked that node
    just then, and those of HTTP, who read, not at all; it gets clients again when it is back."""
    with traffic(nodes.balancer) as asked:
        asked.flows()
        busiest = nodes.busiest()
        busiest.kill()
        asked.flows()  # from now on, although the checks may not have noticed yet
        failed = sum(len(worker.failures) for worker in asked.workers)
        nodes.balancer.wait_for(*nodes.all_up_but(busiest, "DOWN"))
        busiest.start()
        nodes.balancer.wait_for("UP", "UP", "UP")
        asked.flows()
        assert sum(len(worker.failures) for worker in asked.workers) == failed
    assert max(len(worker.failures) for worker in asked.resp) <= 1
    assert [worker.failures for worker in asked.http] == [[]] * len(asked.http)
    with httpx.Client(base_url=nodes.balancer.stats_url) as client:
        assert "haproxy_server_status" in client.get("/metrics").text


def test_a_node_that_is_stopped(nodes: Nodes) -> None:
    """SIGTERM under load: it gets no new clients, keeps those it has until it ends, and nobody
    fails; those of RESP connect again when it has ended."""
    with traffic(nodes.balancer, tries=1) as asked:
        asked.flows()
        busiest = nodes.busiest()
        process = busiest.process
        assert process is not None
        process.terminate()
        nodes.balancer.wait_for(*nodes.all_up_but(busiest, "NOLB"))
        assert process.wait(60) == 0
        busiest.process = None
        asked.flows()
        nodes.balancer.wait_for(*nodes.all_up_but(busiest, "DOWN"))
        busiest.start()
    assert [worker.failures for worker in asked.workers] == [[]] * len(asked.workers)


def test_a_node_that_hangs(nodes: Nodes) -> None:
    """SIGSTOP under load: it is out after some seconds, who waits for it by RESP is cut off, and
    reads by HTTP are asked of another one. When it goes on, it is in again."""
    with traffic(nodes.balancer) as asked:
        asked.flows()
        busiest = nodes.busiest()
        busiest.freeze()
        nodes.balancer.wait_for(*nodes.all_up_but(busiest, "DOWN"))
        asked.flows()  # all of them, those that waited too: nobody waits for it any more
        busiest.thaw()
        nodes.balancer.wait_for("UP", "UP", "UP")
    assert max(len(worker.failures) for worker in asked.resp) == 1
    assert [worker.failures for worker in asked.http] == [[]] * len(asked.http)


def test_both_doors_must_be_well(nodes: Nodes, tmp_path: Path) -> None:
    """A node that answers PING and is not known to be ready gets no clients of RESP, nor does one
    that is ready and does not answer PING."""
    first, second, _ = nodes.servers
    nobody = free_ports(2)
    at = [(first.resp_port, nobody[0]), (nobody[1], second.http_port)]
    balancer = HaProxy(tmp_path, at)
    balancer.start()
    try:
        assert wait_until(lambda: balancer.states("http") == ["DOWN", "UP"])
        assert wait_until(lambda: balancer.states("resp") == ["DOWN", "DOWN"])
        with (
            redis.Redis(port=balancer.resp_port, retry=Retry(NoBackoff(), 0)) as client,
            pytest.raises(redis.ConnectionError),
        ):
            client.ping()
        assert httpx.get(f"{balancer.url}/readyz").status_code == 200
    finally:
        balancer.close()


def test_tls_and_users(tmp_path: Path) -> None:
    """With TLS at both sides of it and users at the node, as for other machines: the checks pass,
    and clients log in at the node."""
    pairs = Pairs(tmp_path)
    cert, key = pairs.make("both")
    both = tmp_path / "both.crt"
    both.write_bytes(Path(cert).read_bytes() + Path(key).read_bytes())
    users = add_users(tmp_path / "data")
    node = BloomeryServer(tmp_path, "--tls-cert", cert, "--tls-key", key, data=tmp_path / "data")
    (tmp_path / "balancer").mkdir()
    node.start()
    balancer = HaProxy(
        tmp_path / "balancer",
        [(node.resp_port, node.http_port)],
        BALANCER_BIND_OPTIONS=f"ssl crt {both}",
        BALANCER_NODE_OPTIONS=f"ssl verify required ca-file {pairs.trust()}",
    )
    try:
        balancer.start()
        balancer.wait_for("UP")
        with redis.Redis(
            port=balancer.resp_port,
            ssl=True,
            ssl_ca_certs=pairs.trust(),
            username="write-all",
            password=PASSWORD,
        ) as client:
            assert client.execute_command("BF.ADD", "new", "a") == 1
        token = next(one.token for one in users if one.name == "read-all")
        answer = httpx.post(
            f"https://127.0.0.1:{balancer.http_port}/filters/new/contains",
            json={"key": "a"},
            headers={"Authorization": f"Bearer {token}"},
            verify=pairs.client(),
        )
        assert answer.json() == {"maybe": True}
    finally:
        balancer.close()
        node.kill()


@pytest.mark.parametrize("count", [0, 16])
def test_the_file_alone(nodes: Nodes, count: int) -> None:
    """Without any setting it is right, and with as many nodes as it takes; HAProxy has nothing to
    warn of."""
    named = {f"BALANCER_NODE_{number}": f"10.0.0.{number}" for number in range(1, count + 1)}
    done = subprocess.run(
        ["haproxy", "-c", "-dW", "-f", str(CONFIGURATION)],
        env={"PATH": nodes.balancer.environment()["PATH"], **named},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "valid" in done.stdout


def test_the_page(nodes: Nodes) -> None:
    """What docs/balancer.md shows happens, and it has every name that the file takes."""
    text = PAGE.read_text("utf-8")
    taken = set(re.findall(r"BALANCER_\w+", CONFIGURATION.read_text("utf-8")))
    assert {re.sub(r"NODE_\d+", "NODE_1", name) for name in taken} == set(
        re.findall(r"^\| `(\w+)`", text, re.M)
    )
    for tool in ("redis-cli", "curl"):
        if shutil.which(tool) is None:
            missing(f"{tool} (scripts/servers installs it)")
    balancer = nodes.balancer
    real = {"6400": balancer.resp_port, "8400": balancer.http_port, "8404": balancer.stats_port}
    done = 0
    for block in blocks(PAGE):
        for command, shown in re.findall(r"^> (.*)\n((?:(?!> ).*\n)*)", block.text, re.M):
            here = re.sub(r"(?<=[ :])(6400|8400|8404)\b", lambda m: str(real[m[1]]), command)
            said = subprocess.run(
                ["bash", "-c", here.replace("localhost", "127.0.0.1")],
                capture_output=True,
                text=True,
                cwd=TREE,
                check=False,
            )
            assert said.stdout.strip() == shown.strip(), (command, said)
            done += 1
    assert done >= 4
