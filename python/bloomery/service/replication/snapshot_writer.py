"""Writes a node's snapshots to Redis, each by a process of its own: a fork has all filters as they
are now, and the node goes on."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Iterator
from typing import NoReturn

from bloomery import errors
from bloomery.service.config.settings import Settings
from bloomery.service.domain.state import State
from bloomery.service.observe.logs import Say
from bloomery.service.replication import dumps
from bloomery.service.replication.core.messages import SaveSnapshot
from bloomery.service.replication.redis_log.chunks import write_chunks

_STUCK = 60  # seconds in which the process has to get on


class SnapshotWriter:
    """The processes that write snapshots."""

    def __init__(self, settings: Settings, say: Say) -> None:
        self._settings, self._say = settings, say
        self._running: set[int] = set()  # their ids

    def begin(self, action: SaveSnapshot, state: State) -> int:
        """Begin to write these filters; the id of the process that does. OSError: there is no
        memory, or there are too many processes."""
        pid = os.fork()
        if not pid:
            self._write(action, state)
        self._running.add(pid)
        return pid

    async def wait(self, pid: int) -> bool:
        """Return when a process has ended: did it write all?"""
        # It stays there to be killed until it is known here that it has ended.
        await asyncio.to_thread(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        self._running.discard(pid)
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            self._say(f"what wrote a snapshot was ended by signal {status & 127}", level="warning")
        return status == 0

    def kill(self) -> None:
        """End them all: the thread that waits for one keeps this process."""
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)

    def _write(self, action: SaveSnapshot, state: State) -> NoReturn:
        """Write a snapshot, and end this process, which is a fork."""
        code = 1
        try:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)  # the event loop that took them is not here
            gc.disable()  # it would touch, and so copy, every page
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # connections of this node's clients too
            os.nice(10)
            parts = _watched(dumps.dump(state, action.ledger))
            store, prefix = self._settings.store, self._settings.store_prefix
            write_chunks(store, prefix, action.snapshot.id, parts)
            code = 0
        except errors.BloomeryError as problem:
            self._say(f"a snapshot could not be written to Redis: {problem}", level="warning")
        except Exception as problem:  # noqa: BLE001  # it ends here, whatever it is
            self._say("a snapshot could not be written", level="error", problem=problem)
        finally:
            os._exit(code)


def _watched(parts: Iterator[bytes]) -> Iterator[bytes]:
    """The same; the process is ended if it takes too long from one to the next, as it would if a
    thread that was not forked had held a lock."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for part in parts:
        signal.alarm(_STUCK)
        yield part
