"""The thread that follows the stream, and loads what it cannot follow.

connect ─> is it the Redis we knew, with all that came since? ─no─> restore, load all bits
        ─> XREAD, again and again ─> the event loop adds what others added
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

from bloomery import errors
from bloomery.integrations.redis.wire.failures import checked
from bloomery.integrations.redis.wire.flow import Flow, command
from bloomery.service.domain.operations import Op
from bloomery.service.replication.apply import StreamApplier
from bloomery.service.replication.context import NodeContext
from bloomery.service.replication.loader import Loader
from bloomery.service.replication.stream import START, StreamEntry, entries_in, later

_BLOCK_MS = 100  # that Redis waits for something new: so old is the news that there is none
_COUNT = 1000  # entries at once: so many a stream keeps at least
_LONG = 2.0  # seconds without the stream, after which a part of it may have gone meanwhile
# After some entries came, more are waited for: to read one costs 0.3 ms of the processor, a hundred
# hardly more. Who writes nothing for a while is heard at once.
_GATHER = 0.002
_PAUSE = (0.05, 1.0)  # seconds between tries, at first and at most
_LOOK = 1.0  # seconds between looks at whether it is still the same Redis


class Tail(threading.Thread):
    """One thread of a node, with a connection of its own."""

    def __init__(self, node: NodeContext, mirror: StreamApplier, loader: Loader) -> None:
        super().__init__(name="bloomery-tail", daemon=True)
        self.node, self.mirror, self.loader = node, mirror, loader
        self.position = START  # of the last entry that was read
        self.identity: object = None  # of the Redis that we know
        self._loaded = False
        self._again = False  # is all to be loaded, although the stream was followed?
        self._read_at = 0.0  # when the stream was last read
        self._looked_at = 0.0
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End, within a moment, unless it waits for Redis."""
        self._stopped.set()

    def look_soon(self) -> None:
        """See soon whether all is as it was."""
        self._looked_at = 0.0

    def load_again(self) -> None:
        """Load all bits soon."""
        self._again = True

    def run(self) -> None:
        """Follow the stream until told to stop; what fails is tried again."""
        pause = _PAUSE[0]
        while not self._stopped.is_set():
            try:
                self._follow()
            except errors.BloomeryError as problem:
                self.node.call(self.node.lost, problem)
            except Exception as problem:  # noqa: BLE001  # a thread that ends would end the node
                self.node.call(self.node.stumbled, problem)
            else:
                pause = _PAUSE[0]
                continue
            self._stopped.wait(pause)
            pause = min(2 * pause, _PAUSE[1])

    def _follow(self) -> None:
        """One step: see that all is as it was, and read what is new."""
        if self._again:
            self._again = self._loaded = False
        if not self._loaded or time.monotonic() - self._looked_at > _LOOK:
            self._look()
        began = time.monotonic()
        try:
            self._take(began)
        except errors.CorruptData as problem:
            # Somebody else writes there, or a later bloomery: what it may have meant is in the bits
            self.node.call(self.node.lost, problem)
            self._load()
            return
        if self.node.down_since is not None:
            self.node.call(self.node.found)

    def _take(self, began: float) -> None:
        """Read what is new, and hand it over."""
        found = self.node.tail_link.run(self._read())
        stopped = began - self._read_at > _LONG or time.monotonic() - began > _LONG
        if stopped or len(found) == _COUNT:
            # What went out of the stream meanwhile we have not seen. With fewer entries than the
            # stream always keeps (store-stream-entries is at least _COUNT) none can be missing.
            gap, lost = self.node.tail_link.run(self._missed())
            if lost:
                self.node.damage()
                return
            if gap:
                self._load()
                return
        self._read_at = time.monotonic()
        merged = {one.uid for entry in found for one in entry.records if one.op == Op.MERGE}
        if merged:  # bits that came without hashes
            self._deliver(found, None)
            self.loader.reload(merged)
            self.node.recent.reach(found[-1].id)
        # As of when it was asked for: what came while this process was stopped is older than now.
        self._deliver(found, began if len(found) < _COUNT else None)
        if found:  # only now: what could not be delivered is read again
            self.position = found[-1].id
            self._stopped.wait(_GATHER)

    def _deliver(self, entries: list[StreamEntry], at: float | None) -> None:
        """Hand over what was read, and wait: who reads must not be faster than who takes it."""
        self.node.ask(self.mirror.take, entries, at)

    def _read(self, wait: bool = True) -> Flow[list[StreamEntry]]:
        stream = self.node.catalogue.stream
        block = ("BLOCK", _BLOCK_MS) if wait else ()
        words = ("XREAD", "COUNT", _COUNT, *block, "STREAMS", stream, self.position)
        [some] = yield [command(stream, *words)]
        [reply] = checked(some)
        return entries_in(reply, skip=not wait)

    def _look(self) -> None:
        """See whether this is the Redis that we know."""
        identity = self.loader.identify()
        lost = self._loaded and self.node.tail_link.run(self._missed())[1]
        if self._loaded and (identity != self.identity or lost or self.node.damaged):
            # Another one, or the same after a crash: what it was given last it may not have.
            kept = self.node.tail_link.run(self._kept())
            self._read_rest()
            self.loader.restore(every_bit=not kept)
            self._loaded = False
        self.identity = identity
        if not self._loaded:
            self._load()
        self._looked_at = time.monotonic()

    def _load(self) -> None:
        """Load all bits, and follow the stream from where it was before."""
        self._loaded = False  # until all of it has come: the stream is not followed meanwhile
        self.position = self.node.tail_link.run(self._last())
        self.loader.load()
        self.node.recent.reach(self.position)
        self._loaded = True
        # Loading takes seconds: after the next read it is asked whether the stream kept all that
        # came meanwhile. A part that was trimmed is in no chunk that was read before it was added.
        self._read_at = 0.0

    def _last(self) -> Flow[bytes]:
        """Return the number of the last entry."""
        stream = self.node.catalogue.stream
        [some] = yield [command(stream, "XREVRANGE", stream, "+", "-", "COUNT", 1)]
        [found] = checked(some)
        return bytes(found[0][0]) if found else START

    def _read_rest(self) -> None:
        """Hear what others have done, at once: what they dropped must not be restored."""
        while found := self.node.tail_link.run(self._read(wait=False)):
            for entry in found:
                with contextlib.suppress(errors.CorruptData):  # all bits are loaded afterwards
                    self._deliver([entry], None)
            self.position = found[-1].id

    def _kept(self) -> Flow[bool]:
        """Whether Redis has all that is not in `Recent`."""
        stream = self.node.catalogue.stream
        [some] = yield [command(stream, "XRANGE", stream, "-", "+", "COUNT", 1)]
        [first] = checked(some)
        one = self.node.recent.known(first[0][0]) if first else None
        if one is None:
            return False
        [some] = yield [command(stream, "XRANGE", stream, one, one)]
        return bool(checked(some)[0])

    def _missed(self) -> Flow[tuple[bool, bool]]:
        """Whether entries went that were never read here; and whether Redis has lost some that
        were."""
        stream = self.node.catalogue.stream
        [some] = yield [command(stream, "XINFO", "STREAM", stream)]
        [found] = some
        if isinstance(found, Exception) and "no such key" in str(found):
            return False, self.position != START
        [found] = checked(some)
        facts: dict[Any, Any] = found if isinstance(found, dict) else _pairs(found)
        # What trimming took is in no field by itself (max-deleted-entry-id is XDEL's alone). But if
        # the entry that was read last is still there, so is all that came after it.
        first = facts.get(b"first-entry")
        length = facts[b"length"]
        trimmed = facts.get(b"entries-added", length + 1) > length  # before Redis 7: perhaps
        last = facts.get(b"last-generated-id", START)
        oldest = first[0] if first else last
        return trimmed and later(oldest, self.position), later(self.position, last)


def _pairs(found: list[Any]) -> dict[Any, Any]:
    return dict(zip(found[::2], found[1::2], strict=True))
