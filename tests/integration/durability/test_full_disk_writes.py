"""A write that a full disk refuses changes nothing: not in memory, not when there is room again,
and not after a restart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from bloomery import BloomFilter
from integration.conftest import open_folder
from integration.durability.disks import fill, registry_in
from integration.durability.exports import Exports, differences, exports
from integration.http.asking import Raw, at
from integration.resp.wire import Connection, Refused, Wire, Word, request
from integration.servers import BloomeryServer, wait_until
from limits import small_disk

pytestmark = pytest.mark.slow
DISK_BYTES = 24 << 20
RATE = 1e-7  # such that no key of a test collides with another one
KEYS = [f"key {number}" for number in range(100)]
# More than a page of the log: a command that follows these keys finds no room for itself either.
MANY = [f"many {number}" for number in range(1000)]
Command = tuple[Word, ...]

RESERVE = ("BF.RESERVE", "a", RATE, 1000, "KIND", "bloom")
ADD = ("BF.MADD", "a", *KEYS)
OTHER = (("BF.RESERVE", "b", RATE, 1000, "KIND", "bloom"), ("BF.MADD", "b", "other", *KEYS))
PLAIN: tuple[Command, ...] = (RESERVE, ADD)
COUNTING = (("BF.RESERVE", "a", RATE, 1000, "KIND", "counting"), ADD)
ROTATING = (("BF.RESERVE", "a", RATE, 1000, "KIND", "rotating", "WINDOW", "7d"), ADD)
CUCKOO = (("CF.RESERVE", "a", 1024), ("CF.INSERT", "a", "ITEMS", *KEYS))
# Several layers, with room in the oldest one.
LAYERS = (
    ("CF.RESERVE", "a", 32),
    ("CF.INSERT", "a", "ITEMS", *KEYS),
    *(("CF.DEL", "a", key) for key in KEYS[:20]),
)


def saved() -> bytes:
    """Return a filter for RESTORE, which has other keys."""
    filter = BloomFilter(1000, RATE)
    filter.update(["restored", *KEYS])
    return filter.to_bytes()


# What comes before, and what is refused. Each case has names of its own: "a" becomes "DEL a".
CASES: dict[str, tuple[tuple[Command, ...], Command]] = {
    "BF.CLEAR": (PLAIN, ("BF.CLEAR", "a")),
    "DEL": (PLAIN, ("DEL", "a")),
    "UNLINK": (PLAIN, ("UNLINK", "a")),
    "DEL two": ((*PLAIN, *OTHER), ("DEL", "a", "b")),
    "BF.DEL": (COUNTING, ("BF.DEL", "a", KEYS[0])),
    "CF.DEL": (CUCKOO, ("CF.DEL", "a", KEYS[0])),
    "CF.COMPACT": (LAYERS, ("CF.COMPACT", "a")),
    "RENAME": (PLAIN, ("RENAME", "a", "c")),
    "RENAME onto another": ((*PLAIN, *OTHER), ("RENAME", "a", "b")),
    "RENAMENX": (PLAIN, ("RENAMENX", "a", "c")),
    "COPY": (PLAIN, ("COPY", "a", "c")),
    "COPY REPLACE": ((*PLAIN, *OTHER), ("COPY", "a", "b", "REPLACE")),
    "EXPIRE": (PLAIN, ("EXPIRE", "a", 1000)),
    "EXPIRE 0": (PLAIN, ("EXPIRE", "a", 0)),
    "PEXPIREAT past": ((*PLAIN, ("EXPIRE", "a", 1000)), ("PEXPIREAT", "a", 1)),
    "PERSIST": ((*PLAIN, ("EXPIRE", "a", 1000)), ("PERSIST", "a")),
    "BF.MERGE": ((*PLAIN, *OTHER), ("BF.MERGE", "a", "b")),
    "BF.ROTATE": (ROTATING, ("BF.ROTATE", "a")),
    "BF.POLICY": (PLAIN, ("BF.POLICY", "a", "WARNAT", 0.5)),
    "BF.RESERVE": ((), ("BF.RESERVE", "c", RATE, 1000)),
    "CF.RESERVE": ((), ("CF.RESERVE", "c", 1024)),
    "RESTORE": ((), ("RESTORE", "c", 0, saved())),
    "RESTORE REPLACE": (PLAIN, ("RESTORE", "a", 0, saved(), "REPLACE")),
    "RESTORE TTL": (PLAIN, ("RESTORE", "a", 50_000, saved(), "REPLACE")),
    "BF.ADD": (PLAIN, ("BF.ADD", "a", "new")),
    "BF.ADD to none": ((), ("BF.ADD", "c", "new")),
    "BF.MADD": (PLAIN, ("BF.MADD", "a", "new", "newer")),
    "BF.INSERT": (PLAIN, ("BF.INSERT", "a", "ITEMS", "new")),
    "BF.INSERT to none": ((), ("BF.INSERT", "c", "CAPACITY", 10, "ITEMS", "new")),
    "BF.ADD to a counting filter": (COUNTING, ("BF.ADD", "a", KEYS[0])),
    "CF.ADD": (CUCKOO, ("CF.ADD", "a", KEYS[0])),
    "CF.ADDNX": (CUCKOO, ("CF.ADDNX", "a", "new")),
    "CF.INSERT": (CUCKOO, ("CF.INSERT", "a", "ITEMS", "new", "newer")),
    "CF.INSERTNX": (CUCKOO, ("CF.INSERTNX", "a", "ITEMS", "new", "newer")),
}
TRANSACTION = "a transaction"


def own(case: str, command: Command) -> Command:
    """Return a command with the names of its case."""
    return tuple(f"{case} {word}" if word in ("a", "b", "c", "pad") else word for word in command)


@dataclass
class Outcome:
    """What the server answered to each case, and its filters at four moments."""

    replies: dict[str, list[bytes]]
    before: Exports
    full: Exports
    room: Exports
    restarted: Exports

    def changes(self, case: str = "") -> list[str]:
        """Return how the filters of a case changed."""
        lines = []
        for moment in ("full", "room", "restarted"):
            then = _of(case, getattr(self, moment))
            lines += [f"{moment}: {line}" for line in differences(_of(case, self.before), then)]
        return lines


def _of(case: str, found: Exports) -> Exports:
    names = [name for name in found if not case or name.rpartition(" ")[0] == case]
    return {name: found[name] for name in names if name != "probe"}


@contextmanager
def server_on_small_disk() -> Iterator[tuple[BloomeryServer, Path]]:
    """Start a server whose disk has a few MiB."""
    with open_folder() as folder, small_disk(folder / "disk", DISK_BYTES) as disk:
        server = BloomeryServer(folder, *registry_in(folder), data=disk / "data")
        server.start()
        try:
            yield server, disk
        finally:
            server.kill()


def takes_writes(server: BloomeryServer) -> bool:
    with Connection(server.resp_port) as connection:
        # A new key: one that the server has needs no log.
        (reply,) = connection.ask_all([("BF.ADD", "probe", f"key {uuid4()}")])
    return not isinstance(reply, Refused)


def make_room(server: BloomeryServer, ballast: Path) -> None:
    ballast.unlink()
    assert wait_until(lambda: takes_writes(server)), server.printed()


def refuse(cases: dict[str, tuple[list[Command], list[Command]]]) -> Outcome:
    """Make the filters of each case, fill the disk, and send what each case writes, by a connection
    each: the server finds all of it at once. Then make room, and kill the server."""
    with ExitStack() as ends:
        server, disk = ends.enter_context(server_on_small_disk())
        wires = {case: ends.enter_context(Wire(server.resp_port)) for case in cases}
        for case, (setup, _) in cases.items():
            for words in (("PING",), *setup):
                reply = wires[case].ask(*words)
                assert not reply.startswith(b"-"), (words[:3], reply)
        before = exports(server)
        server.freeze()
        ballast = fill(disk)
        for case, (_, writes) in cases.items():
            wires[case].send(b"".join(request(*words) for words in writes))
        server.thaw()
        replies = {case: [wires[case].reply() for _ in cases[case][1]] for case in cases}
        full = exports(server)
        make_room(server, ballast)
        room = exports(server)
        server.kill()
        server.start()
        return Outcome(replies, before, full, room, exports(server))


PAD: tuple[Command, ...] = (("BF.RESERVE", "pad", RATE, 2000, "KIND", "bloom"),)


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """All cases at once: what each of them comes to takes no longer then."""
    cases = {}
    for case, (setup, write) in CASES.items():
        before = [own(case, words) for words in (*PAD, *setup)]
        cases[case] = before, [own(case, words) for words in (("BF.MADD", "pad", *MANY), write)]
    add, clear = ("BF.ADD", "a", "new"), ("BF.CLEAR", "b")
    writes = (("MULTI",), ("BF.MADD", "pad", *MANY), add, clear, ("EXEC",))
    cases[TRANSACTION] = (
        [own(TRANSACTION, words) for words in (*PAD, *PLAIN, *OTHER)],
        [own(TRANSACTION, words) for words in writes],
    )
    return refuse(cases)


@pytest.mark.parametrize("case", CASES)
def test_refused_write_changes_nothing(outcome: Outcome, case: str) -> None:
    """The client gets MISCONF; names, bytes, counts, settings and expiry times stay the same, then
    and later."""
    for reply in outcome.replies[case]:
        assert reply.startswith(b"-MISCONF"), reply
    assert outcome.changes(case) == []


def test_refused_transaction_changes_nothing(outcome: Outcome) -> None:
    """EXEC returns MISCONF, for itself or for each command."""
    assert b"-MISCONF" in outcome.replies[TRANSACTION][-1]
    assert outcome.changes(TRANSACTION) == []


@pytest.mark.parametrize("command", ["FLUSHALL", "FLUSHDB"])
def test_refused_flush_changes_nothing(command: str) -> None:
    """Every filter is still there."""
    setup = [own(command, words) for words in (*PAD, *PLAIN, *OTHER)]
    writes = [own(command, ("BF.MADD", "pad", *MANY)), (command,)]
    outcome = refuse({command: (setup, writes)})
    assert all(reply.startswith(b"-MISCONF") for reply in outcome.replies[command])
    assert outcome.changes() == []


# Each alone, one after the other, until the disk has no room: the last one is refused.
ALONE: dict[str, Command] = {
    "BF.ADD": ("BF.ADD", "a", "new"),
    "BF.CLEAR": ("BF.CLEAR", "a"),
    "DEL": ("DEL", "a"),
    "EXPIRE 0": ("EXPIRE", "a", 0),
    "RENAME": ("RENAME", "a", "c"),
    "HTTP DELETE": ("HTTP", "DELETE", "a", ""),
    "HTTP clear": ("HTTP", "POST", "a", "/clear"),
}
FILTERS = 250  # the last page of the log has no room for as many commands


def observed(connection: Connection, case: str) -> list[str]:
    """Return what a client sees of the filters of a case."""
    commands: list[Command] = [
        ("EXISTS", "a"),
        ("EXISTS", "c"),
        ("BF.MEXISTS", "a", "key", "new"),
        ("BF.CARD", "a"),
        ("PEXPIRETIME", "a"),
    ]
    return [str(reply) for reply in connection.ask_all([own(case, one) for one in commands])]


def write(server: BloomeryServer, connection: Connection, words: Command) -> bool:
    """Send a command or an HTTP request; return whether the server took it."""
    if words[0] == "HTTP":
        _, method, name, rest = map(str, words)
        answer = httpx.request(method, f"{server.url}{at(name)}{rest}", timeout=60)
        assert answer.is_success or answer.json()["code"] == "log-unavailable", answer.text
        return answer.is_success
    (reply,) = connection.ask_all([words])
    assert not isinstance(reply, Refused) or str(reply).startswith("MISCONF"), reply
    return not isinstance(reply, Refused)


def write_until_refused(server: BloomeryServer, case: str, words: Command) -> dict[str, list[str]]:
    """Write to one filter after the other until the server refuses it; return what a client saw of
    each: after its write, and of the last one before it."""
    seen = {}
    with Connection(server.resp_port) as connection:
        for number in range(FILTERS):
            one = f"{case} {number}"
            seen[one] = observed(connection, one)
            if not write(server, connection, own(one, words)):
                return seen
            seen[one] = observed(connection, one)
    raise AssertionError("the disk is never full")


def test_first_refused_write_changes_nothing() -> None:
    """The write by which the server learns that the disk is full changes nothing, and those before
    it stay."""
    expected: dict[str, list[str]] = {}
    wrong: list[str] = []

    def compare(server: BloomeryServer, moment: str) -> None:
        with Connection(server.resp_port) as connection:
            for one, facts in expected.items():
                if (now := observed(connection, one)) != facts:
                    wrong.append(f"{moment}: {one}: was {facts}, is {now}")

    with server_on_small_disk() as (server, disk):
        for case, words in ALONE.items():
            with Connection(server.resp_port) as connection:
                for number in range(FILTERS):
                    name = f"{case} {number} a"
                    setup: list[Command] = [
                        ("BF.RESERVE", name, RATE, 10, "KIND", "bloom"),
                        ("BF.ADD", name, "key"),
                        ("EXPIRE", name, 1000),
                    ]
                    assert connection.ask_all(setup) == [b"OK", 1, 1]
            ballast = fill(disk)
            expected |= write_until_refused(server, case, words)
            compare(server, f"{case}, full")
            make_room(server, ballast)
            compare(server, f"{case}, room")
        server.kill()
        server.start()
        compare(server, "restarted")
    assert not wrong, "\n".join(wrong)


BODIES = {
    "application/json": json.dumps({"keys": MANY}).encode(),
    "application/x-ndjson": "".join(f'"{key}"\n' for key in MANY).encode(),
}


def test_refused_http_request_changes_nothing() -> None:
    """A request that adds keys gets 503 with the code log-unavailable, and adds none of them."""
    with ExitStack() as ends:
        server, disk = ends.enter_context(server_on_small_disk())
        with Connection(server.resp_port) as connection:
            for number in range(len(BODIES)):
                connection.ask("BF.RESERVE", f"http {number}", RATE, 2000, "KIND", "bloom")
                connection.ask("BF.MADD", f"http {number}", *KEYS)
        before = exports(server, prefix="http")
        server.freeze()
        ballast = fill(disk)
        waiting = []
        for number, (media, body) in enumerate(BODIES.items()):
            raw = ends.enter_context(Raw(server.http_port))
            raw.request(f"{at(f'http {number}')}/add", body, **{"Content-Type": media})
            waiting.append(raw)
        server.thaw()
        for raw in waiting:
            status, _, answer = raw.answer()
            assert (status, json.loads(answer)["code"]) == (503, "log-unavailable"), answer
        wrong = [f"full: {line}" for line in differences(before, exports(server, prefix="http"))]
        make_room(server, ballast)
        wrong += [f"room: {line}" for line in differences(before, exports(server, prefix="http"))]
        server.kill()
        server.start()
        wrong += [f"later: {line}" for line in differences(before, exports(server, prefix="http"))]
        assert wrong == []
