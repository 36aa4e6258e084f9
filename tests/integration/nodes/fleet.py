"""Nodes of one store, at ports that they keep, and HAProxy before them if a test wants it."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from integration.servers import BloomeryServer, HaProxy, free_ports, wait_until


class Fleet:
    """Some nodes that run; `close` ends them, whatever became of them."""

    def __init__(
        self, folder: Path, store: str | Iterable[str], *, nodes: int = 3, **settings: Any
    ) -> None:
        """`store`: one URL for all, or one for each. Settings are the server's, with `_`."""
        stores = [store] * nodes if isinstance(store, str) else list(store)
        ports = free_ports(2 * len(stores))
        self.ports = [(ports[2 * at], ports[2 * at + 1]) for at in range(len(stores))]
        self.places = [(at, resp) for at, (resp, _) in enumerate(self.ports)]  # for clients
        self.folder = folder
        self.nodes: list[BloomeryServer] = []
        self._ends = ExitStack()
        settings = {"store_bootstrap_seconds": 0.3, **settings}
        chosen = [f"--set={name.replace('_', '-')}={value}" for name, value in settings.items()]
        for number, (url, (resp, http)) in enumerate(zip(stores, self.ports, strict=True)):
            own = folder / f"node-{number}"
            own.mkdir()
            doors = ("--resp-port", str(resp), "--http-port", str(http))
            one = BloomeryServer(own, *doors, f"--set=store={url}", *chosen)
            self.nodes.append(one)
            self._ends.callback(one.kill)

    def __enter__(self) -> Fleet:
        try:
            for one in self.nodes:
                one.spawn()
            self.wait_ready()
        except BaseException:
            self._ends.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def balancer(self) -> HaProxy:
        """HAProxy, with all nodes in."""
        own = self.folder / "balancer"
        own.mkdir()
        made = HaProxy(own, self.ports)
        made.start()
        self._ends.callback(made.close)
        made.wait_for(*["UP"] * len(self.nodes))
        return made

    def client(self, number: int, *, strong: bool = False, **options: Any) -> Any:
        """A client of one node that tries once; to be closed."""
        return client_at(self.ports[number][0], strong=strong, **options)

    def ready(self, number: int) -> bool:
        """Whether /readyz says so, to a balancer."""
        try:
            return self.readyz(number)[0] == 200
        except OSError:
            return False

    def readyz(self, number: int, query: str = "?writes=false") -> tuple[int, str]:
        """What /readyz says."""
        url = f"http://127.0.0.1:{self.ports[number][1]}/readyz{query}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as problem:
            with problem:
                return problem.code, problem.read().decode()

    def wait_ready(self, *numbers: int) -> None:
        """Return when these, or all, are ready."""
        for number in numbers or range(len(self.nodes)):
            assert wait_until(lambda at=number: self.ready(at)), self.told(number)  # type: ignore[misc]

    def told(self, number: int) -> str:
        """What a node printed, for a message."""
        return f"node {number}: {self.nodes[number].printed()[-3000:]}"

    def figures(self, number: int) -> dict[str, Any]:
        """What INFO says of its store."""
        with self.client(number) as client:
            return dict(client.info("store"))

    def copy(self, number: int) -> dict[str, Any]:
        """All filters of a node, each with what is told of it and the bytes of its file; of banks,
        how many keys they have: their pages also say how often the file was opened."""
        with httpx.Client(base_url=self.nodes[number].url, timeout=20) as http:
            listed: list[dict[str, Any]] = []
            cursor = ""
            while True:
                page = http.get(f"/filters{cursor}").raise_for_status().json()
                listed += page["filters"]
                if not page.get("next"):
                    break
                cursor = f"?cursor={page['next']}"
            return {
                one["name"]: _bank(http, one) if one["kind"] == "bank" else (one, _file(http, one))
                for one in listed
            }

    def lease_holder(self) -> int:
        """The number of the node that decides for all, once there is one."""
        found: list[int] = []

        def held() -> bool:
            found[:] = [at for at in range(len(self.nodes)) if self._holds_lease(at)]
            return len(found) == 1

        assert wait_until(held), found
        return found[0]

    def _holds_lease(self, number: int) -> bool:
        if self.nodes[number].process is None or self.nodes[number].frozen:
            return False
        return bool(self.figures(number)["holds_lease"])

    def require_equal(self) -> dict[str, Any]:
        """All nodes have the same filters, byte by byte, once they are at the same place; those."""
        copies: list[dict[str, Any]] = []

        def same() -> bool:
            copies[:] = [self.copy(at) for at in range(len(self.nodes))]
            return all(one == copies[0] for one in copies)

        assert wait_until(same, pause=0.1), _difference(copies)
        return copies[0]

    def answers(self, filter: str, keys: list[Any], *, strong: bool = False) -> list[int]:
        """How many of these keys each node does not know."""
        return [
            missing(self.ports[at][0], filter, keys, strong=strong) for at in range(len(self.nodes))
        ]


def _file(http: httpx.Client, one: dict[str, Any]) -> bytes:
    return http.get(f"/filters/{quote(one['name'], safe='')}/file").content


def _bank(http: httpx.Client, one: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """What the list says of a bank's keys is not brought up to date by adds."""
    told = http.get(f"/filters/{quote(one['name'], safe='')}").json()
    return {**one, "items": None}, int(told["items"])


def _difference(copies: list[dict[str, Any]]) -> str:
    """Which filters are not the same, for a message."""
    names = {name for copy in copies for name in copy}
    apart = [
        name for name in names if any(copy.get(name) != copies[0].get(name) for copy in copies)
    ]
    return "; ".join(
        f"{name}: {[copy[name][0] if name in copy else None for copy in copies]}"
        for name in sorted(apart)
    )


def client_at(port: int, *, strong: bool = False, **options: Any) -> Any:
    """A client of redis-py, which has no types for these; it tries once. `strong`: it sees all that
    was acknowledged before."""
    chosen: dict[str, Any] = {"socket_timeout": 20, "retry": Retry(NoBackoff(), 0), **options}
    if strong:
        chosen["redis_connect_func"] = _ask_strongly
    return redis.Redis(port=port, **chosen)


def _ask_strongly(connection: Any) -> None:
    connection.on_connect()
    connection.send_command("BF.CONSISTENCY", "STRONG")
    assert connection.read_response() in (b"strong", "strong")


def missing(port: int, filter: str, keys: list[Any], *, strong: bool = False) -> int:
    """How many of these keys a server does not know."""
    with client_at(port, strong=strong) as client:
        found: list[Any] = []
        for start in range(0, len(keys), 1000):
            found += client.execute_command("BF.MEXISTS", filter, *keys[start : start + 1000])
    return len(keys) - sum(map(bool, found))
