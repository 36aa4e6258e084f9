"""The core and the scripts, each broken on purpose in one place: the checker sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from bloomery.service.replication.core import messages as m
from bloomery.service.replication.core.comparison import Course, Finding
from bloomery.service.replication.core.entries import Kind, LogEntry, Mark, Placed
from bloomery.service.replication.core.ledger import Ledger
from bloomery.service.replication.core.node import Options, ReplicationCore
from bloomery.service.replication.core.replica import Replica
from bloomery.service.replication.core.snapshots import SnapshotKeeper
from bloomery.service.replication.core.writes import PendingWrite
from simulation.checker import Violation
from simulation.faults import (
    CHECKED,
    HASTY,
    NUMBERED,
    NUMBERED_LOST,
    OFTEN_CLEARED,
    OFTEN_CUT,
    OFTEN_DAMAGED,
    OFTEN_EMPTY,
    OFTEN_FOREIGN,
    OFTEN_HOURS,
    OFTEN_HUGE,
    OFTEN_INCOMPLETE,
    OFTEN_LOST,
    OFTEN_PAUSED,
    OFTEN_REWOUND,
    OFTEN_STRAY,
    OPTIONS,
    SHORT_OF_HISTORY,
    SLOW,
    SOON_FORGOTTEN,
    UNSETTLED,
    Faults,
)
from simulation.model import ModelReplica
from simulation.numbered import NumberedFilter, NumberedFilters, Operation, Reply, operation
from simulation.store import Store
from simulation.world import World

MOST = 800  # histories in which a break must show; the rarest is in two of a thousand


class ReadsOnWithoutAMark(ReplicationCore):
    """Takes whatever is behind its position for the continuation of its history."""

    def _take(self, entries: Sequence[Placed]) -> bool:
        at = self.history.at
        for placed in entries:
            if at is not None and placed.position > at.position:
                self._apply(placed)
        return True


class AcknowledgesWithoutReplicas(ReplicationCore):
    """Does not wait for the replicas that it was told to wait for."""

    def _acknowledge(self, write: PendingWrite | None) -> None:
        if write is not None:
            write.confirmed.update(dict.fromkeys(write.applied, self._now))
        super()._acknowledge(write)


class AcknowledgesBeforeItIsApplied(ReplicationCore):
    """Says what an add would do here, not what it did in the log."""

    def _append(self, write: PendingWrite, after: Mark | None) -> None:
        if write.kind is Kind.WRITE and write.outcome is None:
            copy = ModelReplica.load(self.replica.dump())  # type: ignore[attr-defined]
            write.outcome = (copy.apply(write.payload, 0),)
        super()._append(write, after)

    def _applied_own(self, entry: LogEntry, verdict: Any, outcome: Any) -> None:
        write = self.writes.find(entry.op)
        if write is not None and write.outcome is not None:
            outcome = write.outcome[0]
        super()._applied_own(entry, verdict, outcome)


class AppliesRetriesTwice(ReplicationCore):
    """Does not know a retry from a new operation."""

    def _apply(self, placed: Placed) -> None:
        member = self.ledger.members.get(placed.entry.node)
        if member is not None:
            member.op = placed.entry.op - 1
        super()._apply(placed)


class AcknowledgesWhatItKnows(ReplicationCore):
    """Acknowledges an add that changes nothing here, without a look at the log."""

    def _write(self, event: m.Write) -> None:
        reply = self.replica.unchanged(event.payload)
        if reply is None or self._fresh is None:
            super()._write(event)
        else:
            self._actions.append(m.Reply(event.request, reply))


class CountsAgeFromTheAnswer(ReplicationCore):
    """Takes its copy to be as recent as the answer's arrival."""

    def _caught_up_to(self, end: Mark | None, sent: float) -> None:
        super()._caught_up_to(end, self._now)


class AnswersFromAnyCopy(ReplicationCore):
    """Answers local reads however old its copy is."""

    def may_answer(self, now: float) -> bool:
        return self._fresh is not None


class ForgetsWhatItAcknowledged(ReplicationCore):
    """Does not repeat its own writes after it had to load another history."""

    def _repeat_lost_writes(self) -> None:
        self._reloaded = False


class WritesBeforeItRepeats(ReplicationCore):
    """Repeats its own writes behind new ones, which makes them count as done."""

    def _repeat_lost_writes(self) -> None:
        super()._repeat_lost_writes()
        if self.writes.queue:
            self._queue(Kind.HELLO)
            self.writes.queue.rotate(1)


class RepeatsWhatTakesAway(ReplicationCore):
    """Repeats clears too, behind what others added since."""

    class _Replica(ModelReplica):
        def additions(self, payload: bytes) -> bytes | None:
            return payload

        @classmethod
        def load(cls, data: bytes) -> ModelReplica:
            replica = super().load(data)
            replica.__class__ = cls
            return replica

    def __init__(self, node: bytes, make: Callable[[], Replica], options: Options) -> None:
        super().__init__(node, self._Replica, options)

    def _adopt(self, replica: Any, ledger: Any, last: Placed | None) -> None:
        super()._adopt(self._Replica.load(replica.dump()), ledger, last)


class DecidesWithoutTheLease(ReplicationCore):
    """Applies decisions of a holder that was replaced."""

    def _apply(self, placed: Placed) -> None:
        if placed.entry.kind is Kind.DECIDE:
            entry = replace(placed.entry, fence=self.ledger.fence)
            placed = Placed(placed.position, entry)
        super()._apply(placed)


class BeginsWithNothing(ReplicationCore):
    """Takes an empty Redis for a new one at once."""

    def _bootstrap(self) -> None:
        self._empty_since = self._now - self.options.bootstrap
        super()._bootstrap()


class FollowsAnyLog(ReplicationCore):
    """Gives its copy up for any log that Redis has, as nodes did before they compared the two."""

    def _act(self, finding: Finding) -> None:
        super()._act(replace(finding, course=Course.FOLLOW))

    def _accepts(self, ledger: Ledger) -> bool:
        return True


class RestoresOverAnything(ReplicationCore):
    """Replaces a log that has writes which its copy lacks."""

    def _act(self, finding: Finding) -> None:
        if finding.course is Course.ASK:
            finding = replace(finding, course=Course.RESTORE)
        super()._act(finding)


class TrimsBehindTheNewest(ReplicationCore):
    """Keeps no entries for the older of the two snapshots."""

    class _Keeper(SnapshotKeeper):
        def saved(self, ref: int) -> m.Action:
            step = super().saved(ref)
            assert isinstance(step, m.SwapManifest)
            return replace(step, trim=step.manifest.snapshots[0].mark.position)

    def __init__(self, node: bytes, make: Callable[[], Replica], options: Options) -> None:
        super().__init__(node, make, options)
        self._snapshots = self._Keeper(node, options.snapshot_entries, options.retry)


class AppendsOnAnything(Store):
    """Appends also where the node's last entry is not."""

    def append(self, action: m.Append) -> m.Appended | m.Fetched:
        if action.after is not None and self.end is not None and not self.has(action.after):
            answer = super().append(replace(action, after=self.end))
            assert isinstance(answer, m.Appended)
            return replace(answer, entries=(), complete=False)
        return super().append(action)


class IgnoresClaims(Store):
    """Lets nodes begin a log, and append, while another node restores it."""

    def append(self, action: m.Append) -> m.Appended | m.Fetched:
        self.claim = None
        return super().append(action)


class LeavesForeignEntries(Store):
    """Lets nodes read what no node wrote."""

    def set_aside(self) -> None:
        pass


class TakesAnEmptyStreamForALog(Store):
    """Restores nothing where a stream was emptied."""

    def restore(self, action: m.Restore) -> m.Done:
        if self.journal and not self.stream:
            return m.Done(action.ref, False)
        return super().restore(action)


class PutsBackAnywhere(Store):
    """Puts lost entries back although others have written there since."""

    def put_back(self, action: m.PutBack) -> m.Done:
        end = self.end
        entries = [one for one in action.entries if end and one.position > end.position]
        if entries and end is not None:
            super().put_back(replace(action, end=end, entries=tuple(entries)))
        return m.Done(action.ref, True)


class NeverLoadsAgain(ReplicationCore):
    """Stops for good at an entry that it has no memory for."""

    def _give_up(self, reason: str) -> None:
        super()._give_up(reason)
        self._load_at = float("inf")


class NeverAsksForASnapshot(ReplicationCore):
    """Loads the same snapshot, and fails at the same entry behind it, again and again."""

    def step(self, event: m.Event, now: float) -> list[m.Action]:
        actions = super().step(event, now)
        return [action for action in actions if not isinstance(action, m.WantSnapshot)]


class NeverChecks(ReplicationCore):
    """Does not look whether a node could start."""

    def step(self, event: m.Event, now: float) -> list[m.Action]:
        self._check_at = float("inf")
        return super().step(event, now)


CORES = [
    (ReadsOnWithoutAMark, OFTEN_LOST, OPTIONS),
    (AcknowledgesWithoutReplicas, OFTEN_LOST, OPTIONS),
    (AcknowledgesBeforeItIsApplied, Faults(), OPTIONS),
    (AppliesRetriesTwice, Faults(), OPTIONS),
    (AcknowledgesWhatItKnows, Faults(), OPTIONS),
    (CountsAgeFromTheAnswer, OFTEN_PAUSED, OPTIONS),
    (AnswersFromAnyCopy, OFTEN_CUT, OPTIONS),
    (ForgetsWhatItAcknowledged, OFTEN_LOST, OPTIONS),
    (WritesBeforeItRepeats, OFTEN_LOST, OPTIONS),
    (RepeatsWhatTakesAway, replace(OFTEN_CLEARED, crash=0.0, clear=0.15), UNSETTLED),
    (DecidesWithoutTheLease, OFTEN_PAUSED, OPTIONS),
    (BeginsWithNothing, OFTEN_EMPTY, SOON_FORGOTTEN),
    (TrimsBehindTheNewest, OFTEN_DAMAGED, OPTIONS),
    (FollowsAnyLog, OFTEN_REWOUND, SHORT_OF_HISTORY),
    (FollowsAnyLog, OFTEN_STRAY, OPTIONS),
    (RestoresOverAnything, OFTEN_REWOUND, SHORT_OF_HISTORY),
]


class TrustsTheClockOfRedis(ReplicationCore):
    """Lets time pass as Redis's clock does."""

    def _next_time(self) -> int:
        redis_ms, since = self._redis_clock
        return redis_ms + int(1000 * (self._now - since))


RARE = replace(CHECKED, snapshot_entries=10_000)  # no snapshot but those that are needed at once
CORES += [
    (TrustsTheClockOfRedis, OFTEN_HOURS, OPTIONS),
    (NeverLoadsAgain, OFTEN_HUGE, CHECKED),
    (NeverAsksForASnapshot, OFTEN_HUGE, RARE),
    (NeverChecks, OFTEN_INCOMPLETE, RARE),
]
STORES = [
    (LeavesForeignEntries, OFTEN_FOREIGN, OPTIONS),
    (TakesAnEmptyStreamForALog, OFTEN_INCOMPLETE, CHECKED),
    (AppendsOnAnything, OFTEN_LOST, OPTIONS),
    (PutsBackAnywhere, replace(OFTEN_CLEARED, failover=3.0, stall=3.0), UNSETTLED),
    (IgnoresClaims, SLOW, HASTY),
]


# Filters with numbers.


class AddressesByName(NumberedFilters):
    """Does an operation to any filter that has its name by then."""

    def find(self, name: str, number: int) -> NumberedFilter | None:
        return self.names.get(name)


class RenamesWhatReplacedIt(NumberedFilters):
    """Applies a rename although another filter has its name."""

    def apply(self, one: Operation) -> Reply:
        if one.op == "r" and one.name in self.names:
            one = one._replace(number=self.names[one.name].number)
        return super().apply(one)


class RenamesOverAFilter(NumberedFilters):
    """Lets a rename replace a filter that it may not replace."""

    def apply(self, one: Operation) -> Reply:
        return super().apply(one._replace(replace=True) if one.op == "r" else one)


class RepeatsARename(NumberedFilters):
    """Repeats a lost rename as it was, and takes away what others added since."""

    def addition(self, one: Operation) -> bytes | None:
        return one.payload if one.op == "r" else super().addition(one)


class RepeatsAReplacement(NumberedFilters):
    """Repeats a lost restore or copy so that it replaces what others created since."""

    def addition(self, one: Operation) -> bytes | None:
        added = super().addition(one)
        return one.payload if added is not None and one.op in "kl" else added


class CopiesNothing(NumberedFilters):
    """Makes a copy without keys."""

    def apply(self, one: Operation) -> Reply:
        reply = super().apply(one)
        if one.op == "k" and reply:
            self.names[one.to].keys.clear()
        return reply


class MergesTheOtherWay(NumberedFilters):
    """Merges the target into the source."""

    def apply(self, one: Operation) -> Reply:
        if one.op == "m":
            one = one._replace(name=one.to, number=one.new, to=one.name, new=one.number)
        return super().apply(one)


class RestoresInTwoSteps(ReplicationCore):
    """Restores a filter as two operations: an empty one replaces it first."""

    def _write(self, event: m.Write) -> None:
        one = operation(event.payload)
        if one is not None and one.op == "l":
            self._queue(Kind.WRITE, one._replace(keys=()).payload)
        super()._write(event)


class CopiesWhatItHas(ReplicationCore):
    """Copies the keys that its own copy of the filter has, before the log has reached the copy."""

    def _write(self, event: m.Write) -> None:
        one = operation(event.payload)
        replica = self.replica
        assert isinstance(replica, ModelReplica)
        if one is not None and one.op == "k":
            filter = replica.numbered.find(one.name, one.number)
            if filter is not None and (one.replace or one.to not in replica.numbered.names):
                keys = tuple(sorted(filter.keys))
                event = replace(event, payload=Operation("l", one.to, one.new, keys=keys).payload)
        super()._write(event)


NUMBERED_OFTEN_LOST = replace(NUMBERED_LOST, failover=3.0, stall=3.0, crash=0.0, numbered=0.95)
NUMBERED_MODELS = [
    (AddressesByName, NUMBERED, OPTIONS),
    (RenamesWhatReplacedIt, NUMBERED, OPTIONS),
    (RenamesOverAFilter, NUMBERED, OPTIONS),
    (RepeatsARename, NUMBERED_OFTEN_LOST, UNSETTLED),
    (RepeatsAReplacement, NUMBERED_LOST, UNSETTLED),
    (CopiesNothing, NUMBERED, OPTIONS),
    (MergesTheOtherWay, NUMBERED, OPTIONS),
]
CORES += [
    (AcknowledgesBeforeItIsApplied, NUMBERED, OPTIONS),
    (AppliesRetriesTwice, NUMBERED, OPTIONS),
    (RestoresInTwoSteps, NUMBERED, OPTIONS),
    (CopiesWhatItHas, NUMBERED, OPTIONS),
]


# Where to start with a break that shows in one of a thousand histories, or shows best later.
LATE: dict[Any, int] = {
    RepeatsWhatTakesAway: 2000,
    RepeatsAReplacement: 2200,
    RestoresInTwoSteps: 80,  # a strong read sees the empty filter
}


def first_violation(**parts: Any) -> tuple[int, Violation]:
    """Return the first seed whose history breaks a promise, and which."""
    replica = parts.get("replica", ModelReplica)
    start = LATE.get(parts.get("core"), 0) or LATE.get(replica.make_numbered, 0)
    for seed in range(start, start + MOST):
        world = World(seed, **parts)
        try:
            world.run()
            if parts["faults"] in (SLOW, OFTEN_EMPTY) and world.decisions:
                raise Violation("an operator had to decide although no node was unreachable")
        except Violation as violation:
            return seed, violation
    pytest.fail(f"{parts}: nothing was seen in {MOST} histories")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("core", "faults", "options"),
    CORES,
    ids=[f"{core.__name__}-{number}" for number, (core, *_) in enumerate(CORES)],
)
def test_broken_core_is_seen(core: type[ReplicationCore], faults: Faults, options: Options) -> None:
    """A core with one rule left out breaks a promise, and the checker says which."""
    print(*first_violation(core=core, faults=faults, options=options))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "faults", "options"), STORES, ids=[store.__name__ for store, *_ in STORES]
)
def test_broken_script_is_seen(store: type[Store], faults: Faults, options: Options) -> None:
    """A script of Redis with one condition left out breaks a promise."""
    print(*first_violation(store=store, faults=faults, options=options))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("filters", "faults", "options"),
    NUMBERED_MODELS,
    ids=[filters.__name__ for filters, *_ in NUMBERED_MODELS],
)
def test_broken_operation_is_seen(
    filters: type[NumberedFilters], faults: Faults, options: Options
) -> None:
    """An operation on filters with numbers that does not check what it needs breaks a promise."""
    replica = type("BrokenReplica", (ModelReplica,), {"make_numbered": filters})
    print(*first_violation(replica=replica, faults=faults, options=options))


@pytest.mark.slow
def test_an_empty_log_that_is_followed_is_seen() -> None:
    """A new node begins a log while another saves its copy, which takes longer than any timeout;
    the others give theirs up for that log."""
    print(*first_violation(core=FollowsAnyLog, store=IgnoresClaims, faults=SLOW, options=HASTY))
