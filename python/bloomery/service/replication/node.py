"""A node: the same server as one alone, with another log. It applies a stream of Redis that all
nodes share, answers from what that makes, and appends what its clients write.

    turns ──Write──> ┌──────┐ ──Append, Fetch, …──> RedisLog
    reads ─Strong──> │ core │ <──Appended, Fetched, …──
                     └──────┘ ──Reply, Answer, Refuse──> clients

The core (`core/`) decides everything and does no I/O; here are the tasks that do.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from bloomery import _native, errors
from bloomery.boottime import boottime
from bloomery.service.config.settings import Settings
from bloomery.service.domain import operations
from bloomery.service.domain.operations import Op, Record
from bloomery.service.engine import Engine
from bloomery.service.observe.logs import Say
from bloomery.service.policy.alerts import Alerts
from bloomery.service.replication import dumps
from bloomery.service.replication.core import messages as m
from bloomery.service.replication.core.ledger import UNIT
from bloomery.service.replication.core.node import Options, ReplicationCore
from bloomery.service.replication.cuts import split_batch
from bloomery.service.replication.members import list_members
from bloomery.service.replication.redis_log.chunks import read_chunks
from bloomery.service.replication.redis_log.log import LogAction, RedisLog
from bloomery.service.replication.replica import FilterReplica, Results
from bloomery.service.replication.snapshot_writer import SnapshotWriter
from bloomery.service.replication.store_health import Outage, StoreHealth
from bloomery.service.sequencer import Sequencer

_T = TypeVar("_T")
VERSION = 1  # which operations this bloomery knows
_TICK = 0.02  # seconds
_LONG = 1e9  # seconds
_SAVING = 600.0  # seconds that who asks for a snapshot waits
_NUMBER_BITS = 52  # of a filter's number: a double in JSON holds it
_PACE = 0.001  # seconds between two batches of many clients, at least
_STOPPING = 1.0  # seconds for what is under way to end
_SNAPSHOT_RETRY = 5.0  # seconds: each attempt forks this process


@dataclass(slots=True)
class _Sending:
    """A batch on its way, in parts."""

    number: int
    parts: list[list[Record]]
    done: int = 0
    results: list[Any] = field(default_factory=list)


class Node:
    """The link between a server and the log that it shares with others."""

    def __init__(
        self,
        settings: Settings,
        say: Say,
        alerts: Alerts,
        describe: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        """`describe` returns what the other nodes are told of this one."""
        self.id = secrets.token_bytes(8)
        self.settings, self.say, self.alerts = settings, say, alerts
        self.broken = ""  # why this node cannot follow any more
        self._differs = ""  # how the log in Redis differs from what this node has
        self._obstacles: dict[str, str] = {}  # why it cannot follow now, by the kind of the alert
        self.loads = 0
        self._describe = describe
        self._log = RedisLog(
            settings.store,
            settings.store_prefix,
            timeout=settings.store_timeout_ms / 1000,
            min_replicas=settings.store_min_replicas,
            wait=min(1.0, settings.store_max_lag_ms / 4000),
        )
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._store = StoreHealth(alerts)
        self._snapshots = SnapshotWriter(settings, say)
        self._reads: dict[int, asyncio.Future[None]] = {}
        self._read_numbers = itertools.count(-1, -1)  # turns have those above 0
        self._caught_up = asyncio.Event()
        self._saved: asyncio.Future[None] | None = None  # who waits for a snapshot
        self._ticking: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None  # of the core's next look for news
        self._sending: _Sending | None = None  # the batch on its way

    # Set by follow().
    engine: Engine
    sequencer: Sequencer
    core: ReplicationCore

    def follow(self, engine: Engine) -> Sequencer:
        """Apply the shared log to an engine; return the sequencer of its writes."""
        self.engine = engine
        engine.state.numbers_are_drawn = True
        settings = self.settings
        options = Options(
            version=VERSION,
            cluster=settings.store_cluster,
            confirm=settings.store_min_replicas > 0,
            max_lag=settings.store_max_lag_ms / 1000,
            write_timeout=settings.store_timeout_ms / 1000,
            retain=float(settings.store_replay_seconds),
            bootstrap=settings.store_bootstrap_seconds,
            snapshot_retry=_SNAPSHOT_RETRY,
        )
        self.core = ReplicationCore(
            self.id, lambda: FilterReplica(engine), options, self._about, lambda: 1000 * time.time()
        )
        self.sequencer = Sequencer(engine, self, _PACE)
        engine.on_tick.subscribe(self._watch)
        return self.sequencer

    async def start(self) -> None:
        """Return when this node has all that the log has; StoreUnavailable if it never will."""
        self._ticking = asyncio.create_task(self._tick())
        await self._caught_up.wait()
        self._check()

    async def save(self) -> None:
        """Return when Redis has a snapshot of now, by this node if it holds the lease; else the one
        that does makes them."""
        if not self.holds_lease:
            return
        if self._saved is None:
            self._saved = self._loop.create_future()
        try:
            await asyncio.wait_for(asyncio.shield(self._saved), _SAVING)
        except asyncio.TimeoutError:
            raise errors.SnapshotFailed("Redis has no snapshot yet: see the log") from None

    def introduce(self) -> None:
        """Tell the other nodes where clients find this one."""
        self.core.introduce()

    async def stop(self) -> None:
        """Follow no more; what is under way has a moment to end."""
        if self._ticking is not None:
            self._ticking.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self.broken = self.broken or "it is stopped"
        self._watch()
        self._snapshots.kill()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_STOPPING)
        await self._log.close()

    async def _tick(self) -> None:
        while True:
            # A snapshot costs as much as there are filters: not for less than half of that.
            stream = max(self.settings.store_stream_bytes, _native.memory_used() // 2)
            self.core.set_snapshot_entries(1 if self._saved is not None else stream // UNIT)
            self._step(m.Tick())
            await asyncio.sleep(_TICK)

    # What the server asks of it.

    @property
    def may_answer(self) -> bool:
        """Is the copy recent enough for reads that need not be strong?"""
        return not self.obstacle and self.core.may_answer(boottime())

    @property
    def obstacle(self) -> str:
        """Return why this node cannot follow; "" if it can."""
        return self.broken or next(iter(self._obstacles.values()), "")

    @property
    def holds_lease(self) -> bool:
        """Does this node hold the lease, and so decide for all?"""
        return not self.broken and self.core.holds_lease

    @property
    def log_id(self) -> str:
        """Which log all nodes share, as long as any of them has it; "" before it is known."""
        return self.core.ledger.log.hex()

    # The log of the sequencer.

    exclusive = False

    def now(self) -> float:
        """Return the time that all nodes agree on: that of the last entry."""
        return self.engine.state.now

    def running(self) -> float:
        """Return that time with what has passed since the entry."""
        return max(self.engine.state.now, self.core.time(boottime()) / 1000)

    async def finished(self, names: Iterable[bytes] | None = None) -> None:
        """Do nothing: no thread applies records of a node."""

    def draw_number(self) -> int:
        """Return a number that no other node draws: operations of several nodes arrive in an order
        that none of them knows."""
        return 1 + secrets.randbits(_NUMBER_BITS)

    def check(self, op: Op) -> None:
        """Raise if this node cannot follow, or another node does not know the operation: in a
        batch, all operations would be refused."""
        self._check()
        if not self._is_known(op):
            raise errors.StoreUnavailable(
                f"a node of an older version does not know {op.name}; upgrade all nodes"
            )

    def append(self, number: int, records: list[Record]) -> None:
        """Append a batch as one entry of the log, or as several if it is large."""
        self._sending = _Sending(number, split_batch(records))
        self._send_part()

    def _send_part(self) -> None:
        sending = self._sending
        assert sending is not None
        if self.obstacle:
            problem = errors.StoreUnavailable(self.obstacle)
            self._loop.call_soon(self._refused, sending.number, problem)
            return
        records = sending.parts[sending.done]
        needs = max(operations.SINCE.get(op, 1) for _, op, _ in records)
        self._step(m.Write(sending.number, _native.pack_records(records), needs))

    def _applied(self, number: int, results: list[Any]) -> None:
        sending = self._sending
        if sending is None or sending.number != number:
            return
        sending.results += results
        sending.done += 1
        if sending.done < len(sending.parts):
            self._send_part()
        else:
            self._sending = None
            self.sequencer.applied(number, sending.results)

    def _refused(self, number: int, problem: errors.BloomeryError) -> None:
        sending, self._sending = self._sending, None
        if sending is not None and sending.done:
            problem = errors.StoreUnavailable(f"{problem}; some of it may be done")
        self.sequencer.refused(number, problem)

    async def catch_up(self) -> None:
        """Return when this copy has all that was acknowledged before; else StoreUnavailable."""
        self._check()
        number = next(self._read_numbers)
        future = self._reads[number] = self._loop.create_future()
        self._step(m.StrongRead(number))
        try:
            await future
        finally:
            self._reads.pop(number, None)

    def decide(self, op: Op, filter_id: int, data: bytes) -> None:
        """As the lease holder, do an operation that no client asked for. It counts only if this
        node still holds the lease when it is applied."""
        if self._is_known(op):  # else later: what is due is looked at again
            self._step(m.Decide(_native.pack_records([(filter_id, op, data)])))

    def _is_known(self, op: Op) -> bool:
        """Do all nodes that are there know this operation?"""
        since = operations.SINCE.get(op, 1)
        return since == 1 or since <= self.core.ledger.oldest_version()

    def _check(self) -> None:
        if self.obstacle:
            raise errors.StoreUnavailable(f"this node cannot follow the others: {self.obstacle}")

    def _watch(self) -> None:
        """Let native code answer until the copy is too old. Called in each step and each tick."""
        strong = self.settings.store_consistency == "strong"
        bypassed = strong or not self.may_answer
        if bypassed is not self.engine.shelf.bypassed:
            self.engine.shelf.bypassed = bypassed
        if self.core.fresh is not None:
            # Native code compares with a clock that stops while the machine is suspended: until the
            # next tick, for 20 ms, it may answer from what it had.
            left = self.core.fresh + self.core.options.max_lag - boottime()
            self.engine.shelf.set_stale(time.monotonic() + left)

    def recover(self, keep: bool) -> str:
        """Decide which log to keep: that of this node, or that in Redis. Return the reason why an
        operator has to. InvalidRequest if none has to."""
        self._check()
        reason = self.core.dilemma
        if not reason:
            raise errors.InvalidRequest(
                self._differs or "nothing to decide: the log in Redis has what this node has"
            )
        self.say(f"an operator {'keeps' if keep else 'discards'} the copy of this node: {reason}")
        self._step(m.Recover(keep))
        return reason

    def _differ(self, reason: str) -> None:
        """Raise the alert that the log in Redis lacks what this node has, or end it."""
        self.alerts.end("store-differs", "the log in Redis has what this node has")
        self._differs = reason
        if reason:
            self.alerts.begin("store-differs", reason)

    # How it is.

    def unfit(self) -> str | None:
        """Why it should not be asked now; None if it may."""
        if self.obstacle:
            return self.obstacle
        if self.core.ready:
            return None
        return self._differs or self.refusal or "behind the other nodes"

    @property
    def refusal(self) -> str:
        """Why nothing can be written; "" if it can."""
        return self._store.refusal

    @property
    def lag(self) -> float:
        """For how many seconds this node has not known that it has all; infinite: it never did."""
        fresh = self.core.fresh
        return float("inf") if fresh is None else max(0.0, boottime() - fresh)

    def mark(self, strong: bool) -> bytes:
        """What is said beside an answer: how old it may be."""
        return b"strong" if strong else b"local; seconds=%.3f" % self.lag

    def members(self) -> list[dict[str, Any]]:
        """The nodes that were heard of within a minute, as they told of themselves."""
        return list_members(self.core.ledger, self.id, VERSION)

    def figures(self) -> dict[str, float | None]:
        """What is measured of it."""
        members = self.members()
        return {
            "up": float(self._store.outage is None),
            "outage_seconds": self._store.outage_seconds,
            "behind_seconds": None if self.core.fresh is None else self.lag,
            "loads": float(self.loads),
            "entries": float(self.core.ledger.count),
            "nodes": float(len(members)),
            "older_nodes": float(sum(member["operations"] < VERSION for member in members)),
            "holds_lease": float(self.holds_lease),
        }

    def _about(self) -> bytes:
        """What is told to the other nodes."""
        at, lag = self.core.history.at, self.lag
        place = "" if at is None else f"{at.position.ms}-{at.position.seq}"
        about = {"position": place, "lag_seconds": round(lag, 3) if lag < _LONG else None}
        return json.dumps({**about, **self._describe()}).encode()

    # The core, and what it wants done.

    def _step(self, event: m.Event) -> None:
        if self.broken:
            return
        try:
            actions = self.core.step(event, boottime())
            self._watch()  # before filters are exchanged: native code answers from them
            # What was loaded is answered from now on, also if no entry changes it.
            cast("FilterReplica", self.core.replica).adopt()
            for action in actions:
                if not self.broken:  # else those who wait were told
                    self._do(action)
        except Exception as problem:  # noqa: BLE001  # the copy may be half changed
            self._break(f"{type(problem).__name__}: {problem}")
            self.say("this node cannot go on", level="error", problem=problem)
        if self._timer is None and (due := self.core.due) is not None:
            self._timer = self._loop.call_later(max(0.0, due - boottime()), self._wake)

    def _wake(self) -> None:
        """Let the core look for news, unless what came meanwhile has put that off."""
        self._timer, due = None, self.core.due
        if due is None or self.broken:
            return
        left = due - boottime()
        if left > 0:
            self._timer = self._loop.call_later(left, self._wake)
        else:
            self._step(m.Tick())

    def _do(self, action: m.Action) -> None:
        match action:
            case m.Reply():
                results: Results = action.result
                if results.repeats:
                    self.engine.repeats.update(results.repeats)
                self._applied(action.request, results.each)
            case m.Answer():
                future = self._reads.get(action.request)
                if future is not None and not future.done():
                    future.set_result(None)
            case m.Refuse():
                self._refuse(action)
            case m.SetReady():
                if action.ready:
                    self._remove_obstacle("memory-short", "the filters are loaded again")
                    self._caught_up.set()
            case m.Stuck():
                self._add_obstacle("memory-short", action.reason)
            case m.Stop():
                self._break(action.reason)
            case m.SaveSnapshot():
                self._begin_saving(action)
            case m.LoadSnapshot():
                self._start(self._load(action))
            case m.ReadLedger():
                self._start(self._read_ledger(action))
            case m.Differ():
                self._differ(action.reason)
            case _:
                self._start(self._perform(action))

    def _refuse(self, action: m.Refuse) -> None:
        kind = errors.StoreRefused if action.unwilling else errors.StoreUnavailable
        problem = kind(action.reason)
        if action.request > 0:
            self._refused(action.request, problem)
        else:
            future = self._reads.get(action.request)
            if future is not None and not future.done():
                future.set_exception(problem)

    def _start(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _perform(self, action: LogAction) -> None:
        try:
            event = await self._log.perform(action)
        except errors.UnsupportedVersion as problem:
            self._break(str(problem))
            return
        except errors.CorruptData as problem:
            remedy = "if it is no node's, delete it (XDEL), and all nodes go on"
            self._add_obstacle("store-damaged", f"{problem}; {remedy}")
            self._step(m.Unreadable(action.ref))
            return
        except Exception as problem:  # noqa: BLE001  # or it would wait for this answer for ever
            self.say("Redis could not be asked", level="error", problem=problem)
            self._store.failed(f"{type(problem).__name__}: {problem}")
            self._step(m.Failed(action.ref))
            return
        self._note_health(event)
        if isinstance(event, m.Fetched):
            self._remove_obstacle("store-damaged", "the log can be read again")
        self._step(event)
        if isinstance(action, m.SwapManifest):
            self._tell_saved(isinstance(event, m.Done) and event.done)

    def _tell_saved(self, done: bool) -> None:
        """Tell who waits for a snapshot."""
        waiting, self._saved = self._saved, None
        if waiting is None or waiting.done():
            return
        if done:
            waiting.set_result(None)
        else:
            waiting.set_exception(errors.SnapshotFailed("Redis did not take it: try again"))
            waiting.exception()  # nobody may wait any more

    def _note_health(self, event: m.Event) -> None:
        """Note whether Redis answers, and takes writes."""
        if isinstance(event, m.StoreChecked):
            self._store.checked(event, self.core.redis_ahead(boottime()))
        if not isinstance(event, (m.Failed, m.Refused)):
            self._store.answered(wrote=isinstance(event, (m.Appended, m.Done)))
        elif self._log.problem:  # else it was not asked: too large an entry
            outage = Outage.READ_ONLY if self._log.unwilling else Outage.UNREACHABLE
            self._store.failed(self._log.problem, outage)

    def _add_obstacle(self, kind: str, reason: str) -> None:
        """Answer nothing until what is in the way, an alert of this kind, is removed."""
        if kind not in self._obstacles:
            self.alerts.begin(kind, f"this node cannot follow the others: {reason}")
        self._obstacles[kind] = reason
        self._watch()

    def _remove_obstacle(self, kind: str, why: str) -> None:
        if self._obstacles.pop(kind, None) is not None:
            self.alerts.end(kind, why)

    def _break(self, reason: str) -> None:
        """Follow no more: nothing that this node has can be relied on."""
        self.broken = reason
        self._watch()  # native code answers nothing more
        self.alerts.begin("store-unavailable", f"this node cannot follow the others: {reason}")
        problem = errors.StoreUnavailable(reason)
        for future in self._reads.values():
            if not future.done():
                future.set_exception(problem)
        self._sending = None
        self.sequencer.refuse_all(problem)
        self._caught_up.set()  # who waits sees that it is unfit

    # Snapshots.

    def _begin_saving(self, action: m.SaveSnapshot) -> None:
        try:
            pid = self._snapshots.begin(action, self.engine.state)
        except OSError as problem:
            self.say("a snapshot could not be begun", level="warning", problem=problem)
            self._loop.call_soon(self._step, m.Failed(action.ref))
            return
        self._start(self._save(action, pid))

    async def _save(self, action: m.SaveSnapshot, pid: int) -> None:
        written = await self._snapshots.wait(pid)
        if not written:
            self._tell_saved(False)
        self._step(m.Done(action.ref, True) if written else m.Failed(action.ref))

    async def _load(self, action: m.LoadSnapshot) -> None:
        loaded = await self._read(action, dumps.load)
        if loaded is not None:
            entries, now, ledger = loaded
            self.loads += 1
            replica = FilterReplica(self.engine, entries, now)
            self._step(m.SnapshotLoaded(action.ref, replica, ledger))

    async def _read_ledger(self, action: m.ReadLedger) -> None:
        ledger = await self._read(action, dumps.read_ledger)
        if ledger is not None:
            self._step(m.LedgerRead(action.ref, ledger))

    async def _read(
        self,
        action: m.LoadSnapshot | m.ReadLedger,
        parse: Callable[[Iterator[memoryview]], _T],
    ) -> _T | None:
        """Return what a thread makes of a snapshot's chunks; None: the core knows why not."""
        store, prefix, id = self.settings.store, self.settings.store_prefix, action.snapshot.id
        try:
            return await asyncio.to_thread(lambda: parse(read_chunks(store, prefix, id)))
        except errors.CorruptData as problem:
            self.say(f"a snapshot in Redis is damaged: {problem}", level="error")
            self._step(m.SnapshotMissing(action.ref))
        except errors.NotEnoughMemory as problem:
            self._add_obstacle("memory-short", str(problem))
            self._step(m.Failed(action.ref))
        except errors.BloomeryError as problem:
            self._store.failed(str(problem))
            self._step(m.Failed(action.ref))
        except Exception as problem:  # noqa: BLE001  # or nothing would be loaded ever again
            self.say("a snapshot in Redis cannot be read", level="error", problem=problem)
            self._step(m.SnapshotMissing(action.ref))
        return None
