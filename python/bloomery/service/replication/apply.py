"""Apply other nodes' changes, read from the stream, to this node's filters: on the event loop."""

from __future__ import annotations

import time

from bloomery import BloomFilter, errors
from bloomery.service.domain import operations
from bloomery.service.domain.operations import Op
from bloomery.service.domain.state import Entry
from bloomery.service.engine import Engine
from bloomery.service.replication import copying
from bloomery.service.replication.catalogue import Listed
from bloomery.service.replication.context import NodeContext
from bloomery.service.replication.shared import Filters, Shared
from bloomery.service.replication.stream import StreamEntry


class StreamApplier:
    """The filters of a node, as its engine has them."""

    def __init__(self, node: NodeContext) -> None:
        self.node = node
        self.filters: Filters = node.filters
        self.lag = 0.0  # seconds that the last entry took

    @property
    def engine(self) -> Engine:
        """Of the server; it is made after this."""
        return self.node.engine

    def take(self, entries: list[StreamEntry], at: float | None) -> None:
        """Do what was read; `at` that moment (monotonic) there was no more."""
        adds: dict[int, list[bytes]] = {}
        for entry in entries:
            for uid, op, data in entry.records:
                if op == Op.ADD:
                    if entry.writer != self.node.catalogue.writer:
                        adds.setdefault(uid, []).append(data)
                        if not entry.again:
                            self.node.recent.add(uid, data, entry.id)
                    continue
                if op == Op.MERGE:
                    continue  # the tail loads it
                self.add(adds)
                self._do(op, Listed.from_json(data))
        self.add(adds)
        if entries:
            self.lag = max(0.0, time.time() - entries[-1].seconds)
        if at is not None:
            self.node.caught_up(at)

    def add(self, adds: dict[int, list[bytes]]) -> None:
        """Add hashes to filters (uid) that are here; what was given is emptied."""
        for uid, parts in adds.items():
            shared = self.filters.by_uid.get(uid)
            if shared is not None and shared.id in self.engine.state.filters:
                self.engine.apply_remote(Op.ADD, shared.id, b"".join(parts))
        adds.clear()

    def _do(self, op: int, listed: Listed) -> None:
        shared = self.filters.by_uid.get(listed.uid)
        here = shared is not None and shared.id in self.engine.state.filters
        if op == Op.DROP:
            self.filters.ended.append(listed.uid)
        if op == Op.CREATE:
            # The stream tells of each drop before the name is given again. If we have another one
            # of that name, this is the past: ours was loaded, or made here, since.
            # One that was made and dropped here at once is past before the stream tells of it.
            past = listed.name in self.engine.state.names or listed.uid in self.filters.ended
            if not here and not past:
                self._put(listed, None)
        elif not here or shared is None:
            pass
        elif op == Op.DROP:
            self.drop(shared)
        else:
            self._update(shared, listed)

    def adopted(self, listed: Listed) -> bool:
        """Have a filter before the stream tells of it; False if there is no memory for it, or the
        stream has told of its end since it was asked for."""
        self._do(Op.CREATE, listed)
        return listed.uid in self.filters.by_uid

    def _update(self, shared: Shared, listed: Listed) -> None:
        shared.listed = listed
        entry = self.engine.state.filters[shared.id]
        entry.settings = {**listed.settings, "kind": "bloom"}
        self.engine.apply_remote(Op.EXPIRE, shared.id, operations.fields(at=listed.expires_at))

    def _put(self, listed: Listed, filter: BloomFilter | None) -> None:
        """Have a filter that others made."""
        engine = self.engine
        try:
            made = copying.empty(listed) if filter is None else filter
        except errors.NotEnoughMemory as problem:
            self.node.broken = (
                f"no memory for filter {operations.text_of(listed.name)!r}: {problem}"
            )
            self.node.say(self.node.broken, level="error")
            return
        number = engine.state.next_id
        self.filters.put(Shared.of(listed, number))
        entry = Entry(number, listed.name, made, listed.created_at, listed.expires_at)
        entry.settings = {**listed.settings, "kind": "bloom"}
        entry.items = made.estimated_count if filter is not None else 0
        engine.put_remote(entry)

    def drop(self, shared: Shared) -> None:
        """Have a filter no more that others dropped."""
        if shared.id in self.engine.state.filters:
            self.filters.dropped.append(shared.id)
            self.engine.apply_remote(Op.DROP, shared.id)

    def update(self, shared: Shared, listed: Listed) -> None:
        """Take over what the catalogue has of a filter, if it is still here."""
        if shared.id in self.engine.state.filters:
            self._update(shared, listed)

    def put_if_new(self, listed: Listed, made: BloomFilter) -> bool:
        """Take it in; False if a client has asked for just such a one while it was loaded, so that
        it is here, and lacks the bits."""
        if listed.uid in self.filters.by_uid:
            return False
        # Another one of that name was made here since, in its place.
        if listed.name not in self.engine.state.names:
            self._put(listed, made)
        return True
