"""No reply is early: when a client reads it, the log's files have what it acknowledges.

Clients send random pipelines. At each reply the test reads what has been appended to the log since
the last one, by `docs/format.md`, and looks for the records. A reply that a key is present counts
too: only keys that are logged may be visible.

The test sees the order of a write and a reply, not of a sync and a reply: a kernel shows data that
is not on the disk. `test_hung_disk.py` holds that one, and `crates/server/tests/handover.rs` plants
early replies in native code (`make shuttle`).
"""

from __future__ import annotations

import os
import random
import selectors
import struct
import sys
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pytest

from bloomery import BloomFilter
from bloomery._native import Cuckoo
from bloomery.service.domain.operations import HASHES, Op, split
from conftest import effort
from integration.conftest import started
from integration.resp.wire import Connection, Refused, Word, request
from integration.servers import PATIENCE, BloomeryServer, Serve
from privates import hashes_of

CLIENTS = 6
PIPELINE = 6  # writes that are sent at once; they must fit into a socket's buffer
RATE = 1e-9  # no test meets a false positive, for which nothing is logged
POOL = 300  # keys that clients share
_HEADER = struct.Struct("<8sIIQQI")
_FRAME = struct.Struct("<IQQ")
_RECORD = struct.Struct("<dQBI")
_HASHER = BloomFilter(1, 0.01)


class Fact(NamedTuple):
    """What a record does to one key, or to a filter if `hash` is empty."""

    op: Op
    name: bytes
    hash: bytes = b""


class LogFollower:
    """Reads the log of a server while the server writes it."""

    def __init__(self, folder: Path) -> None:
        self.facts: Counter[Fact] = Counter()
        self.segments = 0
        self._folder = folder
        self._segment = min(int(path.stem) for path in folder.glob("*.log"))
        self._file = self._open()
        self._at, self._next = _HEADER.size, 1

    def close(self) -> None:
        self._file.close()

    def read(self) -> None:
        """Read what has been appended."""
        self._read_frames()
        while self._path(self._segment + 1).exists():
            self._read_frames()  # the last ones: nothing is appended any more
            self._file.close()
            self._segment += 1
            self._file, self._at = self._open(), _HEADER.size
            self._read_frames()

    def _path(self, segment: int) -> Path:
        return self._folder / f"{segment:08}.log"

    def _open(self) -> BinaryIO:
        self.segments += 1
        return self._path(self._segment).open("rb", buffering=0)

    def _read_frames(self) -> None:
        left = os.fstat(self._file.fileno()).st_size - self._at
        data = os.pread(self._file.fileno(), max(left, 0), self._at)
        at = 0
        while at + _FRAME.size <= len(data):
            _, length, first = _FRAME.unpack_from(data, at)
            end = at + _FRAME.size + length
            if end > len(data):
                break  # the server is writing it
            assert first == self._next, f"the log continues with {first}, not with {self._next}"
            self._read_records(data[at + _FRAME.size : end])
            at = end
        self._at += at

    def _read_records(self, body: bytes) -> None:
        at = 0
        while at < len(body):
            _, _, op, length = _RECORD.unpack_from(body, at)
            at += _RECORD.size + length
            name, data = split(body[at - length : at])
            op = Op.ADD if op in HASHES and op != Op.REMOVE else Op(op)
            hashes = range(0, len(data), 8) if op in HASHES else ()
            facts = [Fact(op, name, data[start : start + 8]) for start in hashes]
            self.facts.update(facts or [Fact(op, name)])
            self._next += 1


class EarlyReply(AssertionError):
    """A reply acknowledges what the log does not have."""


@dataclass
class Command:
    """A command, and what its reply acknowledges for each of its keys."""

    words: tuple[Word, ...]
    facts: list[Fact]
    counts: bool = False  # each acknowledgement needs a record of its own
    if_one: bool = False  # only a reply of 1 acknowledges anything

    def acknowledged(self, reply: Any) -> list[Fact]:
        """Return what a reply acknowledges."""
        replies = reply if isinstance(reply, list) else [reply]
        assert not any(isinstance(one, Refused) for one in replies), (self.words[:3], reply)
        pairs = zip(self.facts, replies, strict=True)
        return [fact for fact, one in pairs if one == 1 or not self.if_one]


class Transaction(list[Command]):
    """The commands that an EXEC answers."""


class Client:
    """A connection that has one random pipeline on its way."""

    def __init__(self, server: BloomeryServer, number: int, seed: int) -> None:
        self.connection = Connection(server.resp_port)
        self.random = random.Random(f"{number} {seed}")
        # What each reply is for; None: it acknowledges nothing.
        self.expected: deque[Command | Transaction | None] = deque()
        self.snapshots = 0.0  # how often a pipeline asks for one
        self._prefix = f"{number}-{seed}-"
        self._made = 0

    def send(self) -> None:
        """Send a pipeline: commands, and transactions of commands."""
        commands = list(chain.from_iterable(self._choose() for _ in range(PIPELINE)))
        words: list[tuple[Word, ...]] = []
        while commands:
            part = [commands.pop(0) for _ in range(min(len(commands), self.random.randrange(1, 5)))]
            if self.random.random() < 0.3:
                words += [("MULTI",), *(one.words for one in part), ("EXEC",)]
                self.expected += [None] * (1 + len(part))
                self.expected.append(Transaction(part))
            else:
                words += [one.words for one in part]
                self.expected += part
        if self.random.random() < self.snapshots:
            words.append(("BGSAVE",))
            self.expected.append(None)
        self.connection.send(b"".join(request(*one) for one in words))

    def _new(self) -> str:
        self._made += 1
        return f"{self._prefix}{self._made}"

    def _key(self) -> str:
        if self.random.random() < 0.5:
            return self._new()
        return f"shared-{self.random.randrange(POOL)}"

    def _choose(self) -> list[Command]:
        count = self.random.choice((1, 1, 2, 30))
        chosen = self.random.randrange(10)
        if chosen < 5:
            name = self.random.choice(("scalable", "bloom"))
            return [self._write_bits(chosen, name, [self._key() for _ in range(count)])]
        if chosen < 9:
            # New keys: a cuckoo filter has room for few copies of a key.
            return [self._write_cuckoo(chosen, [self._new() for _ in range(count)])]
        own = self._new()
        drop = Command(("DEL", own), [Fact(Op.DROP, own.encode())])
        return [reserve(own), self._write_bits(0, own, [self._key()]), drop]

    @staticmethod
    def _write_bits(chosen: int, name: str, keys: list[str]) -> Command:
        facts = [
            Fact(Op.ADD, name.encode(), _HASHER.hash_of(key).to_bytes(8, "little")) for key in keys
        ]
        if chosen == 0:
            return Command(("BF.ADD", name, keys[0]), facts[:1])
        if chosen == 1:
            return Command(("BF.INSERT", name, "NOCREATE", "ITEMS", *keys), facts)
        if chosen == 2:
            return Command(("BF.MEXISTS", name, *keys), facts, if_one=True)
        return Command(("BF.MADD", name, *keys), facts)

    def _write_cuckoo(self, chosen: int, keys: list[str]) -> Command:
        if chosen == 7:
            keys = [f"{self._prefix}{self.random.randrange(self._made) + 1}"]
        facts = [Fact(Op.ADD, b"cuckoo", hashes_of(Cuckoo, key.encode())) for key in keys]
        if chosen == 5:
            return Command(("CF.ADD", "cuckoo", keys[0]), facts[:1], counts=True)
        if chosen == 6:
            return Command(("CF.ADDNX", "cuckoo", keys[0]), facts[:1], counts=True, if_one=True)
        if chosen == 7:
            gone = [facts[0]._replace(op=Op.REMOVE)]
            return Command(("CF.DEL", "cuckoo", keys[0]), gone, counts=True, if_one=True)
        return Command(("CF.INSERT", "cuckoo", "ITEMS", *keys), facts, counts=True)


def reserve(name: str) -> Command:
    return Command(("BF.RESERVE", name, RATE, 1000), [Fact(Op.CREATE, name.encode())])


class Checker:
    """Runs clients, and compares each reply with the log at that moment."""

    def __init__(self, server: BloomeryServer, seed: int) -> None:
        self.log = LogFollower(server.data / "log")
        self.checked = 0
        self._counts: Counter[Fact] = Counter()
        with Connection(server.resp_port) as connection:
            connection.ask(*reserve("scalable").words)
            connection.ask("BF.RESERVE", "bloom", RATE, 1_000_000, "KIND", "bloom")
            connection.ask("CF.RESERVE", "cuckoo", 1 << 20)
        self.clients = [Client(server, number, seed) for number in range(CLIENTS)]

    def close(self) -> None:
        for client in self.clients:
            client.connection.close()
        self.log.close()

    def run(self, pipelines: int, *, snapshots: float = 0.0) -> None:
        """Let the clients send pipelines, and check the replies. Raises EarlyReply."""
        left = pipelines
        with selectors.DefaultSelector() as selector:
            for client in self.clients:
                client.snapshots = snapshots
                selector.register(client.connection.socket, selectors.EVENT_READ, client)
                client.send()
            while selector.get_map():
                ready = selector.select(PATIENCE)
                assert ready, "the server does not reply"
                for key, _ in ready:
                    client = key.data
                    self._receive(client)
                    if client.expected:
                        continue
                    left -= 1
                    if left > 0:
                        client.send()
                    else:
                        selector.unregister(client.connection.socket)

    def _receive(self, client: Client) -> None:
        data = client.connection.socket.recv(1 << 16)
        self.log.read()  # at once: what is logged from now on was logged after the reply
        assert data, "the server has hung up"
        reader = client.connection.reader
        reader.feed(data)
        while (reply := reader.gets()) is not False:
            expected = client.expected.popleft()
            if isinstance(expected, Transaction):
                for command, one in zip(expected, reply, strict=True):
                    self._check(command, one)
            elif expected is not None:
                self._check(expected, reply)

    def _check(self, command: Command, reply: Any) -> None:
        for fact in command.acknowledged(reply):
            self._counts[fact] = self._counts[fact] + 1 if command.counts else 1
            self.checked += 1
            if self.log.facts[fact] < self._counts[fact]:
                raise EarlyReply(f"{command.words[:3]}: {reply}, but the log has no {fact}")


@pytest.fixture
def checker(serve: Serve, fsync: str) -> Iterator[Checker]:
    """Clients of a server with two workers."""
    made = Checker(serve("--fsync", fsync, "--set", "threads=2"), seed=32)
    yield made
    made.close()


@pytest.mark.parametrize("fsync", ["everysec", "always"])
def test_log_has_what_replies_acknowledge(checker: Checker) -> None:
    """Workers write the log, then the control plane, while snapshots are written."""
    checker.run(effort(150, 300, 10_000))
    checker.run(effort(150, 300, 10_000), snapshots=0.05)
    assert checker.log.segments > 1
    assert checker.checked > 1000


# A sequencer that applies and answers a batch, and then writes it.
EARLY = """
import sys
from bloomery.cli import main
from bloomery.service.durability.batch_log import FileBatchLog, _Batch

def write_batch(self, number, records):
    at = max(self.now(), self._engine.state.now, self._engine.shelf.last_at)
    rows = [(at, *record) for record in records]
    self._written(_Batch(number, records, at, []), None)
    self._write(rows)

FileBatchLog._write_batch = write_batch
sys.exit(main(sys.argv[1:]))
"""


class EarlyServer(BloomeryServer):
    """A server whose control plane does not wait for the log."""

    fresh = True

    def command(self) -> list[str]:
        return [sys.executable, "-c", EARLY, *super().command()[3:]]


def test_planted_early_reply_is_found(tmp_path: Path) -> None:
    """The test above finds the defect that it is for. With fsync=always Python writes all
    batches."""
    with started(EarlyServer(tmp_path, "--fsync", "always", "--set", "threads=2")) as server:
        checker = Checker(server, seed=32)
        try:
            with pytest.raises(EarlyReply, match="the log has no Fact"):
                checker.run(1000)
        finally:
            checker.close()
