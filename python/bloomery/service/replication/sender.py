"""Adds on their way to Redis: a turn's go to the strings and to the stream, in one round trip where
one connection leads to both.

The bits come first, the entry of the stream after them: a node that loads the bits reads the stream
from before, so it has whatever was acknowledged in one or in the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bloomery import errors
from bloomery.integrations.redis.bits.scripts import STRAY
from bloomery.integrations.redis.wire import change_feed
from bloomery.integrations.redis.wire.failures import checked
from bloomery.integrations.redis.wire.flow import Ask, command, commands
from bloomery.integrations.redis.wire.link import Link
from bloomery.service.domain.operations import Op
from bloomery.service.replication.catalogue import Catalogue, Listed
from bloomery.service.replication.leftovers import was_dropped
from bloomery.service.replication.shared import Filters, Recent, Shared, strings_of
from bloomery.service.replication.stream import AGAIN, Record

if TYPE_CHECKING:
    from bloomery import _native

_SOME = 8 * 10_000  # bytes of hashes a round trip: Redis does nothing else while it does one


class Sender:
    """For one thread at a time."""

    def __init__(
        self,
        link: Link,
        catalogue: Catalogue,
        filters: Filters,
        recent: Recent,
        *,
        min_replicas: int,
        timeout_ms: int,
        on_loss: Callable[[], None],
    ) -> None:
        """`on_loss`: a string is not there, or not as long as it was."""
        self.link, self.catalogue, self.filters, self.recent = link, catalogue, filters, recent
        self.min_replicas, self.timeout_ms = min_replicas, timeout_ms
        self.on_loss = on_loss
        self.written = 0  # keys, ever
        self._gone = ""  # why some of what was last sent was not added

    def send(
        self, adds: list[tuple[int, bytes]], writer: bytes | None = None, *, again: bool = False
    ) -> tuple[bytes, str]:
        """Add hashes to filters, in Redis and for the other nodes: all but the `writer`. Return
        what was new, and why some filters were not added to: others have dropped them. `again`: for
        a Redis that may have lost them, so they are in `Recent`, here and where they were read."""
        together: dict[int, list[bytes]] = {}
        for uid, hashes in adds:
            together.setdefault(uid, []).append(hashes)
        batch: list[tuple[Shared, bytes]] = []
        answers, size = [], 0
        self._gone = ""
        for uid, parts in together.items():
            shared, hashes = self.filters.by_uid.get(uid), b"".join(parts)
            for start in range(0, len(hashes), _SOME):
                if shared is not None:  # it may have been dropped
                    batch.append((shared, hashes[start : start + _SOME]))
                    size += len(batch[-1][1])
                if size >= _SOME:
                    answers.append(self._exchange(batch, writer, again))
                    batch, size = [], 0
        if batch:
            answers.append(self._exchange(batch, writer, again))
        return b"".join(answers), self._gone

    def _exchange(
        self, batch: list[tuple[Shared, bytes]], writer: bytes | None, again: bool
    ) -> bytes:
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
        writer = (writer or catalogue.writer) + (AGAIN if again else b"")
        told = commands(
            catalogue.stream,
            change_feed.entry(catalogue.stream, catalogue.most_entries, writer, records),
            # Its name may be another's by now, of which this node has not heard: with another seed
            # the bits would be those of other keys.
            ("HMGET", catalogue.key, *(shared.listed.name for shared, _ in batch)),
        )
        if self.link.one_connection:
            *replies, last = self._go([*asks, told])
        else:
            replies = self._go(asks)
            [last] = self._go([told])
        entry, held = checked(last)
        others = {
            shared.listed.uid: Listed.from_json(now) if now else None
            for (shared, _), now in zip(batch, held, strict=True)
            if not shared.listed.is_still(now)
        }
        lost = {uid for uid, now in others.items() if now is None and not self._dropped_lately(uid)}
        for (shared, made, shard), some in zip(sent, replies, strict=True):
            if shared.listed.uid in others.keys() - lost:
                self._astray(shared, shard, checked(some)[0], others[shared.listed.uid])
            elif shared.listed.uid in lost or not shared.strings.take_replies(
                made, shard, checked(some)
            ):
                self.on_loss()
                raise errors.UnknownFilter(
                    f"filter {shared.strings.keys.name!r} is not whole in Redis any more"
                )
        for shared, hashes in batch:
            if shared.listed.uid in others:
                continue
            if not again:
                self.recent.add(shared.listed.uid, hashes, entry)
            self.written += len(hashes) // 8
        return b"" if others else b"".join(made.answers for made in all_made)

    def _dropped_lately(self, uid: int) -> bool:
        return self.link.run(was_dropped(self.catalogue, uid))

    def _astray(self, shared: Shared, shard: int, before: Any, now: Listed | None) -> None:
        """What went to a filter that others have dropped; `now` has its name."""
        strings = shared.strings
        self._gone = f"filter {strings.keys.name!r} was dropped by another node: try again"
        if now is not None and now.dropped_at is None:
            if now.nbytes != shared.listed.nbytes:  # its string may be longer now, so not whole
                self.link.run(strings_of(self.catalogue, now).tell_merged())
        elif before == 0:
            name = strings.names[shard]
            self.link.exchange([command(name, "EVAL", STRAY, 1, name, strings.lengths[shard])])

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
