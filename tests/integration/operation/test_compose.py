"""deploy/compose.yaml, whose commands and settings are run here without Docker.

What is real: the environment of every service, the script that makes the users, Redis with its
arguments, the three nodes and HAProxy. What is not: containers, so the names of services become
ports of this machine, and the volume a folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from conftest import missing
from docs.pages import TREE
from integration.servers import BloomeryServer, HaProxy, StartRedis

COMPOSE = TREE / "deploy" / "compose.yaml"
PASSWORD = "correct horse battery staple"
NODES = ("node-1", "node-2", "node-3")


def service(name: str) -> dict[str, Any]:
    """What the file has on a service."""
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text("utf-8"))["services"][name]
    return found


class ComposeNode(BloomeryServer):
    """A node as the file has it: by its environment alone, but for the ports."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        super().__init__(folder)
        self.settings = settings

    def command(self) -> list[str]:
        return [*(sys.executable, "-m", "bloomery", "serve"), "--resp-port=0", "--http-port=0"]

    def environment(self) -> dict[str, str]:
        # BLOOMERY_HOST as the image has it.
        return super().environment() | {"BLOOMERY_HOST": "0.0.0.0"} | self.settings


@pytest.fixture
def balancer(start_redis: StartRedis, tmp_path: Path) -> Iterator[HaProxy]:
    """All services of the file, and the balancer in front of them."""
    _, *flags = service("redis")["command"]
    pairs = zip(flags[::2], flags[1::2], strict=True)
    given = {name.removeprefix("--").replace("-", "_"): value for name, value in pairs}
    store = start_redis(**given)
    users = service("users")
    assert users["entrypoint"] == ["sh", "-euc"]
    (script,) = users["command"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"BLOOMERY_STORE": store.url, "OPS_PASSWORD": PASSWORD, "PATH": path}
    for _ in range(2):  # it is run at every start
        subprocess.run(["sh", "-euc", script.replace("$$", "$")], env=env, check=True)
    with ExitStack() as ends:
        nodes = []
        for name in NODES:
            settings = dict(service(name)["environment"])
            assert settings["BLOOMERY_DATA"] == f"/var/lib/bloomery/{name}"
            settings["BLOOMERY_DATA"] = str(tmp_path / name)
            settings["BLOOMERY_STORE"] = settings["BLOOMERY_STORE"].replace(
                "redis:6379", f"127.0.0.1:{store.port}"
            )
            (tmp_path / name).mkdir()
            node = ComposeNode(tmp_path / name, settings)
            node.start()
            ends.callback(node.kill)
            nodes.append((node.resp_port, node.http_port))
        (tmp_path / "balancer").mkdir()
        proxy = HaProxy(tmp_path / "balancer", nodes)
        proxy.start()
        ends.callback(proxy.close)
        yield proxy


def test_three_nodes_behind_a_balancer(balancer: HaProxy) -> None:
    """What is added through the balancer as the user that the file makes is found on every node."""
    balancer.wait_for("UP", "UP", "UP")
    for port in [balancer.resp_port, *(resp for resp, _ in balancer.nodes)]:
        with redis.Redis(port=port, username="ops", password=PASSWORD) as client:
            client.execute_command("BF.CONSISTENCY", "STRONG")
            if port == balancer.resp_port:
                assert client.execute_command("BF.ADD", "seen", "alice") == 1
            assert client.execute_command("BF.EXISTS", "seen", "alice") == 1


def test_haproxy_takes_its_environment() -> None:
    """HAProxy finds nothing wrong, before any of the nodes' names is known."""
    if shutil.which("haproxy") is None:
        missing("haproxy (scripts/servers installs it)")
    proxy = service("balancer")
    (mount,) = proxy["volumes"]
    configuration = COMPOSE.parent / mount.partition(":")[0]
    named = {v for k, v in proxy["environment"].items() if k.startswith("BALANCER_NODE_")}
    assert set(NODES) <= named
    for wrong, code in (("", 0), (" nonsense", 1)):
        env = os.environ | proxy["environment"]
        env["BALANCER_NODE_OPTIONS"] += wrong
        checked = subprocess.run(
            ["haproxy", "-c", "-f", str(configuration)], env=env, capture_output=True, check=False
        )
        assert checked.returncode == code, checked.stderr


def test_only_this_machine_reaches_it() -> None:
    """Ports are given to loopback alone, since there is no TLS; and nodes give none."""
    for name, found in yaml.safe_load(COMPOSE.read_text("utf-8"))["services"].items():
        assert all(port.startswith("127.0.0.1:") for port in found.get("ports", [])), name
        assert "ports" not in found or name == "balancer"
