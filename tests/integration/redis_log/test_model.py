"""The scripts and the simulation's model of them are given the same actions, by chance: they answer
the same. So what the simulation shows of the core holds for Redis."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from bloomery import errors
from bloomery.service.replication.core import messages as m
from bloomery.service.replication.core.entries import Kind, LogEntry, Mark, Placed, Position
from bloomery.service.replication.redis_log import scripts
from bloomery.service.replication.redis_log.chunks import (
    SnapshotDamaged,
    read_chunks,
    write_chunks,
)
from bloomery.service.replication.redis_log.log import RedisLog
from bloomery.service.replication.redis_log.scripts import LogScript
from conftest import effort
from integration.redis_log.writing import PREFIX, run
from integration.servers import RedisServer
from simulation.store import FETCH_COUNT, Store


class Both:
    """A Redis, and a model of it."""

    def __init__(self, server: RedisServer, log: RedisLog, seed: int) -> None:
        self.server, self.log, self.random = server, log, Random(seed)
        self.clock = 0
        self.model = Store(clock=lambda: self.clock)
        self.ref = 0
        self.known: list[Placed] = []  # entries that once were in the log
        self.saved: list[m.Snapshot] = []
        self.earlier: list[tuple[int, dict[bytes, bytes]]] = []  # states to fall back to

    # What a node may ask.

    def some_mark(self) -> Mark | None:
        """Mostly the end; at times another, one that never was, or none."""
        chance = self.random.random()
        if chance < 0.5 and self.model.end is not None:
            return self.model.end
        if chance < 0.9 and self.known:
            return self.random.choice(self.known[-40:]).mark
        if chance < 0.95 and self.known:
            known = self.random.choice(self.known).mark
            return Mark(known.position, known.node, 2**40)
        return None

    def entry(self) -> LogEntry:
        """One that was never sent."""
        node = self.random.choice([b"first---", b"second--"])
        payload = self.random.randbytes(self.random.choice([0, 5, 300]))
        return LogEntry(node, self.ref, self.ref, Kind.WRITE, payload)

    def manifest(self) -> m.Manifest:
        """Of snapshots that were saved, or were not."""
        made = self.random.sample(self.saved, min(len(self.saved), self.random.randint(1, 2)))
        if not made or self.random.random() < 0.1:
            last = self.random.choice(self.known)
            made = [m.Snapshot(self.random.randbytes(16), last, 1), *made][:2]
        return m.Manifest(tuple(made))

    def action(self) -> Any:
        """Something that a node may ask of Redis."""
        self.ref += 1
        chance = self.random.random()
        if chance < 0.5 or not self.known:
            return m.Append(self.ref, self.some_mark(), self.entry())
        if chance < 0.7:
            return m.Fetch(self.ref, self.some_mark(), False)
        if chance < 0.78:
            return self.put_back()
        if chance < 0.86:
            return self.swap()
        if chance < 0.88:
            return self.claim()
        if chance < 0.96:
            return m.Restore(self.ref, self.manifest(), self.replaced())
        return m.ReadManifest(self.ref)

    def replaced(self) -> Mark | None:
        """Mostly the end."""
        return self.model.end if self.random.random() < 0.7 else self.some_mark()

    def claim(self) -> m.ClaimRestore:
        """Of a node or another; it never ends by itself here."""
        node = self.random.choice([b"first---", b"second--"])
        willing, force = self.random.random() < 0.7, self.random.random() < 0.2
        return m.ClaimRestore(self.ref, node, self.replaced(), 1e6, willing, force)

    def put_back(self) -> m.PutBack:
        """Entries behind the stream's end that were there once, or at another place."""
        end = self.model.end or self.known[0].mark
        chance = self.random.random()
        if chance < 0.1:  # another entry there
            end = Mark(end.position, end.node, 2**40)
        elif chance < 0.2:  # the same elsewhere
            end = Mark(Position(end.position.ms - 1, 0), end.node, end.attempt)
        elif chance < 0.3:
            end = self.random.choice(self.known).mark
        lost = [one for one in self.known if one.position > end.position]
        if not lost:
            lost = [Placed(Position(end.position.ms + 1, 0), self.entry())]
        lost.sort(key=lambda one: one.position)
        behind = [one for n, one in enumerate(lost) if not n or one[0] > lost[n - 1][0]]
        return m.PutBack(self.ref, end, tuple(behind))

    def swap(self) -> m.SwapManifest:
        """Mostly from the manifest as it is."""
        now = self.model.manifest
        newest = now.snapshots[0].id if now is not None else None
        if self.random.random() < 0.2:
            newest = self.random.choice([None, bytes(16)])
        manifest = self.manifest()
        trim = manifest.snapshots[-1].mark.position if self.random.random() < 0.7 else None
        # A stream is never trimmed behind its end: the core trims before a snapshot's entry.
        if trim is not None and (self.model.end is None or trim > self.model.end.position):
            trim = None
        return m.SwapManifest(self.ref, newest, manifest, trim)

    # What both do.

    async def step(self) -> None:
        """Do one thing with both."""
        chance = self.random.random()
        if chance < 0.06 and self.known:
            self.save()
        elif chance < 0.09:
            self.remember()
        elif chance < 0.12 and self.earlier:
            self.fall_back()
        elif chance < 0.13:
            self.server.run("DEL", f"{{{PREFIX}}}:last")  # a shortcut only
        elif chance < 0.16:
            self.server.run("DEL", f"{{{PREFIX}}}:claim")  # its time is over
            self.model.lose("claim", None)
        else:
            action = self.action()
            self.compare(action, await self.log.perform(action))
        self.compare_chunks()

    def compare(self, action: Any, real: Any) -> None:
        """Let the model do what Redis did; the answers are the same."""
        if isinstance(real, m.Appended):
            self.clock = real.position.ms
        model: Any
        match action:
            case m.Append():
                model = self.model.append(action)
            case m.Fetch():
                model = self.model.fetch(action.ref, action.after)
            case m.PutBack():
                model = self.model.put_back(action)
            case m.SwapManifest():
                model = self.model.swap(action)
            case m.ClaimRestore():
                model = self.model.claim_restore(action)
            case m.Restore():
                model = self.model.restore(action)
            case _:
                model = m.ManifestRead(action.ref, self.model.manifest)
        assert type(real) is type(model), (action, real, model, self.log.problem)
        if isinstance(real, m.Appended | m.Fetched):
            # The mark's own entry comes without contents, and an answer that is just full may say
            # that there is more.
            after = action.after
            if real.entries and after is not None and real.entries[0].mark == after:
                real = replace(real, entries=(model.entries[0], *real.entries[1:]))
            if isinstance(real, m.Appended) and len(real.entries) == FETCH_COUNT:
                real = replace(real, complete=model.complete)
        assert real == model, action
        if isinstance(real, m.Appended):
            self.known.append(self.model.stream[-1])

    def save(self) -> None:
        """Write the chunks of a snapshot, at some entry."""
        last = self.random.choice(self.known[-40:])
        if self.random.random() < 0.15:  # another history
            last = Placed(last.position, self.entry())
        snapshot = m.Snapshot(self.random.randbytes(16), last, self.random.randrange(1000))
        data = self.random.randbytes(50)
        write_chunks(self.server.url, PREFIX, snapshot.id, [data])
        self.model.save(snapshot.id, data)
        self.saved = [*self.saved[-5:], snapshot]

    def remember(self) -> None:
        """Note the state of Redis: a replica may have got this far."""
        with self.server.client() as client:
            keys = {key: client.dump(key) for key in client.scan_iter()}
        self.earlier.append((len(self.model.journal), keys))

    def fall_back(self) -> None:
        """Lose what came since then."""
        steps, keys = self.earlier.pop(self.random.randrange(len(self.earlier)))
        self.earlier = [one for one in self.earlier if one[0] <= steps]
        if self.random.random() < 0.2:
            steps, keys, self.earlier = 0, {}, []
        with self.server.client() as client:
            client.flushall()
            for key, value in keys.items():
                client.restore(key, 0, value)
        self.model = Store(self.model.journal[:steps], lambda: self.clock)

    def compare_chunks(self) -> None:
        """What a manifest names can be loaded, and only that needs to be."""
        for snapshot in self.model.manifest.snapshots if self.model.manifest else ():
            data = self.model.load(snapshot.id)
            try:
                found = b"".join(read_chunks(self.server.url, PREFIX, snapshot.id))
            except SnapshotDamaged:
                found = None
            assert found == data


@pytest.mark.parametrize("seed", range(3))
def test_scripts_do_as_the_model(seed: int, redis_server: RedisServer) -> None:
    """Appends, fetches, entries put back, snapshots swapped and restored, after losses too."""

    both = compared(redis_server, seed, effort(150, 500, 20_000))
    assert both.known
    assert both.saved


# A script, a condition or step of it, and what is there instead.
BREAKS = [
    ("FETCH", b"and tag_of(entry) == tag", b""),
    ("FETCH", b"XREVRANGE', log, '+', '-'", b"XRANGE', log, '-', '+'"),
    ("FETCH", b"'COUNT', take)", b"'COUNT', 1)"),
    ("APPEND", b"elseif reply[1] == 0 then", b"elseif false then"),
    ("APPEND", b"redis.call('XLEN', log) > 0 or redis.call('EXISTS', KEYS[2]) == 1", b"false"),
    ("APPEND", b"if is_last() then", b"if true then"),
    ("PUT_BACK", b"tag_of(final[2][2]) ~= ARGV[2]", b"false"),
    ("PUT_BACK", b"final[1] ~= ARGV[1]", b"false"),
    ("PUT_BACK", b"redis.call('DEL', last)\n", b"ARGV[#ARGV] = ARGV[#ARGV - 2]\n"),
    ("SWAP", b"(old[1] or '') ~= ARGV[1]", b"false"),
    ("SWAP", b"string.sub(found[2][2], 5, 20) ~= ARGV[5]", b"false"),
    ("SWAP", b"keep(id, count)", b"redis.call('UNLINK', chunk .. id)"),
    ("SWAP", b"redis.call('XTRIM', log, 'MINID', ARGV[6])", b""),
    ("APPEND", b"if redis.call('EXISTS', KEYS[5]) == 1 then", b"if false then"),
    ("CLAIM", b"ARGV[6] ~= '1' and not ends()", b"false"),
    ("CLAIM", b"or held[1] == ARGV[3]", b""),
    ("CLAIM", b"redis.call('DEL', KEYS[3])", b""),
    ("RESTORE", b"if not ends() then return 0 end", b""),
    ("RESTORE", b"redis.call('DEL', log, last, KEYS[5])", b"redis.call('DEL', log, last)"),
    ("RESTORE", b"redis.call('XADD', log, ARGV[5], 'e', ARGV[6])", b""),
]


@pytest.mark.parametrize(("name", "part", "instead"), BREAKS, ids=str)
def test_a_broken_script_is_seen(
    name: str,
    part: bytes,
    instead: bytes,
    redis_server: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With one condition left out, a script and its model part ways."""
    script: LogScript = getattr(scripts, name)
    assert part in script.text
    broken = LogScript(script.text.replace(part, instead), script.keys)
    monkeypatch.setattr(scripts, name, broken)
    for seed in range(10):
        redis_server.run("FLUSHALL")
        try:
            compared(redis_server, seed, 500)
        except (AssertionError, errors.CorruptData):
            return
    pytest.fail("nothing was seen")


def compared(server: RedisServer, seed: int, steps: int) -> Both:
    """Do the same with both; an AssertionError if they differ."""

    async def work() -> None:
        try:
            for _ in range(steps):
                await both.step()
        finally:
            await log.close()

    log = RedisLog(server.url, PREFIX, timeout=10.0, most_entries=FETCH_COUNT)
    both = Both(server, log, seed)
    run(work())
    return both
