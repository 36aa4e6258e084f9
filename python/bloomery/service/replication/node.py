"""A node: a server without filters of its own. It has a copy of those in Redis, follows what others
add, answers from the copy, and writes through.

What it promises: a key that any node acknowledged is found by every node that is ready, after the
lag at the latest; at once by who asks with `consistency=shared`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from bloomery import errors
from bloomery.integrations.redis.wire.link import Link
from bloomery.service.config.settings import Settings
from bloomery.service.domain.state import Entry
from bloomery.service.engine import Engine
from bloomery.service.group_commit import GroupCommit
from bloomery.service.observe.logs import Say
from bloomery.service.policy.alerts import Alerts
from bloomery.service.replication.apply import StreamApplier
from bloomery.service.replication.catalogue import Catalogue
from bloomery.service.replication.lifecycle import Control, Expired
from bloomery.service.replication.loader import Loader
from bloomery.service.replication.log import StoreLog
from bloomery.service.replication.outbox import Outbox
from bloomery.service.replication.sender import Sender
from bloomery.service.replication.shared import Filters, Recent
from bloomery.service.replication.tail import Tail

_TURN = 0.0005  # seconds that a thread may go on while another waits
_HEARD = 2.0  # seconds after which it has heard of a drop
_STOPPING = 1.0  # seconds for the tail to end


class Node:
    """The link between a server and its store."""

    def __init__(
        self, settings: Settings, say: Say, alerts: Alerts, *, accept_loss: bool = False
    ) -> None:
        self.settings, self.say, self.alerts = settings, say, alerts
        self.accept_loss = accept_loss
        self.loop = asyncio.get_running_loop()
        self.catalogue = Catalogue(settings.store_prefix, settings.store_stream_entries)
        self.filters = Filters()
        self.recent = Recent(settings.store_replay_seconds)
        timeout = settings.store_timeout_ms / 1000
        self.link = Link(settings.store, timeout=timeout)
        self.tail_link = Link(settings.store, timeout=timeout)
        queued = settings.store_on_outage == "queue"
        self.outbox = Outbox(Path(settings.data, "outbox")) if queued else None
        self.sender = Sender(
            self.link,
            self.catalogue,
            self.filters,
            self.recent,
            min_replicas=settings.store_min_replicas,
            timeout_ms=settings.store_timeout_ms,
            on_loss=self.damage,
        )
        self.log = StoreLog(
            self.sender,
            self.filters,
            outbox=self.outbox,
            is_down=lambda: self.down_since is not None,
        )
        self.mirror = StreamApplier(self)
        self.control = Control(self, self.mirror.adopted)
        self.loader = Loader(self, self.mirror)
        self.tail = Tail(self, self.mirror, self.loader)
        self.expired = Expired(self, self.tail.load_again)
        self.down_since: float | None = None  # since when Redis does not answer (monotonic)
        self.why = "it has not been asked yet"
        self.current_at = 0.0  # at this moment (monotonic) all that others had added was here
        self.aside = False  # is Redis to be asked, since the copy is too old?
        self.broken = ""  # why the copy cannot be whole
        self.damaged = False  # has Redis lost a string?
        # Three threads take turns: Python's own 5 ms were what others' adds waited for.
        sys.setswitchinterval(_TURN)
        self._caught_up = asyncio.Event()
        self._started = False
        self._going_on: asyncio.Future[None] | None = None
        self._vanished: dict[int, float] = {}  # since when a filter is not in the catalogue

    # Set by follow().
    engine: Engine
    group_commit: GroupCommit

    def follow(self, engine: Engine, group_commit: GroupCommit) -> None:
        """Serve this engine, whose operations are done in Redis first (`control.before`)."""
        self.engine, self.group_commit = engine, group_commit
        engine.before_change.subscribe(self.control.before)
        engine.on_begin.subscribe(self._watch)
        engine.on_drop.subscribe(self._forget)

    async def start(self) -> None:
        """Return when the copy is whole."""
        self.tail.start()
        await self._caught_up.wait()
        if self.outbox is not None and self.outbox.keys:
            for adds in self.outbox.waiting():  # of a process before: Redis has never had it
                for uid, hashes in adds:
                    self.mirror.add({uid: [hashes]})
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
        return behind * 1000 > self.settings.store_max_lag_ms

    @property
    def refuses_writes(self) -> bool:
        """Is Redis away, and is nothing queued for it?"""
        return self.down_since is not None and self.outbox is None

    def unfit(self) -> str | None:
        """Why it should not be asked now; None if it may."""
        settings = self.settings
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
            "lag_seconds": self.mirror.lag,
            "loads": float(self.loader.loads),
            "restores": float(self.loader.restores),
            "written_keys": float(self.sender.written),
            "waiting_keys": float(sum(len(hashes) // 8 for _, hashes in self.log.pending)),
            "queued_keys": None if self.outbox is None else float(self.outbox.keys),
        }

    async def pass_second(self) -> None:
        """Each second, if Redis is there: send what waits on the disk, take out what is over."""
        if self.down_since is None:
            self.expired.begin()
            if min(self._vanished.values(), default=time.monotonic()) < time.monotonic() - _HEARD:
                self.damage()
        if self.log.may_drain and self.down_since is None:
            await self.group_commit.call(self.log.retry)

    def require_link(self) -> None:
        """Raise StoreUnavailable at once where it is known that Redis does not answer."""
        if self.down_since is not None:
            raise errors.StoreUnavailable(self.why)

    def _watch(self) -> None:
        """At the start of each turn: a process that was stopped must not answer from an old copy.
        While Redis is known to be away nobody writes, and the copy is all there is."""
        self.aside = self.stale and self.down_since is None
        aside = self.aside or self.settings.store_consistency == "shared"
        if aside is not self.engine.shelf.bypassed:
            self.engine.shelf.bypassed = aside

    # Between the event loop and the other threads.

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
                then = "" if self.loader.loads else ": this node waits for it"
                self.say(f"following the store: {problem}{then}", level="error")
            self.why = str(problem)
            return
        self.why = str(problem)
        if self.down_since is None:
            self.down_since = time.monotonic()
            then = "answers are this node's own" if self.loader.loads else "this node waits for it"
            self.alerts.begin("store-unavailable", f"{self.why}: {then}")
            self.tail.look_soon()

    def stumbled(self, problem: Exception) -> None:
        """Something nobody expected."""
        self.say("following the store failed", level="error", problem=problem)

    def found(self) -> None:
        """Redis answers."""
        if self.down_since is not None:
            self.down_since = None
            self.alerts.end("store-unavailable", "Redis answers again")
        elif self.outbox is None or not self.outbox.keys:
            return
        if not self._started:
            return  # filters that wait for keys may not be here yet
        if self._going_on is None or self._going_on.done():
            self._going_on = asyncio.ensure_future(self._go_on())

    async def _go_on(self) -> None:
        """Take writes again, and send what waited."""
        await self.group_commit.retry()
        await self.pass_second()

    def damage(self) -> None:
        """Redis has lost a string: this node has its bits."""
        self.damaged = True
        self.tail.look_soon()

    def vanished(self, uid: int) -> None:
        """A filter is not in the catalogue: others have dropped it, and the stream will tell; if it
        does not, Redis has lost it."""
        self._vanished.setdefault(uid, time.monotonic())
        self.tail.look_soon()

    def mended(self) -> None:
        """Redis has what it had lost."""
        self.damaged = False
        self._vanished.clear()

    def caught_up(self, at: float) -> None:
        """At this moment (monotonic) nobody had added what is not here."""
        self.current_at = at
        self._caught_up.set()

    def _forget(self, entry: Entry) -> None:
        shared = self.filters.forget(entry.id)
        self._vanished.pop(0 if shared is None else shared.listed.uid, None)
        expired = entry.expires_at is not None and entry.expires_at <= self.engine.state.now
        if shared is not None and expired:
            self.expired.add(shared.listed)
