"""A node's log is Redis: what a turn added goes to the strings and to the stream, in one round trip
where one connection leads to both, and only then is anybody told.

The bits come first, the entry of the stream after them: a node that loads the bits reads the stream
from before, so it has whatever was acknowledged in one or in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bloomery import errors
from bloomery.integrations.redis import telling
from bloomery.integrations.redis.failures import checked
from bloomery.integrations.redis.link import Link
from bloomery.integrations.redis.trips import Ask, commands
from bloomery.service.store.catalogue import Catalogue
from bloomery.service.store.shared import Filters, Recent, Shared
from bloomery.service.store.stream import AGAIN, Record
from bloomery.storage.operations import Op

if TYPE_CHECKING:
    from bloomery import _native
    from bloomery.service.store.outbox import Outbox
    from bloomery.storage.log import Fsync, Row

__all__ = ["StoreLog"]

_SOME = 8 * 10_000  # bytes of hashes a round trip: Redis does nothing else while it does one


class StoreLog:
    """What `storage.log.Log` is to a server with a disk: the same calls, for `Turns` and others."""

    # A thread writes: the loop must not wait for a round trip.
    fsync: Fsync = "always"
    seq = 0  # no snapshot is ever due
    segment = 0
    path = Path("redis")

    def __init__(
        self,
        link: Link,
        catalogue: Catalogue,
        filters: Filters,
        recent: Recent,
        *,
        min_replicas: int,
        timeout_ms: int,
        outbox: Outbox | None,
        on_loss: Callable[[], None],
        is_down: Callable[[], bool],
    ) -> None:
        """`on_loss`: a string is not there, or not as long as it was. `is_down`: is it known that
        Redis does not answer?"""
        self.link, self.catalogue, self.filters, self.recent = link, catalogue, filters, recent
        self.min_replicas, self.timeout_ms = min_replicas, timeout_ms
        self.outbox = outbox
        self.on_loss, self.is_down = on_loss, is_down
        self.pending: list[tuple[int, bytes]] = []  # filters (uid) and hashes
        self.written = 0  # keys, ever

    def write(self, rows: Iterable[Row]) -> None:
        """Write what a turn added; LogUnavailable: it waits, and nobody may be told yet."""
        self.pending += self._adds(rows)
        self._write()

    def retry(self) -> bool:
        """Write what waits; True once nothing does."""
        try:
            self._write()
            if self.outbox is not None:
                self.drain()
        except errors.LogUnavailable:
            return False
        return True

    def _adds(self, rows: Iterable[Row]) -> list[tuple[int, bytes]]:
        # What makes, changes or drops a filter was done before it was done here (control.py).
        found = []
        for _, id, op, data in rows:
            shared = self.filters.by_id.get(id)
            if op == Op.ADD and shared is not None:
                found.append((shared.listed.uid, data))
        return found

    def _write(self) -> None:
        if not self.pending:
            return
        try:
            if self.outbox is not None and self.is_down():
                raise errors.StoreUnavailable("Redis does not answer")  # or each would wait for it
            self.send(self.pending)
        except (errors.StoreUnavailable, errors.StoreRefused, errors.UnknownFilter) as problem:
            if self.outbox is not None and isinstance(problem, errors.StoreUnavailable):
                self.outbox.put(self.pending)
                self.pending = []
                return
            raise errors.LogUnavailable(f"{problem}; what was added waits") from None
        self.pending = []

    def drain(self) -> None:
        """Write what waited in the outbox while Redis was away."""
        assert self.outbox is not None
        for some in self.outbox.waiting():
            try:
                self.send(some)
            except (errors.StoreUnavailable, errors.StoreRefused, errors.UnknownFilter) as problem:
                raise errors.LogUnavailable(f"{problem}; what was queued waits") from None
        self.outbox.done()

    def add(self, uid: int, hashes: bytes) -> bytes:
        """Add to one filter; 1 for each key that Redis did not have."""
        try:
            return self.send([(uid, hashes)])
        except errors.UnknownFilter as problem:
            raise errors.StoreUnavailable(f"{problem}; it is being restored") from None

    def send(self, adds: list[tuple[int, bytes]], *, again: bool = False) -> bytes:
        """Add hashes to filters, in Redis and for the other nodes; `again`: for a Redis that may
        have lost them, so they are in `Recent`, here and where else they were read."""
        together: dict[int, list[bytes]] = {}
        for uid, hashes in adds:
            together.setdefault(uid, []).append(hashes)
        batch: list[tuple[Shared, bytes]] = []
        answers, size = [], 0
        for uid, parts in together.items():
            shared, hashes = self.filters.by_uid.get(uid), b"".join(parts)
            for start in range(0, len(hashes), _SOME):
                if shared is not None:  # it may have been dropped
                    batch.append((shared, hashes[start : start + _SOME]))
                    size += len(batch[-1][1])
                if size >= _SOME:
                    answers.append(self._exchange(batch, again))
                    batch, size = [], 0
        if batch:
            answers.append(self._exchange(batch, again))
        return b"".join(answers)

    def _exchange(self, batch: list[tuple[Shared, bytes]], again: bool) -> bytes:
        asks: list[Ask] = []
        sent: list[tuple[Shared, _native.Commands, int]] = []
        all_made = []
        for shared, hashes in batch:
            strings = shared.strings
            made = strings.places.add(hashes, strings.names)
            all_made.append(made)
            for shard, data, count in made.parts:
                asks.append(Ask(strings.names[shard], data, count))
                sent.append((shared, made, shard))
        records = [Record(shared.listed.uid, Op.ADD, hashes) for shared, hashes in batch]
        catalogue = self.catalogue
        writer = catalogue.writer + (AGAIN if again else b"")
        told = commands(
            catalogue.stream,
            telling.entry(catalogue.stream, catalogue.most_entries, writer, records),
        )
        if self.link.one_connection:
            *replies, last = self._go([*asks, told])
        else:
            replies = self._go(asks)
            [last] = self._go([told])
        for (shared, made, shard), some in zip(sent, replies, strict=True):
            if not shared.strings.fed(made, shard, checked(some)):
                self.on_loss()
                raise errors.UnknownFilter(
                    f"filter {shared.strings.keys.name!r} is not whole in Redis any more"
                )
        [entry] = checked(last)
        for shared, hashes in batch:
            if not again:
                self.recent.add(shared.listed.uid, hashes, entry)
            self.written += len(hashes) // 8
        return b"".join(made.answers for made in all_made)

    def _go(self, asks: list[Ask]) -> list[list[Any]]:
        """Make a round trip; with `min_replicas`, wait until so many have it."""
        if not self.min_replicas:
            return self.link.exchange(asks)
        wait = commands(b"", ("WAIT", self.min_replicas, self.timeout_ms)).data
        ends = {len(asks) - 1} if self.link.one_connection else set(range(len(asks)))
        asked = [
            Ask(ask.key, ask.data + wait, ask.replies + 1) if at in ends else ask
            for at, ask in enumerate(asks)
        ]
        replies = self.link.exchange(asked)
        for at in ends:
            reached = replies[at].pop()
            if not isinstance(reached, int) or reached < self.min_replicas:
                checked([reached])
                raise errors.StoreUnavailable(
                    f"{reached} of {self.min_replicas} replicas have what was written "
                    "(store-min-replicas)"
                )
        return replies

    # What a log on a disk has to do beside.

    def sync(self) -> None:
        """Nothing: Redis has it."""

    def cut(self) -> int:
        """Nothing: there are no segments."""
        return self.segment

    def close(self) -> None:
        """Write what waits, if that can be."""
        if self.pending:
            self._write()
