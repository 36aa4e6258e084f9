"""A whole server inside the test's own process and event loop, to look at and to disturb."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from bloomery.service.config.settings import Settings
from bloomery.service.config.sources import SourceSettings
from bloomery.service.server import Server
from unit.service.follower import SOON
from waiting import wait_until_async

__all__ = ["running"]


@contextlib.asynccontextmanager
async def running(
    data: Path, sources: Mapping[str, SourceSettings] | None = None, **settings: object
) -> AsyncIterator[Server]:
    """A server that runs, on free ports, with these settings; it ends as by SIGTERM."""
    chosen = Settings()
    for name, value in ({"data": data, "resp_port": 0, "http_port": 0} | settings).items():
        chosen.set(name, str(value), running=False)
    server = Server(chosen, sources=sources)
    task = asyncio.create_task(server.run())
    try:
        assert await wait_until_async(lambda: server.ready or task.done())
        yield server
    finally:
        if not task.done():
            signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(task, SOON)
