"""The actions of the core, performed at a Redis."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeAlias

from bloomery import errors
from bloomery.redis_client import redis_client
from bloomery.service.replication.core import messages as m
from bloomery.service.replication.core.entries import Kind, LogEntry, Mark, Placed
from bloomery.service.replication.redis_log import scripts
from bloomery.service.replication.redis_log.layout import (
    MOST_ENTRY,
    MOST_MANIFEST,
    LogKeys,
    manifest_bytes,
    mark,
    placed,
    position,
    read_manifest,
    tag,
    written,
)
from bloomery.service.replication.redis_log.link import Command, LinkLost, LogLink
from bloomery.service.replication.redis_log.scripts import LogScript

LogAction: TypeAlias = (
    m.Fetch
    | m.Append
    | m.PutBack
    | m.ReadManifest
    | m.SwapManifest
    | m.ClaimRestore
    | m.Restore
    | m.DropSnapshot
    | m.CheckStore
    | m.WantSnapshot
)
_WANTED_SECONDS = 600
_NONE = b"none"  # a node that wants a snapshot found none
_MOST_BYTES = 4 << 20  # in one answer, or put back at once; a single entry may be larger
_UNMATCHED, _MATCHED, _APPENDED, _CUT_SHORT = range(4)  # what scripts reply first
# What Redis answers when it does not write at all, whoever asks, and what is to be done about it.
# It is no use to ask again at once, or elsewhere.
_REMEDIES = {
    "OOM": "is full: raise its maxmemory, on a machine that has the memory",
    "MISCONF": "cannot write to its disk: its log says why",
    "NOREPLICAS": "has fewer replicas than its min-replicas-to-write: bring them back",
}
_UNWILLING = re.compile(rf"\b({'|'.join(_REMEDIES)})\b")


_MISSING = (
    "chunks of the newest snapshot are missing",
    "the log lacks the entry that the newest snapshot ends with",
)


class _ErrorReply(Exception):
    """Redis answered with an error: nothing was done."""


class RedisLog:
    """The shared log, as a node of an event loop uses it.

    `perform` answers each action of the core with its event, and may be called for several at once.
    Three connections: what is written waits for replicas, what is read may wait for news, and
    neither keeps the other. After a loss the next action connects again, asking Sentinel or the
    cluster where to.
    """

    def __init__(
        self,
        url: str,
        prefix: str,
        *,
        timeout: float = 1.0,
        min_replicas: int = 0,
        wait: float = 1.0,
        most_entries: int = 1000,
    ) -> None:
        """`timeout`: seconds for an answer, with those for replicas (half of it, at most) included.
        `wait`: seconds that a fetch waits for news; twice that must be less than `max_lag`.
        `most_entries`: in one answer."""
        self._keys = LogKeys(prefix)
        self._redis = redis_client(url, "log", for_asyncio=True, timeout=timeout, retries=0)
        self._writes, self._reads, self._news = (
            LogLink(self._redis, self._keys.log, timeout) for _ in range(3)
        )
        self._min_replicas, self._wait = min_replicas, wait
        self._limits = (most_entries, _MOST_BYTES)
        self._replica_ms = max(1, int(timeout * 500))
        keys = self._keys
        self._names = (keys.log, keys.manifest, keys.last, keys.foreign, keys.claim, keys.chunk)
        self._unreadable = (
            b""  # what a damaged manifest has where the newest snapshot's id should be
        )
        self.problem = ""  # what came last instead of an answer; nothing if the last was one
        self.unwilling = False  # was that because Redis answers, and writes nothing?

    @property
    def place(self) -> str:
        """Where Redis is, without secrets."""
        return self._redis.place

    async def close(self) -> None:
        """End the connections; what waits fails."""
        for link in (self._writes, self._reads, self._news):
            await link.aclose()
        await self._redis.aclose()

    async def perform(self, action: LogAction) -> m.Event:
        """Do what the core wants of Redis; return its answer. CorruptData: an entry of the log is
        damaged, and may be one that was acknowledged: it must not be skipped.
        UnsupportedVersion: this version does not know an entry, so this node must stop."""
        try:
            event = await self._perform(action)
        except LinkLost as problem:
            self.problem, self.unwilling = f"Redis at {self.place}: {problem}", False
            return m.Failed(action.ref)
        except _ErrorReply as problem:
            refusal = _UNWILLING.search(str(problem))
            why = "refused" if refusal is None else _REMEDIES[refusal[0]]
            self.problem, self.unwilling = f"Redis at {self.place} {why}: {problem}", bool(refusal)
            if isinstance(action, m.Append) and self.unwilling:
                return m.Refused(action.ref, self.problem)
            return m.Failed(action.ref)
        self.problem = ""
        return event

    async def _perform(self, action: LogAction) -> m.Event:
        match action:
            case m.Fetch():
                return await self._fetch(action)
            case m.Append():
                return await self._append(action)
            case m.PutBack():
                return m.Done(action.ref, await self._put_back(action))
            case m.ReadManifest():
                command = (b"GETRANGE", self._keys.manifest, 0, MOST_MANIFEST)
                data = await self._ask(self._reads, command)
                return m.ManifestRead(action.ref, self._read_manifest(data))
            case m.DropSnapshot():
                await self._run(self._writes, scripts.DROP, action.id.hex().encode())
                return m.Done(action.ref, True)
            case m.CheckStore():
                return await self._check_store(action)
            case m.WantSnapshot():
                newest = action.newest.hex().encode() or _NONE
                note = (b"SET", self._keys.wanted, newest, b"EX", _WANTED_SECONDS)
                await self._ask(self._writes, note)
                return m.Done(action.ref, True)
            case m.SwapManifest():
                return m.Done(action.ref, await self._swap(action))
            case m.ClaimRestore():
                return m.Done(action.ref, await self._claim(action))
            case m.Restore():
                last = action.manifest.snapshots[0].last
                done = await self._run(
                    self._writes,
                    scripts.RESTORE,
                    *_mark_arguments(action.end),
                    *_named(action.manifest),
                    written(last.position),
                    last.entry.to_bytes(),
                )
                return m.Done(action.ref, done == 1)

    # Actions.

    async def _fetch(self, action: m.Fetch) -> m.Fetched:
        first: tuple[Command, ...] = ()
        link, longer = self._news if action.wait else self._reads, 0.0
        # Over a new connection it looks first: a stream that has lost its end has no news to wait
        # for, and who puts that back must come before others write.
        if action.wait and action.after is not None and link.is_connected:
            # A wake-up only, since it does not tell whether the stream still has the mark. What
            # counts is sent right behind it, so that Redis is not asked twice.
            longer = self._wait
            block, position = max(1, int(longer * 1000)), written(action.after.position)
            read = (b"XREAD", b"COUNT", 1, b"BLOCK", block, b"STREAMS", self._keys.log, position)
            first = (read,)
        reply, role = await self._script(
            link, scripts.FETCH, self._position_arguments(action.after), first, (b"ROLE",), longer
        )
        self._check_role(role)
        return _fetched(action.ref, action.after, reply)

    def _check_role(self, role: Any) -> None:
        """A server that has become a replica reads too, from what it has got so far."""
        if not isinstance(role, list) or role[:1] != [b"master"]:
            self._leave()
            raise _ErrorReply("it is a replica, or does not say what it is")

    async def _append(self, action: m.Append) -> m.Appended | m.Fetched | m.Refused:
        entry = action.entry.to_bytes()
        if len(entry) > MOST_ENTRY:
            return m.Refused(action.ref, f"an entry of the log has at most {MOST_ENTRY} bytes")
        arguments = (*self._position_arguments(action.after), entry)
        replicated = True
        if self._min_replicas:
            wait = (b"WAIT", self._min_replicas, self._replica_ms)
            reply, count = await self._script(self._writes, scripts.APPEND, arguments, then=wait)
            replicated = isinstance(count, int) and count >= self._min_replicas
        else:
            reply, _ = await self._script(self._writes, scripts.APPEND, arguments)
        kind = _kind(reply)
        if kind in (_UNMATCHED, _MATCHED):  # nothing was written, as far as a replica is concerned
            self._check_role(await self._ask(self._writes, (b"ROLE",)))
            return _fetched(action.ref, action.after, reply)
        entries = _entries(action.after, reply) if action.after is not None else ()
        complete = kind == _APPENDED
        return m.Appended(action.ref, position(reply[1]), entries, complete, replicated)

    async def _put_back(self, action: m.PutBack) -> bool:
        """Some megabytes at a time: each time the stream must end where the last left it."""
        end, batch, size = action.end, list[bytes](), 0
        for number, entry in enumerate(action.entries, 1):
            batch += (written(entry.position), entry.entry.to_bytes())
            size += len(batch[-1])
            if size >= _MOST_BYTES or number == len(action.entries):
                arguments = (written(end.position), tag(end), *batch)
                if await self._run(self._writes, scripts.PUT_BACK, *arguments) != 1:
                    return False
                end, batch, size = entry.mark, [], 0
        return True

    def _read_manifest(self, data: bytes) -> m.Manifest | None:
        """Return a manifest; None if there is none, or if it is damaged: a node that has the
        filters replaces it."""
        self._unreadable = b""
        try:
            return read_manifest(data) if data else None
        except errors.UnsupportedVersion:
            raise
        except errors.CorruptData:
            self._unreadable = data[9:41] if data[8:9] > b"\0" else b""
            return None

    async def _check_store(self, action: m.CheckStore) -> m.StoreChecked:
        replies = await self._reads.ask(
            (b"GETRANGE", self._keys.manifest, 0, MOST_MANIFEST),
            (b"GETRANGE", self._keys.wanted, 0, 64),
            (b"XREVRANGE", self._keys.foreign, b"+", b"-", b"COUNT", 1),
            (b"INFO", b"memory"),
        )
        data, wanted, aside = map(self._checked, replies[:3])
        # A user of Redis may lack the right to ask for this.
        info = b"" if isinstance(replies[3], Exception) else bytes(replies[3])
        policy = re.search(rb"^maxmemory_policy:(\S+)", info, re.MULTILINE)
        return m.StoreChecked(
            action.ref,
            await self._missing(data, wanted),
            "noeviction" if policy is None else policy[1].decode(),
            aside[0][0].decode() if aside else "",
        )

    async def _missing(self, data: bytes, wanted: bytes) -> str:
        """Return what a node that starts would miss; "" if nothing."""
        manifest = self._read_manifest(data)
        if manifest is None:
            reply = await self._run(self._reads, scripts.FETCH, b"", b"", 1, 1)
            entries = _fetched(0, None, reply).entries
            if not entries or entries[0].entry.kind is Kind.GENESIS:
                return "a node cannot start from the log alone" if wanted == _NONE else ""
            what = "cannot be read" if data else "is missing"
            return f"the list of snapshots {what}, and the log has been trimmed"
        newest = manifest.snapshots[0]
        place = (written(newest.last.position), tag(newest.mark))
        id = newest.id.hex().encode()
        found = await self._run(self._reads, scripts.CHECK, id, *place)
        if found:
            return _MISSING[found - 1]
        return "a node cannot start from the newest snapshot" if wanted == id else ""

    async def _swap(self, action: m.SwapManifest) -> bool:
        newest = action.manifest.snapshots[0].mark
        done: int = await self._run(
            self._writes,
            scripts.SWAP,
            self._unreadable if action.expected is None else action.expected.hex().encode(),
            *_named(action.manifest),
            written(newest.position),
            tag(newest),
            b"" if action.trim is None else written(action.trim),
        )
        return done == 1

    async def _claim(self, action: m.ClaimRestore) -> bool:
        done: int = await self._run(
            self._writes,
            scripts.CLAIM,
            *_mark_arguments(action.end),
            action.node.hex().encode(),
            b"%d" % (action.seconds * 1000),
            b"%d" % action.willing,
            b"%d" % action.force,
        )
        return done == 1

    # Commands.

    def _position_arguments(self, after: Mark | None) -> tuple[bytes | int, ...]:
        """The arguments of FETCH and APPEND that say what this node has, and how much it takes."""
        return *_mark_arguments(after), *self._limits

    async def _run(self, link: LogLink, script: LogScript, *arguments: bytes | int) -> Any:
        reply, _ = await self._script(link, script, arguments)
        return reply

    async def _script(
        self,
        link: LogLink,
        script: LogScript,
        arguments: Sequence[bytes | int],
        first: tuple[Command, ...] = (),
        then: Command | None = None,
        longer: float = 0.0,
    ) -> tuple[Any, Any]:
        """Return the replies to a script, and to what is sent behind it; `first`: before it."""
        rest = (script.keys, *self._names[: script.keys], *arguments)
        behind = () if then is None else (then,)
        replies = await link.ask(*first, (b"EVALSHA", script.sha, *rest), *behind, longer=longer)
        for reply in replies[: len(first)]:
            self._checked(reply)
        answer = replies[len(first)]
        if isinstance(answer, Exception) and str(answer).startswith("NOSCRIPT"):
            # Redis does not have it yet, so nothing was done: once more, and with its text.
            replies = await link.ask((b"EVAL", script.text, *rest), *behind)
            answer = replies[0]
        return self._checked(answer), replies[-1]

    async def _ask(self, link: LogLink, command: Command) -> Any:
        return self._checked((await link.ask(command))[0])

    def _checked(self, reply: Any) -> Any:
        if not isinstance(reply, Exception):
            return reply
        text = " ".join(str(reply).split())[:300]
        if not _UNWILLING.search(text):
            self._leave()
            if text.startswith("MOVED"):
                self._redis.switch_to_cluster()  # a URL of one server that is a cluster's node
        raise _ErrorReply(text)

    def _leave(self) -> None:
        """Connect anew, for all: it may have become a replica, or the keys are elsewhere."""
        for link in (self._writes, self._reads, self._news):
            link.close("another connection found that this server does not serve")


def _mark_arguments(mark: Mark | None) -> tuple[bytes, bytes]:
    return (b"", b"") if mark is None else (written(mark.position), tag(mark))


def _named(manifest: m.Manifest) -> tuple[bytes, bytes]:
    ids = b"".join([snapshot.id.hex().encode() for snapshot in manifest.snapshots])
    return manifest_bytes(manifest), ids


def _kind(reply: Any) -> int:
    if isinstance(reply, list) and len(reply) >= 2 and reply[0] in range(4):
        return int(reply[0])
    raise errors.CorruptData("Redis answered a script with what is no answer")


def _fetched(ref: int, after: Mark | None, reply: Any) -> m.Fetched:
    if _kind(reply) not in (_UNMATCHED, _MATCHED) or len(reply) < 3:
        raise errors.CorruptData("Redis answered a fetch with what is no answer")
    end = mark(reply[1], reply[2]) if reply[1] else None
    return m.Fetched(ref, _entries(after, reply), end)


def _entries(after: Mark | None, reply: list[Any]) -> tuple[Placed, ...]:
    """Return the entries of a reply. That of the mark, which scripts leave out if they find it, is
    one without contents: whoever has the mark has applied it."""
    entries = [placed(reply[n], reply[n + 1]) for n in range(3, len(reply) - 1, 2)]
    if after is not None and reply[0] != _UNMATCHED:
        stands_for = LogEntry(after.node, after.attempt, 0, Kind.BARRIER)
        entries.insert(0, Placed(after.position, stands_for))
    return tuple(entries)
