"""The log of a server that has none on its disk: of a node, whose log is shared."""

from __future__ import annotations

from pathlib import Path

from bloomery import errors
from bloomery.service.durability.log import Fsync, Row


class NodeLog:
    """What `durability.log.Log` is to a server alone: a node has nothing on its disk."""

    fsync: Fsync = "never"
    seq = 0  # no snapshot of it is ever due
    segment = 0
    path = Path("redis")
    flushing = False

    def unsynced(self, now: float) -> float:
        """For how many seconds something has not been on the disk: nothing has to be."""
        return 0.0

    def write(self, rows: list[Row]) -> None:
        """Refuse: what a node writes is in the shared log."""
        raise errors.LogUnavailable("a node has no log of its own")

    def close(self) -> None:
        """Do nothing."""
