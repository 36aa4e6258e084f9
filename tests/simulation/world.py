"""Nodes, Redis, clients and faults in virtual time: one seed, one history.

The real core runs in every node. Everything else is a model: the network delays, loses and repeats
nothing by itself but may deliver a request after its sender has given up; a store fails over and
loses what its replicas had not got; nodes crash, stop for a while, are cut off, and have clocks of
their own.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from bloomery.service.replication.core import messages as m
from bloomery.service.replication.core.entries import (
    Kind,
    LogEntry,
    Placed,
    Position,
    genesis,
)
from bloomery.service.replication.core.ledger import MAX_STEP_MS, Ledger
from bloomery.service.replication.core.node import Options, ReplicationCore
from simulation.checker import Checker, Violation, WriteRecord, held
from simulation.faults import OPTIONS, Faults
from simulation.model import ModelReplica, SmallReplica, parsed
from simulation.numbered import Operation
from simulation.numbered_checker import NumberedChecker
from simulation.store import FOREIGN, Store

TIMEOUT = 0.4  # seconds that a node waits for Redis
TICK = 0.1
START_MS = 100_000_000
NUMBERED_NAMES = ("x", "y", "z")


class SimulatedNode:
    """A node: the core, its clock, and its link to a store."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.starts = 0
        self.alive = False
        self.paused_until = 0.0
        self.cut_until = 0.0
        self.rate = world.random.uniform(0.97, 1.03)
        self.offset = world.random.uniform(0, 1e6)
        self.wall_offset = 0  # ms by which its wall clock is wrong
        self.store = world.primary
        self.linked: Store | None = None  # where it waited for news last
        self.strayed = -1.0  # when it last talked to a store that was no primary any more
        self.start()

    def start(self) -> None:
        """Start a process."""
        self.starts += 1
        self.id = bytes([self.number, self.starts]).ljust(8, b"\0")
        self.alive = True
        self.core = self.world.make_core(self)
        self.writes: dict[int, WriteRecord] = {}
        self.reads: dict[int, tuple[tuple[str, int], float]] = {}
        self.asked: dict[int, Store] = {}  # requests to Redis without an answer yet
        self.is_timed = False  # will the core be stepped when it wants to be?
        self.core_event(m.Tick())
        self.world.after(TICK, self.tick, self.id)

    def crash(self) -> None:
        """Be killed."""
        self.alive = False
        self.world.checker.crashed.add(self.id)

    @property
    def keys(self) -> set[tuple[str, int]]:
        """The keys that it has, also those that it adds again to a log that it loads."""
        core = self.core
        assert isinstance(core.replica, ModelReplica)
        left = core._left._recent if core._left else ()
        writes = [entry.payload for _, entry in left if entry.kind is Kind.WRITE]
        kept = [*writes, *(write.payload for write in core.writes.retained)]
        operations = [operation for payload in kept for operation in parsed(payload)]
        added = {(name, key) for op, name, keys in operations if op == "A" for key in keys}
        return core.replica.keys | added

    def wall_clock(self) -> float:
        """Its machine's wall clock, in ms."""
        return self.world.true_time() + self.wall_offset

    def clock(self) -> float:
        """Its own steady clock."""
        return self.offset + self.rate * self.world.now

    def tick(self, id: bytes) -> None:
        """Let the core see that time passes."""
        if self.alive and id == self.id:
            self.deliver(id, m.Tick())
            self.world.after(TICK, self.tick, id)

    def answer(self, id: bytes, event: Any) -> None:
        """Hand an answer of Redis over, unless it was given up."""
        if id == self.id and event.ref in self.asked:
            del self.asked[event.ref]
            self.deliver(id, event)

    def deliver(self, id: bytes, event: m.Event) -> None:
        """Hand an event to the process that it is for, when that runs."""
        if not self.alive or id != self.id:
            return
        if self.world.now < self.paused_until:
            wait = self.paused_until - self.world.now
            self.world.after(wait, self.deliver, id, event)
        else:
            self.core_event(event)

    def core_event(self, event: m.Event) -> None:
        """Step the core, and do what it says."""
        self.world.steps += 1
        for action in self.core.step(event, self.clock()):
            self._do(action)
        self.world.check_time(self.core.ledger)
        due = self.core.due
        if due is not None and not self.is_timed:
            self.is_timed = True
            self.world.after(max(0.0, due - self.clock()) / self.rate, self.wake, self.id)

    def wake(self, id: bytes) -> None:
        """Let the core look for news, unless what came meanwhile has put that off."""
        if id == self.id:
            self.is_timed = False
            self.deliver(id, m.Tick())

    def _do(self, action: m.Action) -> None:
        world = self.world
        match action:
            case m.Reply():
                record = self.writes.pop(action.request)
                strayed = self.strayed >= record.start
                world.checker.told(record, world.now, action.result, strayed)
            case m.Refuse():
                refused = self.writes.pop(action.request, None)
                if refused is not None:
                    refused.untouched = action.untouched
                    world.checker.told(refused, world.now, None)
                else:
                    self.reads.pop(action.request)
            case m.Answer():
                key, asked = self.reads.pop(action.request)
                if not self.has(key) and (self.core.options.confirm or self.strayed < asked):
                    world.judge(key).denied(key, asked, asked, world.now, "strong")
            case m.SetReady() | m.Differ() | m.Stuck():
                pass
            case m.Stop():
                raise Violation(action.reason)
            case _:
                world.send(self, action)

    def has(self, key: tuple[str, int]) -> bool:
        """Ask the copy."""
        replica = self.core.replica
        assert isinstance(replica, ModelReplica)
        if key[0] in NUMBERED_NAMES:
            filter = replica.numbered.names.get(key[0])
            return filter is not None and key[1] in filter.keys
        return key[1] in replica.filters.get(key[0], ())

    # Clients.

    def write(self, request: int, payload: bytes) -> None:
        """A client writes."""
        record = self.writes[request] = WriteRecord(self.id, payload, self.world.now)
        self.world.checker.wrote(record)
        self.core_event(m.Write(request, payload))

    def read_strong(self, request: int, key: tuple[str, int]) -> None:
        """A client asks for what holds for all."""
        self.reads[request] = (key, self.world.now)
        self.core_event(m.StrongRead(request))

    def read_local(self, key: tuple[str, int]) -> None:
        """A client asks this copy."""
        world, core = self.world, self.core
        if core.may_answer(self.clock()) and not self.has(key):
            horizon = world.now - core.options.max_lag / self.rate
            if self.strayed < horizon:
                world.judge(key).denied(key, world.now, horizon, world.now, "local")


class World:
    """One history."""

    def __init__(
        self,
        seed: int,
        core: type[ReplicationCore] = ReplicationCore,
        store: type[Store] = Store,
        faults: Faults | None = None,
        options: Options = OPTIONS,
        seconds: float = 3.0,
        replica: type[ModelReplica] = ModelReplica,
    ) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.steps = 0
        self.seconds = seconds
        self.confirm = self.random.random() < 0.4
        gather = (0.0, 0.005, 0.03)[seed % 3]  # seconds; a message takes some 0.004
        self.options = replace(options, confirm=self.confirm, gather=gather)
        self.checker = Checker(self.confirm)
        self.faults = faults or Faults()
        self.quiet = False  # no faults any more
        self.decisions = 0  # of an operator
        self.keepers: set[bytes] = set()  # nodes whose copies an operator keeps
        self.healed = False  # and the nodes agree
        self._core, self._store, self._model = core, store, replica
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._events = 0
        self._requests = 0
        self._stalled_until = 0.0
        self.clock_offset = START_MS
        self.jumps = 0  # of clocks, by hours
        self.has_wrong_store = seed % 2 == 0  # else nodes have wrong clocks, where clocks jump far
        self._waiting: list[tuple[Store, Callable[[], None]]] = []  # reads that wait for news
        self.primary = self.make_store([])
        self.slow = self.random.choice([1.0, 1.0, 5.0])
        self.keys = self.random.choice([4, 30])
        self.nodes = [SimulatedNode(self, 0)]
        while self.now < 0.2 or self.nodes[0].core.history.at is None:
            self._run_until(self.now + 0.2)
        self.nodes[0].core.options = self.options  # it waits like all others from now on
        self.nodes += [SimulatedNode(self, n) for n in range(1, self.random.randint(2, 4))]

    def make_core(self, node: SimulatedNode) -> ReplicationCore:
        """Return the core of a process."""
        options = self.options if self.now else replace(self.options, bootstrap=0.0)
        core = self._core(node.id, self._replica(node), options)
        core._wall = node.wall_clock
        return core

    def _replica(self, node: SimulatedNode) -> type[ModelReplica]:
        return SmallReplica if self.faults.huge and node.number == 1 else self._model

    def judge(self, key: tuple[str, int]) -> Checker | NumberedChecker:
        """Return what judges answers about a key."""
        return self.checker.numbered if key[0] in NUMBERED_NAMES else self.checker

    def make_store(self, journal: list[Any]) -> Store:
        """Return a store of a journal."""
        store = self._store(journal, self._wall_clock)
        store.on_append = lambda placed: self._appended(store, placed)
        return store

    def _wall_clock(self) -> int:
        return self.clock_offset + int(self.now * 1000)

    def true_time(self) -> int:
        """What all clocks would show if they were right, in ms."""
        return START_MS + int(1000 * self.now)

    def check_time(self, ledger: Ledger) -> None:
        """See that the log's time runs about as time does, whatever clocks show."""
        ahead = ledger.latest_ms - self.true_time()
        if ahead > MAX_STEP_MS * max(1, self.jumps) + 200 * (self.now + 3):
            raise Violation(f"the log's time is {ahead} ms ahead: filters end early")
        if self.quiet and self.healed and ahead < -8000 - 200 * self.now:
            raise Violation(f"the log's time is {-ahead} ms behind: filters do not end")

    # Virtual time.

    def after(self, seconds: float, function: Callable[..., None], *arguments: Any) -> None:
        """Have something done later."""
        self._events += 1
        heapq.heappush(self._queue, (self.now + seconds, self._events, function, arguments))

    def run(self) -> None:
        """Run the history, then heal everything, and see that all agree; Violation if not."""
        for node in self.nodes:
            self._client(node)
        self._fault()
        self._operate()
        self._run_until(self.seconds)
        self._heal()
        for _ in range(150):
            self._run_until(self.now + 0.2)
            if self._agree():
                self.healed = True
                break
        else:
            raise Violation("the nodes do not agree, long after the last fault")
        for node in self.nodes:
            self.check_time(node.core.ledger)
        self.checker.check_new()
        replica = self.nodes[0].core.replica
        assert isinstance(replica, ModelReplica)
        self.checker.check_kept(replica)
        self.checker.numbered.check_kept(replica.numbered, self.now)
        if not self.faults.lose:  # else the stream has lost some of them
            self.checker.check_decisions(self.primary, replica)

    def _run_until(self, end: float) -> None:
        while self._queue and self._queue[0][0] <= end:
            self.now, _, function, arguments = heapq.heappop(self._queue)
            function(*arguments)
        self.now = max(self.now, end)

    def _agree(self) -> bool:
        cores = [node.core for node in self.nodes]
        if len({core.history.at for core in cores}) > 1 or not all(core.ready for core in cores):
            return False
        if any(node.writes for node in self.nodes) or any(core.writes.queue for core in cores):
            return False
        copies = {(core.replica.dump(), core.ledger.to_bytes()) for core in cores}  # type: ignore[attr-defined]
        if len(copies) > 1:
            raise Violation("copies at the same position differ")
        return True

    # The network.

    def _delay(self) -> float:
        return self.random.expovariate(1 / (0.004 * self.slow))

    def send(self, node: SimulatedNode, action: Any) -> None:
        """Send a request to the node's store."""
        store, id, faults = node.store, node.id, self.faults
        if store is not self.primary:
            node.strayed = self.now
        if isinstance(action, m.Fetch) and action.wait and node.linked is not store:
            node.linked = store
            action = replace(action, wait=False)  # over a new connection it looks first
        wait = 0.3 if isinstance(action, m.Fetch) and action.wait else 0.0
        slowly = isinstance(action, m.SaveSnapshot | m.LoadSnapshot)
        node.asked[action.ref] = store
        # A node waits for a copy for as long as it takes.
        limit = wait + TIMEOUT * (1 + 3 * slowly) + faults.slow_copies * slowly
        self.after(limit, node.answer, id, m.Failed(action.ref))
        delay = self._delay() + (self.random.choice([0.02, 0.2, 0.8]) if slowly else 0.0)
        if slowly and faults.slow_copies:
            delay += self.random.uniform(0, faults.slow_copies)
        data = b""
        if isinstance(action, m.SaveSnapshot):
            replica = node.core.replica
            assert isinstance(replica, ModelReplica)
            data = action.ledger + b"\n" + replica.dump()
        if not self.quiet:
            if self.now < node.cut_until or self.random.random() < faults.lost:
                return
            if self.random.random() < faults.late:
                delay += self.random.uniform(0, 1.5)
        self.after(delay, self._execute, node, id, store, action, data)

    def _reply(self, node: SimulatedNode, id: bytes, event: m.Event) -> None:
        cut = self.now < node.cut_until or self.random.random() < self.faults.lost
        if self.quiet or not cut:
            self.after(self._delay(), node.answer, id, event)

    def _execute(
        self, node: SimulatedNode, id: bytes, store: Store, action: Any, data: bytes
    ) -> None:
        """Do a request at a store."""
        if not store.alive:
            return
        event: m.Event
        match action:
            case m.Fetch():
                if action.wait:
                    self._await_news(node, id, store, action, self.now + 0.3)
                    return
                event = store.fetch(action.ref, action.after)
            case m.Append() if self.faults.full and self._is_full():
                event = m.Refused(action.ref, "full")
            case m.Append():
                event = store.append(action)
                if isinstance(event, m.Appended) and self.confirm:
                    self._replicate(store)
                    self._confirm(node, id, store, event, len(store.journal), self.now + 0.25)
                    return
            case m.PutBack():
                event = store.put_back(action)
            case m.ReadManifest():
                event = m.ManifestRead(action.ref, store.manifest)
            case m.LoadSnapshot():
                loaded = store.load(action.snapshot.id)
                if loaded is None:
                    event = m.SnapshotMissing(action.ref)
                else:
                    ledger, _, dump = loaded.partition(b"\n")
                    replica = self._replica(node).load(dump)
                    event = m.SnapshotLoaded(action.ref, replica, ledger)
            case m.SaveSnapshot():
                store.save(action.snapshot.id, data)
                event = m.Done(action.ref, True)
            case m.SwapManifest():
                event = store.swap(action)
            case m.ReadLedger():
                loaded = store.load(action.snapshot.id)
                if loaded is None:
                    event = m.SnapshotMissing(action.ref)
                else:
                    event = m.LedgerRead(action.ref, loaded.partition(b"\n")[0])
            case m.ClaimRestore():
                event = store.claim_restore(action)
            case m.Restore():
                before = held(store)
                event = store.restore(action)
                if event.done and store is self.primary:
                    if action.end is None:  # nodes that have more than was left bring it yet
                        before -= {key for one in self.nodes if one.alive for key in one.keys}
                    decided = id in self.keepers
                    self.checker.restored_over(before, held(store), decided)
                    self.checker.restored(store, self.now)
                    self.checker.numbered.lost(self.now)
            case m.CheckStore():
                event = store.check(action.ref)
            case m.DropSnapshot():
                event = store.drop(action)
            case m.WantSnapshot():
                event = store.want(action)
            case _:
                raise AssertionError(action)
        if isinstance(event, m.Fetched | m.Appended):
            event = readable(event)
        self._replicate(store)
        self._reply(node, id, event)

    def _is_full(self) -> bool:
        return not self.quiet and self.random.random() < self.faults.full

    def _wait(self, store: Store, end: float, function: Callable[[], None]) -> None:
        """Call a function when a store has news, or at a time."""
        waiting = (store, function)
        self._waiting.append(waiting)

        def over() -> None:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                function()

        self.after(end - self.now, over)

    def _await_news(
        self, node: SimulatedNode, id: bytes, store: Store, action: m.Fetch, end: float
    ) -> None:
        """Answer a fetch when something is behind its position, or at a time."""
        if not store.alive:
            return
        if self.now < end and not store.has_behind(action.after):
            self._wait(store, end, lambda: self._await_news(node, id, store, action, end))
        else:
            self._reply(node, id, readable(store.fetch(action.ref, action.after)))

    def _appended(self, store: Store, placed: Placed) -> None:
        self.checker.appended(placed, store is self.primary, self.now)
        woken = [one for one in self._waiting if one[0] is store]
        self._waiting = [one for one in self._waiting if one[0] is not store]
        for _, function in woken:
            self.after(0.0, function)

    def _replicate(self, store: Store) -> None:
        steps = len(store.journal)
        if store.replicated < steps and store is self.primary:
            self.after(self.random.expovariate(1 / 0.01), self._replicated, store, steps)

    def _replicated(self, store: Store, steps: int) -> None:
        if store is not self.primary or not store.alive:
            return
        if self.now < self._stalled_until:
            self.after(self._stalled_until - self.now, self._replicated, store, steps)
        else:
            store.replicated = max(store.replicated, steps)

    def _confirm(
        self,
        node: SimulatedNode,
        id: bytes,
        store: Store,
        event: m.Appended,
        steps: int,
        end: float,
    ) -> None:
        """Answer when the replicas have it, or have not got it in time (WAIT)."""
        if not store.alive:
            return
        if store.replicated >= steps or self.now >= end:
            self._reply(node, id, replace(event, replicated=store.replicated >= steps))
        else:
            self.after(0.01, self._confirm, node, id, store, event, steps, end)

    # Clients.

    def _client(self, node: SimulatedNode) -> None:
        """Do something at a node, and go on later."""
        if self.quiet:
            return
        random = self.random
        self.after(random.expovariate(12.0), self._client, node)
        if not node.alive or self.now < node.paused_until:
            return
        self._requests += 1
        if self.faults.numbered and random.random() < self.faults.numbered:
            self._use_numbered(node)
            return
        name = random.choice(["a", "a", "b"])
        keys = [random.randrange(self.keys) for _ in range(random.choice([1, 1, 3]))]
        what = random.random()
        if self.faults.huge and random.random() < self.faults.huge:
            node.write(self._requests, b"H huge")
        elif what < 0.45:
            node.write(self._requests, f"A {name} {' '.join(map(str, keys))}".encode())
        elif what < 0.7:
            node.read_strong(self._requests, (name, keys[0]))
        elif what < 0.98 - self.faults.clear:
            node.read_local((name, keys[0]))
        elif what < 0.98:
            node.write(self._requests, b"C b")
        elif what < 0.99:
            node.write(self._requests, b"E b 500")
        if node.core.holds_lease and random.random() < 0.1:
            node.core_event(m.Decide(f"D {node.id.hex()}".encode()))

    def _use_numbered(self, node: SimulatedNode) -> None:
        """Do something with a filter that has a number, which the client's node looks up."""
        random, replica, request = self.random, node.core.replica, self._requests
        assert isinstance(replica, ModelReplica)
        filters = replica.numbered.names
        name, to = random.sample(NUMBERED_NAMES, 2)
        keys = tuple({random.randrange(self.keys) for _ in range(random.choice([1, 1, 3]))})
        op = random.choice("ssssssssttttaaaaaaaaaanrrkkkmdcll")
        if op == "s":
            node.read_strong(request, (name, keys[0]))
            return
        if op == "t":
            node.read_local((name, keys[0]))
            return
        if op == "l":  # a saved filter that has most keys of the one that it replaces
            held = filters[name].keys if name in filters else set()
            one = Operation("l", name, request, keys=tuple(sorted(held | set(keys))))
        elif op == "n" or name not in filters:
            one = Operation("n", name, request)
        elif op == "a":
            one = Operation("a", name, filters[name].number, keys=keys)
        elif op == "m" and to in filters:
            one = Operation("m", name, filters[name].number, to, filters[to].number)
        elif op in "rk":
            replaces, new = random.random() < 0.3, request if op == "k" else 0
            one = Operation(op, name, filters[name].number, to, new, replaces)
        else:
            one = Operation(random.choice("cd"), name, filters[name].number)
        node.write(request, one.payload)

    # Faults.

    def _fault(self) -> None:
        """Let one thing go wrong, and go on later."""
        if self.quiet:
            return
        faults, random = self.faults, self.random
        chances = {
            self._crash: faults.crash * len(self.nodes),
            self._pause: faults.pause * len(self.nodes),
            self._cut: faults.cut * len(self.nodes),
            self._failover: faults.failover,
            self._empty: faults.empty,
            self._stall: faults.stall,
            self._damage: faults.damage,
            self._jump: faults.clock_jump,
            self._rewind: faults.rewind,
            self._lead_astray: faults.stray,
            self._jump_far: faults.hours,
            self._add_foreign: faults.foreign,
            self._lose: faults.lose,
        }
        total = sum(chances.values())
        if total:
            [fault] = random.choices(list(chances), list(chances.values()))
            fault()
            self.after(random.expovariate(total), self._fault)

    def _crash(self) -> None:
        node = self.random.choice(self.nodes)
        if node.alive:
            node.crash()
            self.after(self.random.uniform(0.05, 1.5), self._revive, node)

    def _revive(self, node: SimulatedNode) -> None:
        if not node.alive:
            node.store = self.primary
            node.start()

    def _pause(self) -> None:
        node = self.random.choice(self.nodes)
        node.paused_until = self.now + self.random.choice([0.1, 0.6, 2.0])

    def _cut(self) -> None:
        node = self.random.choice(self.nodes)
        node.cut_until = self.now + self.random.choice([0.1, 0.6, 2.0])

    def _stall(self) -> None:
        self._stalled_until = self.now + self.random.choice([0.05, 0.3, 1.0])

    def _jump(self) -> None:
        self.clock_offset += self.random.choice([-500, -50, 50, 500])

    def _damage(self) -> None:
        manifest = self.primary.manifest
        if manifest is not None and len(manifest.snapshots) == 2:
            newest, older = manifest.snapshots
            if self.primary.load(older.id) is not None:
                self.primary.chunks[newest.id] = b"damaged"

    def _jump_far(self) -> None:
        far = self.random.choice([-7_200_000, 7_200_000])
        self.jumps += 1
        if self.has_wrong_store:  # if both are wrong, no node can know
            self.clock_offset = START_MS if self.clock_offset != START_MS else START_MS + far
        else:
            node = self.random.choice(self.nodes)
            node.wall_offset = 0 if node.wall_offset else abs(far)

    def _add_foreign(self) -> None:
        for _ in range(self.random.choice([1, 3, 40])):
            ahead = self.random.choice([0, 0, 0, 7_200_000])
            at = self._wall_clock() + ahead
            end = self.primary.end
            last = Position(0, 0) if end is None else end.position
            after = Position(last.ms, last.seq + 1)
            self.primary.add_foreign(max(after, Position(at, 0)))

    def _lose(self) -> None:
        """Lose what a node needs to start."""
        store, random = self.primary, self.random
        if not any(node.core.ready and node.core.history.at == store.end for node in self.nodes):
            return  # nobody has it all
        before = self.make_store(store.journal)
        what = random.choice(["chunks", "manifest", "stream", "stream"])
        if what == "chunks" and store.manifest is not None:
            for snapshot in store.manifest.snapshots:
                store.lose("drop", snapshot.id)
        elif what == "manifest":
            store.lose("manifest", None)
        elif what == "stream" and store.stream:
            last = store.stream[-1].position
            store.lose("trim", random.choice([last, Position(last.ms, last.seq + 1)]))
        self.checker.replaced(before, store, failover=False)
        self.checker.numbered.lost(self.now)

    def _failover(self) -> None:
        old = self.primary
        kept = self.random.randint(old.replicated, len(old.journal))
        self._replace(old.journal[: self.random.choice([old.replicated, kept])], failover=True)

    def _empty(self) -> None:
        self._replace([], failover=False)

    def _rewind(self) -> None:
        journal = self.primary.journal
        if journal:
            self._replace(journal[: self.random.randint(1, len(journal))], failover=False)

    def _lead_astray(self) -> None:
        """Point a node that has filters at the Redis of another cluster, for a while."""
        node = self.random.choice(self.nodes)
        if not node.alive or not node.core.ledger.writes or node.store is not self.primary:
            return
        other = self._store([], self._wall_clock)
        for attempt, (kind, payload) in enumerate(
            [
                (Kind.GENESIS, genesis(self.random.choice(["", "another"]), b"")),
                (Kind.WRITE, b"A x 1 2 3"),
                (Kind.WRITE, b"A a 1000"),
            ],
            1,
        ):
            entry = LogEntry(b"stranger", attempt, attempt, kind, payload)
            end = other.end
            other.append(m.Append(0, end, entry))
        other.on_append = self._trespass
        node.store = other
        self.after(self.random.uniform(0.2, 2.5), self._end_stray, node, other)

    def _trespass(self, placed: Placed) -> None:
        raise Violation(f"a node wrote to the log of another cluster: {placed}")

    def _end_stray(self, node: SimulatedNode, other: Store) -> None:
        if node.store is other:
            node.store = self.primary
        self._end_store(other)

    def _operate(self) -> None:
        """An operator decides where nodes ask for it."""
        self.after(0.5, self._operate)
        asking = [
            node
            for node in self.nodes
            if node.alive and node.core.dilemma and node.store is self.primary
        ]
        if not asking:
            return
        self.decisions += 1
        node, keep = self.random.choice(asking), self.random.random() < 0.5
        if keep:
            self.keepers.add(node.id)
        else:
            lost = node.keys - held(self.primary)
            self.checker.give_up({key for key in lost if not key[0].startswith("b")})
        node.core_event(m.Recover(keep))

    def _replace(self, journal: list[Any], failover: bool) -> None:
        old = self.primary
        self.primary = self.make_store(journal)
        self.checker.replaced(old, self.primary, failover)
        if not (failover and self.confirm):
            self.checker.numbered.lost(self.now)
        # Who still talks to the old one is answered for a while: it does not know yet either.
        split = failover and self.random.random() < self.faults.split
        for node in self.nodes:
            strays = split and self.random.random() < 0.5
            self.after(self.random.uniform(0.1, 0.8) if strays else 0.0, self._switch, node)
        if split:
            self.after(0.8, self._end_store, old)
        else:
            self._end_store(old)

    def _switch(self, node: SimulatedNode) -> None:
        node.store = self.primary

    def _end_store(self, store: Store) -> None:
        """Break all connections to a store."""
        store.alive = False
        for node in self.nodes:
            for ref, asked in list(node.asked.items()):
                if asked is store:
                    self.after(self._delay(), node.answer, node.id, m.Failed(ref))

    def _heal(self) -> None:
        """End all faults; one more node starts, from what Redis has."""
        self.quiet = True
        self._stalled_until = 0.0
        for node in self.nodes:
            if node.store is not self.primary:
                self._end_store(node.store)
            node.cut_until = 0.0
            node.paused_until = min(node.paused_until, self.now)
            node.store = self.primary
            self._revive(node)
        self.nodes.append(SimulatedNode(self, len(self.nodes)))


def readable(event: Any) -> Any:
    """Return what a node can make of an answer that may have an entry that no node wrote."""
    if any(placed.entry is FOREIGN for placed in event.entries):
        return m.Unreadable(event.ref)
    return event
