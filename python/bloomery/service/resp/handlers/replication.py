"""WAIT: what Redis tells of its replicas. This server has none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from bloomery.service.resp.arguments import integer, whole
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.replies import Failure
from bloomery.service.resp.table import command


@command("WAIT", "numreplicas timeout", group="connection", does="session")
def wait(client: ClientState, words: list[bytes]) -> int | Awaitable[int]:
    """Tell how many replicas have what this client wrote: 0, once the milliseconds are over."""
    replicas, timeout = whole(words[0]), integer(words[1])
    if timeout is None:
        raise Failure("ERR timeout is not an integer or out of range")
    if timeout < 0:
        raise Failure("ERR timeout is negative")
    return 0 if replicas <= 0 else _none_in(timeout / 1000)


async def _none_in(seconds: float) -> int:
    """Wait as Redis does; 0 is for ever, until the client goes."""
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=seconds or None)
    return 0
