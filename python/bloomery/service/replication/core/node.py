"""The state machine of a node: events in, actions out (`messages`). The room's docstring has the
rules that it keeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from bloomery import errors
from bloomery.service.replication.core import messages as m
from bloomery.service.replication.core.entries import Kind, LogEntry, Mark, Placed, Position
from bloomery.service.replication.core.history import History
from bloomery.service.replication.core.ledger import Ledger, Verdict
from bloomery.service.replication.core.replica import Replica
from bloomery.service.replication.core.snapshots import SnapshotKeeper
from bloomery.service.replication.core.writes import PendingWrite, WriteQueue

_A = TypeVar("_A")


@dataclass(frozen=True, slots=True)
class Options:
    """What an operator sets; seconds, by this node's steady clock."""

    version: int = 1
    confirm: bool = False  # does an append wait for replicas (`store-min-replicas`)?
    max_lag: float = 5.0  # how old a copy may be that is answered from
    write_timeout: float = 2.0
    retry: float = 0.1  # between two attempts that failed
    # News is looked for no sooner than this after an answer, so that several entries come at once.
    # Who appends needs none: the answer brings what came before. Ten times this it is waited for.
    gather: float = 0.002
    settle: float = 0.3  # after a failure: those who lost entries put them back before others write
    retain: float = 60.0  # how long acknowledged writes are kept
    hello: float = 10.0
    lease: float = 5.0  # a holder that was not heard of for so long is replaced
    clock: float = 1.0  # between two entries that let time pass
    clock_share: float = 0.1  # of the time that passes, by which the log's time follows wall clocks
    bootstrap: float = 10.0  # how long an empty Redis waits for nodes that have what it lost
    check: float = 10.0  # between two looks whether a node could start from what Redis has
    load_pause: float = 30.0  # between two attempts to load, at most
    snapshot_retry: float = 0.1  # after a snapshot that could not be made
    snapshot_entries: int = 100_000
    history_entries: int = 10_000


class ReplicationCore:
    """A node of the shared log."""

    def __init__(
        self,
        node: bytes,
        make: Callable[[], Replica],
        options: Options,
        about: Callable[[], bytes] = bytes,
        wall: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """`node`: 8 bytes that no process had before. `make` returns a replica without filters.
        `about` returns what other nodes are told of this one, now and then; `wall` the time of the
        machine's wall clock, in ms."""
        self.node, self.options = node, options
        self.replica = make()
        self.ledger = Ledger()
        self.history = History(None, options.history_entries)
        self.writes = WriteQueue(options.retain)
        self.ready = False
        self._make, self._about, self._wall = make, about, wall
        self._snapshots = SnapshotKeeper(node, options.snapshot_entries, options.snapshot_retry)
        self._now = 0.0
        self._actions: list[m.Action] = []
        self._refs = 0
        self._requests: dict[int, tuple[m.Action, float]] = {}  # what Redis was asked, and when
        self._strong: list[tuple[int, float]] = []  # reads that wait: request, when it came
        # Loading.
        self._loading = True
        self._candidates: list[m.Snapshot] = []
        self._load_at = 0.0
        self._load_pause = options.retry  # longer after each attempt that failed
        self._newest = b""  # the id of the newest snapshot, when it was last looked for
        self._empty_since: float | None = None
        # Following.
        self._matched = True  # has the stream what was applied here, as far as is known?
        self._reloaded = False  # must acknowledged writes be looked for in what was loaded?
        self._targets: list[tuple[Position, float]] = []  # ends of the stream, and when asked for
        self._fresh: float | None = None  # the copy has all that the stream had at this time
        self._confirmed: float | None = None  # the same, and replicas have it too
        self._fetch_at = 0.0
        self._look_at = 0.0  # when news is looked for
        self._lively = False  # did the last answer bring entries of others?
        self._append_at = 0.0
        self._settling = (
            False  # has Redis answered since the last failure that a moment began with?
        )
        self._sent = 0.0  # when this node last appended something
        self._hello_at = 0.0  # when it says next that it is there
        # Lease.
        self._lease_heard = 0.0
        self._claim_at = 0.0
        self._clock_at = 0.0
        # A time of the log in ms, and when it was that time; None: no CLOCK was applied yet.
        self._clock: tuple[int, float] | None = None
        self._clock_sent = (0, 0.0)  # the same, of the last CLOCK that this node sent
        self._clock_runs = False  # was a CLOCK applied that was not read with older entries?
        self._redis_clock = (0, 0.0)  # Redis's time in ms, and when it was that time
        self._check_at = 0.0  # when to see next whether a node could start

    def may_answer(self, now: float) -> bool:
        """May a local read be answered from the copy?"""
        return self._fresh is not None and now - self._fresh <= self.options.max_lag

    def set_snapshot_entries(self, every: int) -> None:
        """Let so many entries be between two snapshots from now on."""
        self._snapshots.every = every

    def introduce(self) -> None:
        """Tell the other nodes of this one anew, soon: what it tells has changed."""
        self._hello_at = 0.0

    @property
    def fresh(self) -> float | None:
        """The copy has all that the stream had at this time; None: it is not known of any."""
        return self._fresh

    def time(self, now: float) -> int:
        """Return the time of the log now in ms, as far as it is known here: no later than it is."""
        latest = self.ledger.latest_ms
        if self._clock is None:
            return latest
        ms, since = self._clock
        return max(latest, ms + int(1000 * (now - since)))

    def redis_ahead(self, now: float) -> float:
        """Return the seconds by which Redis's clock is ahead of the machine's; 0 if unknown."""
        ms, since = self._redis_clock
        off = (ms - self._wall()) / 1000 + (now - since)
        return off if ms and math.isfinite(off) else 0.0

    @property
    def due(self) -> float | None:
        """When to step next although nothing happens; None: at the next tick is soon enough."""
        if self._loading or self._is_asked(m.Fetch, m.PutBack, m.Restore):
            return None
        return max(self._look_at, self._fetch_at)

    @property
    def joined(self) -> bool:
        """Do all others know of this node?"""
        return self.node in self.ledger.members

    @property
    def holds_lease(self) -> bool:
        """Does this node decide, as far as it has read?"""
        return self.ledger.holder == self.node

    def step(self, event: m.Event, now: float) -> list[m.Action]:
        """Take an event in, at a time of a steady clock; return what is to be done, in order."""
        self._now, self._actions = now, []
        match event:
            case m.Write():
                self._write(event)
            case m.StrongRead():
                self._strong.append((event.request, now))
            case m.Decide():
                if self.holds_lease:
                    self._queue(Kind.DECIDE, event.payload, fence=self.ledger.fence)
            case m.Tick():
                pass
            case _:
                request = self._requests.pop(event.ref, None)
                if request is not None:  # else it was answered before
                    self._answered(event, *request)
        self._expire()
        if self._loading:
            self._load()
        else:
            self._follow()
        ready = self.joined and not self._reloaded and self.may_answer(now)
        if ready != self.ready:
            self.ready = ready
            self._actions.append(m.SetReady(ready))
        return self._actions

    def _answered(self, event: m.Event, action: m.Action, sent: float) -> None:
        match event, action:
            case m.Failed(), _:
                self._failed(action)
            case m.Unreadable(), _:
                self._failed(action)
                self._matched = False
            case m.StoreChecked(), _:
                if event.problem:
                    self._snapshots.hurry()
            case m.Fetched(), m.Fetch():
                self._fetched(event, action.after, sent)
            case m.Refused(), m.Append():
                self._append_refused(event, action)
            case m.Fetched(), m.Append():  # its mark is not there: nothing was appended
                self._not_appended(action)
                self._fetched(event, action.after, sent)
            case m.Appended(), m.Append():
                self._appended(event, action, sent)
            case m.ManifestRead(), _:
                self._manifest_read(event)
            case m.SnapshotLoaded(), m.LoadSnapshot():
                self._adopt(event.replica, Ledger.from_bytes(event.ledger), action.snapshot.last)
            case m.SnapshotMissing(), _:
                self._load_next()
            case m.Done(), m.SaveSnapshot():
                self._saved(action.snapshot, event)
            case m.Done(), m.SwapManifest():
                self._snapshots.ended(event.done, self._now)
                self._check_at = self._now
                self._drop_refused(event, action.manifest)
            case m.Done(), m.Restore():  # the next read tells
                self._drop_refused(event, action.manifest)
            case m.Done(), _:
                pass  # PutBack: the next read tells; WantSnapshot: a manifest does

    # Requests to Redis.

    def _ask(self, action: m.Action, ref: int) -> None:
        self._requests[ref] = (action, self._now)
        self._actions.append(action)

    def _ref(self) -> int:
        self._refs += 1
        return self._refs

    def outstanding(self, kind: type[_A]) -> list[_A]:
        """What Redis was asked of this kind and has not answered yet."""
        return [action for action, _ in self._requests.values() if isinstance(action, kind)]

    def _is_asked(self, *kinds: type) -> bool:
        return any(isinstance(action, kinds) for action, _ in self._requests.values())

    def _failed(self, action: m.Action) -> None:
        self._fetch_at = self._load_at = self._now + self.options.retry
        if isinstance(action, m.LoadSnapshot):
            self._load_later()
        self._lively = True  # look what is there before anything is waited for
        self._settle()
        steps = m.ReadManifest | m.SaveSnapshot | m.SwapManifest
        if isinstance(action, steps) and self._snapshots.owns(action.ref):
            self._snapshots.ended(False, self._now)

    def _settle(self) -> None:
        """Append nothing for a moment: Redis may have lost entries (a failover, a restart), and who
        has them puts them back, which goes only where nobody wrote meanwhile. Connections that end
        again and again do not make the moment longer, as long as Redis answers between."""
        if not self._settling or self._now >= self._append_at:
            self._append_at, self._settling = self._now + self.options.settle, False

    # Loading: the newest snapshot, or the stream from its start.

    def _load(self) -> None:
        busy = self._is_asked(m.ReadManifest, m.LoadSnapshot, m.Fetch, m.Append)
        if not busy and self._now >= self._load_at:
            ref = self._ref()
            self._ask(m.ReadManifest(ref), ref)

    def _manifest_read(self, event: m.ManifestRead) -> None:
        if self._snapshots.owns(event.ref):
            last, ref = self.history.last, self._ref()
            if self._loading or last is None or not (self.holds_lease and self._matched):
                self._snapshots.ended(False, self._now)
                return
            count, ledger = self.ledger.count, self.ledger.to_bytes
            step = self._snapshots.manifest_read(
                event.manifest, last, count, ledger, ref, self._now
            )
            if step is not None:
                self._ask(step, ref)
        elif event.manifest is not None:
            self._empty_since, self._newest = None, event.manifest.snapshots[0].id
            self._candidates = list(event.manifest.snapshots)
            self._load_next()
        else:
            self._newest, ref = b"", self._ref()
            self._ask(m.Fetch(ref, None, wait=False), ref)

    def _load_next(self) -> None:
        if self._candidates:
            if self.history.at is None:  # the copy is empty, or void: its memory is needed
                self.replica = self._make()
            ref = self._ref()
            self._ask(m.LoadSnapshot(ref, self._candidates.pop(0)), ref)
        elif self.history.at is None:
            self._load_later()
        else:  # if the stream is lost too, this node brings back what it has
            ref = self._ref()
            self._ask(m.Fetch(ref, None, wait=False), ref)

    def _load_later(self) -> None:
        """Try again after a pause, each time a longer one; the holder is asked for a snapshot."""
        self._load_at = self._now + self._load_pause
        self._load_pause = min(2 * self._load_pause, self.options.load_pause)
        ref = self._ref()
        self._ask(m.WantSnapshot(ref, self._newest), ref)

    def _start_loading(self) -> None:
        """Load a copy: at once, unless the last one that was loaded was of no use."""
        self._loading, self._load_at = True, self._now
        if self._fresh is None:
            self._load_later()
        asked = (m.Fetch, m.Append)  # of the history that is given up
        self._requests = {
            ref: request
            for ref, request in self._requests.items()
            if not isinstance(request[0], asked)
        }

    def _give_up(self, reason: str) -> None:
        """Take the copy, which is half changed, to be void."""
        self.ledger = Ledger()
        self.history = History(None, self.options.history_entries)
        self.writes.forget_outcomes()
        self._fresh = self._confirmed = None
        self._targets.clear()
        self._start_loading()
        self._actions.append(m.Stuck(reason))

    def _loaded_from_start(self, event: m.Fetched, sent: float) -> None:
        if event.entries and event.entries[0].entry.kind is Kind.GENESIS:
            self._adopt(self._make(), Ledger(), None)
            if self._apply_all(event.entries):
                self._caught_up_to(event.end, sent)
        elif event.end is not None:  # it was trimmed since: there is a manifest now, or soon
            self._empty_since = None
            self._load_later()
        elif self.history.at is not None:  # Redis has lost everything, and this node has not
            self._loading = False
        else:
            self._bootstrap()

    def _bootstrap(self) -> None:
        if self._is_empty_for(self.options.bootstrap):
            self._hello_at = self._now + self.options.hello
            self._append(PendingWrite(Kind.GENESIS, self._about()), None)
        else:
            self._load_at = self._now + self.options.retry

    def _is_empty_for(self, seconds: float) -> bool:
        """Has nobody who has more than this node brought it to the empty Redis for so long?"""
        if self._empty_since is None:
            self._empty_since = self._now
        return self._now - self._empty_since >= seconds

    def _adopt(self, replica: Replica, ledger: Ledger, last: Placed | None) -> None:
        """Have another copy from now on."""
        self._loading, self._reloaded, self._matched = False, True, True
        self.replica, self.ledger = replica, ledger
        self.history = History(last, self.options.history_entries)
        self.writes.forget_outcomes()
        self._fresh = self._confirmed = self._empty_since = None
        self._targets.clear()
        self._lease_heard = self._now

    # Following.

    def _follow(self) -> None:
        self._resolve()
        if self._fresh is not None:
            self._keep_lease()
            self._send()
        self._fetch()

    def _fetch(self) -> None:
        if self._now < self._fetch_at or self._is_asked(m.PutBack, m.Restore):
            return
        fetches = [
            (action, sent)
            for action, sent in self._requests.values()
            if isinstance(action, m.Fetch)
        ]
        asked = max((sent for action, sent in fetches if not action.wait), default=-1.0)
        behind = bool(self._targets) or self._fresh is None or not self._matched
        if asked < 0 and (behind or (self._strong and not self.options.confirm)):
            ref = self._ref()
            self._ask(m.Fetch(ref, self.history.at, wait=False), ref)
        elif not fetches and self._now >= self._look_at:
            ref = self._ref()
            self._ask(m.Fetch(ref, self.history.at, wait=not self._lively), ref)

    def _fetched(self, event: m.Fetched, after: Mark | None, sent: float) -> None:
        if self._loading:
            if after is None:
                self._loaded_from_start(event, sent)
        elif self._take(event.entries):
            self._caught_up_to(event.end, sent)
        elif after == self.history.at:
            self._lost(event)

    def _take(self, entries: Sequence[Placed]) -> bool:
        """Apply what is new; False if the entries do not continue what was applied here."""
        news = self.history.news(entries)
        if news is None:
            return False
        self._matched, self._settling, self._empty_since = True, True, None
        self._lively = any(placed.entry.node != self.node for placed in news)
        self._look_at = self._now + self.options.gather
        return self._apply_all(news)

    def _apply_all(self, entries: Sequence[Placed]) -> bool:
        """Apply entries; False if the copy was given up."""
        for placed in entries:
            self._apply(placed)
            if self._loading:
                return False
        return True

    def _caught_up_to(self, end: Mark | None, sent: float) -> None:
        """Note where the stream ended, at some time after `sent`."""
        if end is not None:
            self._targets.append((end.position, sent))
        at = self.history.at
        reached = [since for position, since in self._targets if at and position <= at.position]
        self._targets = [target for target in self._targets if not at or target[0] > at.position]
        if reached:
            self._fresh = max(*reached, self._fresh or 0.0)
            self._load_pause = self.options.retry
            if self._reloaded:
                self._repeat_lost_writes()

    def _apply(self, placed: Placed) -> None:
        position, entry = placed
        verdict = self.ledger.admit(position, entry)
        outcome: Any = None
        if verdict is Verdict.APPLY:
            if entry.needs > self.options.version:
                reason = f"the log has operations of version {entry.needs}: upgrade bloomery"
                self._actions.append(m.Stop(reason))
            elif entry.kind in (Kind.WRITE, Kind.DECIDE):
                try:
                    outcome = self.replica.apply(entry.payload, self.ledger.latest_ms)
                except errors.NotEnoughMemory as problem:
                    self._give_up(str(problem))
                    return
            elif entry.kind is Kind.CLOCK:
                self.replica.pass_time(self.ledger.now_ms)
                self._set_clock(entry)
        self.history.append(placed)
        if entry.node == self.ledger.holder:
            self._lease_heard = self._now
        if entry.node == self.node:
            self._applied_own(entry, verdict, outcome)

    # Writes.

    def _write(self, event: m.Write) -> None:
        write = PendingWrite(
            Kind.WRITE,
            event.payload,
            self._now,
            event.request,
            self._now + self.options.write_timeout,
            event.needs,
        )
        if event.needs > self.ledger.oldest_version():
            self._refuse_too_new(write)
        elif self._fresh is not None and self.replica.unchanged(event.payload) is not None:
            self.writes.unchanged.append(write)
        else:
            self.writes.queue.append(write)

    def _queue(self, kind: Kind, payload: bytes = b"", fence: Position | None = None) -> None:
        """Queue an entry that no client waits for."""
        deadline = self._now + self.options.write_timeout
        write = PendingWrite(kind, payload, self._now, deadline=deadline)
        if fence is not None:
            write.fence = fence
        self.writes.queue.append(write)

    def _send(self) -> None:
        """Append the first that waits, unless one is on its way."""
        unproven = any(arrived > self._sent for _, arrived in self._strong)
        barrier = bool(self.writes.unchanged) or (self.options.confirm and unproven)
        if barrier and all(write.op for write in self.writes.queue):
            self._queue(Kind.BARRIER)
        if self._now >= self._hello_at or not (self.joined or self.writes.queue):
            self._hello_at = self._now + self.options.hello
            self._queue(Kind.HELLO, self._about())
        busy = self._is_asked(m.Append, m.PutBack) or self._reloaded or not self._matched
        if self.writes.queue and not busy and self._now >= self._append_at:
            self._append(self.writes.queue[0], self.history.at)

    def _append(self, write: PendingWrite, after: Mark | None) -> None:
        self.writes.number(write)
        write.unanswered += 1
        self._sent = self._now
        self._look_at = self._now + 10 * self.options.gather
        ref = self._ref()
        entry = LogEntry(
            self.node,
            ref,
            write.op,
            write.kind,
            write.payload,
            write.fence,
            self.options.version,
            write.needs,
        )
        self._ask(m.Append(ref, after, entry), ref)

    def _appended(self, event: m.Appended, action: m.Append, sent: float) -> None:
        if self._loading:
            if action.after is not None:
                return  # of the history that was given up
            self._adopt(self._make(), Ledger(), None)
        self._redis_clock = event.position.ms, self._now
        write = self.writes.find(action.entry.op)
        if not event.replicated:
            self._append_at = self._now + self.options.retry
        elif write is not None:
            write.confirmed[action.entry.attempt] = sent
        own = Placed(event.position, action.entry)
        if action.after is None:
            self._apply(own)
            self._caught_up_to(own.mark, sent)
        elif self._take((*event.entries, own) if event.complete else event.entries):
            self._caught_up_to(own.mark, sent)
        self._acknowledge(write)

    def _not_appended(self, action: m.Append) -> PendingWrite | None:
        """Return the write of an attempt that never was and never will be in the log."""
        write = self.writes.find(action.entry.op)
        if write is not None:
            write.unanswered -= 1
        return write

    def _append_refused(self, event: m.Refused, action: m.Append) -> None:
        """Redis takes no writes: clients are told at once, of what is surely not done."""
        self._append_at = self._load_at = self._now + self.options.retry
        write = self._not_appended(action)
        # What is repeated after a loss was acknowledged: it waits, however long that is.
        if write is not None and not write.unanswered and write.deadline < math.inf:
            self.writes.queue.remove(write)
            requests = [
                pending.request for pending in (write, *write.riders) if pending.request is not None
            ]
            if self.options.confirm:  # strong reads wait for an entry too
                requests += [request for request, _ in self._strong]
                self._strong.clear()
            for request in requests:
                self._actions.append(m.Refuse(request, event.reason, True, True))

    def _applied_own(self, entry: LogEntry, verdict: Verdict, outcome: Any) -> None:
        write = self.writes.find(entry.op)
        if write is None:
            return
        if verdict is Verdict.TOO_NEW:
            self.writes.queue.remove(write)
            self.writes.unchanged += write.riders
            self._refuse_too_new(write)
        elif verdict is Verdict.REPEAT and write.outcome is None:
            # It was done, in what a snapshot has: what came of it, nobody knows.
            self.writes.queue.remove(write)
            self.writes.unchanged += write.riders
            self._refuse(write, "it is in the log; what it changed is not known")
        else:
            write.applied.add(entry.attempt)
            if verdict is not Verdict.REPEAT:
                write.outcome = (outcome,)
                self._decide_riders(write)
            self._acknowledge(write)

    def _decide_riders(self, write: PendingWrite) -> None:
        """Look whether its riders change nothing, where it is in the log; else append them."""
        riders, write.riders = write.riders, []
        for rider in riders:
            reply = self.replica.unchanged(rider.payload)
            if reply is None:  # another node took something away
                self.writes.queue.append(rider)
            else:
                rider.outcome = (reply,)
                write.riders.append(rider)

    def _acknowledge(self, write: PendingWrite | None) -> None:
        """Reply if the write was applied here and Redis (and its replicas) has it."""
        if write is None or write.outcome is None or write not in self.writes.queue:
            return
        if self.options.confirm:
            confirmed = [
                write.confirmed[attempt] for attempt in write.applied & write.confirmed.keys()
            ]
            if not confirmed:
                return
            self._confirmed = max(*confirmed, self._confirmed or 0.0)
        self.writes.queue.remove(write)
        if write.kind is Kind.WRITE:
            self.writes.retain(write.op, write.payload, self._now)
        for rider in write.riders:
            self.writes.retain(0, rider.payload, self._now)
        for pending in (write, *write.riders):
            if pending.request is not None and pending.outcome is not None:
                self._actions.append(m.Reply(pending.request, pending.outcome[0]))

    def _resolve(self) -> None:
        """Answer strong reads that came before this copy was last known to be current."""
        current = self._confirmed if self.options.confirm else self._fresh
        if current is None:
            return
        for request, arrived in self._strong:
            if arrived <= current:
                self._actions.append(m.Answer(request))
        self._strong = [read for read in self._strong if read[1] > current]

    def _expire(self) -> None:
        """Tell those who waited for too long."""
        for write in self.writes.expired(self._now):
            self._refuse(write, "Redis did not answer in time: it may be done, or not")
        since = self._now - self.options.write_timeout
        for request, arrived in self._strong:
            if arrived <= since:
                self._actions.append(m.Refuse(request, "Redis did not answer in time", True))
        self._strong = [read for read in self._strong if read[1] > since]

    def _refuse(self, write: PendingWrite, reason: str, untouched: bool = False) -> None:
        if write.request is not None:
            self._actions.append(m.Refuse(write.request, reason, untouched))

    def _refuse_too_new(self, write: PendingWrite) -> None:
        self._refuse(write, "a node of an older version does not know it: upgrade all", True)

    # Lost history.

    def _lost(self, event: m.Fetched) -> None:
        """The stream does not have the entry that was applied last."""
        self._matched = False
        self._settle()
        if self._is_asked(m.PutBack, m.Restore):
            return
        if event.end is None:
            self._save_all()
            return
        missing = None if event.entries else self.history.missing(event.end)
        if missing:
            ref = self._ref()
            self._ask(m.PutBack(ref, event.end, missing), ref)
        else:  # trimmed, or others wrote where this node had something else
            self._start_loading()

    def _save_all(self) -> None:
        """Bring everything back to a Redis that has nothing: first the copy, as a snapshot."""
        self._fetch_at = self._now + self.options.retry
        # A copy that was current a moment ago; an older one if nobody has that, before anybody
        # begins with nothing.
        waited = self._is_empty_for(self.options.bootstrap / 2)  # counts from the first look
        last = self.history.last
        if last is not None and (waited or self.may_answer(self._now)) and not self._is_saving():
            ref = self._ref()
            id = self.node + ref.to_bytes(8, "little")
            snapshot = m.Snapshot(id, last, self.ledger.count)
            self._ask(m.SaveSnapshot(ref, snapshot, self.ledger.to_bytes()), ref)

    def _is_saving(self) -> bool:
        """Is the copy on its way to an empty Redis? The lease holder's own snapshot is not that: it
        does not restore anything, and must not keep this from being done."""
        return any(
            isinstance(action, m.SaveSnapshot) and not self._snapshots.owns(action.ref)
            for action, _ in self._requests.values()
        )

    def _saved(self, snapshot: m.Snapshot, event: m.Done) -> None:
        ref = self._ref()
        if self._snapshots.owns(event.ref):
            if event.done and self.holds_lease:
                self._ask(self._snapshots.saved(ref), ref)
            else:
                self._snapshots.ended(False, self._now)
        elif event.done and snapshot.mark == self.history.at:
            self._settle()
            self._ask(m.Restore(ref, m.Manifest((snapshot,))), ref)

    def _drop_refused(self, event: m.Done, manifest: m.Manifest) -> None:
        """Delete a copy that was saved in vain: another node was first."""
        if not event.done:
            ref = self._ref()
            self._ask(m.DropSnapshot(ref, manifest.snapshots[0].id), ref)

    def _repeat_lost_writes(self) -> None:
        """Queue what this node acknowledged and the history that it loaded does not have."""
        self._reloaded = False
        last = self.ledger.last_op(self.node)
        numbered, others = [], []
        for op, payload, _ in self.writes.retained:
            added = self.replica.additions(payload)
            if added is None or self.replica.unchanged(added) is not None:
                continue
            write = PendingWrite(Kind.WRITE, added, self._now, op=op)
            if op > last:
                numbered.append(write)
            elif not op:
                others.append(write)
        self.writes.repeat(numbered, others)

    # The lease, and what its holder does.

    def _keep_lease(self) -> None:
        if not self.joined:
            return
        if self._matched and self._now >= self._check_at and not self._is_asked(m.CheckStore):
            self._check_at, ref = self._now + self.options.check, self._ref()
            self._ask(m.CheckStore(ref), ref)
        if not self.holds_lease:
            silent = self._now - self._lease_heard >= self.options.lease
            if (silent or not self.ledger.holder) and self._now >= self._claim_at:
                self._claim_at = self._now + self.options.lease
                self._queue(Kind.CLAIM, fence=self.ledger.fence)
            return
        if self._now - self._clock_at >= self.options.clock:
            self._clock_at = self._now
            self._queue(Kind.CLOCK, self._next_time().to_bytes(8, "little"), self.ledger.fence)
        if self._matched and self._snapshots.is_due(self.ledger.count, self._now):
            ref = self._ref()
            self._ask(self._snapshots.begin(ref), ref)

    # Time: of the log. It runs as the steady clock of the holder does, and follows wall clocks
    # slowly, as that of a server alone (`service/clock.py`).

    def _set_clock(self, entry: LogEntry) -> None:
        """Note the time of a CLOCK."""
        time = self.ledger.now_ms
        sent = entry.node == self.node and time == self._clock_sent[0]
        self._clock = self._clock_sent if sent else (time, self._now)
        self._clock_runs = self._clock_runs or self._fresh is not None

    def _next_time(self) -> int:
        """Return the time of the next CLOCK. The clocks of Redis and of this machine may both be
        wrong: the one that is behind counts, so that nothing ends before its time."""
        time = self.time(self._now)
        redis_ms, since = self._redis_clock
        wall = min(self._wall(), redis_ms + 1000 * (self._now - since))
        if self._clock_runs and self._clock is not None:
            most = 1000 * self.options.clock_share * (self._now - self._clock[1])
            time += int(min(max(wall - time, -most), most))
        else:  # no node has measured what passed since the last CLOCK
            time = max(time, int(wall))
        self._clock_sent = (time, self._now)
        return time
