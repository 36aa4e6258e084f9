"""A wire to Redis that carries questions and, when told so, loses the answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class DeafWire:
    """TCP from a free port to a Redis."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.deaf = False  # answers are lost; who waits for them is not told
        self.asked = b""  # what was sent to Redis
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.url = ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, far_writer]
        self._tasks.append(asyncio.ensure_future(self._carry(reader, far_writer, True)))
        self._tasks.append(asyncio.ensure_future(self._carry(far_reader, writer, False)))

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, there: bool
    ) -> None:
        try:
            while data := await reader.read(65_536):
                if there:
                    self.asked += data
                if there or not self.deaf:
                    writer.write(data)
        except OSError:
            pass
        writer.close()

    def cut(self) -> None:
        """End every connection."""
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    @classmethod
    @asynccontextmanager
    async def to(cls, port: int) -> AsyncIterator[DeafWire]:
        """One to a Redis at this port."""
        wire = cls(port)
        server = await asyncio.start_server(wire._serve, "127.0.0.1", 0)
        wire.url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
        try:
            yield wire
        finally:
            server.close()
            wire.cut()
            await asyncio.gather(*wire._tasks)
