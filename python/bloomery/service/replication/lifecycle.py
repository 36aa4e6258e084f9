"""Making, changing and dropping a filter that nodes share: in Redis first, and here only if that
was done. The event loop waits for it: such things are rare, and a Redis that does not answer is
given up after `store-timeout-ms`."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bloomery import errors
from bloomery.integrations.redis.bits.strings import create
from bloomery.integrations.redis.config import planned
from bloomery.integrations.redis.naming import Keys
from bloomery.integrations.redis.wire.failures import checked
from bloomery.integrations.redis.wire.flow import Flow, command
from bloomery.service.domain import operations
from bloomery.service.domain.operations import Op
from bloomery.service.replication.catalogue import Catalogue, Changed, Listed, dropped, new_uid
from bloomery.service.replication.context import NodeContext
from bloomery.service.replication.leftovers import swept, taken_back, was_dropped
from bloomery.service.replication.shared import Shared
from bloomery.service.replication.stream import Record

_PATIENCE = 10.0  # seconds after which a filter that was being dropped is dropped by whoever comes
_TRIES, _PAUSE = 20, 0.01  # seconds between them, while a filter of that name is being dropped
_REASONS = {
    Op.REMOVE: "a plain filter forgets no key",
    Op.RENAME: "its name is where its bits are in Redis; make another and add the keys",
    Op.COPY: "make another, and merge with RedisFilter.merge",
    Op.CLEAR: "drop it and make it again",
    Op.MERGE: "merge with RedisFilter.merge, which tells the nodes",
    Op.CHUNK: "make it with the same capacity and error rate, then give it the saved filter's keys "
    "with RedisFilter.push, which tells the nodes",
    Op.ROTATE: "a plain filter does not rotate",
    Op.COMPACT: "a plain filter in Redis keeps its size",
}


class Control:
    """What is done to a filter as a whole."""

    def __init__(self, node: NodeContext, take_in: Callable[[Listed], bool]) -> None:
        """`take_in`: have a filter of the catalogue here too (`StreamApplier.adopted`)."""
        self.node = node
        self._take_in = take_in

    def before(self, op: Op, id: int, data: bytes) -> None:
        """Do it in Redis, before it is done here; what is raised refuses it."""
        if op in _REASONS:
            raise errors.InvalidParameter(
                f"this server keeps its filters in Redis (store): {_REASONS[op]}"
            )
        self.node.require_link()
        fields = operations.read_fields(data) if data else {}
        shared = self.node.filters.by_id.get(id)
        if op == Op.CREATE:
            self._create(id, fields)
        elif shared is None:
            raise errors.UnknownFilter("there is no such filter any more")
        elif op == Op.DROP:
            self._run(self._drop(shared.listed))
            self.node.filters.ended.append(shared.listed.uid)
        elif op == Op.EXPIRE:
            self._run(self._change(shared, op, expires_at=fields["at"]))
        elif op == Op.ADJUST:
            settings = {**shared.listed.settings, **fields}
            kept = {name: value for name, value in settings.items() if value is not None}
            self._run(self._change(shared, op, settings=kept))

    def adopt(self, name: bytes) -> bool:
        """Take in a filter that another node has made, if this one has not heard of it yet: what is
        added to it comes by the stream, behind the news that it was made."""
        self.node.require_link()
        found = self._run(self.node.catalogue.find(name))
        return found is not None and not found.is_over(time.time()) and self._take_in(found)

    def _run(self, flow: Flow[Any]) -> Any:
        try:
            return self.node.link.run(flow)
        except errors.StoreUnavailable as problem:
            self.node.lost(problem)
            raise

    def _create(self, id: int, fields: dict[str, Any]) -> None:
        name, given = operations.name_of(fields["name"]), fields["settings"]
        if given.get("kind", "bloom") != "bloom" or name.startswith(b"\0"):
            raise errors.InvalidParameter(
                "this server keeps its filters in Redis (store), where they are of kind bloom, "
                f"not {given.get('kind')}: leave the kind out"
            )
        wanted = planned(
            given.get("capacity", 1),
            given.get("error_rate", 0.01),
            given.get("layout", "blocked"),
            given.get("hasher", "xxh3"),
            given.get("seed", 0),
            "auto",
        )
        listed = Listed(
            new_uid(), name, wanted.header, wanted.shards, {**given, "kind": "bloom"}, time.time()
        )
        made = self._run(self._made(listed))
        if made is None:
            raise errors.StoreUnavailable(
                "a filter of that name is being deleted: try again in a moment"
            )
        self.node.filters.put(Shared.of(made, id))

    def _made(self, listed: Listed) -> Flow[Listed | None]:
        """Make it, or take the one that another node has made alike at the same time; None if one
        of that name does not go away."""
        catalogue, name = self.node.catalogue, listed.name
        for _ in range(_TRIES):
            found = yield from catalogue.find(name)
            if found is not None and found.is_over(time.time()):
                yield from _cleared(catalogue, found)
                continue
            try:
                if found is None:
                    return (yield from self._new(listed))
            except Changed as other:
                found = other.found
            except errors.UnknownFilter:  # its strings were deleted by one that was late
                continue
            except errors.FilterExists:
                if not (yield from swept(catalogue, name)):
                    if (yield from catalogue.find(name)) is None:
                        raise _foreign(name) from None
                    raise
            if found is not None and not found.is_over(time.time()):
                found.strings.require_same(operations.text_of(name), listed.strings)
                return found
        return None

    def _new(self, listed: Listed) -> Flow[Listed]:
        """Make its strings, and put it into the catalogue. Who makes the strings decides on its
        number: programs that add to it tell that one."""
        try:
            return (yield from self._listed(listed))
        except errors.StoreRefused:
            # Redis may have let the strings be made, and be full now: they must not keep it so.
            yield from taken_back(self.node.catalogue, listed)
            raise

    def _listed(self, listed: Listed) -> Flow[Listed]:
        catalogue = self.node.catalogue
        made = yield from create(Keys(listed.name), catalogue.config(listed), None)
        told = made.told
        if told is None or told["stream"].encode("utf-8", "surrogateescape") != catalogue.stream:
            raise _foreign(listed.name)
        if told["uid"] != listed.uid and (yield from was_dropped(catalogue, told["uid"])):
            raise errors.FilterExists("strings are left of a filter that was dropped")
        found = replace(listed, uid=told["uid"])
        records = [found.record(Op.CREATE)]
        if found.uid != listed.uid:  # strings that were there, perhaps with bits: all load them
            records.append(Record(found.uid, Op.MERGE, b""))
        yield from catalogue.change(found.name, None, found, records)
        return found

    def _drop(self, listed: Listed) -> Flow[None]:
        yield from dropping(self.node.catalogue, listed)

    def _change(self, shared: Shared, op: Op, **to: Any) -> Flow[None]:
        catalogue = self.node.catalogue
        found: Listed | None = shared.listed
        while found is not None and found.uid == shared.listed.uid and found.dropped_at is None:
            after = replace(found, **to)
            try:
                if op == Op.EXPIRE:
                    yield from _ending(shared, after.expires_at)
                yield from catalogue.change(found.name, found, after, [after.record(op)])
                shared.listed = after
                return
            except Changed as other:
                found = other.found
        raise errors.UnknownFilter("there is no such filter any more")


def dropping(catalogue: Catalogue, listed: Listed, *, expired: bool = False) -> Flow[bool]:
    """Take a filter away. Who marks it first deletes the strings, and nobody else: what is made
    under the name afterwards has strings of the same names. False if it is only to go if it has
    `expired`, and has more time by now."""
    found: Listed | None = listed
    while found is not None and found.uid == listed.uid and found.dropped_at is None:
        if expired and not found.is_over(time.time()):
            return False
        going = dropped(found, time.time())
        try:
            yield from catalogue.change(found.name, found, going, [listed.record(Op.DROP)])
        except Changed as other:
            found = other.found
        else:
            yield from _deleted(catalogue, going)
            break
    return True


def _cleared(catalogue: Catalogue, found: Listed) -> Flow[None]:
    """Make room where a filter has expired, or somebody began to drop it and may have died."""
    if found.dropped_at is None:
        yield from dropping(catalogue, found, expired=True)
    elif time.time() - found.dropped_at < _PATIENCE:
        time.sleep(_PAUSE)
    else:
        again = dropped(found, time.time())
        with contextlib.suppress(Changed):  # another one does it
            yield from catalogue.change(found.name, found, again)
            yield from _deleted(catalogue, again)


def _foreign(name: bytes) -> errors.IncompatibleFilters:
    # Not FilterExists: the Redis protocol has "item exists" for that, which says nothing to who
    # adds a key to a filter that this node does not show.
    return errors.IncompatibleFilters(
        f"filter {operations.text_of(name)!r} exists in this Redis, made by a program and not by "
        "these nodes: take another name; or make one here, and merge that into it with "
        "RedisFilter.merge"
    )


def _deleted(catalogue: Catalogue, listed: Listed) -> Flow[None]:
    """Delete the strings, and then the entry of the catalogue."""
    yield from Shared.of(listed, 0).strings.unlink()
    with contextlib.suppress(Changed):
        yield from catalogue.change(listed.name, listed, None)


def _ending(shared: Shared, at: float | None) -> Flow[None]:
    strings = shared.strings
    names = [strings.keys.config, *strings.names]
    if at is None:
        asks = [command(name, "PERSIST", name) for name in names]
    else:
        # Redis forgets it some time after the nodes do: none finds it gone before its time.
        asks = [command(name, "PEXPIREAT", name, int(at * 1000) + 60_000) for name in names]
    for some in (yield asks):
        checked(some)


class Expired:
    """Filters that have expired here, and are to be taken out of Redis. Whoever is first takes one
    away, for all nodes; if nobody can, Redis forgets the strings."""

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
