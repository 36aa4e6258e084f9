"""The parts of a server that a write goes through, without sockets: commands, engine and log."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bloomery import errors
from bloomery.service.clock import Clock
from bloomery.service.commands import Commands
from bloomery.service.config.settings import Settings
from bloomery.service.domain.state import State
from bloomery.service.durability.batch_log import FileBatchLog
from bloomery.service.durability.log import Log, Row
from bloomery.service.durability.recovery import recover
from bloomery.service.engine import Engine
from bloomery.service.sequencer import Sequencer
from unit.service.durability.serving import assert_same
from waiting import PATIENCE

__all__ = ["Opened", "SlowLog", "assert_replay_is_same", "busy_threads", "opened", "slow_log"]


@dataclass
class Opened:
    """The parts."""

    log: Log
    engine: Engine
    batches: FileBatchLog
    commands: Commands
    refusals: list[errors.LogUnavailable] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)  # that the log has

    @property
    def sequencer(self) -> Sequencer:
        """Collects the writes."""
        return self.batches.sequencer

    @property
    def state(self) -> State:
        """The filters, with the keys that they have now."""
        for entry in self.engine.state.filters.values():
            self.engine.state.count(entry)
        return self.engine.state


@asynccontextmanager
async def opened(folder: Path, clock: Clock | None = None, **options: Any) -> AsyncIterator[Opened]:
    """Open the filters of a folder; close the log at the end, when all writes are answered."""
    recovered = recover(folder)
    assert recovered.problems == []
    log = recovered.log(**options)
    engine = Engine(recovered.state, log, clock)
    refusals: list[errors.LogUnavailable] = []
    batches = FileBatchLog(engine, log, refusals.append)
    made = Opened(log, engine, batches, Commands(engine, Settings()), refusals)
    write = log.write

    def noted(rows: Iterable[Row]) -> None:
        write(rows)
        made.rows += rows

    log.write = noted  # type: ignore[method-assign]
    try:
        yield made
    finally:
        await batches.close()
        batches.stop()
        log.close()


def assert_replay_is_same(folder: Path, state: State) -> None:
    """A server that starts with this folder has the same filters, byte for byte."""
    again = recover(folder)
    assert again.problems == []
    assert_same(again.state, state)


class SlowLog:
    """A log that writes when the gate lets it; the thread of the log waits there."""

    def __init__(self, write: Callable[[list[Row]], None]) -> None:
        self._write = write
        self.gate, self.started = threading.Semaphore(0), 0

    def write(self, rows: list[Row]) -> None:
        """Write when the gate is open."""
        self.started += 1
        assert self.gate.acquire(timeout=PATIENCE)
        self._write(rows)


@contextmanager
def slow_log(log: Any) -> Iterator[SlowLog]:
    """Make a log wait at a gate, which is open in the end. The log must write in a thread."""
    slow = SlowLog(log.write)
    log.write = slow.write
    try:
        yield slow
    finally:
        slow.gate.release(1000)


@asynccontextmanager
async def busy_threads() -> AsyncIterator[threading.Event]:
    """Keep the only thread for long work busy until the event is set."""
    loop, go = asyncio.get_running_loop(), threading.Event()
    executor = ThreadPoolExecutor(1)
    loop.set_default_executor(executor)
    blocked = loop.run_in_executor(None, partial(go.wait, PATIENCE))
    try:
        yield go
    finally:
        go.set()
        await blocked
