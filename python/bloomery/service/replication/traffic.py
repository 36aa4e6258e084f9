"""What clients ask nodes for, told to one another: samples of a filter count the traffic of all.

Each node keeps one value in Redis, which ends a while after the node: for each filter that was
asked, its number, and since that node began the adds of keys that were there, the checks and the
maybes. (Adds that change something are in the log: all nodes count them.) All read those of the
others, and count by how much each grew. What was not told before a node died is not counted.
"""

from __future__ import annotations

import asyncio
import struct
from operator import add
from typing import Any

from bloomery import errors
from bloomery.redis_client import redis_client
from bloomery.service.config.settings import Settings
from bloomery.service.replication.node import Node

_RECORD = struct.Struct("<4Q")
_KEPT_SECONDS = 60.0
_MOST_BYTES = 64 << 20

Asked = tuple[int, int, int]  # adds that changed nothing, checks, maybes
Counts = dict[int, Asked]  # by the number of the filter
_NEVER: Asked = (0, 0, 0)


class NodeTraffic:
    """The traffic of all nodes."""

    def __init__(self, settings: Settings, node: Node) -> None:
        self._node = node
        self._redis = redis_client(settings.store, "log", for_asyncio=False, timeout=2.0, retries=0)
        self._key = f"{{{settings.store_prefix}}}:traffic:"
        self._own: Counts = {}
        self._seen: dict[str, Counts] | None = None  # what each other node last told
        self._others: Counts = {}  # what all of them did since this node began

    def sum(self, number: int, adds: int, checks: int, maybes: int) -> Asked:
        """Note how often a filter was asked here; return how often it was asked of all nodes.
        `adds`: those that the log has, of whichever node."""
        own = self._node.engine.repeats[number], checks, maybes
        if any(own):
            self._own[number] = own
        more = self._others.get(number, _NEVER)
        return adds + own[0] + more[0], checks + more[1], maybes + more[2]

    def forget(self, number: int) -> None:
        """Forget a filter."""
        self._own.pop(number, None)
        self._others.pop(number, None)

    async def exchange(self, interval: float) -> None:
        """Tell what was noted, and hear what others did; without Redis, later."""
        here = self._node.id.hex()
        others = [member["id"] for member in self._node.members() if member["id"] != here]
        own, kept = dict(self._own), max(_KEPT_SECONDS, 3 * interval)
        try:
            replies = await asyncio.to_thread(self._ask, here, own, others, kept)
        except errors.StoreUnavailable:
            return
        heard = {node: _read(data) for node, data in zip(others, replies, strict=True)}
        self._take({node: counts for node, counts in heard.items() if counts is not None})

    def _ask(self, here: str, own: Counts, others: list[str], kept: float) -> list[bytes | None]:
        data = b"".join(_RECORD.pack(number, *counts) for number, counts in own.items())
        client: Any = self._redis.client
        try:
            client.set(self._key + here, data, px=int(kept * 1000))
            return [client.getrange(self._key + node, 0, _MOST_BYTES) for node in others]
        except self._redis.failures as problem:
            raise errors.StoreUnavailable(self._redis.describe(problem)) from None

    def _take(self, heard: dict[str, Counts]) -> None:
        """Count by how much others went on. What they did before this node began is not told
        apart from what it has seen: it is where counting starts."""
        filters = self._node.engine.state.filters
        for node, counts in heard.items() if self._seen is not None else ():
            before = self._seen.get(node, {}) if self._seen is not None else {}
            for number, now in counts.items():
                was = before.get(number, _NEVER)
                if now[0] < was[0] or now[1] < was[1]:  # it has begun anew
                    was = _NEVER
                if number in filters:
                    sums = self._others.get(number, _NEVER)
                    grown = (max(0, after - before) for after, before in zip(now, was, strict=True))
                    adds, checks, maybes = map(add, sums, grown)
                    self._others[number] = adds, checks, maybes
        self._seen = {**(self._seen or {}), **heard}
        present = {member["id"] for member in self._node.members()}
        self._seen = {node: counts for node, counts in self._seen.items() if node in present}


def _read(data: bytes | None) -> Counts | None:
    """The counts that a node told; None if it told none, or what nobody can read."""
    if not data or len(data) % _RECORD.size:
        return None
    return {
        number: (adds, checks, maybes) for number, adds, checks, maybes in _RECORD.iter_unpack(data)
    }
