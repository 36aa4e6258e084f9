"""What other nodes are asked is counted once, by how much each node's own count grew."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from typing import Any

import pytest

from bloomery import errors
from bloomery.service.config.settings import Settings
from bloomery.service.replication import traffic as module
from bloomery.service.replication.traffic import NodeTraffic

HERE, OTHER, THIRD = "00" * 8, "11" * 8, "22" * 8


class Told:
    """Nodes, and what each has told; it stands for the node and for Redis."""

    def __init__(self) -> None:
        self.id = bytes(8)
        self.engine = self.state = self
        self.repeats = Counter({1: 3})
        self.filters = {1: None, 2: None}
        self.told: dict[str, Any] = {}
        self.away = False

    def members(self) -> list[dict[str, str]]:
        return [{"id": one} for one in (HERE, *self.told)]

    def ask(self, here: str, own: Any, others: list[str], kept: float) -> list[bytes | None]:
        if self.away:
            raise errors.StoreUnavailable("away")
        return [self.told[one] for one in others]

    def says(self, node: str, *counts: tuple[int, int, int, int]) -> None:
        self.told[node] = b"".join(struct.pack("<4Q", *one) for one in counts)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> tuple[Told, NodeTraffic]:
    """Nodes, and the traffic of all as one of them counts it."""
    nodes = Told()
    counting = NodeTraffic(Settings(store="redis://127.0.0.1:1"), nodes)  # type: ignore[arg-type]
    monkeypatch.setattr(counting, "_ask", nodes.ask)
    return nodes, counting


def test_sums_go_on_as_nodes_come_and_go(told: tuple[Told, NodeTraffic]) -> None:
    """What others did before this node began is not counted; what they do then is, once; a node
    that goes takes nothing with it, and one that comes is counted from its start."""
    nodes, counting = told

    def exchanged() -> tuple[int, int, int]:
        asyncio.run(counting.exchange(1.0))
        return counting.sum(1, 1000, 10, 5)

    nodes.says(OTHER, (1, 20, 100, 50))
    assert exchanged() == (1003, 10, 5)
    nodes.says(OTHER, (1, 27, 130, 60), (2, 0, 7, 0), (99, 3, 3, 3))
    assert exchanged() == (1010, 40, 15)
    assert exchanged() == (1010, 40, 15)
    assert counting.sum(2, 0, 0, 0) == (0, 7, 0)
    assert counting.sum(99, 0, 0, 0) == (0, 0, 0)  # no filter of this node
    nodes.says(THIRD, (1, 1, 5, 1))
    assert exchanged() == (1011, 45, 16)
    nodes.away = True
    assert exchanged() == (1011, 45, 16)
    nodes.away = False
    del nodes.told[OTHER]
    assert exchanged() == (1011, 45, 16)
    nodes.says(THIRD, (1, 1, 2, 2))  # it counts anew: the filter was replaced there
    assert exchanged() == (1012, 47, 18)
    nodes.repeats[1] += 4
    assert exchanged() == (1016, 47, 18)
    counting.forget(1)
    assert counting.sum(1, 0, 0, 0) == (7, 0, 0)


@pytest.mark.parametrize("data", [None, b"", b"x" * 31, b"\xff" * 33])
def test_what_no_node_says_is_left_out(told: tuple[Told, NodeTraffic], data: bytes | None) -> None:
    """Bytes in Redis may be anybody's."""
    nodes, counting = told
    for told_by_other in (data, struct.pack("<4Q", 1, 2, 4, 4)):
        nodes.told[OTHER] = told_by_other
        asyncio.run(counting.exchange(1.0))
    assert module._read(data) is None
    assert counting.sum(1, 0, 0, 0) == (5, 4, 4)
