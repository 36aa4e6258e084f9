"""Brings the log to the disk each second, for `fsync=everysec`."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from bloomery import errors
from bloomery.service.group_commit import GroupCommit
from bloomery.service.observe.logs import Say

__all__ = ["flush_each_second"]


async def flush_each_second(group_commit: GroupCommit, say: Say) -> None:
    """Flush the log until cancelled. In a thread of its own: replies may wait for it, which must
    not wait for other threads' work."""
    log, folding = group_commit.engine.log, None
    thread = ThreadPoolExecutor(1, "bloomery-flush")
    try:
        while True:
            await asyncio.sleep(1)
            try:
                await asyncio.get_running_loop().run_in_executor(thread, log.flush)
            except errors.LogUnavailable as problem:
                group_commit.refuse(problem)
            except Exception as problem:  # noqa: BLE001  # there is a next second
                say("the log was not brought to the disk", level="error", problem=problem)
            group_commit.flushed()
            if log.unclosed and (folding is None or folding.done()):
                folding = asyncio.ensure_future(asyncio.to_thread(log.fold))
    finally:
        thread.shutdown(wait=False)  # who closes the log waits for it
