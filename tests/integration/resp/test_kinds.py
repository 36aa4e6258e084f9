"""What the server can do beyond RedisBloom: other kinds of filters, merging, copies; and what a
transaction or a change of names leaves behind a `kill -9`."""

import pytest

from integration.resp.wire import Wire, check, shown, told
from integration.servers import BloomeryServer, Serve

SCRIPTS = {
    "kinds that remove": """
        BF.RESERVE counting 0.01 1000 KIND counting COUNTERBITS 8 => +OK
        BF.RESERVE deletable 0.01 1000 KIND deletable => +OK
        BF.RESERVE cuckoo 0.01 1000 KIND cuckoo => +OK
        BF.ADD counting x => :1 | #t
        BF.ADD counting x => :0 | #f
        BF.DEL counting x => :1 | #t
        BF.EXISTS counting x => :1 | #t
        BF.DEL counting x => :1 | #t
        BF.EXISTS counting x => :0 | #f
        BF.DEL counting x => :0 | #f
        BF.ADD deletable x => :1 | #t
        BF.DEL deletable x => :1 | #t
        BF.EXISTS deletable x => :0 | #f
        BF.ADD cuckoo x => :1 | #t
        BF.DEL cuckoo x => :1 | #t
        BF.EXISTS cuckoo x => :0 | #f
        TYPE cuckoo => +MBbloom--
        BF.DEL missing x => -ERR not found
        """,
    "a cuckoo filter that is asked by the commands of RedisBloom's": """
        BF.RESERVE cuckoo 0.01 1000 KIND cuckoo => +OK
        BF.ADD cuckoo x => :1 | #t
        CF.EXISTS cuckoo x => -WRONGTYPE
        CF.MEXISTS cuckoo x y => -WRONGTYPE
        CF.COUNT cuckoo x => -WRONGTYPE
        CF.DEL cuckoo x => -WRONGTYPE
        BF.EXISTS cuckoo x => :1 | #t
        """,
    "kinds that do not": """
        BF.RESERVE plain 0.01 1000 KIND bloom => +OK
        BF.ADD plain x => :1 | #t
        BF.DEL plain x => -ERR this kind of filter cannot remove keys: \
            counting, deletable and cuckoo ones can
        BF.EXISTS plain x => :1 | #t
        BF.RESERVE a 0.01 1000 KIND nosuch => -ERR KIND is 'nosuch', must be one of \
            bloom, scalable, counting, deletable, cuckoo, rotating, bank
        BF.RESERVE a 0.01 1000 KIND => -ERR KIND needs a value
        BF.RESERVE a 0.01 1000 KIND counting COUNTERBITS x => \
            -ERR counter bits is 'x', must be a whole number
        BF.RESERVE a 0.01 100 WINDOW 7d => \
            -ERR a scalable filter has no window: it goes with kind rotating
        EXISTS a => :0
        """,
    "clearing and merging": """
        BF.RESERVE a 0.01 1000 NONSCALING => +OK
        BF.RESERVE b 0.01 1000 NONSCALING => +OK
        BF.RESERVE c 0.01 5000 NONSCALING => +OK
        BF.MADD a x y => [:1, :1] | [#t, #t]
        BF.ADD b z => :1 | #t
        BF.MERGE a b => +OK
        BF.MEXISTS a x y z => [:1, :1, :1] | [#t, #t, #t]
        BF.EXISTS b x => :0 | #f
        BF.MERGE a missing => -ERR not found
        BF.MERGE missing a => -ERR not found
        BF.CLEAR a => +OK
        BF.EXISTS a x => :0 | #f
        BF.CARD a => :0
        BF.CLEAR missing => -ERR not found
        """,
    "copies": """
        BF.ADD a x => :1 | #t
        COPY a b => :1
        BF.ADD a y => :1 | #t
        BF.MEXISTS b x y => [:1, :0] | [#t, #f]
        CF.ADD c x => :1 | #t
        COPY c d => :1
        CF.DEL c x => :1 | #t
        CF.EXISTS d x => :1 | #t
        TYPE d => +MBbloomCF
        COPY a d REPLACE => :1
        TYPE d => +MBbloom--
        """,
    "rotating": """
        BF.RESERVE r 0.01 1000 KIND rotating GENERATIONS 2 => +OK
        BF.ADD r x => :1 | #t
        BF.ROTATE r => +OK
        BF.ROTATE r => +OK
        BF.EXISTS r x => :1 | #t
        BF.ROTATE r => +OK
        BF.EXISTS r x => :0 | #f
        BF.ROTATE missing => -ERR not found
        BF.ADD plain x => :1 | #t
        BF.ROTATE plain => -ERR 'plain' is a scalable filter; only a rotating filter can rotate
        """,
    "banks": """
        BF.RESERVE bank 0.001 100 KIND bank => +OK
        BF.ADD bank "alice\tx" => :1 | #t
        BF.ADD bank "alice\tx" => :0 | #f
        BF.MADD bank "bob\tx" "bob\ty" => [:1, :1] | [#t, #t]
        BF.MEXISTS bank "alice\tx" "alice\ty" "bob\ty" x => [:1, :0, :1, :0] | [#t, #f, #t, #f]
        BF.CARD bank => :3
        BF.ADD bank "no user" => :1 | #t
        BF.EXISTS bank "\tno user" => :1 | #t
        BF.DEL bank "alice\tx" => -ERR this kind of filter cannot remove keys: \
            counting, deletable and cuckoo ones can
        BF.SCANDUMP bank 0 => -ERR a bank is not exported in parts: copy its file from a snapshot
        COPY bank copied => :1
        BF.EXISTS copied "bob\ty" => :1 | #t
        RENAME copied other => +OK
        BF.EXISTS other "bob\ty" => :1 | #t
        TYPE bank => +MBbloom--
        """,
    "a transaction of filters": """
        MULTI => +OK
        BF.ADD a x => +QUEUED
        BF.MEXISTS a x y => +QUEUED
        CF.INSERTNX c ITEMS x x => +QUEUED
        BF.INFO a ITEMS => +QUEUED
        BF.ADD c x => +QUEUED
        EXEC => [:1, [:1, :0], [:1, :0], [:1], \
            -WRONGTYPE Operation against a key holding the wrong kind of value] | \
            [#t, [#t, #f], [:1, :0], {+Number of items inserted: :1}, \
            -WRONGTYPE Operation against a key holding the wrong kind of value]
        """,
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_filters_of_our_own(empty: BloomeryServer, protocol: int, script: str) -> None:
    """Kinds, merges, copies and transactions reply in the manner of the other commands."""
    with Wire(empty.resp_port, protocol) as wire:
        check(wire, protocol, script)


def test_filters_that_are_made_differently_are_not_merged(empty: BloomeryServer) -> None:
    """A merge that cannot be says why, and changes nothing."""
    with Wire(empty.resp_port) as wire:
        wire.ask("BF.RESERVE", "a", "0.01", 1000, "NONSCALING")
        wire.ask("BF.RESERVE", "b", "0.01", 1_000_000, "NONSCALING")
        wire.ask("BF.ADD", "b", "x")
        assert wire.ask("BF.MERGE", "a", "b").startswith(b"-ERR ")
        assert told(wire.ask("BF.EXISTS", "a", "x")) == ":0"


def test_a_name_may_be_any_bytes_but_not_endless(empty: BloomeryServer) -> None:
    """Names of any bytes are kept as they are; one of more than 1024 is refused."""
    with Wire(empty.resp_port) as wire:
        for name in (b"", b"\0", b"\xff\xfe", b"a b\r\n", "ключ".encode(), b"n" * 1024):
            assert told(wire.ask("BF.ADD", name, "x")) == ":1"
            assert told(wire.ask("EXISTS", name)) == ":1"
            assert name in wire.ask("KEYS", "*")
            assert told(wire.ask("DEL", name)) == ":1"
        refused = told(wire.ask("BF.ADD", b"n" * 1025, "x"))
        assert refused == "-ERR a name of 1025 bytes, must have at most 1024"
        wire.ask("BF.ADD", "a", "x")
        for command in (("RENAME",), ("COPY",), ("RENAMENX",)):
            assert told(wire.ask(*command, "a", b"n" * 1025)) == refused
        assert told(wire.ask("DBSIZE")) == ":1"


def test_scan_meets_every_filter(empty: BloomeryServer) -> None:
    """From cursor 0 to 0, a scan meets every filter once that is there all the while, whatever
    comes and goes meanwhile."""
    with Wire(empty.resp_port) as wire:
        for number in range(500):
            wire.ask("BF.ADD", f"kept {number}", "x")
            wire.ask("BF.ADD", f"gone {number}", "x")
        seen: list[str] = []
        cursor, steps = "0", 0
        while steps == 0 or cursor != "0":
            found, names = shown(wire.ask("SCAN", cursor, "COUNT", 7, "MATCH", "kept *"))
            cursor = found[1:]
            seen += names
            wire.ask("DEL", f"gone {steps}", f"gone {499 - steps}")
            wire.ask("BF.ADD", f"new {steps}", "x")
            steps += 1
        assert sorted(seen) == sorted(f"$kept {number}" for number in range(500))


def test_what_was_acknowledged_survives(serve: Serve) -> None:
    """After `kill -9` every name, end, copy and transaction is as it was told."""
    server = serve()
    with Wire(server.resp_port) as wire:
        for line in (
            "BF.ADD a x",
            "BF.ADD b x",
            "CF.ADD c x",
            "RENAME a renamed",
            "COPY b copied",
            "EXPIREAT b 4000000000",
            "EXPIREAT c 4000000000",
            "PERSIST c",
            "BF.ADD dropped x",
            "DEL dropped",
            "MULTI",
            "BF.MADD t x y",
            "CF.ADD c y",
            "BF.ADD copied z",
            "EXEC",
            "MULTI",
            "BF.ADD discarded x",
            "DISCARD",
        ):
            assert wire.line(line)[:1] != b"-", line
        asked = ["DBSIZE", "EXPIRETIME b", "TTL c", "BF.MEXISTS t x y z", "CF.MEXISTS c x y z"]
        asked += ["BF.MEXISTS copied x z", "BF.EXISTS renamed x", "BF.CARD t", "CF.DEBUG c"]
        before = [wire.line(line) for line in asked]
        names = sorted(shown(wire.ask("KEYS", "*")))
    assert names == ["$b", "$c", "$copied", "$renamed", "$t"]
    server.kill()
    server.start()
    with Wire(server.resp_port) as wire:
        assert [wire.line(line) for line in asked] == before
        assert sorted(shown(wire.ask("KEYS", "*"))) == names


@pytest.mark.parametrize(
    "kind", ["bloom", "scalable", "counting", "deletable", "cuckoo", "rotating", "bank"]
)
def test_every_command_answers_for_every_kind(empty: BloomeryServer, kind: str) -> None:
    """A command that a kind cannot do is refused in words; none fails within, and no key is lost
    but by BF.CLEAR."""
    with Wire(empty.resp_port) as wire:
        for name in ("a", "b"):
            assert told(wire.ask("BF.RESERVE", name, "0.01", 1000, "KIND", kind)) == "+OK"
            wire.ask("BF.MADD", name, *range(100))
        for line in (
            "BF.DEL a missing",
            "BF.INFO a",
            "BF.INFO a SIZE",
            "BF.DEBUG a",
            "BF.CARD a",
            "BF.SCANDUMP a 0",
            "BF.SCANDUMP a 1",
            "BF.LOADCHUNK a 5 data",
            "BF.MERGE a b",
            "BF.MERGE a a",
            "BF.ROTATE a",
            "BF.INSERT a ITEMS x",
            "COPY a c",
            "COPY a c REPLACE",
            "RENAME c d",
            "RENAME d e",
            "MEMORY USAGE a",
            "OBJECT ENCODING a",
            "EXPIRE a 1000",
            "PERSIST a",
            "BF.RESERVE a 0.01 100",
            "CF.ADD a x",
        ):
            reply = told(wire.line(line))
            assert "internal error" not in reply, (line, reply)
            kept = wire.ask("BF.MEXISTS", "a", *range(100)).count(b":1")
            assert kept == 100, line
        assert told(wire.ask("BF.CLEAR", "a")) == "+OK"
        assert wire.ask("BF.MEXISTS", "a", *range(100)).count(b":1") == 0
        assert told(wire.ask("BF.CARD", "a")) == ":0"
        assert told(wire.ask("BF.ADD", "a", "again")) == ":1"
    assert "Traceback" not in empty.printed(), empty.printed()[-3000:]
