"""Shutting a server down, step by step. A step that fails is logged, and the next ones are done all
the same; one that takes long is named in the log, so that nobody wonders what is waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any

from bloomery import errors
from bloomery.service.observe.logs import Say

__all__ = ["Shutdown"]

_TELL_SECONDS = 5.0


class Shutdown:
    """The steps of a shutdown; `code` is the exit code so far."""

    def __init__(self, say: Say) -> None:
        self.code = 0
        self._say = say

    async def step(self, what: str, work: Awaitable[Any]) -> None:
        """Do a step, and wait for it however long it takes."""
        began = time.monotonic()
        task = asyncio.ensure_future(work)
        while not (await asyncio.wait({task}, timeout=_TELL_SECONDS))[0]:
            self._say(f"stopping: {what}: for {time.monotonic() - began:.0f} s", level="warning")
        problem = None if task.cancelled() else task.exception()
        if problem is not None:
            self.code = 1
            known = isinstance(problem, (errors.BloomeryError, OSError))
            text = str(problem) if known else f"this failed while stopping: {what}"
            self._say(text, level="error", problem=None if known else problem)
