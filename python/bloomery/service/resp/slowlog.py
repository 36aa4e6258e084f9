"""The slow log: commands that took long, as SLOWLOG GET shows them."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from bloomery.service.config.settings import Settings

_MAX_WORDS = 32  # of an entry, as in Redis
_MAX_WORD_BYTES = 128


class SlowLog:
    """The last slow commands. It holds names of filters, but never keys: a key can be a secret."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.entries: deque[list[Any]] = deque()  # newest first
        self._next_id = 0

    def is_slow(self, seconds: float) -> bool:
        """Return whether the log has a command that took this long."""
        limit = self._settings.slowlog_log_slower_than
        return 0 <= limit <= seconds * 1e6

    def note(
        self, seconds: float, words: list[bytes], hidden: int, address: str, name: bytes
    ) -> None:
        """Add a command of a client: the words to show, and how many more it had."""
        if hidden or len(words) > _MAX_WORDS:
            hidden += max(len(words) - (_MAX_WORDS - 1), 0)
            words = [*words[: _MAX_WORDS - 1], b"... (%d more arguments)" % hidden]
        shown = [word[:_MAX_WORD_BYTES] for word in words]
        micros = int(seconds * 1e6)
        self.entries.appendleft(
            [self._next_id, int(time.time()), micros, shown, address.encode(), name]
        )
        self._next_id += 1
        while len(self.entries) > self._settings.slowlog_max_len:
            self.entries.pop()
