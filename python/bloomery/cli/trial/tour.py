"""`bloomery cluster up --tour`: what nodes do, shown on those that were just started.

Four scenes; each says what it does and what came of it, and raises if that is not what is promised.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bloomery import errors
from bloomery.cli.trial.members import HOST, NodeProcess

if TYPE_CHECKING:
    from redis import Redis

_PAGES = 10_000
_CAPACITY = 1000  # of the filter that gets full
_BATCH = 250
_WRITES = 2000
_PATIENCE = 60.0  # seconds for what is waited for
_SECOND = 1.0
_POLL = 0.05
_FILTERS = ("tour:once", "tour:pages", "tour:visitors", "tour:crawl")


class Interrupted(Exception):
    """The cluster is to end, or has failed."""


def source(folder: Path) -> Path:
    """Make a database of pages, and a configuration of nodes that has it as a source."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    database, configuration = folder / "pages.sqlite", folder / "tour.toml"
    with contextlib.closing(sqlite3.connect(database)) as there:
        there.execute("CREATE TABLE IF NOT EXISTS pages (url TEXT PRIMARY KEY, title TEXT)")
        pages = ((_page(number), f"page {number}") for number in range(_PAGES))
        there.executemany("INSERT OR IGNORE INTO pages VALUES (?, ?)", pages)
        there.commit()
    fields = {"url": f"sqlite:///{database}", "table": "pages", "key": "url", "value": "title"}
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in fields.items()]
    configuration.write_text("[sources.pages]\n" + "".join(lines), "utf-8")
    return configuration


def _page(number: int) -> str:
    return f"https://example.org/{number}"


class Tour:
    """One tour of a cluster."""

    def __init__(
        self,
        nodes: Sequence[NodeProcess],
        port: int,
        show: Callable[[str], None],
        over: Callable[[], bool],
    ) -> None:
        """`port`: where HAProxy has the Redis protocol. `over`: is the cluster to end?"""
        self.nodes, self.show, self.over = nodes, show, over
        # As many connections as nodes: HAProxy gives one to each, also to the one that is killed.
        self._balanced = itertools.cycle([_client(port) for _ in nodes])
        self._each = [_client(node.resp_port) for node in nodes]

    def run(self) -> None:
        """Show all of it; ServerUnavailable if something is not as it is promised."""
        scenes = (self._once, self._lookups, self._rotation, self._kill)
        for name in _FILTERS:
            self._ask("DEL", name)
        for number, scene in enumerate(scenes, 1):
            self.show(f"tour {number} of {len(scenes)}: {(scene.__doc__ or '').strip()}")
            scene()
        self.show("the tour is over: all was as it is promised")

    # The scenes.

    def _once(self) -> None:
        """a key is new once, whichever nodes it is added at"""
        self._ask("BF.RESERVE", "tour:once", "0.01", 100_000)
        replies = [self._ask("BF.ADD", "tour:once", "alice", at=client) for client in self._each]
        for node, new in zip(self.nodes, replies, strict=True):
            self.show(f"  {node.name}: BF.ADD tour:once alice -> {new:d}")
        self._expect(
            sum(replies) == 1, f"of {len(replies)} adds of one key {sum(replies)} were new"
        )

    def _lookups(self) -> None:
        """filter, cache and database: a no costs the database nothing"""
        first = self._each[0]
        self._ask("BF.RESERVE", "tour:pages", "0.01", 2 * _PAGES, at=first)
        self._ask("BF.BIND", "tour:pages", "pages", at=first)
        self._ask("BF.REBUILD", "tour:pages", "SETTLE", 0, at=first)
        self._until(lambda: self._rebuilt(first), "the rebuild")
        self.show(f"  node 1 has filled the filter from a table of {_PAGES:,} rows, for all nodes")
        known, never = _page(7), _page(_PAGES + 7)
        for node, one in zip(self.nodes, self._each, strict=True):
            self._until(lambda one=one: self._knows(one, "tour:pages", [known]), "a look-up")  # type: ignore[misc]
            said = [self._ask("BF.LOOKUP", "tour:pages", known, never, at=one) for _ in range(2)]
            (there, title, by), (gone, _, denied) = said[0]
            again = said[1][0][2]
            self.show(
                f"  {node.name}: {known} -> {title.decode()!r} by the {by.decode()}, then by the "
                f"{again.decode()}; {never} -> no, by the {denied.decode()}"
            )
            self._expect((there, gone) == (1, 0), f"{node.name} looks up {said[0]}")

    def _rebuilt(self, client: Redis) -> bool:
        said = self._ask("BF.REBUILD", "tour:pages", "STATUS", at=client)
        status = dict(zip(said[::2], said[1::2], strict=True)) if isinstance(said, list) else said
        state = status[b"state"]
        self._expect(state != b"failed", f"the rebuild failed: {status}")
        return bool(state == b"done")

    def _rotation(self) -> None:
        """a filter that gets full is rotated, once and on all nodes, while they answer"""
        name = "tour:visitors"
        self._ask("BF.RESERVE", name, "0.01", _CAPACITY, "ONFULL", "rotate", "GRACE", 1)
        began = self._began(self.nodes[0])
        keys: list[str] = []

        def rotated() -> bool:
            batch = [f"visitor {len(keys) + number}" for number in range(_BATCH)]
            self._ask("BF.MADD", name, *batch)
            keys.extend(batch)
            time.sleep(_POLL)
            return self._began(self.nodes[0]) != began

        self._until(rotated, "the rotation")
        now = self._began(self.nodes[0])
        for node, one in zip(self.nodes, self._each, strict=True):
            self._until(lambda node=node: self._began(node) == now, f"the rotation at {node.name}")  # type: ignore[misc]
            self._expect(self._knows(one, name, keys), f"{node.name} denies a visitor")
        self.show(
            f"  made for {_CAPACITY:,} keys and given {len(keys):,}: every node began its second "
            f"generation at {now:.3f} (Redis's time), and denies none of them"
        )

    def _began(self, node: NodeProcess) -> float:
        """When a node says that the current generation began; 0: it does not know the filter."""
        return float(self._get(node, "/filters/tour:visitors").get("generation_started", 0.0))

    def _kill(self) -> None:
        """a node is killed while keys are added, and no acknowledged one is lost"""
        self._ask("BF.RESERVE", "tour:crawl", "0.01", 10 * _WRITES)
        keys = [_page(number) for number in range(_WRITES)]
        victim = self._lease_holder()
        others = [
            client for node, client in zip(self.nodes, self._each, strict=True) if node != victim
        ]
        before = None
        longest = 0.0
        for number, key in enumerate(keys):
            if number == _WRITES // 4:
                before = victim.kill()
            began = time.monotonic()
            self._ask("BF.ADD", "tour:crawl", key)
            longest = max(longest, time.monotonic() - began)
        self.show(
            f"  {victim.name}, which decided for all, was killed (kill -9) while {_WRITES:,} keys "
            f"came through HAProxy, one by one; the longest took {1000 * longest:,.0f} ms"
        )
        for one in others:
            self._expect(self._knows(one, "tour:crawl", keys), "a node denies acknowledged keys")
        self._until(lambda: victim.is_again(before), f"the return of {victim.name}")
        [again] = [
            client for node, client in zip(self.nodes, self._each, strict=True) if node == victim
        ]
        self._until(lambda: self._knows(again, "tour:crawl", keys), f"{victim.name}'s copy")
        self.show(f"  {victim.name} is back from Redis's log: all {len(keys):,} keys at every node")

    def _lease_holder(self) -> NodeProcess:
        """The node that holds the lease; if none does right now, the first."""
        members = self._get(self.nodes[0], "/nodes").get("nodes", [])
        ports = [node["resp"].rpartition(":")[2] for node in members if node["holds_lease"]]
        holders = [node for node in self.nodes if str(node.resp_port) in ports]
        return (holders or list(self.nodes))[0]

    # How it asks.

    def _ask(self, *words: Any, at: Redis | None = None) -> Any:
        """Ask HAProxy, or a node, again and again until there is an answer."""
        from redis.exceptions import ConnectionError, ResponseError, TimeoutError

        if self.over():
            raise Interrupted
        until = time.monotonic() + _PATIENCE
        client: Any = at or next(self._balanced)
        while True:
            try:
                return client.execute_command(*words)
            except (ConnectionError, TimeoutError, ResponseError) as problem:
                if time.monotonic() > until or _is_final(problem):
                    raise errors.ServerUnavailable(f"the tour: {words[0]}: {problem}") from None
            self._rest()

    def _knows(self, client: Redis, name: str, keys: Iterable[str]) -> bool:
        """Whether a node, asked by a strong read, has all these keys."""
        self._ask("BF.CONSISTENCY", "STRONG", at=client)
        return all(self._ask("BF.MEXISTS", name, *keys, at=client))

    def _get(self, node: NodeProcess, path: str) -> dict[str, Any]:
        """The JSON that a node has there; nothing if it does not answer."""
        asked = http.client.HTTPConnection(HOST, node.http_port, timeout=_PATIENCE)
        with contextlib.closing(asked), contextlib.suppress(OSError, ValueError):
            asked.request("GET", path)
            document = json.loads(asked.getresponse().read())
            return document if isinstance(document, dict) else {}
        return {}

    def _until(self, reached: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + _PATIENCE
        while not reached():
            if time.monotonic() > until:
                raise errors.ServerUnavailable(f"the tour: {what} takes longer than a minute")
            self._rest()

    def _rest(self) -> None:
        if self.over():
            raise Interrupted
        time.sleep(_POLL)

    def _expect(self, promised: bool, otherwise: str) -> None:
        if not promised:
            raise errors.ServerUnavailable(f"the tour: {otherwise}, which must not be")


def _client(port: int) -> Redis:
    from redis import Redis

    return Redis(HOST, port, socket_timeout=10 * _SECOND, single_connection_client=True)


def _is_final(problem: Exception) -> bool:
    """Whether to ask again is of no use: a node without Redis comes back, an error does not."""
    text = str(problem)
    return text.startswith(("NOAUTH", "NOPERM", "item exists", "unknown command", "wrong number"))
