"""A filter that nodes share: what the catalogue has, its strings, and which of ours it is here."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass

from bloomery.integrations.redis.bits.strings import BitStrings
from bloomery.integrations.redis.naming import Keys
from bloomery.service.replication.catalogue import Catalogue, Listed
from bloomery.service.replication.stream import START, later, order


@dataclass
class Shared:
    """One filter; `id` is its number in this server."""

    listed: Listed
    id: int
    strings: BitStrings

    @classmethod
    def of(cls, listed: Listed, id: int) -> Shared:
        """Make one from what the catalogue has."""
        return cls(listed, id, BitStrings(Keys(listed.name), listed.strings))


def strings_of(catalogue: Catalogue, listed: Listed) -> BitStrings:
    """Return its strings as programs have them: they know whom to tell."""
    return BitStrings(Keys(listed.name), catalogue.config(listed))


class Filters:
    """All of them, by both numbers. The event loop changes it; others look."""

    def __init__(self) -> None:
        self.by_uid: dict[int, Shared] = {}
        self.by_id: dict[int, Shared] = {}
        # Numbers here of those that others dropped last: what was added meanwhile is not anywhere.
        self.dropped: deque[int] = deque(maxlen=10_000)
        self.past: deque[int] = deque(maxlen=10_000)  # uids of those that went last
        # Those of them that somebody dropped: the stream may tell later that they were made.
        self.ended: deque[int] = deque(maxlen=10_000)

    def put(self, shared: Shared) -> None:
        """Take one in."""
        self.by_uid[shared.listed.uid] = self.by_id[shared.id] = shared

    def forget(self, id: int) -> Shared | None:
        """Take one away."""
        shared = self.by_id.pop(id, None)
        if shared is not None:
            self.by_uid.pop(shared.listed.uid, None)
            self.past.append(shared.listed.uid)
        return shared

    def all(self) -> list[Shared]:
        """Return them as they are now."""
        return list(self.by_uid.values())


class Recent:
    """What nodes acknowledged in the last seconds, this one and others: a Redis that comes back
    without it, after a crash or a failover, is given it again.

    `mark` is the last entry of the stream that something was known by which is not here. Redis
    writes to its disk and to replicas in order: if it still has that entry, or a later one of which
    the adds are here, it has all that is not here.
    """

    def __init__(self, seconds: float, most_bytes: int = 64 << 20) -> None:
        self.seconds = seconds
        self.most_bytes = most_bytes
        self.mark = START
        self._lock = threading.Lock()
        self._held: deque[tuple[float, bytes, int, bytes]] = deque()
        self._bytes = 0

    def add(self, uid: int, hashes: bytes, entry: bytes = START) -> None:
        """Keep what was just written, or read, in this entry of the stream."""
        now = time.monotonic()
        with self._lock:
            self._held.append((now, entry, uid, hashes))
            self._bytes += len(hashes)
            while self._held and (
                self._bytes > self.most_bytes or self._held[0][0] < now - self.seconds
            ):
                _, oldest, _, gone = self._held.popleft()
                self._bytes -= len(gone)
                self.mark = max(self.mark, oldest, key=order)

    def reach(self, entry: bytes) -> None:
        """Bits were loaded that had come by this entry at the latest."""
        with self._lock:
            self.mark = max(self.mark, entry, key=order)

    def known(self, first: bytes) -> bytes | None:
        """Return the earliest entry, from this one on, that proves what Redis has kept."""
        with self._lock:
            entries = [self.mark, *(one[1] for one in self._held)]
        since = max(self.mark, first, key=order)
        return min((one for one in entries if not later(since, one)), key=order, default=None)

    def all(self) -> list[tuple[int, bytes]]:
        """Return what is kept, of each filter together."""
        together: dict[int, list[bytes]] = {}
        with self._lock:
            for _, _, uid, hashes in self._held:
                together.setdefault(uid, []).append(hashes)
        return [(uid, b"".join(parts)) for uid, parts in together.items()]
