"""How much of a busy machine a snapshot takes: little, unless somebody waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bloomery.service.durability import schedule
from bloomery.service.durability.folder import snapshots_folder
from bloomery.service.server import Server
from unit.service.inside import running
from waiting import wait_until_async

pytestmark = pytest.mark.slow  # each starts the process that makes a snapshot


@contextlib.contextmanager
def held(data: Path) -> Iterator[None]:
    """Meanwhile no snapshot ends: each waits for this lock, and can be looked at."""
    folder = snapshots_folder(data)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def process_of(server: Server) -> Any:
    """The process that makes a snapshot, if there is one."""
    return server.parts.snapshots._process


def gives_way(server: Server) -> str:
    """How the process that makes the snapshot gives way to others; "" if there is none."""
    process = process_of(server)
    if process is None:
        return ""
    try:
        if os.sched_getscheduler(process.pid) == os.SCHED_IDLE:
            return "idle"
        nice = os.getpriority(os.PRIO_PROCESS, process.pid) > os.getpriority(os.PRIO_PROCESS, 0)
    except ProcessLookupError:  # it has just ended
        return ""
    return "nice" if nice else "no"


def test_it_takes_part_when_somebody_waits(tmp_path: Path) -> None:
    """One that nobody waits for runs when nobody else wants to; from the moment that somebody does
    it runs beside others, if less often; and so does one that is begun for him."""

    async def main() -> None:
        async with running(tmp_path) as server:
            with held(tmp_path):
                server.parts.snapshots.start()
                assert await wait_until_async(lambda: gives_way(server) == "idle")
                first = process_of(server)
                waiting = asyncio.ensure_future(server.parts.snapshots.save())
                assert await wait_until_async(lambda: gives_way(server) == "nice")
                assert process_of(server) is first
            await waiting
            with held(tmp_path):
                waiting = asyncio.ensure_future(server.parts.snapshots.save())
                assert await wait_until_async(lambda: gives_way(server) == "nice")
            await waiting

    asyncio.run(main())


def test_without_the_right_to_take_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the one that gives way may not be made to take part, another makes that snapshot, and
    none has failed."""
    monkeypatch.setattr(schedule, "_take_part", lambda pid: False)

    async def main() -> None:
        async with running(tmp_path) as server:
            with held(tmp_path):
                task = server.parts.snapshots.start()
                assert await wait_until_async(lambda: gives_way(server) == "idle")
                first = process_of(server)
                waiting = asyncio.ensure_future(server.parts.snapshots.save())
                assert await wait_until_async(lambda: gives_way(server) == "nice")
                assert process_of(server) is not first
            await task
            await waiting
            assert server.parts.snapshots.problem is None

    asyncio.run(main())


def test_the_last_one_gives_way_to_nobody(tmp_path: Path) -> None:
    """A server that ends serves nobody: on a busy machine its end had taken a minute."""

    async def main() -> None:
        async with running(tmp_path) as server:
            with held(tmp_path):
                ending = asyncio.ensure_future(server.parts.snapshots.make_final())
                assert await wait_until_async(lambda: process_of(server) is not None)
                assert gives_way(server) == "no"
            await ending

    asyncio.run(main())
