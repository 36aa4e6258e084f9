"""HAProxy for the tests, with the configuration that people are given, as it stands."""

from __future__ import annotations

import csv
import os
import shutil
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from conftest import missing
from integration.servers.process import Server, free_ports
from waiting import wait_until

CONFIGURATION = Path(__file__).parents[3] / "deploy" / "haproxy.cfg"


class HaProxy(Server):
    """HAProxy in front of nodes on loopback, each by its ports of RESP and HTTP.

    It is ready when every node was asked how it is; `states` tells what became of that.
    """

    def __init__(self, folder: Path, nodes: Sequence[tuple[int, int]], **environment: str) -> None:
        super().__init__(folder)
        if shutil.which("haproxy") is None:
            missing("haproxy (scripts/servers installs it)")
        self.nodes = nodes
        self.extra = environment
        self.resp_port, self.http_port, self.stats_port = free_ports(3)

    def command(self) -> list[str]:
        return ["haproxy", "-db", "-f", str(CONFIGURATION)]

    def environment(self) -> dict[str, str]:
        """Ours, and where everything is."""
        found = dict(os.environ)
        for door in ("resp", "http", "stats"):
            port = getattr(self, f"{door}_port")
            found[f"BALANCER_{door.upper()}"] = f"127.0.0.1:{port}"
        for number, (resp, http) in enumerate(self.nodes, 1):
            found[f"BALANCER_NODE_{number}"] = "127.0.0.1"
            found[f"BALANCER_NODE_{number}_RESP"] = str(resp)
            found[f"BALANCER_NODE_{number}_HTTP"] = str(http)
        return found | self.extra

    def ready(self) -> bool:
        rows = self.rows()
        return bool(rows) and all(row["check_status"] not in {"", "INI"} for row in rows)

    def rows(self) -> list[dict[str, str]]:
        """What its page of figures has on each node, once for each door; nothing without it."""
        try:
            with urllib.request.urlopen(self.stats_url + "/;csv", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return []
        rows = csv.DictReader(text.removeprefix("# ").splitlines())
        return [row for row in rows if row["svname"].startswith("node-")]

    def states(self, door: str) -> list[str]:
        """UP, DOWN or NOLB (it takes no new connections) of each node, at "resp" or "http"."""
        return [row["status"].split()[0] for row in self.rows() if row["pxname"] == f"{door}_nodes"]

    def clients(self, door: str) -> list[int]:
        """How many connections each node has at this moment."""
        return [int(row["scur"]) for row in self.rows() if row["pxname"] == f"{door}_nodes"]

    def wait_for(self, *states: str) -> None:
        """Return when both doors have these states."""
        assert wait_until(lambda: self.states("resp") == self.states("http") == list(states)), (
            self.rows()
        )

    @property
    def url(self) -> str:
        """Where clients of HTTP find the nodes."""
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def stats_url(self) -> str:
        """Where it tells how it is."""
        return f"http://127.0.0.1:{self.stats_port}"

    def close(self) -> None:
        """End it."""
        self.stop()
