"""The rebuilds of a server: which filters can be rebuilt, how many at once, how each ended."""

from __future__ import annotations

import asyncio
import time

from bloomery import errors
from bloomery.service.background import Background
from bloomery.service.commands import Commands
from bloomery.service.domain.operations import quoted
from bloomery.service.domain.state import Entry
from bloomery.service.group_commit import GroupCommit
from bloomery.service.observe.logs import Say
from bloomery.service.policy.rebuild import PREFIX, KeySource, Rebuild, RebuildTask

__all__ = ["Rebuilds"]

KINDS = ("bloom", "scalable", "counting", "deletable", "cuckoo")
SETTLE = 5.0  # seconds
_MOST = 8  # at once: each has a connection and a filter of its own


class Rebuilds:
    """The rebuilds that are under way, and how the last one of each filter ended."""

    def __init__(
        self, commands: Commands, group_commit: GroupCommit, background: Background, say: Say
    ) -> None:
        self._commands, self._group_commit, self._background, self._say = (
            commands,
            group_commit,
            background,
            say,
        )
        self._states: dict[int, Rebuild] = {}  # by the number of the filter that has the name
        self._tasks: dict[int, asyncio.Task[None]] = {}
        engine = commands.engine
        engine.on_drop.subscribe(lambda entry: self._states.pop(entry.id, None))
        names = engine.state.names.items()
        left = [name for name, entry in names if name.startswith(PREFIX) and entry.expires_at]
        if left:  # by a crash; one that has no end is somebody's own
            group_commit.join()
            commands.drop(*left)

    def of(self, entry: Entry) -> Rebuild | None:
        """How far the rebuild of a filter is, or how the last one ended."""
        return self._states.get(entry.id)

    def start(
        self,
        name: bytes,
        *,
        capacity: int | None = None,
        error_rate: float | None = None,
        settle: float = SETTLE,
    ) -> Rebuild:
        """Begin to build a filter anew; without a capacity, for as many keys as the source has, in
        all their forms, and half as many more, if that is more than before."""
        entry = self._commands.find(name)
        kind = getattr(entry.filter, "kind", None)
        if kind not in KINDS:
            raise errors.InvalidParameter(
                f"{quoted(name)} is a {kind} filter: one of kind {', '.join(KINDS)} can be rebuilt"
            )
        if entry.id in self._tasks:
            raise errors.InvalidParameter(f"{quoted(name)} is being rebuilt already")
        if len(self._tasks) >= _MOST:
            raise errors.ServerUnavailable(f"{_MOST} filters are being rebuilt: try again later")
        rows: KeySource = self._commands.lookups.rows(entry)
        state = self._states[entry.id] = Rebuild("settling", time.time())
        parts = (self._commands, self._group_commit, self._background)
        work = RebuildTask(*parts, entry, state, rows, capacity, error_rate, settle)
        task = asyncio.create_task(self._run(work))
        self._tasks[entry.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(entry.id, None))
        return state

    async def _run(self, work: RebuildTask) -> None:
        state, name = work.state, quoted(work.entry.name)
        try:
            await work.run(self._states)
        except asyncio.CancelledError:
            state.state, state.problem = "failed", "the server was stopped"
            raise
        except Exception as problem:  # noqa: BLE001  # whoever looks is told
            state.state, state.problem = "failed", str(problem)
            known = isinstance(problem, errors.BloomeryError)
            self._say(
                f"{name} was not rebuilt: {problem}",
                level="warning" if known else "error",
                problem=None if known else problem,
            )
        else:
            state.state = "done"
            took = time.time() - state.began_at
            self._say(f"{name} was rebuilt of {state.rows:,} keys in {took:.1f} s")
        finally:
            state.ended_at = time.time()
            work.forget()

    async def stop(self) -> None:
        """End: the filters stay as they are."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
