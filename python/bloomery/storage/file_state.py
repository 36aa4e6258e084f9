"""What tells a file that was opened from another that has its name by now."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

# A change within one tick of the file system's clock may leave the time of change as it is.
TICK_NS = 20_000_000


def is_settled(mtime_ns: int) -> bool:
    """Return whether a later change of the file has another time of change."""
    return not 0 <= time.time_ns() - mtime_ns < TICK_NS


class FileState(NamedTuple):
    """What tells a file from the one that it was, or that has its name by now.

    Without the time of its inode, which changes when another file gets the name.
    """

    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileState:
        """The state that the file system tells of."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def is_longer(self, before: FileState) -> bool:
        """Whether it may be the same file with more at its end."""
        return self[:2] == before[:2] and self.size >= before.size
