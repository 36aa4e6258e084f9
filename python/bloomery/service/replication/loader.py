"""Bits that come, or go back, as a whole: a node loads what the catalogue has, and gives a Redis
that has lost something what it knows. In the tail's thread."""

from __future__ import annotations

import asyncio
import time

from bloomery import BloomFilter, errors
from bloomery.service.replication import copying
from bloomery.service.replication.apply import StreamApplier
from bloomery.service.replication.catalogue import Listed
from bloomery.service.replication.context import NodeContext


class Loader:
    """Between Redis and a node's memory."""

    def __init__(self, node: NodeContext, mirror: StreamApplier) -> None:
        self.node = node
        self.mirror = mirror
        self.loads = 0
        self.restores = 0
        self._evicts = ""

    def identify(self) -> object:
        """Which Redis this is: another one after each restart and failover."""
        found, policy = self.node.tail_link.identity()
        if policy.startswith("allkeys") and policy != self._evicts:
            text = f"this Redis may evict any key (maxmemory-policy {policy}): set noeviction"
            self.node.call(self.node.say, text, "warning")
        self._evicts = policy
        return found

    def load(self) -> None:
        """Have the filters of the catalogue, with all their bits."""
        # Before the catalogue is read: what is made here meanwhile is not in what was read.
        held = self.node.filters.all()
        listed = self.node.tail_link.run(self.node.catalogue.all())
        live = {one.uid: one for one in listed if not one.is_over(time.time())}
        for shared in held:
            if shared.listed.uid not in live:
                self.node.ask(self.mirror.drop, shared)
        for one in live.values():
            known = self.node.filters.by_uid.get(one.uid)
            if known is None:
                made = self._loaded(one)
                if made is None or self.node.ask(self.mirror.put_if_new, one, made):
                    continue
                known = self.node.filters.by_uid.get(one.uid)
            if known is not None:
                self.reload({one.uid})
                self.node.ask(self.mirror.update, known, one)
        self.loads += 1

    def _loaded(self, listed: Listed) -> BloomFilter | None:
        """Return it with its bits; None if somebody has dropped it meanwhile."""
        try:
            return copying.loaded(self.node.tail_link, listed)
        except errors.UnknownFilter as problem:
            now = self.node.tail_link.run(self.node.catalogue.find(listed.name))
            if now is None or now.uid != listed.uid or now.dropped_at is not None:
                return None
            if not self.node.accept_loss:
                raise errors.UnknownFilter(
                    f"{problem}; a node that has it restores it, or start with --accept-loss"
                ) from None
            self.node.call(self.node.say, f"{problem}: what is left of it is taken", "error")
            return copying.emptied(self.node.tail_link, self.node.catalogue, listed)

    def reload(self, uids: set[int]) -> None:
        """Load all bits of some filters again."""
        for uid in uids:
            shared = self.node.filters.by_uid.get(uid)
            entry = None if shared is None else self.node.engine.state.filters.get(shared.id)
            if shared is not None and entry is not None:
                try:
                    copying.merged(self.node.tail_link, shared, entry.filter)
                except errors.UnknownFilter:
                    self.node.damage()  # Redis has lost it, or it was dropped: the next look tells

    def restore(self, every_bit: bool) -> None:
        """Give a Redis that may have lost something what this node knows; `every_bit`: also what
        was acknowledged long ago."""
        self.restores += 1
        work = self._restore(every_bit)
        asyncio.run_coroutine_threadsafe(work, self.node.loop).result()

    async def _restore(self, every_bit: bool) -> None:
        await self.node.group_commit.call(lambda: self._restored(every_bit))

    def _restored(self, every_bit: bool) -> None:
        """In the thread of the log: meanwhile nothing is written."""
        kept = set()
        for shared in self.node.filters.all():
            entry = self.node.engine.state.filters.get(shared.id)
            if entry is not None and copying.restored(
                self.node.link, self.node.catalogue, shared, entry.filter, every_bit
            ):
                kept.add(shared.listed.uid)
        self.node.sender.send([one for one in self.node.recent.all() if one[0] in kept], again=True)
        self.node.mended()
