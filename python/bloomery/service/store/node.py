"""A node: a server without filters of its own. It has a copy of those in Redis, follows what others
add, answers from the copy, and writes through.

What it promises: a key that any node acknowledged is found by every node that is ready, after the
lag at the latest; at once by who asks with `consistency=shared`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bloomery import BloomFilter, errors
from bloomery.integrations.redis.link import Link
from bloomery.service.store import copying
from bloomery.service.store.catalogue import Catalogue, Listed
from bloomery.service.store.control import Control, dropping
from bloomery.service.store.outbox import Outbox
from bloomery.service.store.shared import Filters, Recent, Shared
from bloomery.service.store.stream import Entry as StreamEntry
from bloomery.service.store.tail import Tail
from bloomery.service.store.writing import StoreLog
from bloomery.storage import operations
from bloomery.storage.operations import Op
from bloomery.storage.state import Entry

if TYPE_CHECKING:
    from bloomery.service.engine import Engine
    from bloomery.service.server import Server

__all__ = ["Node"]

_TURN = 0.0005  # seconds that a thread may go on while another waits
_HEARD = 2.0  # seconds after which it has heard of a drop
_STOPPING = 1.0  # seconds for the tail to end


class Node:
    """The link between a server and its store."""

    def __init__(self, server: Server) -> None:
        settings = server.settings
        self.server = server
        self.loop = asyncio.get_running_loop()
        self.catalogue = Catalogue(settings.store_prefix, settings.store_stream_entries)
        self.filters = Filters()
        self.recent = Recent(settings.store_replay_seconds)
        timeout = settings.store_timeout_ms / 1000
        self.link = Link(settings.store, timeout=timeout)
        self.tail_link = Link(settings.store, timeout=timeout)
        queued = settings.store_on_outage == "queue"
        self.outbox = Outbox(Path(settings.data, "outbox")) if queued else None
        self.log = StoreLog(
            self.link,
            self.catalogue,
            self.filters,
            self.recent,
            min_replicas=settings.store_min_replicas,
            timeout_ms=settings.store_timeout_ms,
            outbox=self.outbox,
            on_loss=self.damage,
            is_down=lambda: self.down_since is not None,
        )
        self.control = Control(self)
        self.tail = Tail(self)
        self.down_since: float | None = None  # since when Redis does not answer (monotonic)
        self.why = "it has not been asked yet"
        self.current_at = 0.0  # at this moment (monotonic) all that others had added was here
        self.lag = 0.0  # seconds that the last entry took
        self.loads = 0
        self.restores = 0
        self.aside = False  # is Redis to be asked, since the copy is too old?
        self.broken = ""  # why the copy cannot be whole
        self.damaged = False  # has Redis lost a string?
        # Three threads take turns: Python's own 5 ms were what others' adds waited for.
        sys.setswitchinterval(_TURN)
        self._evicts = ""
        self._caught_up = asyncio.Event()
        self._started = False
        self._going_on: asyncio.Future[None] | None = None
        self._over: deque[Listed] = deque()  # expired here, and to be taken out of Redis
        self._unlisting: threading.Thread | None = None
        self._vanished: dict[int, float] = {}  # since when a filter is not in the catalogue

    # Set by follow().
    engine: Engine

    def follow(self, engine: Engine) -> None:
        """Serve this engine."""
        self.engine = engine
        engine.before = self.control.before
        engine.on_begin = self._watch
        before = engine.on_drop

        def gone(entry: Entry) -> None:
            before(entry)
            self._forget(entry)

        engine.on_drop = gone

    async def start(self) -> None:
        """Return when the copy is whole."""
        self.tail.start()
        await self._caught_up.wait()
        if self.outbox is not None and self.outbox.keys:
            for adds in self.outbox.waiting():  # of a process before: Redis has never had it
                for uid, hashes in adds:
                    self._add({uid: [hashes]})
        self._started = True
        await self._go_on()

    async def stop(self) -> None:
        """Follow no more. The thread may be loading a large filter, or waiting for a Redis that
        does not answer: that is not waited for, and ends with the process."""
        self.tail.stop()
        await asyncio.to_thread(self.tail.join, _STOPPING)

    def close(self) -> None:
        """Let go of Redis and of the disk, when nothing is written any more."""
        if self.outbox is not None:
            self.outbox.close()
        self.link.close()
        self.tail_link.close()

    # How it is.

    @property
    def stale(self) -> bool:
        """Has it not heard of the others for too long?"""
        behind = time.monotonic() - self.current_at
        return behind * 1000 > self.server.settings.store_max_lag_ms

    def unfit(self) -> str | None:
        """Why it should not be asked now; None if it may."""
        settings = self.server.settings
        if self.broken:
            return self.broken
        if self.down_since is None:
            return "behind the other nodes" if self.stale else None
        # Since it last heard of the others: it may have been stopped before it missed Redis.
        away = time.monotonic() - min(self.down_since, self.current_at)
        most = settings.store_max_outage_seconds
        if most and away > most:
            return f"Redis has not answered for {away:.0f} s: {self.why}"
        return None

    def mark(self, exactly: bool) -> bytes:
        """What is said beside an answer: who gave it, and how old it may be."""
        if self.down_since is not None:
            since = min(self.down_since, self.current_at)
            return b"local; store=down; seconds=%.1f" % (time.monotonic() - since)
        if exactly:
            return b"shared"
        return b"local; seconds=%.3f" % max(0.0, time.monotonic() - self.current_at)

    def figures(self) -> dict[str, float | None]:
        """What is measured of it."""
        away = self.down_since
        return {
            "up": float(away is None),
            "outage_seconds": 0.0 if away is None else time.monotonic() - away,
            "behind_seconds": max(0.0, time.monotonic() - self.current_at),
            "lag_seconds": self.lag,
            "loads": float(self.loads),
            "restores": float(self.restores),
            "written_keys": float(self.log.written),
            "waiting_keys": float(sum(len(hashes) // 8 for _, hashes in self.log.pending)),
            "queued_keys": None if self.outbox is None else float(self.outbox.keys),
        }

    async def pass_second(self) -> None:
        """Each second, if Redis is there: send what waits on the disk, take out what is over."""
        if self.down_since is None:
            self._begin_unlisting()
            if min(self._vanished.values(), default=time.monotonic()) < time.monotonic() - _HEARD:
                self.damage()
        if self.log.may_drain and self.down_since is None:
            await self.server.turns.call(self.log.retry)

    def require_link(self) -> None:
        """Raise StoreUnavailable at once where it is known that Redis does not answer."""
        if self.down_since is not None:
            raise errors.StoreUnavailable(self.why)

    def _watch(self) -> None:
        """At the start of each turn: a process that was stopped must not answer from an old copy.
        While Redis is known to be away nobody writes, and the copy is all there is."""
        self.aside = self.stale and self.down_since is None
        aside = self.aside or self.server.settings.store_consistency == "shared"
        if aside is not self.engine.shelf.aside:
            self.engine.shelf.aside = aside

    # What the tail tells, on the event loop.

    def call(self, what: Callable[..., Any], *args: Any) -> None:
        """Let the event loop do something."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self.loop.call_soon_threadsafe(what, *args)

    def ask(self, what: Callable[..., Any], *args: Any) -> Any:
        """Let the event loop do something, and wait for what comes of it; in another thread."""
        done: Future[Any] = Future()

        def run() -> None:
            try:
                done.set_result(what(*args))
            except BaseException as problem:  # noqa: BLE001  # whoever waits is told
                done.set_exception(problem)

        self.call(run)
        return done.result(60)

    def lost(self, problem: errors.BloomeryError) -> None:
        """Redis does not answer. (If it does, and says what cannot be, others may go on: then this
        copy is not answered from when it gets too old.)"""
        if not isinstance(problem, errors.StoreUnavailable):
            if str(problem) != self.why:
                then = "" if self.loads else ": this node waits for it"
                self.server.say(f"following the store: {problem}{then}", level="error")
            self.why = str(problem)
            return
        self.why = str(problem)
        if self.down_since is None:
            self.down_since = time.monotonic()
            then = "answers are this node's own" if self.loads else "this node waits for it"
            self.server.alerts.begin("store-unavailable", f"{self.why}: {then}")
            self.tail_look()

    def stumbled(self, problem: Exception) -> None:
        """Something nobody expected."""
        self.server.say("following the store failed", level="error", problem=problem)

    def found(self) -> None:
        """Redis answers."""
        if self.down_since is not None:
            self.down_since = None
            self.server.alerts.end("store-unavailable", "Redis answers again")
        elif self.outbox is None or not self.outbox.keys:
            return
        if not self._started:
            return  # filters that wait for keys may not be here yet
        if self._going_on is None or self._going_on.done():
            self._going_on = asyncio.ensure_future(self._go_on())

    async def _go_on(self) -> None:
        """Take writes again, and send what waited."""
        await self.server.turns.retry()
        await self.pass_second()

    def damage(self) -> None:
        """Redis has lost a string: this node has its bits."""
        self.damaged = True
        self.tail_look()

    def vanished(self, uid: int) -> None:
        """A filter is not in the catalogue: others have dropped it, and the stream will tell; if it
        does not, Redis has lost it."""
        self._vanished.setdefault(uid, time.monotonic())
        self.tail_look()

    def tail_look(self) -> None:
        """Let the tail see soon whether all is as it was."""
        self.tail._looked_at = 0.0

    def deliver(self, entries: list[StreamEntry], at: float | None) -> None:
        """Hand over what was read; `at` that moment (monotonic) there was no more. In the tail's
        thread, which waits: it must not read on faster than the loop takes it."""
        self.ask(self._take, entries, at)

    def _take(self, entries: list[StreamEntry], at: float | None) -> None:
        adds: dict[int, list[bytes]] = {}
        for entry in entries:
            for uid, op, data in entry.records:
                if op == Op.ADD:
                    if entry.writer != self.catalogue.writer:
                        adds.setdefault(uid, []).append(data)
                        if not entry.again:
                            self.recent.add(uid, data, entry.id)
                    continue
                if op == Op.MERGE:
                    continue  # the tail loads it
                self._add(adds)
                self._do(op, Listed.from_json(data))
        self._add(adds)
        if entries:
            self.lag = max(0.0, time.time() - entries[-1].seconds)
        if at is not None:
            self.current_at = at
            self._caught_up.set()

    def _add(self, adds: dict[int, list[bytes]]) -> None:
        for uid, parts in adds.items():
            shared = self.filters.by_uid.get(uid)
            if shared is not None and shared.id in self.engine.state.filters:
                self.engine.mirror(Op.ADD, shared.id, b"".join(parts))
        adds.clear()

    def _do(self, op: int, listed: Listed) -> None:
        shared = self.filters.by_uid.get(listed.uid)
        here = shared is not None and shared.id in self.engine.state.filters
        if op == Op.CREATE:
            # The stream tells of each drop before the name is given again. If we have another one
            # of that name, this is the past: ours was loaded, or made here, since.
            if not here and listed.name not in self.engine.state.names:
                self._put(listed, None)
        elif not here or shared is None:
            pass
        elif op == Op.DROP:
            self._drop_here(shared)
        else:
            self._update(shared, listed)

    def adopted(self, listed: Listed) -> bool:
        """Have a filter before the stream tells of it; False if there is no memory for it."""
        self._do(Op.CREATE, listed)
        return listed.uid in self.filters.by_uid

    def _update(self, shared: Shared, listed: Listed) -> None:
        shared.listed = listed
        entry = self.engine.state.filters[shared.id]
        entry.settings = {**listed.settings, "kind": "bloom"}
        self.engine.mirror(Op.EXPIRE, shared.id, operations.fields(at=listed.expires_at))

    def _put(self, listed: Listed, filter: BloomFilter | None) -> None:
        """Have a filter that others made."""
        engine = self.engine
        try:
            made = filter or copying.empty(listed)
        except errors.NotEnoughMemory as problem:
            self.broken = f"no memory for filter {operations.text_of(listed.name)!r}: {problem}"
            self.server.say(self.broken, level="error")
            return
        number = engine.state.next_id
        self.filters.put(Shared.of(listed, number))
        entry = Entry(number, listed.name, made, listed.created_at, listed.expires_at)
        entry.settings = {**listed.settings, "kind": "bloom"}
        entry.items = made.estimated_count if filter is not None else 0
        engine.take_in(entry)

    def _forget(self, entry: Entry) -> None:
        shared = self.filters.forget(entry.id)
        self._vanished.pop(0 if shared is None else shared.listed.uid, None)
        expired = entry.expires_at is not None and entry.expires_at <= self.engine.state.now
        if shared is not None and expired:
            # Whoever is first takes it away, for all; if nobody can, Redis forgets the strings.
            self._over.append(shared.listed)
            self._begin_unlisting()

    def _begin_unlisting(self) -> None:
        # One thread for all: thousands may end at one moment.
        if self._over and (self._unlisting is None or not self._unlisting.is_alive()):
            self._unlisting = threading.Thread(target=self._unlist, daemon=True)
            self._unlisting.start()

    def _unlist(self) -> None:
        while self._over:
            listed = self._over[0]
            try:
                if not self.link.run(dropping(self.catalogue, listed, expired=True)):
                    self.tail.load_again()  # another node gave it more time, and we had not heard
            except errors.StoreUnavailable:
                return  # each second it is tried again
            except errors.BloomeryError as problem:
                self.call(self.server.say, f"an expired filter stays in Redis: {problem}", "error")
            self._over.popleft()

    # What the tail does, in its thread.

    def identify(self) -> object:
        """Which Redis this is: another one after each restart and failover."""
        found, policy = self.tail_link.identity()
        if policy.startswith("allkeys") and policy != self._evicts:
            text = f"this Redis may evict any key (maxmemory-policy {policy}): set noeviction"
            self.call(self.server.say, text, "warning")
        self._evicts = policy
        return found

    def load(self) -> None:
        """Have the filters of the catalogue, with all their bits."""
        # Before the catalogue is read: what is made here meanwhile is not in what was read.
        held = self.filters.all()
        listed = self.tail_link.run(self.catalogue.all())
        live = {one.uid: one for one in listed if not one.is_over(time.time())}
        for shared in held:
            if shared.listed.uid not in live:
                self.ask(self._drop_here, shared)
        for one in live.values():
            known = self.filters.by_uid.get(one.uid)
            if known is None:
                made = self._loaded(one)
                if made is None or self.ask(self._put_if_new, one, made):
                    continue
                known = self.filters.by_uid.get(one.uid)
            if known is not None:
                self.reload({one.uid})
                self.ask(self._update_if_here, known, one)
        self.loads += 1

    def _loaded(self, listed: Listed) -> BloomFilter | None:
        """Return it with its bits; None if somebody has dropped it meanwhile."""
        try:
            return copying.loaded(self.tail_link, listed)
        except errors.UnknownFilter as problem:
            now = self.tail_link.run(self.catalogue.find(listed.name))
            if now is None or now.uid != listed.uid or now.dropped_at is not None:
                return None
            if not self.server.accept_loss:
                raise errors.UnknownFilter(
                    f"{problem}; a node that has it restores it, or start with --accept-loss"
                ) from None
            self.call(self.server.say, f"{problem}: what is left of it is taken", "error")
            return copying.emptied(self.tail_link, self.catalogue, listed)

    def reload(self, uids: set[int]) -> None:
        """Load all bits of some filters again."""
        for uid in uids:
            shared = self.filters.by_uid.get(uid)
            entry = None if shared is None else self.engine.state.filters.get(shared.id)
            if shared is not None and entry is not None:
                try:
                    copying.merged(self.tail_link, shared, entry.filter)
                except errors.UnknownFilter:
                    self.damage()  # Redis has lost it, or it was dropped: the next look tells

    def _drop_here(self, shared: Shared) -> None:
        if shared.id in self.engine.state.filters:
            self.filters.dropped.append(shared.id)
            self.engine.mirror(Op.DROP, shared.id)

    def _update_if_here(self, shared: Shared, listed: Listed) -> None:
        if shared.id in self.engine.state.filters:
            self._update(shared, listed)

    def _put_if_new(self, listed: Listed, made: BloomFilter) -> bool:
        """Take it in; False if a client has asked for just such a one while it was loaded, so that
        it is here, and lacks the bits."""
        if listed.uid in self.filters.by_uid:
            return False
        # Another one of that name was made here since, in its place.
        if listed.name not in self.engine.state.names:
            self._put(listed, made)
        return True

    def restore(self, every_bit: bool) -> None:
        """Give a Redis that may have lost something what this node knows; `every_bit`: also what
        was acknowledged long ago."""
        self.restores += 1
        work = self._restore(every_bit)
        asyncio.run_coroutine_threadsafe(work, self.loop).result()

    async def _restore(self, every_bit: bool) -> None:
        await self.server.turns.call(lambda: self._restored(every_bit))

    def _restored(self, every_bit: bool) -> None:
        """In the thread of the log: meanwhile nothing is written."""
        kept = set()
        for shared in self.filters.all():
            entry = self.engine.state.filters.get(shared.id)
            if entry is not None and copying.restored(
                self.link, self.catalogue, shared, entry.filter, every_bit
            ):
                kept.add(shared.listed.uid)
        self.log.send([one for one in self.recent.all() if one[0] in kept], again=True)
        self.damaged = False
        self._vanished.clear()
