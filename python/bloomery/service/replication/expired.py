"""Filters that have expired here, and are to be taken out of Redis."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from bloomery import errors
from bloomery.service.replication.catalogue import Listed
from bloomery.service.replication.context import NodeContext
from bloomery.service.replication.lifecycle import dropping

__all__ = ["Expired"]


class Expired:
    """Whoever is first takes one away, for all nodes; if nobody can, Redis forgets the strings."""

    def __init__(self, node: NodeContext, load_again: Callable[[], None]) -> None:
        self.node = node
        self._load_again = load_again
        self._over: deque[Listed] = deque()
        self._thread: threading.Thread | None = None

    def add(self, listed: Listed) -> None:
        """Take it out soon."""
        self._over.append(listed)
        self.begin()

    def begin(self) -> None:
        """See to those that wait."""
        # One thread for all: thousands may end at one moment.
        if self._over and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        node = self.node
        while self._over:
            listed = self._over[0]
            try:
                if not node.link.run(dropping(node.catalogue, listed, expired=True)):
                    self._load_again()  # another node gave it more time, and we had not heard
            except errors.StoreUnavailable:
                return  # each second it is tried again
            except errors.BloomeryError as problem:
                node.call(node.say, f"an expired filter stays in Redis: {problem}", "error")
            self._over.popleft()
