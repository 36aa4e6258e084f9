"""The state machine of a node: events in, actions out (`messages`). The room's docstring has the
rules that it keeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, TypeVar

from bloomery import errors
from bloomery.service.replication.core import messages as m
from bloomery.service.replication.core.comparison import (
    Course,
    Finding,
    LogComparison,
    describe_foreign,
)
from bloomery.service.replication.core.entries import (
    Kind,
    LogEntry,
    Mark,
    Placed,
    Position,
    genesis,
)
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
    cluster: str = ""  # the name of the log: a node follows no log of another name
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
    claim: float = 10.0  # for how long a restore that is not heard of keeps others from one
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
        # A log that does not have the entry that was applied last.
        self._comparison: LogComparison | None = None
        self._comparing: int | None = None  # the step of it that is under way
        self._finding: Finding | None = None
        self._unloadable_since: float | None = None  # no node could load the log since then
        self._decision: m.Recover | None = None
        self._followed: Finding | None = None  # the log that is loaded in place of this copy
        self._candidate: tuple[m.SnapshotLoaded, Ledger, Placed] | None = None
        self._left: History | None = None  # what this copy had before another was loaded
        self._restoring = False  # does this copy replace what Redis has?
        self._replaced: Mark | None = None  # the end of the stream that it replaces
        self._save_at = 0.0
        self._differs = ""
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
        busy = self._loading or self._comparing is not None
        if busy or self._is_asked(m.Fetch, m.PutBack, m.Restore):
            return None
        return max(self._look_at, self._fetch_at)

    @property
    def dilemma(self) -> str:
        """Why an operator must decide which of two logs to keep; "" if not."""
        asks = self._finding is not None and self._finding.course is Course.ASK
        return self._differs if asks and self._decision is None else ""

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
            case m.Recover():
                if self.dilemma:
                    self._decision, self._fetch_at = event, now
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
        if action.ref == self._comparing:  # type: ignore[union-attr]
            self._compare(event, action)
            return
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
            case m.Fetched(), m.Append():
                self._append_denied(event, action, sent)
            case m.Appended(), m.Append():
                self._appended(event, action, sent)
            case m.ManifestRead(), _:
                self._manifest_read(event)
            case m.SnapshotLoaded(), m.LoadSnapshot():
                self._loaded(event, action.snapshot.last)
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
            case m.Done(), m.ClaimRestore():
                self._claimed(event)
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
        elif isinstance(action, m.SaveSnapshot):
            self._save_at = self._now + self.options.snapshot_retry

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

    def _loaded(self, event: m.SnapshotLoaded, last: Placed) -> None:
        ledger = Ledger.from_bytes(event.ledger)
        if not self._accepts(ledger):
            return
        if self._followed is None:
            self._adopt(event.replica, ledger, last)
        else:  # this copy is given up only if the log still has what it was compared with
            self._candidate, ref = (event, ledger, last), self._ref()
            self._ask(m.Fetch(ref, self._followed.end, wait=False), ref)

    def _verified(self, event: m.Fetched) -> None:
        """Adopt what was loaded, unless Redis has lost some of it since the comparison."""
        assert self._candidate is not None
        assert self._followed is not None
        (loaded, ledger, last), self._candidate = self._candidate, None
        if event.entries and event.entries[0].mark == self._followed.end:
            self._adopt(loaded.replica, ledger, last)
        else:
            self._compare_again()

    def _compare_again(self) -> None:
        self._loading = self._matched = False
        self._followed = self._candidate = None

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
        self._want_snapshot(self._newest)

    def _want_snapshot(self, newest: bytes) -> None:
        ref = self._ref()
        self._ask(m.WantSnapshot(ref, newest), ref)

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
        if not self._reloaded:  # else what was left before is still to be repeated
            self._left = self.history
        self.ledger = Ledger()
        self.history = History(None, self.options.history_entries)
        self.writes.forget_outcomes()
        self._fresh = self._confirmed = None
        self._targets.clear()
        self._start_loading()
        self._actions.append(m.Stuck(reason))

    def _loaded_from_start(self, event: m.Fetched, sent: float) -> None:
        if event.entries and event.entries[0].entry.kind is Kind.GENESIS:
            first = Ledger()
            first.admit(*event.entries[0])
            if not self._accepts(first):
                return
            self._adopt(self._make(), Ledger(), None)
            if self._apply_all(event.entries):
                self._caught_up_to(event.end, sent)
        elif event.end is not None:  # it was trimmed since: there is a manifest now, or soon
            self._empty_since = None
            self._load_later()
        elif self.history.at is not None:  # Redis has lost everything, and this node has not
            self._compare_again()
        else:
            self._bootstrap()

    def _bootstrap(self) -> None:
        if self._is_empty_for(self.options.bootstrap):
            self._hello_at = self._now + self.options.hello
            payload = genesis(self.options.cluster, self._about())
            self._append(PendingWrite(Kind.GENESIS, payload), None)
        else:
            self._load_at = self._now + self.options.retry

    def _is_empty_for(self, seconds: float) -> bool:
        """Has nobody who has more than this node brought it to the empty Redis for so long?"""
        if self._empty_since is None:
            self._empty_since = self._now
        return self._now - self._empty_since >= seconds

    def _accepts(self, ledger: Ledger) -> bool:
        """Return whether a log may be followed: one of this cluster's name, and if this node has
        filters, the one that they were compared with."""
        if not self.ledger.writes:
            foreign = describe_foreign(ledger, self.options.cluster)
            if foreign:
                self._load_at = self._now + self.options.retry
                self._actions.append(m.Stop(foreign))
            return not foreign
        accepted = self._followed is not None and ledger.log == self._followed.log
        if not accepted:
            self._compare_again()
        return accepted

    def _adopt(self, replica: Replica, ledger: Ledger, last: Placed | None) -> None:
        """Have another copy from now on."""
        self._loading, self._reloaded, self._matched = False, True, True
        self._followed = None
        self._agree()
        self.replica, self.ledger = replica, ledger
        self.history = History(last, self.options.history_entries, ledger.wrote)
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
        busy = self._comparing is not None or self._is_asked(m.PutBack, m.Restore)
        if self._now < self._fetch_at or busy:
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
            if self._candidate is not None:
                self._verified(event)
            elif after is None:
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
        self._agree()
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
        if self.writes.rescued and verdict is Verdict.APPLY:
            self.writes.rescued.pop((entry.node, entry.op), None)
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
        if self._finding is not None and self._finding.course in (Course.ASK, Course.STOP):
            self._refuse(write, self._differs, True)
        elif event.needs > self.ledger.oldest_version():
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
        if busy or self._now < self._append_at:
            return
        rescued = self._next_rescued()
        if rescued is not None:
            self._append_rescued(rescued)
        elif self.writes.queue:
            self._append(self.writes.queue[0], self.history.at)

    def _next_rescued(self) -> LogEntry | None:
        """Return the next lost entry of another node. One whose node has gone on without it is
        appended as this node's own: its number does not count any more."""
        for key, entry in list(self.writes.rescued.items()):
            if entry.op > self.ledger.last_op(entry.node):
                return entry
            del self.writes.rescued[key]
            added = self._addition(entry.payload)
            if added is not None:
                self.writes.queue.append(PendingWrite(Kind.WRITE, added, self._now))
        return None

    def _append_rescued(self, entry: LogEntry) -> None:
        """Append another node's entry: under its number, so that it counts once, also if that node
        is alive and repeats it; and as an attempt that neither that node nor another one makes."""
        ref = self._ref()
        drawn = blake2b(self.node + ref.to_bytes(8, "little"), digest_size=8).digest()
        attempt = int.from_bytes(drawn, "little") | 1 << 63
        self._ask(m.Append(ref, self.history.at, replace(entry, attempt=attempt)), ref)

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
        write = self._own(action)
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

    def _own(self, action: m.Append) -> PendingWrite | None:
        """Return the write of this node that an entry is an attempt of, if it still waits."""
        return self.writes.find(action.entry.op) if action.entry.node == self.node else None

    def _append_denied(self, event: m.Fetched, action: m.Append, sent: float) -> None:
        """Its mark is not there, or a node restores the log: nothing was appended."""
        self._not_appended(action)
        self._append_at = max(self._append_at, self._now + self.options.retry)
        if action.after is None and event.end is None:  # a node with data is there: wait again
            self._empty_since, self._load_at = self._now, self._now + self.options.retry
        else:
            self._fetched(event, action.after, sent)

    def _not_appended(self, action: m.Append) -> PendingWrite | None:
        """Return the write of an attempt that never was and never will be in the log."""
        write = self._own(action)
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
        elif write.outcome is None and (
            verdict is Verdict.REPEAT or entry.payload != write.payload
        ):
            # A snapshot has it, or another node appended the part of it that adds.
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
        if self._comparing is not None or self._is_asked(m.PutBack, m.Restore):
            return
        if event.end is None:
            self._finding = None
            self._restore("Redis has lost the log; this node restores it", None)
            return
        missing = None if event.entries else self.history.missing(event.end)
        if missing:
            ref = self._ref()
            self._ask(m.PutBack(ref, event.end, missing), ref)
        elif self._finding is not None and self._finding.end == event.end:
            self._act(self._finding)
        else:  # trimmed, or others wrote where this node had something else
            if self._comparison is None:
                cluster = self.options.cluster
                self._comparison = LogComparison(self.ledger, self.history, cluster)
            ref = self._comparing = self._ref()
            self._ask(self._comparison.start(ref), ref)

    def _agree(self) -> None:
        """The log has the last entry of this copy: nothing is left to decide."""
        if self._comparing is not None:
            self._requests.pop(self._comparing, None)
        self._comparison = self._comparing = self._finding = self._decision = None
        self._restoring, self._unloadable_since = False, None
        self._differ("")

    def _differ(self, reason: str) -> None:
        if reason != self._differs:
            self._differs = reason
            self._actions.append(m.Differ(reason))

    def _compare(self, event: m.Event, action: m.Action) -> None:
        """Take the answer to a step of the comparison, and begin the next."""
        comparison = self._comparison
        assert comparison is not None
        step: m.Action | Finding | None = None
        ref, self._comparing = self._ref(), None
        match event, action:
            case m.ManifestRead(), _:
                step = comparison.manifest_read(event.manifest, ref)
            case m.LedgerRead(), m.ReadLedger():
                step = comparison.ledger_read(action.snapshot, event.ledger, ref)
            case m.SnapshotMissing(), _:
                step = comparison.ledger_missing(ref)
            case m.Fetched(), _:
                step = comparison.fetched(event, ref)
            case _:
                self._failed(action)
        if isinstance(step, Finding):
            self._found(step, comparison.newest)
        elif step is None:
            self._comparison, self._fetch_at = None, self._now + self.options.retry
        else:
            self._comparing = ref
            self._ask(step, ref)

    def _found(self, finding: Finding, newest: bytes) -> None:
        """Act on a finding; on one that no node can load the log only after a while: a node that
        has all of it is asked for a snapshot."""
        if finding.log:
            self._unloadable_since = None
        else:
            self._want_snapshot(newest)
            if self._unloadable_since is None:
                self._unloadable_since = self._now
            if self._now - self._unloadable_since < self.options.load_pause:
                self._comparison, self._fetch_at = None, self._now + 10 * self.options.retry
                return
        self._finding = finding
        self._act(finding)

    def _act(self, finding: Finding) -> None:
        """Do what a comparison, or an operator, has decided."""
        keep = None if self._decision is None else self._decision.keep
        if finding.course is Course.FOLLOW:
            self._follow_another(finding)
        elif finding.course is Course.RESTORE:
            self._restore("the log in Redis has lost writes; this node restores it", finding.end)
        elif finding.course is Course.STOP or keep is None:
            self._restoring, self._fetch_at = False, self._now + 10 * self.options.retry
            advice = "" if finding.course is Course.STOP else "; run bloomery nodes recover"
            self._differ(finding.reason + advice)
        elif keep:
            self._restore("an operator keeps the copy of this node", finding.end, force=True)
        else:
            self._discard()
            self._follow_another(finding)
            self._left = None

    def _discard(self) -> None:
        """Give up what this copy has and the log lacks, as an operator has decided."""
        waiting = [*self.writes.queue, *self.writes.unchanged]
        waiting += [rider for write in self.writes.queue for rider in write.riders]
        for write in waiting:
            self._refuse(write, "an operator discards this copy: it may be done, or not")
        self.writes = WriteQueue(self.options.retain)
        self._renew()

    def _renew(self) -> None:
        """Have another id: in a log that lacks some of a node's operations, later ones of it would
        hide that from nodes that have them."""
        self.node = blake2b(self.node, digest_size=8).digest()
        self.writes.renumber()

    def _follow_another(self, finding: Finding) -> None:
        """Load the log that Redis has, and add what it lacks."""
        self._followed = finding
        if not self._reloaded:  # else what was left before is still to be repeated
            self._left = self.history
        self._comparison = self._finding = self._decision = None
        self._start_loading()

    def _restore(self, reason: str, end: Mark | None, force: bool = False) -> None:
        """Replace what Redis has by this copy: claim that, so that no node begins a log or writes
        to the old one, then save the copy as a snapshot. `end`: of the stream that is replaced."""
        self._differ(reason if self.ledger.writes else "")
        self._fetch_at = self._now + self.options.retry
        self._restoring, self._replaced = True, end
        if self._is_asked(m.ClaimRestore):
            return
        # An empty Redis gets a copy that was current a moment ago; an older one if no node has
        # that, before any begins with nothing. What a comparison has found is of any age.
        willing = (
            end is not None
            or self._is_empty_for(self.options.bootstrap / 2)  # counts from the first look
            or self.may_answer(self._now)
        )
        ref = self._ref()
        seconds = self.options.claim
        self._ask(m.ClaimRestore(ref, self.node, end, seconds, willing, force), ref)

    def _claimed(self, event: m.Done) -> None:
        last = self.history.last
        busy = self._is_saving() or self._loading or self._now < self._save_at
        if not event.done or not self._restoring or last is None or busy:
            return
        ref = self._ref()
        snapshot = m.Snapshot(self.node + ref.to_bytes(8, "little"), last, self.ledger.count)
        self._ask(m.SaveSnapshot(ref, snapshot, self.ledger.to_bytes()), ref)

    def _is_saving(self) -> bool:
        """Is the copy on its way to replace what Redis has? The lease holder's own snapshot is not
        that: it does not restore anything, and must not keep this from being done."""
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
        elif event.done and self._restoring and snapshot.mark == self.history.at:
            self._settle()
            self._ask(m.Restore(ref, m.Manifest((snapshot,)), self._replaced), ref)
        elif event.done:  # it is not needed any more
            self._ask(m.DropSnapshot(ref, snapshot.id), ref)

    def _drop_refused(self, event: m.Done, manifest: m.Manifest) -> None:
        """Delete a copy that was saved in vain: another node was first."""
        if not event.done:
            ref = self._ref()
            self._ask(m.DropSnapshot(ref, manifest.snapshots[0].id), ref)

    def _repeat_lost_writes(self) -> None:
        """Queue what was acknowledged and the history that was loaded does not have: of this node,
        and of others, which may be dead, as far as this one had applied it."""
        self._reloaded = False
        left, self._left = self._left, None
        lost, complete = ([], True) if left is None else left.lost(self.ledger)
        if not complete:  # Redis lost more after the comparison than is kept here
            self._renew()
        acknowledged = {op: payload for op, payload, _ in self.writes.retained if op}
        others = [payload for op, payload, _ in self.writes.retained if not op]
        for entry in lost:
            # Its number does not count any more, or must not count for what comes before it.
            if not complete or entry.op <= self.ledger.last_op(entry.node):
                others.append(entry.payload)
            elif entry.node == self.node:
                acknowledged.setdefault(entry.op, entry.payload)
            elif added := self._addition(entry.payload):
                self.writes.rescued[entry.node, entry.op] = replace(entry, payload=added)
        last = self.ledger.last_op(self.node)
        numbered = [
            PendingWrite(Kind.WRITE, added, self._now, op=op)
            for op, payload in sorted(acknowledged.items())
            if op > last and (added := self._addition(payload))
        ]
        unnumbered = [
            PendingWrite(Kind.WRITE, added, self._now)
            for payload in others
            if (added := self._addition(payload))
        ]
        self.writes.repeat(numbered, unnumbered)

    def _addition(self, payload: bytes) -> bytes | None:
        """Return the part of a lost payload that adds something here, or None."""
        added = self.replica.additions(payload)
        return None if added is None or self.replica.unchanged(added) is not None else added

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
