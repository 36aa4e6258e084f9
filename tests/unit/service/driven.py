"""The filters of a server with their log, without sockets, in an event loop that a test drives."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from bloomery import errors
from bloomery.service.clock import Clock
from bloomery.service.domain.state import State
from bloomery.service.durability.batch_log import FileBatchLog
from bloomery.service.durability.log import Log
from bloomery.service.durability.log_reader import LogReader, Row
from bloomery.service.durability.replay import replay
from bloomery.service.engine import Engine
from waiting import wait_until_async

__all__ = ["Driven"]

_T = TypeVar("_T")


class Driven:
    """An engine, and the sequencer and the log that it writes to."""

    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        self.folder = folder
        self.loop = asyncio.new_event_loop()
        self.engine = Engine(State(), Log(folder, fsync="never"), clock)
        self.refusals: list[errors.LogUnavailable] = []
        self.batches = self.run(self._open())

    async def _open(self) -> FileBatchLog:
        log = self.engine.log
        assert isinstance(log, Log)
        return FileBatchLog(self.engine, log, self.refusals.append)

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run the event loop until a coroutine has returned."""
        return self.loop.run_until_complete(coroutine)

    def tick(self) -> None:
        """Let a tick start and end, and all that it writes be applied."""
        self.run(self._tick())

    async def _tick(self) -> None:
        self.batches.sequencer.join()
        assert await wait_until_async(lambda: self.batches.sequencer.idle)
        await self.batches.finished()

    def replayed_state(self) -> State:
        """The filters that a replay of the log leads to."""
        state, problems = State(), list[str]()
        replay(state, LogReader(self.folder, 1, 0), problems)
        assert problems == []
        return state

    def rows(self) -> list[Row]:
        """What the log has."""
        reader = LogReader(self.folder, 1, 0)
        rows = list(reader)
        assert reader.problems == []
        return rows

    def close(self) -> None:
        """End when all writes are answered."""
        self.run(self.batches.close())
        self.batches.stop()
        self.engine.log.close()
        self.loop.close()
