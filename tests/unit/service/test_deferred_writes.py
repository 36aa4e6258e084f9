"""Writes of a node's clients: noted, done when the shared log has them, and answered in order."""

from __future__ import annotations

import random
from typing import Any

import pytest

from bloomery import (
    BloomFilter,
    CountingBloomFilter,
    ScalableBloomFilter,
    _native,
    errors,
)
from bloomery.filters.redisbloom import RedisCuckooFilter
from bloomery.service.domain.operations import Op

LIMITS = (1 << 20, 64 << 20, 128 << 20)
MANY = 4096  # arguments: a command with more goes to Python
NAMES = {1: b"plain", 2: b"growing", 3: b"short", 4: b"cells", 5: b"full", 6: b"counts"}
PYTHON = b"+python\r\n"  # what these tests reply to commands that are not usual ones


def shelf(deferring: bool = True) -> _native.Shelf:
    """Filters of several kinds; `short` takes 30 keys, `full` is a small one that cannot grow."""
    made = _native.Shelf()
    made.put(b"plain", BloomFilter(1000, 0.01), 1)
    made.put(b"growing", ScalableBloomFilter(100, 0.01), 2)
    made.put(b"short", BloomFilter(1000, 0.001), 3, limit=30)
    made.put(b"cells", RedisCuckooFilter(1000), 4, family="cf")
    made.put(b"full", RedisCuckooFilter(8, expansion=0), 5, family="cf")
    made.put(b"counts", CountingBloomFilter(1000, 0.001), 6)
    made.deferring = deferring
    return made


def packed(*words: bytes) -> bytes:
    parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"*%d\r\n" % len(words) + b"".join(parts)


def add(key: bytes, name: bytes = b"plain") -> bytes:
    return packed(b"BF.ADD", name, key)


def exists(key: bytes, name: bytes = b"plain") -> bytes:
    return packed(b"BF.EXISTS", name, key)


class Node:
    """A client of a node whose log takes every turn at once."""

    def __init__(self, protocol: int = 2) -> None:
        self.shelf = shelf()
        self.session = _native.Session(self.shelf, *LIMITS)
        self.session.protocol = protocol

    def results(self) -> list[Any]:
        """What becomes of the turn's records."""
        return [self.shelf.apply(NAMES[id], op, data) for id, op, data in self.shelf.take_log()]

    def run(self, data: bytes) -> None:
        """Feed, and let turns end until nothing more can be done."""
        given = self.session.feed(data)
        while given is not None or self.session.wrote:
            if isinstance(given, list):
                self.session.reply(PYTHON)
            elif given is None:
                self.session.answer(self.results())
                self.taken = getattr(self, "taken", b"") + self.session.take()
            given = self.session.feed(b"")

    def replies(self) -> bytes:
        """All of them."""
        return getattr(self, "taken", b"") + self.session.take()


def commands(seed: int, count: int) -> list[bytes]:
    """Writes and reads in runs, on filters of every sort and on one that is not there."""
    draw = random.Random(seed)
    made: list[bytes] = []
    while len(made) < count:
        name = draw.choice([*NAMES.values(), b"none"])
        door = b"CF" if name in (b"cells", b"full") else b"BF"
        acts = [b".ADD", b".EXISTS", b".del", b".MEXISTS", b".INFO", b".ADD"]
        acts += [b".ADDNX", b".COUNT"] if door == b"CF" else [b".MADD", b".madd"]
        act = draw.choice(acts)
        for _ in range(draw.choice([1, 2, 5, 40])):
            several = act.upper() in (b".MADD", b".MEXISTS")
            keys = [b"%d" % draw.randrange(60) for _ in range(draw.randrange(1, 8))]
            made.append(packed(door + act, name, *keys[: None if several else 1]))
        made.append(draw.choice([packed(b"PING"), b"ping\r\n", packed(b"BF.ADD", name)]))
    return made


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("size", [1, 100, 1 << 20])
def test_a_client_is_answered_as_by_a_server_alone(protocol: int, size: int) -> None:
    """Reply for reply, wherever its bytes are cut; and the filters become the same."""
    sent = b"".join(commands(size, 1500))
    alone = _native.Session(held := shelf(deferring=False), *LIMITS)
    alone.protocol = protocol
    given = alone.feed(sent)
    while given is not None:
        if isinstance(given, list):
            alone.reply(PYTHON)
        given = alone.feed(b"")
    node = Node(protocol)
    for at in range(0, len(sent), size):
        node.run(sent[at : at + size])
    assert node.replies() == alone.take()
    for name in NAMES.values():
        figures, expected = node.shelf.figures(name), held.figures(name)
        assert figures is not None
        assert expected is not None
        assert figures[0] == expected[0], name
        keys = [b"%d" % key for key in range(100)]
        assert node.shelf.contains(name, keys) == held.contains(name, keys), name


def test_a_read_waits_for_the_writes_before_it() -> None:
    """And so does whatever is behind it, also what comes later."""
    node = Node()
    session = node.session
    sent = exists(b"a") + add(b"a") + add(b"a") + exists(b"a") + add(b"b") + packed(b"PING")
    assert session.feed(sent) is None
    assert session.take() == b":0\r\n"  # what was asked before
    left = len(exists(b"a") + add(b"b") + packed(b"PING"))
    assert session.waiting == left
    assert session.feed(exists(b"b")) is None
    assert session.waiting == left + len(exists(b"b"))
    assert session.take() == b""
    records = node.shelf.take_log()
    assert [(id, op, len(data)) for id, op, data in records] == [(1, Op.ADD, 16)]
    session.answer([node.shelf.apply(b"plain", Op.ADD, records[0][2])])
    assert session.take() == b":1\r\n:0\r\n"
    assert not session.wrote
    assert session.feed(b"") is None
    session.answer(node.results())
    assert session.feed(b"") is None
    assert session.take() == b":1\r\n:1\r\n+PONG\r\n:1\r\n"
    assert session.waiting == 0


def test_nothing_is_done_before_it_is_applied() -> None:
    """A write is in the turn's log, and nowhere else; its client is one that wrote."""
    node = Node()
    assert [node.session.feed(add(b"a")), node.session.wrote] == [None, True]
    node.session.answer(node.results())
    assert node.session.wrote  # until the reply is taken
    node = Node()
    assert node.session.feed(add(b"a") + packed(b"BF.MADD", b"growing", b"b", b"c")) is None
    assert node.shelf.contains(b"plain", [b"a"]) == b"\0"
    assert node.shelf.figures(b"growing") == (0, 0, 0, 0)
    assert [record[:2] for record in node.shelf.take_log()] == [(1, Op.ADD), (2, Op.ADD)]


def test_an_error_of_the_protocol_comes_behind_the_answers() -> None:
    """Not before them, although nothing more can be read."""
    node = Node()
    assert node.session.feed(add(b"a") + b"*x\r\n") is None
    node.session.answer(node.results())
    assert node.session.feed(b"") == "invalid multibulk length"
    assert node.session.take() == b":1\r\n"


def test_a_reply_of_pythons_comes_behind_the_answers() -> None:
    """Whatever it replies to: the connection may have to be closed with an error."""
    node = Node()
    assert node.session.feed(add(b"a")) is None
    node.session.reply(b"-ERR too much\r\n")
    assert node.session.feed(add(b"b")) is None
    assert node.session.take() == b""
    assert node.session.waiting == len(add(b"b"))
    node.session.answer(node.results())
    assert node.session.take() == b":1\r\n-ERR too much\r\n"


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_refused_key_ends_its_reply(protocol: int) -> None:
    """With the error, as on a server alone; the commands around it are answered as ever."""
    node = Node(protocol)
    new, known = {2: (b":1\r\n", b":0\r\n"), 3: (b"#t\r\n", b"#f\r\n")}[protocol]
    keys = [b"%d" % key for key in range(30)]
    node.run(packed(b"BF.MADD", b"short", *keys[:28]))
    assert node.session.take() == b""  # it was taken in `run`
    node.taken = b""
    node.run(
        packed(b"BF.MADD", b"short", keys[28], b"0", keys[29], b"x", b"1")
        + packed(b"BF.ADD", b"short", b"y")
        + packed(b"BF.ADD", b"short", b"2")
        + packed(b"BF.MADD", b"short", b"z")
        + packed(b"BF.DEL", b"short", b"2")
    )
    full = b"-ERR full\r\n"
    never = (
        b"-ERR this kind of filter cannot remove keys: counting, deletable and cuckoo ones can\r\n"
    )
    expected = [b"*4\r\n", new, known, new, full, full, known, b"*1\r\n", full, never]
    assert node.replies() == b"".join(expected)


def test_a_full_cuckoo_filter_says_what_redisbloom_says() -> None:
    """Which has no ERR before it."""
    node = Node()
    node.run(b"".join(packed(b"CF.ADD", b"full", b"%d" % n) for n in range(40)))
    assert node.replies().endswith(b"-Filter is full\r\n")


def test_results_may_be_errors_and_rooms_that_were_not_there() -> None:
    """An error in bytes goes to every write of its record, 2 is a key without memory."""
    node = Node()
    sent = add(b"a") + packed(b"BF.MADD", b"plain", b"b", b"c") + add(b"d", b"growing")
    assert node.session.feed(sent + packed(b"BF.MADD", b"counts", b"e", b"f")) is None
    node.session.answer([b"-GONE\r\n", (b"\2", None), (b"\2\1", None)])
    memory = b"-ERR problem inserting into filter\r\n"
    assert node.session.take() == b"-GONE\r\n" * 2 + memory + b"*2\r\n" + memory + b":1\r\n"


def test_results_of_another_turn_are_refused() -> None:
    """Nothing is answered by them, and what waits can still be failed."""
    node = Node()
    sent = exists(b"a") + add(b"a") + packed(b"BF.MADD", b"growing", b"b", b"c")
    assert node.session.feed(sent) is None
    first = (b"\1", None)
    for wrong in ([], [first], [first, (b"\1", None)], [first, (b"\1\3", None)]):
        with pytest.raises(errors.InvalidParameter, match="not those of the turn"):
            node.session.answer(list(wrong))
    with pytest.raises(TypeError):
        node.session.answer([first, 7])
    assert node.session.wrote
    node.session.fail(b"-MISCONF\r\n")
    assert node.session.take() == b":0\r\n" + b"-MISCONF\r\n" * 2


def test_when_the_log_fails_every_write_gets_the_error() -> None:
    """Those that were answered and wait to be sent, those that were not, and Python's behind."""
    node = Node()
    assert node.session.feed(add(b"a")) is None
    node.session.answer(node.results())
    assert node.session.feed(exists(b"a") + add(b"b") + packed(b"PING")) is None
    node.session.reply(b"+OK\r\n", write=True)
    node.session.reply(b"+INFO\r\n")
    node.session.fail(b"-MISCONF\r\n")
    assert not node.session.wrote
    assert node.session.feed(b"") is None
    replies = [b"-MISCONF\r\n", b":1\r\n", b"-MISCONF\r\n", b"-MISCONF\r\n", b"+INFO\r\n"]
    assert node.session.take() == b"".join([*replies, b"+PONG\r\n"])


def test_commands_of_many_keys_are_for_python() -> None:
    """A write whole; it waits for the writes before it, as everything does. A read is done."""
    node = Node()
    keys = [b"%d" % n for n in range(MANY)]
    long = packed(b"BF.MADD", b"plain", *keys)
    given = node.session.feed(long)
    while given is True:
        given = node.session.feed(b"")
    assert given == [b"BF.MADD", b"plain", *keys]
    assert node.session.feed(add(b"a") + long) is None
    assert node.session.waiting == len(long)
    node.session.answer(node.results())
    given = node.session.feed(b"")
    while given is True:
        given = node.session.feed(b"")
    assert given == [b"BF.MADD", b"plain", *keys]
    node.session.reply(PYTHON)
    given = node.session.feed(packed(b"BF.MEXISTS", b"none", *keys))
    while given is True:
        given = node.session.feed(b"")
    assert given is None
    assert node.session.take() == b":1\r\n" + PYTHON + b"*%d\r\n" % MANY + b":0\r\n" * MANY
    assert node.session.feed(packed(b"BF.MADD", b"plain", *keys[2:])) is None
    assert [len(data) for _, _, data in node.shelf.take_log()] == [8 * (MANY - 2)]


def test_unusual_writes_are_for_python() -> None:
    """Where it may have to say something else than the filter would."""
    held = shelf()
    held.put(b"coming", BloomFilter(10), 9, loading=True)
    held.put(b"grown", grown := RedisCuckooFilter(8, expansion=1), 10, family="cf")
    most = held.most_layers

    def is_native(*words: bytes, **settings: bool) -> bool:
        session = _native.Session(held, *LIMITS)
        for name, value in settings.items():
            setattr(session, name, value)
        given = session.feed(packed(*words))
        assert given is None or given == list(words)
        return given is None

    usual = b"BF.ADD", b"plain", b"a"
    assert is_native(*usual)
    assert not is_native(*usual, watched=True)
    assert not is_native(*usual, restricted=True)
    assert not is_native(b"BF.ADD", b"plain")
    assert not is_native(b"BF.ADD", b"plain", b"a", b"b")
    assert not is_native(b"BF.ADD", b"none", b"a")
    assert not is_native(b"BF.ADD", b"coming", b"a")
    assert not is_native(b"BF.ADD", b"cells", b"a")
    held.set_locked(b"plain", True)
    assert not is_native(*usual)
    held.set_locked(b"plain", False)
    for name in ("refusing", "bypassed"):
        setattr(held, name, True)
        assert not is_native(*usual)
        setattr(held, name, False)
    assert is_native(b"CF.ADDNX", b"grown", b"a")
    for n in range(40):
        grown.add(b"%d" % n)
    try:
        held.most_layers = 2
        assert not is_native(b"CF.ADD", b"grown", b"a")
        assert not is_native(b"CF.ADDNX", b"grown", b"a")
        assert is_native(b"CF.DEL", b"grown", b"a")
    finally:
        held.most_layers = most
    assert is_native(*usual)


def test_a_restricted_client_defers_what_it_may_write() -> None:
    """The rest Python refuses, behind the answers."""
    node = Node()
    node.session.restricted = True
    node.session.permit(b"plain", write=True)
    assert node.session.feed(add(b"a") + add(b"a", b"growing")) is None
    node.session.answer(node.results())
    assert node.session.feed(b"") == [b"BF.ADD", b"growing", b"a"]
    assert node.session.take() == b":1\r\n"


def test_a_client_writes_in_one_turn_at_a_time() -> None:
    """Places in the log are a turn's: while its writes of one are open it writes in no other."""
    node = Node()
    assert node.session.feed(add(b"a")) is None
    records = node.shelf.take_log()
    assert node.session.feed(add(b"b")) is None
    assert node.session.waiting == len(add(b"b"))
    assert node.shelf.take_log() == []
    node.session.answer([node.shelf.apply(NAMES[id], op, data) for id, op, data in records])
    assert node.session.feed(b"") is None
    assert len(node.shelf.take_log()) == 1


def test_clients_of_a_turn_share_its_records() -> None:
    """Keys of the same filter go together, and everybody gets the answers to its own."""
    held = shelf()
    clients = [_native.Session(held, *LIMITS) for _ in range(3)]
    for n, client in enumerate(clients):
        assert client.feed(packed(b"BF.MADD", b"plain", b"all", b"%d" % n)) is None
    assert held.note(7, Op.CLEAR, b"") == 1
    assert held.defer(b"plain", ["all", "x"], Op.ADD) == (2, 0, 2)
    assert held.defer(b"plain", ["y"], Op.ADD) == (2, 2, 1)
    assert clients[0].feed(packed(b"BF.DEL", b"plain", b"all")) is None
    records = held.take_log()
    assert [(id, op, len(data)) for id, op, data in records] == [
        (1, Op.ADD, 48),
        (7, Op.CLEAR, 0),
        (1, Op.ADD, 24),
        (1, Op.REMOVE, 8),
    ]
    results = [None if id == 7 else held.apply(NAMES[id], op, data) for id, op, data in records]
    for client in clients:
        client.answer(results)
    assert clients[0].take().startswith(b"*2\r\n:1\r\n:1\r\n-ERR this kind")
    assert [client.take() for client in clients[1:]] == [b"*2\r\n:0\r\n:1\r\n"] * 2


def test_keys_of_one_command_stay_in_one_record() -> None:
    """A record ends where it has a mebibyte, but within no command."""
    held = shelf()
    keys = list(range(100_000))
    assert held.defer(b"plain", keys, Op.ADD) == (0, 0, 100_000)
    assert held.defer(b"plain", keys, Op.ADD) == (0, 100_000, 100_000)
    assert held.defer(b"plain", keys, Op.ADD) == (1, 0, 100_000)
    assert held.defer(b"plain", [], Op.ADD) == (1, 100_000, 0)
    assert [len(data) for _, _, data in held.take_log()] == [1_600_000, 800_000]
    assert held.defer(b"growing", ["a"], Op.ADD_NEW) == (0, 0, 1)


def test_only_what_is_done_with_hashes_can_be_deferred() -> None:
    held = shelf()
    with pytest.raises(KeyError):
        held.defer(b"none", ["a"], Op.ADD)
    with pytest.raises(errors.InvalidParameter, match="operation 8"):
        held.defer(b"plain", ["a"], Op.CLEAR)
    assert held.take_log() == []


def test_a_deferred_write_is_counted_once_when_it_is_answered() -> None:
    """In the histogram of latencies, and among the commands."""
    node = Node()
    assert node.session.feed(exists(b"a") + add(b"a") + add(b"b") + exists(b"a")) is None
    node.session.take()
    assert sum(node.shelf.latency.read()[1]) == 1
    node.session.answer(node.results())
    node.session.take()
    assert sum(node.shelf.latency.read()[1]) == 3
    assert node.session.feed(b"") is None
    node.session.take()
    assert sum(node.shelf.latency.read()[1]) == 4
    assert node.shelf.commands == 4


def test_what_was_meant_for_a_dropped_filter_is_done_again() -> None:
    """The commands come back, each as it was sent, and nothing is answered before they were done
    again: then every reply has its place, and what waited goes on."""
    node = Node()
    session = node.session
    sent = add(b"a") + packed(b"BF.MADD", b"growing", b"x", b"y") + b"BF.ADD plain b\r\n"
    assert session.feed(sent + add(b"z", b"growing") + exists(b"a")) is None
    records = node.shelf.take_log()
    assert [id for id, _, _ in records] == [1, 2, 1, 2]
    results = [
        None if id == 1 else node.shelf.apply(b"growing", op, data) for id, op, data in records
    ]
    dropped = session.answer(results)
    assert dropped == [[b"BF.ADD", b"plain", b"a"], [b"BF.ADD", b"plain", b"b"]]
    assert session.wrote
    assert session.take() == b""
    assert session.feed(packed(b"PING")) is None  # waits with the rest
    assert session.answer(results, [b":7\r\n"]) == dropped  # not of all
    assert session.take() == b""
    assert session.answer(results, [b":7\r\n", b"-ERR gone\r\n"]) == []
    assert session.take() == b":7\r\n*2\r\n:1\r\n:1\r\n-ERR gone\r\n:1\r\n"
    assert session.feed(b"") is None
    assert session.take() == b":0\r\n+PONG\r\n"
