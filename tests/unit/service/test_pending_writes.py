"""Writes of native clients: noted, applied when the log has them, and answered in order."""

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
from bloomery._native import Outcomes
from bloomery.filters.redisbloom import RedisCuckooFilter
from bloomery.service.domain.operations import Op, Record, named

LIMITS = (1 << 20, 64 << 20, 128 << 20)
MANY = 4096  # arguments: a command with more goes to Python
NAMES = {1: b"plain", 2: b"growing", 3: b"short", 4: b"cells", 5: b"full", 6: b"counts"}
PYTHON = b"+python\r\n"  # what these tests reply to commands that are not usual ones


def shelf(exclusive: bool = False) -> _native.Shelf:
    """Filters of several kinds; `short` takes 30 keys, `full` is a small one that cannot grow."""
    made = _native.Shelf()
    made.exclusive = exclusive
    made.put(b"plain", BloomFilter(1000, 0.01), 1)
    made.put(b"growing", ScalableBloomFilter(100, 0.01), 2)
    made.put(b"short", BloomFilter(1000, 0.001), 3, limit=30)
    made.put(b"cells", RedisCuckooFilter(1000), 4, family="cf")
    made.put(b"full", RedisCuckooFilter(8, expansion=0), 5, family="cf")
    made.put(b"counts", CountingBloomFilter(1000, 0.001), 6)
    return made


def applied(shelf: _native.Shelf, records: list[Record]) -> list[Any]:
    """Return the results of records that the log has."""
    results: list[Any] = []
    assert shelf.apply(records, results, 60.0) is True
    return results


def packed(*words: bytes) -> bytes:
    parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"*%d\r\n" % len(words) + b"".join(parts)


def add(key: bytes, name: bytes = b"plain") -> bytes:
    return packed(b"BF.ADD", name, key)


def exists(key: bytes, name: bytes = b"plain") -> bytes:
    return packed(b"BF.EXISTS", name, key)


class Client:
    """A client of a server whose log accepts every batch at once."""

    def __init__(self, protocol: int = 2, *, exclusive: bool = False) -> None:
        self.shelf = shelf(exclusive)
        self.session = _native.Session(self.shelf, 1, *LIMITS)
        self.session.protocol = protocol
        self.taken = b""

    def results(self) -> list[Any]:
        """Apply the batch; return its results."""
        return applied(self.shelf, self.shelf.take_log()[0])

    def run(self, data: bytes) -> None:
        """Feed, and let batches be applied until nothing more can be done."""
        given = self.session.feed(data)
        while given is not None or self.session.writing:
            if isinstance(given, list):
                for words in given:
                    self.session.reply(b"+PONG\r\n" if words[0].upper() == b"PING" else PYTHON)
            elif given is None:
                assert self.session.answer(Outcomes(self.results())) == []
                self.taken += self.session.take()
            given = self.session.feed(b"")

    def replies(self) -> bytes:
        """All of them."""
        return self.taken + self.session.take()


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


@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("size", [1, 100, 1 << 20])
def test_pipeline_is_answered_as_command_by_command(
    protocol: int, size: int, exclusive: bool
) -> None:
    """The replies are the same, wherever its bytes are cut, and so are the filters. One client
    waits for each answer, the other does not."""
    sent = commands(size, 1500)
    patient = Client(protocol)
    for command in sent:
        patient.run(command)
    joined = b"".join(sent)
    client = Client(protocol, exclusive=exclusive)
    for at in range(0, len(joined), size):
        client.run(joined[at : at + size])
    assert client.replies() == patient.replies()
    for name in NAMES.values():
        figures, expected = client.shelf.figures(name), patient.shelf.figures(name)
        assert figures is not None
        assert expected is not None
        assert figures[:2] == expected[:2], name
        keys = [b"%d" % key for key in range(100)]
        assert client.shelf.contains(name, keys) == patient.shelf.contains(name, keys), name


def test_a_read_waits_for_the_writes_before_it() -> None:
    """And so does whatever is behind it, also what comes later."""
    client = Client()
    session = client.session
    sent = exists(b"a") + add(b"a") + add(b"a") + exists(b"a") + add(b"b") + packed(b"PING")
    assert session.feed(sent) is None
    assert session.take() == b":0\r\n"  # what was asked before
    left = len(exists(b"a") + add(b"b") + packed(b"PING"))
    assert session.waiting == left
    assert session.feed(exists(b"b")) is None
    assert session.waiting == left + len(exists(b"b"))
    assert session.take() == b""
    records, _ = client.shelf.take_log()
    name = len(named(b"plain"))
    assert [(id, op, len(data)) for id, op, data in records] == [(1, Op.ADD, name + 16)]
    session.answer(Outcomes(applied(client.shelf, records)))
    assert session.take() == b":1\r\n:0\r\n"
    assert not session.writing
    assert session.feed(b"") is None
    session.answer(Outcomes(client.results()))
    assert session.feed(b"") is None
    assert session.take() == b":1\r\n:1\r\n+PONG\r\n:1\r\n"
    assert session.waiting == 0


def test_nothing_is_done_before_it_is_applied() -> None:
    """A write is in the next batch, and nowhere else, and its client waits."""
    client = Client()
    assert [client.session.feed(add(b"a")), client.session.writing] == [None, True]
    assert client.session.answer(Outcomes(client.results())) == []
    assert not client.session.writing
    assert client.session.take() == b":1\r\n"
    client = Client()
    assert client.session.feed(add(b"a") + packed(b"BF.MADD", b"growing", b"b", b"c")) is None
    assert client.shelf.contains(b"plain", [b"a"]) == b"\0"
    assert client.shelf.figures(b"growing") == (0, 0, 0, 0)
    assert [record[:2] for record in client.shelf.take_log()[0]] == [(1, Op.ADD), (2, Op.ADD)]


def test_an_error_of_the_protocol_comes_behind_the_answers() -> None:
    """Not before them, although nothing more can be read."""
    client = Client()
    assert client.session.feed(add(b"a") + b"*x\r\n") is None
    client.session.answer(Outcomes(client.results()))
    assert client.session.feed(b"") == "invalid multibulk length"
    assert client.session.take() == b":1\r\n"


def test_a_reply_of_pythons_comes_behind_the_answers() -> None:
    """Whatever it replies to: the connection may have to be closed with an error."""
    client = Client()
    assert client.session.feed(add(b"a")) is None
    client.session.reply(b"-ERR too much\r\n")
    assert client.session.feed(add(b"b")) is None
    assert client.session.take() == b""
    assert client.session.waiting == len(add(b"b"))
    client.session.answer(Outcomes(client.results()))
    assert client.session.take() == b":1\r\n-ERR too much\r\n"


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_refused_key_ends_its_reply(protocol: int) -> None:
    """With the error, as on a server alone; the commands around it are answered as ever."""
    client = Client(protocol)
    new, known = {2: (b":1\r\n", b":0\r\n"), 3: (b"#t\r\n", b"#f\r\n")}[protocol]
    keys = [b"%d" % key for key in range(30)]
    client.run(packed(b"BF.MADD", b"short", *keys[:28]))
    client.taken = b""
    client.run(
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
    assert client.replies() == b"".join(expected)


def test_a_full_cuckoo_filter_says_what_redisbloom_says() -> None:
    """Which has no ERR before it."""
    client = Client()
    client.run(b"".join(packed(b"CF.ADD", b"full", b"%d" % n) for n in range(40)))
    assert client.replies().endswith(b"-Filter is full\r\n")


def test_error_of_a_record_is_the_reply_to_its_writes() -> None:
    """An error in bytes goes to every write of its record, and to no other."""
    client = Client()
    sent = add(b"a") + packed(b"BF.MADD", b"plain", b"b", b"c") + add(b"d", b"growing")
    assert client.session.feed(sent) is None
    assert client.session.answer(Outcomes([b"-GONE\r\n", (b"\1", None)])) == []
    assert client.session.take() == b"-GONE\r\n" * 2 + b":1\r\n"


def test_unfinished_record_is_answered_later() -> None:
    """A thread still applies one record: nothing is answered, and the client waits, until all
    results exist. Clients without a write in it are answered at once."""
    held = shelf()
    first, second = (_native.Session(held, n, *LIMITS) for n in range(2))
    assert first.feed(add(b"a") + add(b"b", b"growing") + exists(b"a")) is None
    assert second.feed(add(b"c", b"counts")) is None
    results = applied(held, held.take_log()[0])
    unfinished = Outcomes([results[0], object(), results[2]])
    assert second.answer(unfinished) == []
    assert second.take() == b":1\r\n"
    assert first.answer(unfinished) is None
    assert (first.writing, first.take()) == (True, b"")
    assert first.feed(packed(b"PING")) is None
    assert first.answer(Outcomes(results)) == []
    assert first.feed(b"") is None
    assert first.take() == b":1\r\n:1\r\n:1\r\n+PONG\r\n"


def test_results_of_another_batch_are_refused() -> None:
    """Nothing is answered by them, and what waits can still be failed."""
    client = Client()
    sent = exists(b"a") + add(b"a") + packed(b"BF.MADD", b"growing", b"b", b"c")
    assert client.session.feed(sent) is None
    first = (b"\1", None)
    for wrong in ([], [first], [first, (b"\1", None)], [first, (b"\1\3", None)]):
        with pytest.raises(errors.InvalidParameter, match="not those of the batch"):
            client.session.answer(Outcomes(list(wrong)))
    with pytest.raises(TypeError):
        client.session.answer(Outcomes([first, (7, None)]))
    assert client.session.writing
    client.session.fail(b"-MISCONF\r\n")
    assert client.session.take() == b":0\r\n" + b"-MISCONF\r\n" * 2


def test_when_the_log_fails_every_write_gets_the_error() -> None:
    """Writes that wait get it; replies before and after them stay."""
    client = Client()
    assert client.session.feed(add(b"a")) is None
    client.session.answer(Outcomes(client.results()))
    assert client.session.feed(exists(b"a") + add(b"b") + add(b"c") + packed(b"PING")) is None
    client.session.reply(b"+INFO\r\n")
    client.session.fail(b"-MISCONF\r\n")
    assert not client.session.writing
    assert client.session.feed(b"") is None
    replies = [b":1\r\n", b":1\r\n", b"-MISCONF\r\n", b"-MISCONF\r\n", b"+INFO\r\n"]
    assert client.session.take() == b"".join([*replies, b"+PONG\r\n"])
    assert client.shelf.contains(b"plain", [b"a", b"b", b"c"]) == b"\1\0\0"


def test_present_key_is_answered_while_the_log_fails() -> None:
    """It needs no record, so the log does not refuse it; its reply keeps its order."""
    client = Client(exclusive=True)
    client.run(add(b"a"))
    client.taken = b""
    sent = add(b"a") + add(b"b") + packed(b"BF.MADD", b"plain", b"a", b"a") + add(b"a")
    assert client.session.feed(sent) is None
    assert client.session.take() == b":0\r\n"
    assert len(client.shelf.take_log()[0]) == 1
    client.session.fail(b"-MISCONF\r\n")
    assert client.session.take() == b"-MISCONF\r\n*2\r\n:0\r\n:0\r\n:0\r\n"


def test_key_that_is_removed_before_is_not_present() -> None:
    """CF.ADDNX follows CF.DEL in a pipeline: it adds the key again."""
    client = Client(exclusive=True)
    client.run(packed(b"CF.ADD", b"cells", b"a"))
    client.taken = b""
    words = [(b"CF.DEL",), (b"CF.ADDNX",), (b"CF.ADDNX",), (b"CF.EXISTS",)]
    client.run(b"".join(packed(*word, b"cells", b"a") for word in words))
    assert client.replies() == b":1\r\n:1\r\n:0\r\n:1\r\n"


def test_commands_of_many_keys_are_for_python() -> None:
    """A write whole; it waits for the writes before it, as everything does. A read is done."""
    client = Client()
    keys = [b"%d" % n for n in range(MANY)]
    long = packed(b"BF.MADD", b"plain", *keys)
    given = client.session.feed(long)
    while given is True:
        given = client.session.feed(b"")
    assert given == [[b"BF.MADD", b"plain", *keys]]
    assert client.session.feed(add(b"a") + long) is None
    assert client.session.waiting == len(long)
    client.session.answer(Outcomes(client.results()))
    given = client.session.feed(b"")
    while given is True:
        given = client.session.feed(b"")
    assert given == [[b"BF.MADD", b"plain", *keys]]
    client.session.reply(PYTHON)
    given = client.session.feed(packed(b"BF.MEXISTS", b"none", *keys))
    while given is True:
        given = client.session.feed(b"")
    assert given is None
    assert client.session.take() == b":1\r\n" + PYTHON + b"*%d\r\n" % MANY + b":0\r\n" * MANY
    assert client.session.feed(packed(b"BF.MADD", b"plain", *keys[2:])) is None
    assert [len(data) for _, _, data in client.shelf.take_log()[0]] == [
        len(named(b"plain")) + 8 * (MANY - 2)
    ]


def test_unusual_writes_are_for_python() -> None:
    """Where it may have to say something else than the filter would."""
    held = shelf()
    held.put(b"coming", BloomFilter(10), 9, loading=True)
    held.put(b"grown", grown := RedisCuckooFilter(8, expansion=1), 10, family="cf")
    most = held.most_layers

    def is_native(*words: bytes, **settings: bool) -> bool:
        session = _native.Session(held, 1, *LIMITS)
        for name, value in settings.items():
            setattr(session, name, value)
        given = session.feed(packed(*words))
        assert given is None or given == [list(words)]
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


def test_a_restricted_client_writes_what_it_may() -> None:
    """The rest Python refuses, behind the answers."""
    client = Client()
    client.session.restricted = True
    client.session.permit(b"plain", write=True)
    assert client.session.feed(add(b"a") + add(b"a", b"growing")) is None
    client.session.answer(Outcomes(client.results()))
    assert client.session.feed(b"") == [[b"BF.ADD", b"growing", b"a"]]
    assert client.session.take() == b":1\r\n"


def test_a_client_writes_in_one_batch_at_a_time() -> None:
    """While its writes in one batch are open it writes in no other: results are those of one."""
    client = Client()
    assert client.session.feed(add(b"a")) is None
    records, waiters = client.shelf.take_log()
    assert len(waiters) == 1
    assert client.session.feed(add(b"b")) is None
    assert client.session.waiting == len(add(b"b"))
    records_later, waiters = client.shelf.take_log()
    assert (records_later, len(waiters)) == ([], 0)
    client.session.answer(Outcomes(applied(client.shelf, records)))
    assert client.session.feed(b"") is None
    assert len(client.shelf.take_log()[0]) == 1


def test_clients_of_a_batch_share_its_records() -> None:
    """Keys of the same filter go together, and every client gets the answers to its own."""
    held = shelf()
    clients = [_native.Session(held, n, *LIMITS) for n in range(4)]
    for n, client in enumerate(clients[:3]):
        assert client.feed(packed(b"BF.MADD", b"plain", b"all", b"%d" % n)) is None
    assert held.note(7, Op.CLEAR, b"") == 1
    assert held.note_keys(b"plain", ["all", "x"], Op.ADD) == (2, (2, 0))
    assert held.note_keys(b"plain", ["y"], Op.ADD) == (1, (2, 2))
    assert clients[3].feed(packed(b"BF.DEL", b"plain", b"all")) is None
    records, waiters = held.take_log()
    assert len(waiters) == 4
    name = len(named(b"plain"))
    assert [(id, op, len(data)) for id, op, data in records] == [
        (1, Op.ADD, name + 48),
        (7, Op.CLEAR, 0),
        (1, Op.ADD, name + 24),
        (1, Op.REMOVE, name + 8),
    ]
    results: list[Any] = []
    assert held.apply(records, results, 60.0) is None
    results.append("an entry")  # Python applies the CLEAR
    assert held.apply(records, results, 60.0) is True
    for client in clients:
        assert client.answer(Outcomes(results)) == []
    assert clients[0].take() == b"*2\r\n:1\r\n:1\r\n"
    assert [client.take() for client in clients[1:3]] == [b"*2\r\n:0\r\n:1\r\n"] * 2
    assert clients[3].take().startswith(b"-ERR this kind")


def test_keys_of_one_command_stay_in_one_record() -> None:
    """A record ends at 64 KiB of hashes, but not within a command."""
    held = shelf()
    keys = list(range(8_000))
    assert held.note_keys(b"plain", keys, Op.ADD) == (8_000, (0, 0))
    assert held.note_keys(b"plain", keys, Op.ADD) == (8_000, (0, 8_000))
    assert held.note_keys(b"plain", keys, Op.ADD) == (8_000, (1, 0))
    assert held.note_keys(b"plain", [], Op.ADD) == (0, (1, 8_000))
    name = len(named(b"plain"))
    assert [len(data) - name for _, _, data in held.take_log()[0]] == [128_000, 64_000]
    assert held.note_keys(b"growing", ["a"], Op.ADD_NEW) == (1, (0, 0))


def test_only_operations_with_hashes_are_noted_with_keys() -> None:
    held = shelf()
    with pytest.raises(KeyError):
        held.note_keys(b"none", ["a"], Op.ADD)
    with pytest.raises(errors.InvalidParameter, match="operation 8"):
        held.note_keys(b"plain", ["a"], Op.CLEAR)
    assert held.take_log()[0] == []


def test_a_write_is_counted_once_when_it_is_answered() -> None:
    """In the histogram of latencies, and among the commands."""
    client = Client()
    assert client.session.feed(exists(b"a") + add(b"a") + add(b"b") + exists(b"a")) is None
    client.session.take()
    assert sum(client.shelf.latency.read()[1]) == 1
    client.session.answer(Outcomes(client.results()))
    client.session.take()
    assert sum(client.shelf.latency.read()[1]) == 3
    assert client.session.feed(b"") is None
    client.session.take()
    assert sum(client.shelf.latency.read()[1]) == 4
    assert client.shelf.commands == 4


@pytest.mark.parametrize("change", ["dropped", "replaced", "renamed"])
def test_commands_in_conflict_run_again(change: str) -> None:
    """Another command drops, replaces or renames the filter after a write was noted, and before it
    is applied. The commands come back, each as it was sent, and nothing is answered before they
    were run again: then every reply has its place, and the rest continues."""
    client = Client()
    session = client.session
    sent = add(b"a") + packed(b"BF.MADD", b"growing", b"x", b"y") + b"BF.ADD plain b\r\n"
    assert session.feed(sent + add(b"z", b"growing") + exists(b"a")) is None
    records, _ = client.shelf.take_log()
    assert [id for id, _, _ in records] == [1, 2, 1, 2]
    client.shelf.drop(b"plain")
    if change != "dropped":
        client.shelf.put(b"plain", BloomFilter(1000, 0.01), 9)
    if change == "renamed":
        client.shelf.put(b"other", BloomFilter(1000, 0.01), 1)
    results = applied(client.shelf, records)
    assert [result is None for result in results] == [True, False, True, False]
    conflicts = session.answer(Outcomes(results))
    assert conflicts == [[b"BF.ADD", b"plain", b"a"], [b"BF.ADD", b"plain", b"b"]]
    assert session.writing
    assert session.take() == b""
    assert session.feed(packed(b"PING")) is None  # waits with the rest
    assert session.answer(Outcomes(results), [b":7\r\n"]) == conflicts  # not of all
    assert session.take() == b""
    assert session.answer(Outcomes(results), [b":7\r\n", b"-ERR gone\r\n"]) == []
    assert session.take() == b":7\r\n*2\r\n:1\r\n:1\r\n-ERR gone\r\n:1\r\n"
    assert session.feed(b"") is None
    assert session.take() == b":0\r\n+PONG\r\n"
    if change != "dropped":
        assert client.shelf.contains(b"plain", [b"a", b"b"]) == b"\0\0"
