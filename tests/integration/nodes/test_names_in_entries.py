"""Operations on names at two nodes that hear of each other late: the nodes reply, and end up, as a
single server that runs one operation at a time.

An entry of the log that has a filter's number where the client gave a name, or was decided by a
copy that is not the log's last state, breaks this: another node may have renamed, dropped or
replaced the filter before the entry.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import redis

from conftest import effort
from integration.nodes.fleet import Fleet, client_at
from integration.nodes.histories import (
    BUSY,
    DUMPED,
    ERRORS,
    EXISTS,
    NO_SUCH_KEY,
    NOT_FOUND,
    UNKNOWN,
    Filters,
    Operation,
    Reply,
    Words,
    described,
    explain,
    outcome,
)
from integration.nodes.proxy import Proxy
from integration.servers import BloomeryServer, RedisServer, Serve

DELAY = 0.008  # seconds from a node to Redis, and as many back
LATE = 0.020
ROUNDS = effort(8, 12, 100)
RATE, CAPACITY = 1e-6, 1000
BINARY = {"content-type": "application/octet-stream"}

Send = Callable[["Pair", int, Words], Reply]


class Pair:
    """Two nodes, each with a slow link to Redis, and the clients of a test."""

    def __init__(self, nodes: Sequence[BloomeryServer], links: Sequence[Proxy] = ()) -> None:
        self._links = links
        self.local = [client_at(node.resp_port) for node in nodes]
        self.strong = [client_at(node.resp_port, strong=True) for node in nodes]
        self.http = [httpx.Client(base_url=node.url, timeout=20) for node in nodes]
        self._rounds = 0
        self.local[0].execute_command("BF.RESERVE", "source of dumps", RATE, CAPACITY)
        self.local[0].execute_command("BF.MADD", "source of dumps", *DUMPED)
        self.dump: bytes = self.local[0].dump("source of dumps")

    def close(self) -> None:
        """Close the clients' connections."""
        for client in (*self.local, *self.strong, *self.http):
            client.close()

    def delay(self, *seconds: float) -> None:
        """Set how far each node is away from Redis, one way."""
        for link, one in zip(self._links, seconds, strict=True):
            link.delay = one

    def names(self, *names: str) -> list[str]:
        """Return names that no round before had."""
        self._rounds += 1
        return [f"{name}-{self._rounds}" for name in names]

    def make(self, filters: Filters) -> None:
        """Make filters with these keys at the first node, and have the second hear of them."""
        for name, keys in filters.items():
            self.local[0].execute_command("BF.RESERVE", name, RATE, CAPACITY)
            if keys:
                self.local[0].execute_command("BF.MADD", name, *keys)
        assert not filters or self.strong[1].exists(*filters) == len(filters)

    def knows(self, name: str, key: str, command: str = "BF.EXISTS") -> list[int]:
        """Return the answers of both nodes to a strong read."""
        return [int(client.execute_command(command, name, key)) for client in self.strong]

    def run(self, *scripts: tuple[int, Send, Sequence[Words]]) -> list[Operation]:
        """Let one client for each script send its operations, one after the other; all clients
        start at the same time. Return the operations with their replies."""
        start = threading.Barrier(len(scripts))

        def client(node: int, send: Send, script: Sequence[Words]) -> list[Operation]:
            start.wait()
            done = []
            for words in script:
                sent = time.monotonic()
                reply = send(self, node, words)
                done.append(Operation(node, words, sent, time.monotonic(), reply))
            return done

        with ThreadPoolExecutor(len(scripts)) as threads:
            running = [threads.submit(client, *script) for script in scripts]
            return [operation for one in running for operation in one.result()]

    def read(self, names: Sequence[str], keys: Sequence[str]) -> list[Operation]:
        """Ask both nodes for all keys, by strong reads."""
        reads = [("BF.MEXISTS", name, *keys) for name in names]
        both = [self.run((node, by_strong_resp, reads)) for node in (0, 1)]
        return both[0] + both[1]

    def require_explained(
        self, start: Filters, history: Sequence[Operation], names: Sequence[str]
    ) -> None:
        """Fail unless some order of the operations gives every reply and the filters there are. No
        reply may be unknown: the nodes reach Redis, so each operation was done, or was not."""
        keys = sorted({key for held in start.values() for key in held} | DUMPED)
        keys += [one.words[-1] for one in history if one.words[0] in ("BF.ADD", "BF.INSERT")]
        whole = [*history, *self.read(names, keys)]
        assert explain(start, whole) is not None, described(start, whole)
        assert not any(one.is_unknown for one in whole), described(start, whole)


def by_resp(pair: Pair, node: int, words: Words) -> Reply:
    """Send an operation of the model by the Redis protocol."""
    return _resp(pair.local[node], pair.dump, words)


def by_strong_resp(pair: Pair, node: int, words: Words) -> Reply:
    """Do the same with strong reads."""
    return _resp(pair.strong[node], pair.dump, words)


def _resp(client: Any, dump: bytes, words: Words) -> Reply:
    sent: list[Any] = [*words]
    if words[0] == "BF.RESERVE":
        sent += [RATE, CAPACITY]
    elif words[0] == "RESTORE":
        sent[2:2] = [0, dump]
    elif words[0] == "BF.INSERT":
        sent.insert(-1, "ITEMS")
    try:
        reply = client.execute_command(*sent)
    except redis.ResponseError as problem:
        return next((error for error in ERRORS if error in str(problem)), f"{UNKNOWN}{problem}")
    if words[0] == "BF.MEXISTS":
        return tuple(map(int, reply))
    if isinstance(reply, list):
        (reply,) = reply
    return 1 if reply in (b"OK", "OK") else int(reply)


def by_http(pair: Pair, node: int, words: Words) -> Reply:
    """Send an operation by HTTP: RENAMENX, DEL, RESTORE, BF.RESERVE or BF.INSERT NOCREATE."""
    http, path = pair.http[node], f"/filters/{words[1]}"
    replies: dict[int, Reply]
    match words:
        case ("BF.RESERVE", name):
            new = {"name": name, "capacity": CAPACITY, "error_rate": RATE}
            response, replies = http.post("/filters", json=new), {201: 1, 409: EXISTS}
        case ("RESTORE", _, *options):
            query = {"replace": "true" if options else "false"}
            response = http.put(f"{path}/file", params=query, content=pair.dump, headers=BINARY)
            replies = {200: 1, 201: 1, 409: BUSY}
        case ("DEL", _):
            response, replies = http.delete(path), {204: 1, 404: 0}
        case ("RENAMENX", _, to):
            response = http.patch(path, json={"name": to})
            replies = {200: 1, 409: 0, 404: NO_SUCH_KEY}
        case ("BF.INSERT", _, "NOCREATE", key):
            response, replies = http.post(f"{path}/add", json={"key": key}), {404: NOT_FOUND}
            if response.status_code == 200:
                return int(response.json()["new"])
        case _:
            raise AssertionError(words)
    return replies.get(response.status_code, f"{UNKNOWN}{response.text}")


@pytest.fixture(scope="module")
def _pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    server: RedisServer = request.getfixturevalue("_redis")
    server.ask(b"FLUSHALL\r\n")
    with (
        Proxy(server.address) as one,
        Proxy(server.address) as other,
        Fleet(tmp_path_factory.mktemp("pair"), [one.url, other.url]) as fleet,
    ):
        made = Pair(fleet.nodes, [one, other])
        yield made
        made.close()


@pytest.fixture
def pair(_pair: Pair) -> Pair:
    """Two nodes, each 8 ms away from Redis."""
    _pair.delay(DELAY, DELAY)
    return _pair


@pytest.fixture
def late(_pair: Pair) -> Pair:
    """Two nodes, of which the second hears of writes late: the first has done several by then."""
    _pair.delay(0, LATE)
    return _pair


# A key that is added under a name after another node renamed that name's filter.

MANY = [f"many {number}" for number in range(5000)]  # more keys than native code does at once
ADDS: dict[str, Callable[[str, str], tuple[Any, ...]]] = {
    "BF.ADD": lambda name, key: ("BF.ADD", name, key),
    "BF.MADD": lambda name, key: ("BF.MADD", name, key, "another"),
    "BF.MADD of many": lambda name, key: ("BF.MADD", name, key, *MANY),
    "BF.INSERT": lambda name, key: ("BF.INSERT", name, "ITEMS", key),
    "CF.ADD": lambda name, key: ("CF.ADD", name, key),
    "CF.ADDNX": lambda name, key: ("CF.ADDNX", name, key),
    "CF.INSERT": lambda name, key: ("CF.INSERT", name, "ITEMS", key),
}


def _reserve(how: str, name: str) -> tuple[Any, ...]:
    if how.startswith("CF."):
        return ("CF.RESERVE", name, 20_000)
    return ("BF.RESERVE", name, RATE, 20_000, "KIND", "bloom")


@pytest.mark.parametrize("again", [False, True], ids=["free", "reserved again"])
@pytest.mark.parametrize("how", ADDS)
def test_key_added_after_a_rename_is_under_its_name(late: Pair, how: str, again: bool) -> None:
    """One node has acknowledged RENAME, and BF.RESERVE of the old name if `again`. An add under the
    old name, at a node that may not have heard of that, is for the filter that has the name now."""
    wrong = []
    for number in range(ROUNDS):
        old, new = late.names("old", "new")
        late.local[0].execute_command(*_reserve(how, old))
        assert late.strong[1].exists(old) == 1
        late.local[0].rename(old, new)
        if again:
            late.local[0].execute_command(*_reserve(how, old))
        reply = late.local[1].execute_command(*ADDS[how](old, "alice"))
        answers = reply if isinstance(reply, list) else [reply]
        # Each key is new. Of thousands, at most a hundredth may be false positives.
        assert sum(answers) >= len(answers) - len(answers) // 100, reply
        read = f"{how[:2]}.EXISTS"
        found = (late.knows(old, "alice", read), late.knows(new, "alice", read))
        if found != ([1, 1], [0, 0]):
            wrong.append((number, *found))
    assert not wrong, f"{len(wrong)} of {ROUNDS}: {wrong}"


def test_key_added_over_http_after_a_rename_is_under_its_name(late: Pair) -> None:
    """If the name has no filter any more, the answer is 404."""
    wrong = []
    for number in range(ROUNDS):
        again = number % 2 == 1
        old, new = late.names("old", "new")
        late.make({old: frozenset()})
        late.local[0].rename(old, new)
        if again:
            late.local[0].execute_command("BF.RESERVE", old, RATE, CAPACITY)
        answer = late.http[1].post(f"/filters/{old}/add", json={"keys": ["alice"]})
        found = (answer.status_code, late.knows(old, "alice"), late.knows(new, "alice"))
        expected = (200, [1, 1], [0, 0]) if again else (404, [0, 0], [0, 0])
        if found != expected:
            wrong.append((number, *found))
    assert not wrong, f"{len(wrong)} of {ROUNDS}: {wrong}"


REMOVALS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...], str]] = {
    "CF.DEL": (("CF.RESERVE", CAPACITY), ("CF.ADD",), "CF.EXISTS"),
    "BF.DEL": (("BF.RESERVE", RATE, CAPACITY, "KIND", "counting"), ("BF.ADD",), "BF.EXISTS"),
}


@pytest.mark.parametrize("how", REMOVALS)
def test_key_removed_after_a_rename_stays_in_the_renamed_filter(late: Pair, how: str) -> None:
    """The filter that has the old name now does not have the key, so the reply is 0."""
    (reserve, *settings), (add,), read = REMOVALS[how]
    wrong = []
    for number in range(ROUNDS):
        old, new = late.names("old", "new")
        late.local[0].execute_command(reserve, old, *settings)
        late.local[0].execute_command(add, old, "alice")
        assert late.strong[1].execute_command(read, old, "alice") == 1
        late.local[0].rename(old, new)
        late.local[0].execute_command(reserve, old, *settings)
        reply = late.local[1].execute_command(how, old, "alice")
        found = (reply, late.knows(new, "alice", read))
        if found != (0, [1, 1]):
            wrong.append((number, *found))
    assert not wrong, f"{len(wrong)} of {ROUNDS}: {wrong}"


# Two operations at the same time, of which a single server does one or the other.


@pytest.mark.parametrize("send", [by_resp, by_http], ids=["resp", "http"])
def test_rename_and_drop_of_one_filter_do_not_both_succeed(pair: Pair, send: Send) -> None:
    """Either the filter is dropped and the rename fails, or the old name has no filter to drop."""
    for _ in range(ROUNDS):
        old, new = pair.names("old", "new")
        start = {old: frozenset({"alice"})}
        pair.make(start)
        rename = [("RENAME" if send is by_resp else "RENAMENX", old, new)]
        history = pair.run((0, send, rename), (1, send, [("DEL", old)]))
        pair.require_explained(start, history, [old, new])


def test_one_filter_is_renamed_once(pair: Pair) -> None:
    """Two nodes rename it, each to another name: one of them finds no such filter."""
    for _ in range(ROUNDS):
        old, one, other = pair.names("old", "one", "other")
        start = {old: frozenset({"alice"})}
        pair.make(start)
        renames = [[("RENAME", old, one)], [("RENAME", old, other)]]
        history = pair.run((0, by_resp, renames[0]), (1, by_resp, renames[1]))
        pair.require_explained(start, history, [old, one, other])


@pytest.mark.parametrize(
    ("verb", "send"),
    [
        ("COPY", by_resp),
        ("RENAMENX", by_resp),
        ("RENAMENX", by_http),
        ("RESTORE", by_resp),
        ("RESTORE", by_http),
        ("BF.RESERVE", by_resp),
        ("BF.RESERVE", by_http),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_name_is_given_once(pair: Pair, verb: str, send: Send) -> None:
    """Two nodes give one free name to a filter, each only if it is free: one of them succeeds."""
    for _ in range(ROUNDS):
        one, other, target = pair.names("one", "other", "target")
        start = {one: frozenset({"alice"}), other: frozenset({"bob"})}
        pair.make(start)
        takes_source = verb in ("COPY", "RENAMENX")
        scripts: list[Words] = [
            (verb, source, target) if takes_source else (verb, target) for source in (one, other)
        ]
        history = pair.run((0, send, scripts[:1]), (1, send, scripts[1:]))
        assert sum(operation.reply == 1 for operation in history) <= 1, described(start, history)
        pair.require_explained(start, history, [one, other, target])


# A filter that is replaced.

REPLACES: dict[str, Callable[[Pair, str, str], Reply]] = {
    "RESTORE": lambda pair, name, other: by_resp(pair, 0, ("RESTORE", name, "REPLACE")),
    "PUT": lambda pair, name, other: by_http(pair, 0, ("RESTORE", name, "REPLACE")),
    "COPY": lambda pair, name, other: by_resp(pair, 0, ("COPY", other, name, "REPLACE")),
    "RENAME": lambda pair, name, other: by_resp(pair, 0, ("RENAME", other, name)),
}


@pytest.mark.parametrize("how", REPLACES)
def test_key_of_both_filters_is_never_denied_while_one_replaces_the_other(
    pair: Pair, how: str
) -> None:
    """The old and the new filter both have the key, so every strong read finds it."""
    name, other = pair.names("name", "other")
    (key,) = DUMPED
    pair.make({name: DUMPED, other: DUMPED})
    answers: list[int] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            answers.append(int(pair.strong[1].execute_command("BF.EXISTS", name, key)))

    with ThreadPoolExecutor(1) as thread:
        asking = thread.submit(ask)
        try:
            for _ in range(2 * ROUNDS):
                assert REPLACES[how](pair, name, other) == 1
                if how == "RENAME":
                    assert by_resp(pair, 0, ("COPY", name, other)) == 1
        finally:
            done.set()
        asking.result()
    assert len(answers) > ROUNDS
    assert 0 not in answers, f"{answers.count(0)} of {len(answers)}"


# Anything at once.


def _any_operation(some: random.Random, names: Sequence[str], number: int) -> Words:
    name, to = some.sample(names, 2)
    operations: list[Words] = [
        ("BF.RESERVE", name),
        ("RENAME", name, to),
        ("RENAMENX", name, to),
        ("COPY", name, to),
        ("COPY", name, to, "REPLACE"),
        ("DEL", name),
        ("BF.ADD", name, f"key {number}"),
        ("BF.INSERT", name, "NOCREATE", f"key {number}"),
        ("RESTORE", name),
        ("RESTORE", name, "REPLACE"),
    ]
    return some.choice(operations)


def _require_linearizable(pair: Pair, rounds: int) -> None:
    some = random.Random(20261118)
    unexplained = []
    for _ in range(rounds):
        names = pair.names("a", "b", "c")
        start: Filters = {
            name: frozenset({f"first {name}"}) for name in names if some.random() < 0.7
        }
        pair.make(start)
        script = [_any_operation(some, names, number) for number in range(some.randint(3, 6))]
        scripts = [script[at::4] for at in range(4)]
        history = pair.run(
            *((at % 2, by_resp, script) for at, script in enumerate(scripts) if script)
        )
        try:
            pair.require_explained(start, history, names)
        except AssertionError as problem:
            unexplained.append(str(problem))
    assert not unexplained, f"{len(unexplained)} of {rounds} rounds:\n" + "\n".join(unexplained[:3])


@pytest.mark.timeout(300)
def test_concurrent_operations_are_linearizable(pair: Pair) -> None:
    """Two clients of each node send up to six operations on three names at once. Some order of them
    explains every reply, and what strong reads find afterwards at both nodes."""
    _require_linearizable(pair, effort(25, 50, 1000))


def test_concurrent_operations_on_one_server_are_linearizable(serve: Serve) -> None:
    """The same clients, all of one server without a store: the check does not ask for more."""
    server = serve()
    pair = Pair([server, server])
    try:
        _require_linearizable(pair, effort(100, 200, 1000))
    finally:
        pair.close()


# The model and the search.


def _history(*operations: tuple[Words, float, float, Reply]) -> list[Operation]:
    return [Operation(0, words, sent, ends, reply) for words, sent, ends, reply in operations]


def test_search_finds_an_order() -> None:
    """An add that crossed a rename may be in either filter."""
    start = {"a": frozenset({"x"})}
    add: tuple[Words, float, float, Reply] = (("BF.ADD", "a", "y"), 0, 2, 1)
    rename: tuple[Words, float, float, Reply] = (("RENAME", "a", "b"), 1, 3, 1)
    for in_b, in_a in ((1, 0), (0, 1)):
        reads: list[tuple[Words, float, float, Reply]] = [
            (("BF.MEXISTS", "b", "y"), 4, 5, (in_b,)),
            (("BF.MEXISTS", "a", "y"), 6, 7, (in_a,)),
        ]
        assert explain(start, _history(add, rename, *reads)) is not None
    lost: list[tuple[Words, float, float, Reply]] = [
        (("BF.MEXISTS", "b", "y"), 4, 5, (0,)),
        (("BF.MEXISTS", "a", "y"), 6, 7, (0,)),
    ]
    assert explain(start, _history(add, rename, *lost)) is None


def test_search_keeps_the_order_of_operations_that_did_not_overlap() -> None:
    """An add that was sent after the rename's reply is not in the renamed filter."""
    start = {"a": frozenset({"x"})}
    history = _history(
        (("RENAME", "a", "b"), 0, 1, 1),
        (("BF.ADD", "a", "y"), 2, 3, 1),
        (("BF.MEXISTS", "b", "y"), 4, 5, (1,)),
    )
    assert explain(start, history) is None
    assert explain(start, [*history[:2], Operation(0, ("BF.MEXISTS", "b", "y"), 4, 5, (0,))])


def test_search_refuses_a_rename_and_a_drop_that_both_succeeded() -> None:
    """One of them found no filter."""
    start = {"a": frozenset({"x"})}
    both = _history((("RENAME", "a", "b"), 0, 2, 1), (("DEL", "a"), 1, 3, 1))
    assert explain(start, both) is None
    one = _history((("RENAME", "a", "b"), 0, 2, NO_SUCH_KEY), (("DEL", "a"), 1, 3, 1))
    assert explain(start, one) == [one[1], one[0]]


def test_search_allows_an_unknown_operation_to_happen_late_or_never() -> None:
    """An error that says neither does not say when, either."""
    start = {"a": frozenset({"x"})}
    unknown: tuple[Words, float, float, Reply] = (("DEL", "a"), 0, 1, f"{UNKNOWN}a timeout")
    for replies in ((1, 1), (1, 0), (0, 0)):
        reads: list[tuple[Words, float, float, Reply]] = [
            (("BF.MEXISTS", "a", "x"), 2 * at + 2.0, 2 * at + 3.0, (reply,))
            for at, reply in enumerate(replies)
        ]
        assert explain(start, _history(unknown, *reads)) is not None
    back: list[tuple[Words, float, float, Reply]] = [
        (("BF.MEXISTS", "a", "x"), 2, 3, (0,)),
        (("BF.MEXISTS", "a", "x"), 4, 5, (1,)),
    ]
    assert explain(start, _history(unknown, *back)) is None


def test_model_is_a_server_alone(server: Any) -> None:
    """The model replies as one server does: the same operations, one at a time."""
    some = random.Random(20261118)
    names = ["model a", "model b", "model c"]
    with redis.Redis(port=server.resp_port) as client:
        client.execute_command("BF.RESERVE", "model dump", RATE, CAPACITY)
        client.execute_command("BF.MADD", "model dump", *DUMPED)
        dump = client.dump("model dump")
        assert isinstance(dump, bytes)
        filters: Filters = {}
        for number in range(effort(300, 1000, 10_000)):
            words = _any_operation(some, names, number % 7)
            if some.random() < 0.3:
                words = ("BF.MEXISTS", some.choice(names), *DUMPED, *map("key {}".format, range(7)))
            reply, filters = outcome(filters, words)
            assert _resp(client, dump, words) == reply, (number, words, filters)
        client.delete(*names, "model dump")
