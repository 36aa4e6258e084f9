"""A client's pipeline, done natively: the same replies however it is cut up and run together."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from bloomery import BloomFilter, CuckooFilter, ScalableBloomFilter, _native
from bloomery._native import Outcomes
from bloomery.service.domain.operations import named, split

LIMITS = (1 << 20, 64 << 20, 128 << 20)


def shelf() -> _native.Shelf:
    """Filters of several kinds; one of them takes 30 keys."""
    made = _native.Shelf()
    made.put(b"plain", BloomFilter(1000, 0.01), 1)
    made.put(b"growing", ScalableBloomFilter(100, 0.01), 2)
    made.put(b"short", BloomFilter(1000, 0.01), 3, limit=30)
    made.put(b"cells", CuckooFilter(1000, 0.01), 4, family="cf")
    return made


def packed(*words: bytes) -> bytes:
    parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"*%d\r\n" % len(words) + b"".join(parts)


def commands(count: int) -> list[bytes]:
    """Commands in runs of several lengths, on filters that are there and one that is not."""
    draw = random.Random(7)
    made: list[bytes] = []
    while len(made) < count:
        name = draw.choice([b"plain", b"growing", b"short", b"cells", b"none"])
        door = b"CF" if name == b"cells" else b"BF"
        act = draw.choice([b".ADD", b".EXISTS", b".exists"])
        if name == b"none":
            act = b".EXISTS"
        length = draw.choice([1, 2, 5, 40, 700])
        made += [packed(door + act, name, b"%d" % draw.randrange(400)) for _ in range(length)]
        made.append(draw.choice([packed(b"PING"), packed(door + b".MEXISTS", name, b"1", b"2")]))
    return made


class Server:
    """A shelf and a client, with a log that accepts every batch at once."""

    def __init__(self) -> None:
        self.shelf = shelf()
        self.session = _native.Session(self.shelf, 1, *LIMITS)
        self.log: list[tuple[int, int, bytes]] = []
        self.replies = b""

    def apply(self) -> None:
        """Apply the batch, and answer it."""
        (records, _), results = self.shelf.take_log(), list[Any]()
        assert self.shelf.apply(records, results, 60.0) is True
        self.log += records
        assert self.session.answer(Outcomes(results)) == []
        self.replies += self.session.take()

    def run(self, data: bytes) -> None:
        """Feed, and let batches be applied until everything is answered."""
        more = self.session.feed(data)
        while more is True or self.session.writing:  # after others were served
            if more is None:
                self.apply()
            more = self.session.feed(b"")
        assert more is None
        self.replies += self.session.take()


def replies(chunks: list[bytes]) -> tuple[bytes, list[tuple[int, int, bytes]], int]:
    """Return the replies, the log (records of one filter in a row joined), and how many commands
    were counted."""
    server = Server()
    for chunk in chunks:
        server.run(chunk)
    whole: list[tuple[int, int, bytes]] = []
    for number, op, data in server.log:
        name, hashes = split(data)
        if whole and whole[-1][:2] == (number, op):
            whole[-1] = (number, op, whole[-1][2] + hashes)
        else:
            whole.append((number, op, named(name, hashes)))
    return server.replies, whole, server.shelf.commands


@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
def test_a_pipeline_answers_like_its_commands_one_by_one(size: int) -> None:
    """Replies, log and count are those of the commands sent alone, wherever the bytes are cut."""
    sent = commands(3000)
    joined = b"".join(sent)
    cut = [joined[at : at + size] for at in range(0, len(joined), size)]
    assert replies(cut) == replies(sent)


def test_a_filter_of_the_other_family_is_left_to_python() -> None:
    """Which refuses: a native 0 would be a wrong no."""
    server = Server()
    server.run(packed(b"CF.ADD", b"cells", b"1"))
    session = server.session
    for words in ([b"BF.EXISTS", b"cells", b"1"], [b"BF.MEXISTS", b"cells", b"1", b"2"]):
        assert session.feed(packed(*words)) == [words]


def test_each_command_behind_a_refused_one_is_still_done() -> None:
    """A filter that is full refuses new keys, one by one, and answers for those it has."""
    server = Server()
    keys = [*range(30), 100, 5, 101, 6]
    server.run(b"".join(packed(b"BF.ADD", b"short", b"%d" % key) for key in keys))
    lines = server.replies.split(b"\r\n")[:-1]
    full = b"-ERR full"
    assert lines[-4:] == [full, b":0", full, b":0"]
    assert len(lines) == len(keys)


def test_when_the_log_fails_each_write_of_a_run_gets_the_error() -> None:
    """As many replies as commands: a client that counts them is not led astray."""
    session = _native.Session(shelf(), 1, *LIMITS)
    adds = b"".join(packed(b"BF.ADD", b"plain", b"%d" % key) for key in range(20))
    session.feed(adds + packed(b"BF.EXISTS", b"plain", b"3"))
    session.fail(b"-MISCONF\r\n")
    assert session.feed(b"") is None
    assert session.take() == b"-MISCONF\r\n" * 20 + b":0\r\n"


def test_a_line_of_words_may_stand_among_the_commands_of_a_run() -> None:
    """Inline commands are answered in their place."""
    server = Server()
    add = packed(b"BF.ADD", b"plain", b"a")
    server.run(add + b'BF.EXISTS plain "a"\r\nBF.EXISTS plain a\r\n' + add)
    assert server.replies == b":1\r\n:1\r\n:1\r\n:0\r\n"


def test_only_permitted_names_are_served_natively() -> None:
    """A restricted client's commands on other names, and writes where it may only ask, go to
    Python; whatever else was pipelined is done in order."""
    server = Server()
    session = server.session
    session.restricted = True
    ask, add = packed(b"BF.EXISTS", b"plain", b"1"), packed(b"BF.ADD", b"plain", b"1")
    assert session.feed(ask) == [[b"BF.EXISTS", b"plain", b"1"]]
    session.permit(b"plain", write=False)
    other = packed(b"BF.MEXISTS", b"growing", b"1", b"2")
    assert session.feed(ask * 3 + add + ask + other) == [[b"BF.ADD", b"plain", b"1"]]
    assert session.take() == b":0\r\n" * 3
    session.reply(b"-NOPERM\r\n")
    assert session.feed(b"") == [[b"BF.MEXISTS", b"growing", b"1", b"2"]]
    assert session.take() == b"-NOPERM\r\n:0\r\n"
    session.permit(b"plain", write=True)
    session.permit(b"plain", write=False)  # takes nothing back
    server.run(add + ask + packed(b"PING"))
    assert server.replies == b":1\r\n:1\r\n+PONG\r\n"
    session.restricted = True  # what was permitted is forgotten
    assert session.feed(ask) == [[b"BF.EXISTS", b"plain", b"1"]]
    session.restricted = False
    assert session.feed(ask) is None


def test_permits_stay_small() -> None:
    """However many names a client uses, what is remembered of it is bounded: some are asked for
    again."""
    session = _native.Session(shelf(), 1, *LIMITS)
    session.restricted = True
    session.permit(b"plain", write=True)
    for n in range(4096):
        session.permit(b"%d" % n, write=False)
    asked = [b"BF.EXISTS", b"plain", b"1"]
    assert session.feed(packed(*asked)) == [asked]
    assert session.feed(packed(b"BF.EXISTS", b"4095", b"1")) is None


def test_commands_of_python_are_handed_over_in_order() -> None:
    """At most 64 at once, and none together with a native command that follows them."""
    session = _native.Session(shelf(), 1, *LIMITS)
    given = [[b"ECHO", b"%d" % n] for n in range(100)]
    sent = b"".join(packed(*words) for words in given)
    asked = packed(b"BF.EXISTS", b"plain", b"a")
    assert session.feed(sent + asked + packed(b"INFO") + packed(b"PING") + asked) == given[:64]
    assert session.take() == b""
    assert session.feed(b"") == given[64:]
    assert session.feed(b"") == [[b"INFO"], [b"PING"]]
    assert session.take() == b":0\r\n"
    assert session.feed(b"") is None
    assert session.take() == b":0\r\n"


def test_bypassed_shelf_hands_every_command_to_python() -> None:
    """This is so for every client. The rest of a chunk is native again as soon as it is not."""
    held = shelf()
    session = _native.Session(held, 1, *LIMITS)
    asked = [b"BF.EXISTS", b"plain", b"a"]
    pair = packed(*asked) + packed(b"PING")
    held.bypassed = True
    assert held.bypassed
    assert session.feed(pair * 33) == [asked, [b"PING"]] * 32
    held.bypassed = False
    assert session.feed(b"") is None
    assert session.take() == b":0\r\n+PONG\r\n"


@pytest.mark.parametrize("due", ["set_due", "set_stale"])
def test_shelf_is_bypassed_from_the_time_that_is_set(due: str) -> None:
    held = shelf()
    session, asked = _native.Session(held, 1, *LIMITS), [b"BF.EXISTS", b"plain", b"a"]
    set_due, now = getattr(held, due), time.monotonic()
    for at, given in ((now + 3600, None), (now - 1, [asked]), (None, None), (0.0, [asked])):
        set_due(at)
        assert session.feed(packed(*asked)) == given
        assert not held.bypassed


def test_hashes_by_name_are_those_of_the_filter() -> None:
    """8 bytes each, as the log has them."""
    held, filter = shelf(), BloomFilter(1000, 0.01)
    expected = b"".join(filter.hash_of(key).to_bytes(8, "little") for key in ("a", b"b", 7))
    assert held.hashes(b"plain", ["a", b"b", 7]) == expected
    with pytest.raises(KeyError):
        held.hashes(b"none", ["a"])
