"""Which entry of the shared log answers a client: the one that has what it wrote, and no other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bloomery import errors
from bloomery.service.domain.operations import Record
from bloomery.service.replication.node import Node
from bloomery.service.server import Server
from integration.servers import RedisServer
from unit.service.inside import running
from waiting import wait_until_async


class Gate:
    """Holds the batches of a node until a test forwards or refuses them."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self._node, self._append = node, node.append
        self.batches: list[tuple[int, list[Record]]] = []
        monkeypatch.setattr(node, "append", lambda *batch: self.batches.append(batch))

    def forward(self) -> None:
        """Append the last batch to the log."""
        self._append(*self.batches[-1])

    def refuse(self) -> None:
        """Refuse the last batch, as if Redis were unavailable."""
        problem = errors.StoreUnavailable("Redis is unavailable")
        self._node.sequencer.refused(self.batches[-1][0], problem)


async def _client(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    port = int(server.parts.resp_address.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"PING\r\n")
    assert await reader.readexactly(7) == b"+PONG\r\n"
    return reader, writer


def test_a_write_that_is_done_is_not_refused_with_another(
    tmp_path: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter is made, which the log has, while others' writes are on their way. Its client waited
    for them, and was told why they were refused."""

    async def main() -> None:
        store = redis_server.url
        async with running(tmp_path, store=store, store_bootstrap_seconds=0.1) as server:
            clients = [await _client(server) for _ in range(3)]
            (made, making), (_, adding), (_, late) = clients
            one, two, three = server.resp.clients.connections.values()
            making.write(b"BF.RESERVE seen 0.01 1000\r\n")
            assert await made.readexactly(5) == b"+OK\r\n"
            assert server.node is not None
            gate = Gate(server.node, monkeypatch)
            making.write(b"BF.RESERVE other 0.01 1000\r\n")
            assert await wait_until_async(lambda: len(gate.batches) == 1)
            adding.write(b"BF.ADD seen 1\r\n")
            assert await wait_until_async(lambda: two.session.writing)
            gate.forward()
            assert await wait_until_async(lambda: len(gate.batches) == 2)
            assert await wait_until_async(lambda: not one.busy)
            late.write(b"BF.ADD seen 2\r\n")
            assert await wait_until_async(lambda: three.session.writing)
            gate.refuse()
            assert await wait_until_async(lambda: len(gate.batches) == 3)
            gate.refuse()
            replies = [(await reader.readline())[:4] for reader, _ in clients]
            assert replies == [b"+OK\r", b"-ERR", b"-ERR"]
            for _, writer in clients:
                writer.close()

    asyncio.run(main())
