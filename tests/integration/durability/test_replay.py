"""A filter that is replayed from the log is the live one: byte for byte, of every kind, however
keys arrived."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import nursery
from bloomery.filters.redisbloom import RedisCuckooFilter
from conftest import effort, require
from integration.durability.exports import differences, exports
from integration.http.asking import at
from integration.resp.wire import Connection, Refused, Word, ask
from integration.servers import BloomeryServer, Serve

pytestmark = pytest.mark.slow
pa = require("pyarrow")
ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"
SIZES = (1, 2, 7, 64, 1000, 4096, 20_000)
STEPS = 8  # per round, which ends in `kill -9`
# High error rates: a key that collides with another one is where live and replay may part.
KINDS: dict[str, dict[str, Any]] = {
    "bloom": {"kind": "bloom", "capacity": 60_000, "error_rate": 0.1},
    "classic": {"kind": "bloom", "layout": "classic", "capacity": 60_000, "error_rate": 0.1},
    "scalable": {"kind": "scalable", "capacity": 1000, "error_rate": 0.25},
    "large-scalable": {"kind": "scalable", "capacity": 1000, "error_rate": 0.25},
    "counting-4": {"kind": "counting", "capacity": 40_000, "error_rate": 0.1},
    "counting-8": {"kind": "counting", "capacity": 40_000, "error_rate": 0.1, "counter_bits": 8},
    "deletable": {"kind": "deletable", "capacity": 60_000, "error_rate": 0.1},
    "cuckoo": {"kind": "cuckoo", "capacity": 40_000, "error_rate": 0.1},
    "growing-cuckoo": {"kind": "cuckoo", "capacity": 1000, "error_rate": 0.1, "grow": True},
    "large-growing-cuckoo": {"kind": "cuckoo", "capacity": 1000, "error_rate": 0.1, "grow": True},
    "rotating": {"kind": "rotating", "capacity": 5000, "error_rate": 0.1, "window": "7d"},
    "rotating-by-keys": {"kind": "rotating", "capacity": 5000, "error_rate": 0.1, "window": None},
    "bank": {"kind": "bank", "capacity": 100, "error_rate": 0.1},
    "http-redisbloom": {"kind": "redisbloom", "capacity": 1000, "error_rate": 0.1},
    "http-rediscuckoo": {"kind": "rediscuckoo", "capacity": 8192},
}
RESERVED: dict[str, tuple[Word, ...]] = {
    "redisbloom": ("BF.RESERVE", 0.1, 1000),
    "nonscaling": ("BF.RESERVE", 0.1, 60_000, "NONSCALING"),
    "rediscuckoo": ("CF.RESERVE", 8192),
    "large-rediscuckoo": ("CF.RESERVE", 8192, "EXPANSION", 64),  # a thread makes its layers
}
# Keys that a filter gets first: a large one grows in a thread.
FIRST_KEYS = {"large-scalable": 300_000, "large-growing-cuckoo": 300_000}
REMOVING = {"counting", "deletable", "cuckoo", "rediscuckoo"}  # words of a kind's name


def removes(kind: str) -> bool:
    return not REMOVING.isdisjoint(kind.split("-"))


class Client:
    """A connection for RESP and one for HTTP. Refusals are fine: a filter may be full, or not be of
    a kind that can do it. Errors of the server are not."""

    def __init__(self, server: BloomeryServer, family: str) -> None:
        self.resp = Connection(server.resp_port)
        self.http = httpx.Client(base_url=server.url, timeout=60)
        self.family = family

    def close(self) -> None:
        self.resp.close()
        self.http.close()

    def ask(self, *commands: tuple[Word, ...]) -> None:
        """Send commands in one pipeline."""
        for words, reply in zip(commands, self.resp.ask_all(commands), strict=True):
            for one in reply if isinstance(reply, list) else [reply]:
                assert not _broken(one), f"{words[:3]!r}: {one}"

    def post(self, name: str, operation: str, content: bytes, media: str) -> None:
        path, headers = f"{at(name)}/{operation}", {"Content-Type": media}
        answer = self.http.post(path, content=content, headers=headers)
        # 507: one more layer would be too large.
        assert answer.status_code < 500 or answer.status_code == 507, answer.text


def _broken(reply: object) -> bool:
    return isinstance(reply, Refused) and ("MISCONF" in str(reply) or "internal" in str(reply))


def as_json(keys: list[str]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def as_ndjson(keys: list[str]) -> bytes:
    return "".join(f"{json.dumps(key)}\n" for key in keys).encode()


def as_arrow(keys: list[str]) -> bytes:
    file = io.BytesIO()
    table = pa.table({"key": pa.array(keys, pa.string())})
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


BODIES: dict[str, Callable[[list[str]], bytes]] = {
    "application/json": as_json,
    NDJSON: as_ndjson,
    ARROW: as_arrow,
}


class History:
    """Random writes of every sort to one filter, its copies, and one to merge it with."""

    def __init__(self, server: BloomeryServer, kind: str, seed: str) -> None:
        self.server = server
        self.kind = kind
        self.random = random.Random(seed)
        self.family = "CF" if "rediscuckoo" in kind else "BF"
        self.name = "filter"
        self.used = 0  # key n was used for each n below
        for name in (self.name, "other"):
            if kind in RESERVED:
                command, *settings = RESERVED[kind]
                assert ask(server.resp_port, command, name, *settings) == b"OK"
            else:
                made = httpx.post(f"{server.url}/filters", json={"name": name, **KINDS[kind]})
                assert made.status_code == 201, made.text
        self._fill(FIRST_KEYS.get(kind, 0))

    def _fill(self, count: int) -> None:
        with Connection(self.server.resp_port) as connection:
            while self.used < count:
                keys = [self.key(self.used + at) for at in range(4000)]
                connection.ask("BF.MADD", self.name, *keys)
                self.used += len(keys)

    def run(self, steps: int) -> None:
        """Write."""
        client = Client(self.server, self.family)
        choices = (self.add, self.add, self.add, self.remove, self.write_at_once, self.change)
        try:
            for _ in range(steps):
                self.random.choice(choices)(client)
        finally:
            client.close()

    def batch(self) -> list[str]:
        """Return keys, in any order: new, known or mixed ones, some of them twice."""
        size, known = self.random.choice(SIZES), self.random.choice((0.0, 0.0, 0.3, 1.0))
        keys = []
        for _ in range(size):
            if self.random.random() < known and self.used:
                keys.append(self.key(self.random.randrange(self.used)))
            else:
                keys.append(self.key(self.used))
                self.used += 1
        if self.random.random() < 0.2:
            keys += keys[: self.random.randrange(64)]
        return keys

    def key(self, number: int) -> str:
        return f"user {number % 13}\tkey {number}" if self.kind == "bank" else f"key {number}"

    def add(self, client: Client) -> None:
        self._send(client, self.random, self.name, self.batch())

    def _send(self, client: Client, rng: random.Random, name: str, keys: list[str]) -> None:
        """Add keys, by any way that there is. `rng` is the thread's."""
        few, family = keys[:1000], client.family
        verbs = ("ADD", "ADDNX") if family == "CF" else ("ADD",)
        inserts = ("INSERT", "INSERTNX") if family == "CF" else ("INSERT",)
        way = rng.choice(("pipeline", "many", "transaction", *BODIES))
        if way in BODIES:
            client.post(name, "add", BODIES[way](keys), way)
        elif way == "pipeline":
            client.ask(*((f"{family}.{rng.choice(verbs)}", name, key) for key in few))
        elif way == "many" and family == "BF" and rng.random() < 0.5:
            client.ask(("BF.MADD", name, *keys))
        elif way == "many":
            insert = f"{family}.{rng.choice(inserts)}"
            client.ask((insert, name, "NOCREATE", "ITEMS", *keys))
        else:
            half = [(f"{family}.{rng.choice(verbs)}", name, key) for key in few[::2]]
            rest = (f"{family}.{rng.choice(inserts)}", name, "ITEMS", *few[1::2], "last")
            client.ask(("MULTI",), *half, rest, ("EXEC",))

    def remove(self, client: Client) -> None:
        if not removes(self.kind) or not self.used:
            return
        numbers = [self.random.randrange(self.used + 2) for _ in range(self.random.choice(SIZES))]
        keys = [self.key(number) for number in numbers[:4096]]
        way = self.random.choice(("pipeline", "transaction", *BODIES))
        commands = [(f"{self.family}.DEL", self.name, key) for key in keys[:1000]]
        if way in BODIES:
            client.post(self.name, "remove", BODIES[way](keys), way)
        elif way == "pipeline":
            client.ask(*commands)
        else:
            client.ask(("MULTI",), *commands, ("EXEC",))

    def write_at_once(self, client: Client) -> None:
        """Write by several connections at the same time, to two filters."""
        plans = [
            (random.Random(self.random.random()), name, [self.batch() for _ in range(3)])
            for name in (self.name, self.name, "other")
        ]

        def write(plan: tuple[random.Random, str, list[list[str]]]) -> None:
            rng, name, batches = plan
            own = Client(self.server, self.family)
            try:
                for keys in batches:
                    self._send(own, rng, name, keys[:4096])
            finally:
                own.close()

        with ThreadPoolExecutor(len(plans)) as pool:
            list(pool.map(write, plans))

    def change(self, client: Client) -> None:
        """Do something to all of the filter, often amid adds in one pipeline."""
        name, new = self.name, f"filter {self.random.randrange(1 << 30)}"
        few = [self.key(self.random.randrange(self.used + 50)) for _ in range(20)]
        ttl = self.random.randrange(4000, 90_000)
        choices: list[tuple[Word, ...]] = [
            ("BF.MERGE", name, "other"),
            ("COPY", name, "copy", "REPLACE"),
            ("RENAME", name, new),
            ("BF.ROTATE", name),
            ("EXPIRE", name, ttl),
            ("PERSIST", name),
            ("BF.POLICY", name, "WARNAT", self.random.randrange(1, 100) / 100),
        ]
        if self.kind != "bank":  # whose file has the number of the last flush (docs/format.md)
            choices.append(("SAVE",))
        # Rare, because a filter that is cleared again and again holds little.
        if self.random.random() < 0.15 and self.kind not in FIRST_KEYS:
            choices = [("BF.CLEAR", name), ("CF.COMPACT", name)]
        chosen = self.random.choice(choices)
        adds = [(f"{self.family}.ADD", name, key) for key in few]
        after = [(f"{self.family}.ADD", new if chosen[0] == "RENAME" else name, "after")]
        client.ask(*(adds if self.random.random() < 0.5 else []), chosen, *after)
        if chosen[0] == "RENAME":
            self.name = new


def check_replay(server: BloomeryServer, what: str) -> None:
    """Kill the server, start it again, and compare its filters with those it had."""
    before = exports(server)
    server.kill()
    server.start()
    wrong = differences(before, exports(server))
    assert not wrong, "\n".join([f"replay is not live memory: {what}", *wrong])
    with Connection(server.resp_port) as connection:
        assert connection.info()["recovery_problems"] == "0", server.printed()


@pytest.mark.parametrize("kind", [*KINDS, *RESERVED])
def test_replay_equals_live_memory(serve: Serve, kind: str) -> None:
    """After any writes, by any protocol, a start after `kill -9` leads to the same bytes, counts,
    settings and expiry times."""
    server = serve("--bf-layout", "redisbloom", "--maxmemory", "256mb")
    for number in range(effort(1, 1, 60)):
        seed = f"{kind} {number}"
        ask(server.resp_port, "FLUSHALL")
        history = History(server, kind, seed)
        for _ in range(2):
            history.run(STEPS)
            check_replay(server, f"seed {seed!r}")


@pytest.mark.parametrize(
    "kind", ["counting-4", "deletable", "cuckoo", "growing-cuckoo", "rediscuckoo"]
)
def test_count_after_removed_copies(serve: Serve, kind: str) -> None:
    """Removing more copies than there were distinct keys leaves a count of 0, from which live and
    replayed filters count on alike."""
    server = serve()
    history = History(server, kind, "copies")
    family, name = history.family, history.name
    keys = [history.key(number) for number in range(10_000_000, 10_000_064)]
    new = [history.key(number) for number in range(20_000_000, 20_000_100)]
    client = Client(server, family)
    try:
        for verb, words in (("ADD", keys * 2), ("DEL", keys * 2), ("ADD", new)):
            client.ask(*((f"{family}.{verb}", name, key) for key in words))
    finally:
        client.close()
    check_replay(server, "copies")


def test_large_layer_is_needed_in_the_middle_of_a_batch(serve: Serve) -> None:
    """The worker adds the first keys of a record, and the control plane the others once there is
    memory for the layer: the filter is as if one process had added them."""
    server, plain = serve(), RedisCuckooFilter(capacity=100_000, expansion=16)
    keys = [b"key %d" % number for number in range(140_000)]
    with Connection(server.resp_port) as connection:
        connection.ask("CF.RESERVE", "f", 100_000, "EXPANSION", 16)
        for start in range(0, len(keys), 5000):
            some = keys[start : start + 5000]
            assert connection.ask_all([("CF.ADD", "f", key) for key in some]) == [1] * len(some)
            for key in some:
                plain.add(key)
        assert plain.num_layers == 2
        at, part = connection.ask("CF.SCANDUMP", "f", 0)
        position, expected = plain.chunk(0)
        while at:
            assert (at, part) == (position, expected)
            at, part = connection.ask("CF.SCANDUMP", "f", at)
            position, expected = plain.chunk(position)
        assert position == 0
    check_replay(server, "large layer")


# A filter that grows. At 482,000 keys (1%: 501,000) its slots become narrower. A server that grows
# ahead of a batch and a replay that grows by need then disagree on which keys collide.
GROWS_AT = {0.25: 482_000, 0.01: 501_000}


def begin(connection: Connection, error_rate: float, keys: list[str], rest: int) -> None:
    """Add all but the last `rest` keys to a new filter, which then has room for little more."""
    connection.ask("BF.RESERVE", "f", error_rate, 1000)
    add(connection, keys[:-rest])


def add(connection: Connection, keys: list[str]) -> None:
    for start in range(0, len(keys), 4096):
        connection.ask("BF.MADD", "f", *keys[start : start + 4096])


def missing(connection: Connection, keys: list[str]) -> list[str]:
    """Return the keys that the filter definitely does not have."""
    found = []
    for start in range(0, len(keys), 10_000):
        part = keys[start : start + 10_000]
        answers = connection.ask("BF.MEXISTS", "f", *part)
        found += [key for key, answer in zip(part, answers, strict=True) if not answer]
    return found


def keys_below(count: int) -> list[str]:
    return [f"key-{number}" for number in range(count)]


def check_keys(server: BloomeryServer, keys: list[str]) -> None:
    """Kill the server: each key is still there, and the filter is the same."""
    with Connection(server.resp_port) as connection:
        assert missing(connection, keys) == []
    before = exports(server)
    server.kill()
    server.start()
    with Connection(server.resp_port) as connection:
        lost = missing(connection, keys)
    assert not lost, f"{len(lost)} of {len(keys)} acknowledged keys are lost: {lost[:5]}"
    assert differences(before, exports(server)) == []


def test_known_keys_before_growth_lose_nothing(serve: Serve) -> None:
    """Keys that a filter has already, added again just before it grows, cost no other key."""
    server, keys = serve(), keys_below(GROWS_AT[0.25])
    with Connection(server.resp_port) as connection:
        begin(connection, 0.25, keys, 3400)
        connection.ask("BF.MADD", "f", *keys[:4096])
        add(connection, keys[-3400:])
    check_keys(server, keys)


def test_new_keys_before_growth_lose_nothing(serve: Serve) -> None:
    """The same with a batch of new keys."""
    server, keys = serve(), keys_below(GROWS_AT[0.25])
    with Connection(server.resp_port) as connection:
        begin(connection, 0.25, keys, 3400)
        connection.ask("BF.MADD", "f", *keys[-3400:])
    check_keys(server, keys)


@pytest.mark.parametrize("error_rate", GROWS_AT)
def test_arrow_batch_before_growth_loses_nothing(serve: Serve, error_rate: float) -> None:
    """An Arrow batch is added 16,384 keys at a time: here all of them are known."""
    server, keys, rest = serve(), keys_below(GROWS_AT[error_rate]), 15_000
    with Connection(server.resp_port) as connection:
        begin(connection, error_rate, keys, rest)
        headers = {"Content-Type": ARROW}
        url = f"{server.url}/filters/f/add"
        done = httpx.post(url, content=as_arrow(keys[:16_384]), headers=headers, timeout=60)
        assert done.json() == {"keys": 16_384, "new": 0}
        add(connection, keys[-rest:])
    check_keys(server, keys)


def test_backup_before_growth_loses_nothing(serve: Serve, tmp_path: Path) -> None:
    """A backup of a live filter restores it: snapshots are made from the log, too."""
    server, keys = serve(), keys_below(GROWS_AT[0.25])
    with Connection(server.resp_port) as connection:
        begin(connection, 0.25, keys, 3400)
        connection.ask("BF.MADD", "f", *keys[:4096])
        add(connection, keys[-3400:])
    before = exports(server)
    backup = httpx.get(f"{server.url}/backup", timeout=60)
    assert backup.status_code == 200, backup.text
    (tmp_path / "backup").write_bytes(backup.content)
    done = nursery.run(["restore", str(tmp_path / "backup"), "--data", str(tmp_path / "made")])
    assert done.returncode == 0, done.stderr
    restored = serve(data=tmp_path / "made")
    with Connection(restored.resp_port) as connection:
        lost = missing(connection, keys)
    assert not lost, f"{len(lost)} of {len(keys)} acknowledged keys are lost: {lost[:5]}"
    assert differences(before, exports(restored)) == []
