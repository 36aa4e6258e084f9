"""The core, step by step: what it asks of Redis, and when it replies."""

from dataclasses import replace
from typing import Any

import pytest

from bloomery.service.replication.core import messages as m
from bloomery.service.replication.core.entries import Kind, LogEntry, Placed, Position, genesis
from bloomery.service.replication.core.node import Options, ReplicationCore
from simulation.model import ModelReplica

ME, OTHER = b"me" * 4, b"them" * 2


def only(actions: list[m.Action], kind: type) -> Any:
    """The one action of a kind."""
    [found] = [action for action in actions if isinstance(action, kind)]
    return found


def begun(**options: Any) -> tuple[ReplicationCore, Placed]:
    """A node that has begun a log: the core, and its first entry. Its claim is under way. News is
    always waited for, unless `gather` says otherwise."""
    options = {"bootstrap": 0.0, "gather": 0.0, **options}
    core = ReplicationCore(ME, ModelReplica, Options(**options))
    manifest = only(core.step(m.Tick(), 0.0), m.ReadManifest)
    fetch = only(core.step(m.ManifestRead(manifest.ref, None), 0.1), m.Fetch)
    append = only(core.step(m.Fetched(fetch.ref, (), None), 0.2), m.Append)
    assert append.entry.kind is Kind.GENESIS
    first = Placed(Position(1, 0), append.entry)
    actions = core.step(m.Appended(append.ref, first.position, (), True, True), 0.3)
    assert only(actions, m.SetReady).ready
    claim = only(actions, m.Append)
    assert (claim.entry.kind, claim.after) == (Kind.CLAIM, first.mark)
    last = Placed(Position(2, 0), claim.entry)
    core.step(m.Appended(claim.ref, last.position, (first,), True, True), 0.4)
    assert core.holds_lease
    return core, last


def settle(core: ReplicationCore, last: Placed, now: float) -> Placed:
    """Answer appends of the node's own until none is under way."""
    while own := core.outstanding(m.Append):
        append = own[0]
        entry = Placed(Position(last.position.ms + 1, 0), append.entry)
        core.step(m.Appended(append.ref, entry.position, (last,), True, True), now)
        last = entry
    return last


def find_nothing(core: ReplicationCore, now: float) -> list[m.Action]:
    """Answer the node's fetches, of which the last has its newest mark, by an empty Redis."""
    core.step(m.Tick(), now)
    actions = []
    while fetches := core.outstanding(m.Fetch):
        actions += core.step(m.Fetched(fetches[0].ref, (), None), now)
    return actions


def claim(core: ReplicationCore, actions: list[m.Action], now: float) -> list[m.Action]:
    """Let the node be the one that restores."""
    return core.step(m.Done(only(actions, m.ClaimRestore).ref, True), now)


def test_a_write_is_answered_by_the_log() -> None:
    """Another node added the key just before: it is not new, although it was when it was sent."""
    core, last = begun(clock=100.0)
    last = settle(core, last, 0.5)
    append = only(core.step(m.Write(1, b"A f 7"), 0.6), m.Append)
    assert append.after == last.mark
    theirs = Placed(Position(10, 0), LogEntry(OTHER, 1, 1, Kind.WRITE, b"A f 7"))
    answer = m.Appended(append.ref, Position(11, 0), (last, theirs), True, True)
    assert only(core.step(answer, 0.7), m.Reply) == m.Reply(1, (False,))


def test_a_lost_answer_is_made_up_for() -> None:
    """The append's answer is lost: what the next fetch brings is answered by, and once."""
    core, last = begun(clock=100.0)
    last = settle(core, last, 0.5)
    append = only(core.step(m.Write(1, b"A f 7"), 0.6), m.Append)
    fetch = core.outstanding(m.Fetch)[0]
    entry = Placed(Position(10, 0), append.entry)
    fetched = m.Fetched(fetch.ref, (last, entry), entry.mark)
    core.step(m.Failed(append.ref), 0.65)
    assert only(core.step(fetched, 0.7), m.Reply) == m.Reply(1, (True,))
    assert not core.writes.queue


def test_who_appends_does_not_wait_for_news() -> None:
    """The answer to an append brings what came before it. News is looked for when nothing was heard
    for a moment, at once if others write, and else waited for."""
    core, last = begun(clock=100.0, gather=0.01)
    for fetch in core.outstanding(m.Fetch):
        core.step(m.Fetched(fetch.ref, (last,), last.mark), 0.5)
    news = only(core.step(m.Tick(), 0.55), m.Fetch)
    assert news.wait
    append = only(core.step(m.Write(1, b"A f 7"), 0.6), m.Append)
    mine = Placed(Position(10, 0), append.entry)
    core.step(m.Fetched(news.ref, (last, mine), mine.mark), 0.601)
    core.step(m.Appended(append.ref, mine.position, (last,), True, True), 0.602)
    assert not core.outstanding(m.Fetch)
    assert core.due == pytest.approx(0.612)
    append = only(core.step(m.Write(2, b"A f 8"), 0.603), m.Append)
    assert core.due == pytest.approx(0.703)  # if it takes long
    theirs = Placed(Position(11, 0), LogEntry(OTHER, 1, 1, Kind.WRITE, b"A f 9"))
    answer = m.Appended(append.ref, Position(12, 0), (mine, theirs), True, True)
    core.step(answer, 0.604)
    assert core.due == pytest.approx(0.614)
    mine = Placed(Position(12, 0), append.entry)
    look = only(core.step(m.Tick(), 0.615), m.Fetch)
    assert (look.after, look.wait) == (mine.mark, False)
    core.step(m.Fetched(look.ref, (mine,), mine.mark), 0.616)
    wait = only(core.step(m.Tick(), 0.627), m.Fetch)
    assert (wait.after, wait.wait) == (mine.mark, True)


def test_a_look_comes_before_a_wait_after_a_loss() -> None:
    """A stream that has lost its end has no news behind this node's place: nobody waits for it."""
    core, last = begun(clock=100.0)
    last = settle(core, last, 0.5)
    core.step(m.Tick(), 0.6)
    for fetch in core.outstanding(m.Fetch):
        core.step(m.Failed(fetch.ref), 0.7)
    assert not only(core.step(m.Tick(), 1.0), m.Fetch).wait


def test_what_is_unchanged_waits_for_a_look_at_the_log() -> None:
    """An add of a known key is acknowledged by an entry that was sent after it came, without its
    keys."""
    core, last = begun(clock=100.0)
    append = only(core.step(m.Write(1, b"A f 7"), 0.6), m.Append)
    entry = Placed(Position(10, 0), append.entry)
    core.step(m.Appended(append.ref, entry.position, (last,), True, True), 0.7)
    barrier = only(core.step(m.Write(2, b"A f 7"), 0.8), m.Append)
    assert (barrier.entry.kind, barrier.entry.payload) == (Kind.BARRIER, b"")
    answer = m.Appended(barrier.ref, Position(11, 0), (entry,), True, True)
    assert only(core.step(answer, 0.9), m.Reply) == m.Reply(2, (False,))


def test_a_lost_tail_is_put_back() -> None:
    """A stream that ends before this node's place gets back what it lost, where it was."""
    core, last = begun(clock=100.0)
    append = only(core.step(m.Write(1, b"A f 7"), 0.6), m.Append)
    entry = Placed(Position(10, 0), append.entry)
    core.step(m.Appended(append.ref, entry.position, (last,), True, True), 0.7)
    fetch = core.outstanding(m.Fetch)[0]
    core.step(m.Failed(fetch.ref), 0.8)
    fetch = only(core.step(m.Tick(), 1.0), m.Fetch)
    lost = core.step(m.Fetched(fetch.ref, (), last.mark), 1.1)
    assert only(lost, m.PutBack) == m.PutBack(only(lost, m.PutBack).ref, last.mark, (entry,))


def test_an_own_snapshot_does_not_keep_an_empty_redis_waiting() -> None:
    """The lease holder is saving a snapshot when Redis loses everything: the copy is saved again,
    to be restored, and no other snapshot is begun while the stream is not there."""
    core, last = begun(clock=100.0, snapshot_entries=1)
    last = settle(core, last, 0.5)
    manifest = core.outstanding(m.ReadManifest)[0]
    own = only(core.step(m.ManifestRead(manifest.ref, None), 0.6), m.SaveSnapshot)
    save = only(claim(core, find_nothing(core, 0.7), 0.7), m.SaveSnapshot)
    restore = only(core.step(m.Done(save.ref, True), 0.8), m.Restore)
    assert restore.manifest.snapshots[0].last == last
    swap = only(core.step(m.Done(own.ref, True), 0.9), m.SwapManifest)
    actions = core.step(m.Done(swap.ref, False), 1.0) + core.step(m.Tick(), 2.0)
    assert not [action for action in actions if isinstance(action, m.ReadManifest)]


def test_a_loss_is_counted_from_when_it_was_first_seen() -> None:
    """A copy that grew old while it could not be restored waits for half of `bootstrap` since the
    loss, and not since it grew old; a node with nothing begins after all of it."""
    core, last = begun(clock=100.0, max_lag=3.0)
    core.options = replace(core.options, bootstrap=8.0)
    settle(core, last, 0.5)
    save = only(claim(core, find_nothing(core, 1.0), 1.0), m.SaveSnapshot)
    core.step(m.Failed(save.ref), 3.8)
    late = only(find_nothing(core, 4.5), m.ClaimRestore)
    assert not late.willing  # it only keeps others from beginning a log
    core.step(m.Done(late.ref, False), 4.6)
    last_claim = find_nothing(core, 5.0)
    assert only(last_claim, m.ClaimRestore).willing
    assert only(claim(core, last_claim, 5.0), m.SaveSnapshot)


def test_a_redis_that_had_something_meanwhile_is_waited_for_anew() -> None:
    """A node with nothing waits from the second loss on, for those who have what was restored."""
    core = ReplicationCore(ME, ModelReplica, Options(bootstrap=8.0))

    def look(now: float) -> list[m.Action]:
        manifest = only(core.step(m.Tick(), now), m.ReadManifest)
        fetch = only(core.step(m.ManifestRead(manifest.ref, None), now), m.Fetch)
        return core.step(m.Fetched(fetch.ref, (), None), now)

    assert look(0.0) == []
    manifest = only(core.step(m.Tick(), 7.0), m.ReadManifest)
    last = Placed(Position(1, 0), LogEntry(OTHER, 1, 1, Kind.GENESIS, genesis("", b"")))
    restored = m.Manifest((m.Snapshot(b"theirs", last, 1),))
    load = only(core.step(m.ManifestRead(manifest.ref, restored), 7.0), m.LoadSnapshot)
    core.step(m.Failed(load.ref), 7.5)
    assert look(8.0) == look(15.9) == []
    assert only(look(16.1), m.Append).entry.kind is Kind.GENESIS


def test_an_older_member_refuses_what_is_newer() -> None:
    """What a node of an older version does not know is refused before it is written."""
    core, _ = begun(version=2)
    assert only(core.step(m.Write(1, b"A f 1", needs=3), 0.6), m.Refuse).untouched
    core.step(m.Write(2, b"A f 1", needs=2), 0.6)
    assert len(core.writes.queue) == 1


def test_a_node_that_is_too_old_stops() -> None:
    """A node that finds operations it does not know ends."""
    core = ReplicationCore(ME, ModelReplica, Options())
    manifest = only(core.step(m.Tick(), 0.0), m.ReadManifest)
    fetch = only(core.step(m.ManifestRead(manifest.ref, None), 0.1), m.Fetch)
    entries = (
        Placed(Position(1, 0), LogEntry(OTHER, 1, 1, Kind.GENESIS, genesis("", b""), version=2)),
        Placed(Position(2, 0), LogEntry(OTHER, 2, 2, Kind.WRITE, b"A f 1", version=2, needs=2)),
    )
    actions = core.step(m.Fetched(fetch.ref, entries, entries[-1].mark), 0.2)
    assert "upgrade" in only(actions, m.Stop).reason


def test_a_full_redis_is_told_at_once() -> None:
    """Nothing was done, so the client may know it; and so may those who ride along."""
    core, last = begun(clock=100.0)
    last = settle(core, last, 0.5)
    core.step(m.Write(1, b"A f 7"), 0.6)
    settle(core, last, 0.6)
    append = only(core.step(m.Write(2, b"A f 8"), 0.7), m.Append)
    core.step(m.Write(3, b"A f 7"), 0.7)
    actions = core.step(m.Refused(append.ref, "full"), 0.8)
    assert only(actions, m.Refuse) == m.Refuse(2, "full", True, True)
    assert not any(isinstance(action, m.Append) for action in actions)  # not at once
    barrier = only(core.step(m.Tick(), 1.0), m.Append)
    assert barrier.entry.kind is Kind.BARRIER
    actions = core.step(m.Refused(barrier.ref, "full"), 1.1)
    assert only(actions, m.Refuse) == m.Refuse(3, "full", True, True)
    assert not core.writes.queue


def test_a_write_that_may_be_done_is_not_refused() -> None:
    """Of its first attempt there was no answer: that Redis is full now says nothing about it."""
    core, last = begun(clock=100.0)
    settle(core, last, 0.5)
    first = only(core.step(m.Write(1, b"A f 7"), 0.6), m.Append)
    core.step(m.Failed(first.ref), 0.7)
    second = only(core.step(m.Tick(), 1.1), m.Append)
    assert not any(
        isinstance(action, m.Refuse) for action in core.step(m.Refused(second.ref, "full"), 1.2)
    )
    assert core.writes.queue
    actions = core.step(m.Tick(), 10.0)
    assert only(actions, m.Refuse).untouched is False


def written(core: ReplicationCore, last: Placed, keys: int, now: float = 0.6) -> list[Placed]:
    """Let the node write keys, one entry each; return those entries."""
    entries = []
    for key in range(keys):
        append = only(core.step(m.Write(key + 1, b"A f %d" % key), now), m.Append)
        entry = Placed(Position(10 + key, 0), append.entry)
        core.step(m.Appended(append.ref, entry.position, (last,), True, True), now)
        entries.append(last := entry)
    return entries


def other_log(*writes: bytes) -> list[Placed]:
    """A log that another node has begun, with these writes."""
    kinds = [(Kind.GENESIS, genesis("", b"")), *((Kind.WRITE, write) for write in writes)]
    return [
        Placed(Position(1000 + n, 0), LogEntry(OTHER, n, n, kind, payload))
        for n, (kind, payload) in enumerate(kinds, 1)
    ]


def find(core: ReplicationCore, stream: list[Placed], now: float) -> list[m.Action]:
    """Let the node find a stream that does not have its last entry, and no manifest."""
    for append in core.outstanding(m.Append):
        core.step(m.Failed(append.ref), now)
    while not core.outstanding(m.ReadManifest):
        core.step(m.Tick(), now)
        for fetch in core.outstanding(m.Fetch):
            assert fetch.after is not None
            entries = tuple(one for one in stream if one.position > fetch.after.position)
            core.step(m.Fetched(fetch.ref, entries, stream[-1].mark), now)
    [manifest] = core.outstanding(m.ReadManifest)
    core.step(m.ManifestRead(manifest.ref, None), now)
    [fetch] = core.outstanding(m.Fetch)
    return core.step(m.Fetched(fetch.ref, tuple(stream), stream[-1].mark), now)


def test_a_log_that_lacks_more_than_is_kept_is_replaced() -> None:
    """Redis has fallen back to before the entries that this node keeps: it restores its copy."""
    core, last = begun(clock=100.0, history_entries=3)
    first = core.history._recent[0]
    last = settle(core, last, 0.5)
    entries = written(core, last, 8)
    actions = find(core, [first], 1.0)
    assert "restores" in only(actions, m.Differ).reason
    request = only(actions, m.ClaimRestore)
    assert (request.end, request.willing, request.force) == (first.mark, True, False)
    save = only(claim(core, actions, 1.1), m.SaveSnapshot)
    restore = only(core.step(m.Done(save.ref, True), 1.2), m.Restore)
    assert (restore.end, restore.manifest.snapshots[0].last) == (first.mark, entries[-1])


@pytest.mark.parametrize("keep", [True, False])
def test_another_log_waits_for_an_operator(keep: bool) -> None:
    """A node with filters neither follows nor replaces a log with another id until it is asked to;
    meanwhile it takes no writes."""
    core, last = begun(clock=100.0)
    last = settle(core, last, 0.5)
    written(core, last, 1)
    stream = other_log(b"A x 1")
    actions = find(core, stream, 1.0)
    assert core.dilemma
    assert core.dilemma == only(actions, m.Differ).reason
    assert only(core.step(m.Write(50, b"A f 9"), 1.1), m.Refuse).untouched
    actions = core.step(m.Recover(keep), 3.0)
    fetch = core.outstanding(m.Fetch)[0]
    actions = core.step(m.Fetched(fetch.ref, tuple(stream), stream[-1].mark), 3.1)
    if keep:
        assert only(actions, m.ClaimRestore).force
        assert only(claim(core, actions, 3.2), m.SaveSnapshot)
    else:
        manifest = only(actions, m.ReadManifest)
        fetch = only(core.step(m.ManifestRead(manifest.ref, None), 3.2), m.Fetch)
        core.step(m.Fetched(fetch.ref, tuple(stream), stream[-1].mark), 3.3)
        assert core.replica.filters == {"x": {1}}  # type: ignore[attr-defined]
        assert core.node != ME  # the old id stays with what was discarded
        assert not core.writes.rescued


def test_an_empty_log_is_replaced() -> None:
    """A node with filters does not follow a log that was begun without them."""
    core, last = begun(clock=100.0)
    last = settle(core, last, 0.5)
    written(core, last, 1)
    stream = other_log()
    assert only(find(core, stream, 1.0), m.ClaimRestore).end == stream[-1].mark


@pytest.mark.parametrize("writes", [(), (b"A x 1",)])
def test_a_log_of_another_cluster_is_not_touched(writes: tuple[bytes, ...]) -> None:
    """A node of a cluster with another name neither follows nor replaces the log, and stops if it
    has nothing that it could lose."""
    core, last = begun(clock=100.0, cluster="ours")
    last = settle(core, last, 0.5)
    written(core, last, 1)
    actions = find(core, other_log(*writes), 1.0)
    assert "'ours'" in only(actions, m.Differ).reason
    assert not core.dilemma
    assert not core.outstanding(m.ClaimRestore)
    core = ReplicationCore(ME, ModelReplica, Options(cluster="ours"))
    manifest = only(core.step(m.Tick(), 0.0), m.ReadManifest)
    fetch = only(core.step(m.ManifestRead(manifest.ref, None), 0.1), m.Fetch)
    stream = other_log(*writes)
    actions = core.step(m.Fetched(fetch.ref, tuple(stream), stream[-1].mark), 0.2)
    assert "store-cluster" in only(actions, m.Stop).reason


def test_lost_writes_of_a_dead_node_are_added() -> None:
    """Another node wrote where Redis has lost a third one's entry: this one appends it again, under
    its number, so that it counts once."""
    core, last = begun(clock=100.0)
    first = core.history._recent[0]
    last = settle(core, last, 0.5)
    fetch = core.outstanding(m.Fetch)[0]
    dead = Placed(Position(20, 0), LogEntry(OTHER, 1, 1, Kind.WRITE, b"A f 7"))
    core.step(m.Fetched(fetch.ref, (last, dead), dead.mark), 0.6)
    third = Placed(Position(30, 0), LogEntry(b"third---", 1, 1, Kind.WRITE, b"A f 8"))
    stream = [first, third]
    actions = find(core, stream, 1.0)
    manifest = only(actions, m.ReadManifest)
    fetch = only(core.step(m.ManifestRead(manifest.ref, None), 1.1), m.Fetch)
    core.step(m.Fetched(fetch.ref, tuple(stream), third.mark), 1.2)
    again = core.outstanding(m.Append) or [only(core.step(m.Tick(), 5.0), m.Append)]
    entry = again[0].entry
    assert (entry.node, entry.op, entry.payload) == (OTHER, 1, b"A f 7")
    assert entry.attempt != dead.entry.attempt
    answer = m.Appended(again[0].ref, Position(40, 0), (third,), True, True)
    core.step(answer, 5.1)
    assert core.replica.filters == {"f": {7, 8}}  # type: ignore[attr-defined]
    assert not core.writes.rescued


def test_a_log_that_no_node_can_load_waits_for_a_snapshot() -> None:
    """The stream was trimmed, and there is no snapshot: a node that has all of it is asked for one,
    and an operator only if none comes."""
    core, last = begun(clock=100.0, load_pause=5.0)
    last = settle(core, last, 0.5)
    written(core, last, 1)
    stream = other_log(b"A x 1", b"A x 2")[1:]
    actions = find(core, stream, 1.0)
    assert only(actions, m.WantSnapshot).newest == b""
    assert not core.dilemma
    actions = find(core, stream, 7.0)
    assert "no complete snapshot" in only(actions, m.Differ).reason
    assert core.dilemma


def test_what_a_node_without_memory_had_is_put_back() -> None:
    """Its copy is void, and Redis loses an entry: the node appends it to the log that it loads."""
    core, last = begun(clock=100.0)
    first = core.history._recent[0]
    last = settle(core, last, 0.5)
    dead = Placed(Position(20, 0), LogEntry(OTHER, 1, 1, Kind.WRITE, b"A f 7"))
    core._take((last, dead))
    core._give_up("for a filter")
    core.step(m.Tick(), 1.0)
    [manifest] = core.outstanding(m.ReadManifest) or [
        only(core.step(m.Tick(), 2.0), m.ReadManifest)
    ]
    fetch = only(core.step(m.ManifestRead(manifest.ref, None), 2.1), m.Fetch)
    core.step(m.Fetched(fetch.ref, (first, last), last.mark), 2.2)
    appends = core.outstanding(m.Append) or [only(core.step(m.Tick(), 5.0), m.Append)]
    assert (appends[0].entry.node, appends[0].entry.payload) == (OTHER, b"A f 7")


def test_a_refused_genesis_waits_again() -> None:
    """A node with data restores the log: another one begins none, and counts from that moment."""
    core = ReplicationCore(ME, ModelReplica, Options(bootstrap=1.0))

    def look(now: float) -> list[m.Action]:
        manifest = only(core.step(m.Tick(), now), m.ReadManifest)
        fetch = only(core.step(m.ManifestRead(manifest.ref, None), now), m.Fetch)
        return core.step(m.Fetched(fetch.ref, (), None), now)

    look(0.0)
    append = only(look(1.0), m.Append)
    assert core.step(m.Fetched(append.ref, (), None), 1.1) == []
    assert look(1.3) == look(2.0) == []
    assert only(look(2.2), m.Append).entry.kind is Kind.GENESIS


def test_lost_connections_do_not_hold_up_writes() -> None:
    """Connections end every tenth of a second, and Redis answers between: a write is sent after the
    moment in which entries would be put back, and not once more of it for each failure."""
    core, last = begun(clock=100.0, settle=0.22, retry=0.01, write_timeout=5.0)
    last = settle(core, last, 0.5)
    core.step(m.Write(1, b"A f 7"), 0.6)
    sent = []
    for tenth in range(7, 20):
        now = tenth / 10
        for kind in (m.Append, m.Fetch):
            for asked in core.outstanding(kind):
                core.step(m.Failed(asked.ref), now)  # type: ignore[attr-defined]
        core.step(m.Tick(), now + 0.05)
        for fetch in core.outstanding(m.Fetch):
            core.step(m.Fetched(fetch.ref, (last,), last.mark), now + 0.06)
        core.step(m.Tick(), now + 0.07)
        sent += [now for _ in core.outstanding(m.Append)]
    assert len(sent) >= 3, sent


def test_a_copy_that_was_saved_in_vain_is_deleted() -> None:
    """Redis has lost everything, and another node was first to restore it."""
    core, _ = begun(clock=100.0, retry=0.1)
    for append in core.outstanding(m.Append):
        core.step(m.Failed(append.ref), 0.5)
    save = only(claim(core, find_nothing(core, 1.0), 1.0), m.SaveSnapshot)
    restore = only(core.step(m.Done(save.ref, True), 1.1), m.Restore)
    dropped = only(core.step(m.Done(restore.ref, False), 1.2), m.DropSnapshot)
    assert dropped.id == save.snapshot.id
