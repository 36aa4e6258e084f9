"""Every command, by every role, on names that are theirs or not: as docs/access.md says."""

import re
from itertools import product

import pytest

from bloomery.service.resp import dispatch
from bloomery.service.resp.table import every
from docs.pages import DOCS
from integration.access.conftest import Guarded, Someone
from integration.resp.wire import Wire, request, shown

ORDER = ["nobody", "read", "write", "admin"]
# A request of each command; {a} and {b} are names of filters.
REQUESTS = """
ACL CAT
ACL GETUSER x
ACL HELP
ACL LIST
ACL USERS
ACL WHOAMI
AUTH {token}
BF.ADD {a} k
BF.BIND {a} x
BF.CARD {a}
BF.CLEAR {a}
BF.CONSISTENCY
BF.DEBUG {a}
BF.DEL {a} k
BF.EXISTS {a} k
BF.FORGET {a} k
BF.INFO {a}
BF.INSERT {a} ITEMS k
BF.LOAD {a} x
BF.LOADCHUNK {a} 1 x
BF.LOOKUP {a} k
BF.MADD {a} k l
BF.MERGE {a} {b}
BF.MEXISTS {a} k l
BF.NODES
BF.POLICY {a} alert
BF.REBUILD {a}
BF.RESERVE {a} 0.01 100
BF.ROTATE {a}
BF.SCANDUMP {a} 0
BF.UNBIND {a}
BGSAVE
CF.ADD {a} k
CF.ADDNX {a} k
CF.COMPACT {a}
CF.COUNT {a} k
CF.DEBUG {a}
CF.DEL {a} k
CF.EXISTS {a} k
CF.INFO {a}
CF.INSERT {a} ITEMS k
CF.INSERTNX {a} ITEMS k
CF.LOADCHUNK {a} 1 x
CF.MEXISTS {a} k l
CF.RESERVE {a} 100
CF.SCANDUMP {a} 0
CLIENT CACHING YES
CLIENT GETNAME
CLIENT GETREDIR
CLIENT HELP
CLIENT ID
CLIENT INFO
CLIENT KILL ID 123456789
CLIENT LIST
CLIENT NO-EVICT ON
CLIENT NO-TOUCH ON
CLIENT PAUSE 1
CLIENT REPLY ON
CLIENT SETINFO LIB-NAME x
CLIENT SETNAME x
CLIENT TRACKING OFF
CLIENT TRACKINGINFO
CLIENT UNBLOCK 123456789
CLIENT UNPAUSE
CLUSTER HELP
CLUSTER INFO
CLUSTER MYID
CLUSTER NODES
CLUSTER SHARDS
CLUSTER SLOTS
COMMAND
COMMAND COUNT
COMMAND DOCS
COMMAND GETKEYS BF.ADD a k
COMMAND HELP
COMMAND INFO
COMMAND LIST
CONFIG GET maxmemory
CONFIG HELP
CONFIG RESETSTAT
CONFIG REWRITE
CONFIG SET timeout 0
COPY {a} {b}
DBSIZE
DEL {a} {b}
DISCARD
DUMP {a}
ECHO x
EXEC
EXISTS {a} {b}
EXPIRE {a} 1000
EXPIREAT {a} 4000000000
EXPIRETIME {a}
FLUSHALL
FLUSHDB
HELLO 2
INFO
KEYS *
LASTSAVE
LATENCY DOCTOR
LATENCY GRAPH x
LATENCY HELP
LATENCY HISTOGRAM
LATENCY HISTORY x
LATENCY LATEST
LATENCY RESET
MEMORY HELP
MEMORY USAGE {a}
MODULE HELP
MODULE LIST
MONITOR
MULTI
OBJECT ENCODING {a}
OBJECT FREQ {a}
OBJECT HELP
OBJECT IDLETIME {a}
OBJECT REFCOUNT {a}
PERSIST {a}
PEXPIRE {a} 1000000
PEXPIREAT {a} 4000000000000
PEXPIRETIME {a}
PING
PTTL {a}
QUIT
RANDOMKEY
RENAME {a} {b}
RENAMENX {a} {b}
RESET
RESTORE {a} 0 x
ROLE
SAVE
SCAN 0
SELECT 0
SLOWLOG GET
SLOWLOG HELP
SLOWLOG LEN
SLOWLOG RESET
TIME
TOUCH {a} {b}
TTL {a}
TYPE {a}
UNLINK {a} {b}
UNWATCH
WAIT 0 0
WATCH {a} {b}
"""
MINE, OTHERS = ("mine:1", "mine:2"), ("others:1", "others:2")


def documented() -> dict[str, str]:
    """What each command takes, as the page says."""
    table = (DOCS / "access.md").read_text("utf-8").partition("\n## Commands\n")[2]
    table = table.partition("\n## ")[0]
    return dict(re.findall(r"^\| `([^`]+)` \| [a-z]+ \| ([^|]+) \|$", table, re.M))


def command_of(line: str) -> str:
    """The command that a request of ours calls."""
    words = line.split()
    two = " ".join(words[:2])
    return two if any(command.name == two for command in every()) else words[0]


def test_every_command_is_tried() -> None:
    """The requests of this test are those of all commands there are, each on the page."""
    assert dispatch.HANDLERS
    names = {command.name for command in every()}
    assert {command_of(line) for line in REQUESTS.split("\n") if line} == names
    assert documented().keys() == names


def cases(guarded: Guarded, someone: Someone) -> list[tuple[list[str], bool]]:
    """Each request, with each kind of name, and whether this user may."""
    made = []
    takes, token = documented(), guarded.token("read-all")
    for line in filter(None, REQUESTS.split("\n")):
        role, _, whole = takes[command_of(line)].partition(", ")
        names = line.count("{") - line.count("{token}")
        for first, second in product((MINE, OTHERS), repeat=2) if names else [(MINE, MINE)]:
            if names == 1 and second is OTHERS:
                continue
            may = ORDER.index(someone.role or "nobody") >= ORDER.index(role)
            theirs = someone.everything or OTHERS not in (first, second)
            may &= role == "nobody" or (theirs if names or not whole else someone.everything)
            made.append((line.format(a=first[0], b=second[1], token=token).split(), may))
    return made


def ask(guarded: Guarded, someone: Someone, words: list[str]) -> bytes:
    """The reply to one request, on a connection of its own."""
    with Wire(guarded.server.resp_port) as wire:
        if someone.token is not None:
            wire.send(request("AUTH", someone.token) + request(*words))
            assert wire.reply() == b"+OK\r\n"
            return wire.reply()
        return wire.ask(*words)


def refused(reply: bytes) -> bool:
    """Whether this is what one gets who may not."""
    return reply.startswith((b"-NOAUTH", b"-NOPERM"))


def state(guarded: Guarded) -> list[object]:
    """All filters, with what is known of each."""
    with Wire(guarded.server.resp_port) as wire:
        assert wire.ask("AUTH", guarded.token("admin-all")) == b"+OK\r\n"
        names = sorted(name[1:] for name in shown(wire.ask("KEYS", "*")))
        return [(name, wire.ask("BF.INFO", name), wire.ask("TTL", name)) for name in names]


def test_who_may_not_does_nothing(guarded: Guarded) -> None:
    """What the page does not allow is refused, as NOAUTH or NOPERM, and nothing has changed."""
    with Wire(guarded.server.resp_port) as wire:
        assert wire.ask("AUTH", guarded.token("admin-all")) == b"+OK\r\n"
        for name in (*MINE, *OTHERS):
            wire.ask("BF.MADD", name, "k", "l", "m")
    before = state(guarded)
    wrong = []
    for someone in guarded.users:
        for words, may in cases(guarded, someone):
            if may:
                continue
            reply = ask(guarded, someone, words)
            code = b"-NOAUTH" if someone.role is None else b"-NOPERM"
            if not reply.startswith(code):
                wrong.append((someone.name, words, reply[:80]))
    assert wrong == []
    assert state(guarded) == before


def test_who_may_is_let(guarded: Guarded) -> None:
    """What the page allows is never refused for want of permission."""
    wrong = []
    for someone in guarded.users:
        for words, may in cases(guarded, someone):
            if may and words[0] != "SAVE":  # a process each time; BGSAVE is the same operation
                reply = ask(guarded, someone, words)
                # Without a login HELLO has to bring one.
                expected = someone.role is None and words[0] == "HELLO"
                if refused(reply) is not expected:
                    wrong.append((someone.name, words, reply[:80]))
    assert wrong == []


@pytest.mark.parametrize("add", ["BF.ADD", "CF.ADD"])
def test_the_native_path_asks_too(guarded: Guarded, add: str) -> None:
    """A name that a connection was let use natively is no way to another name, nor to writing."""
    exists, port = add.replace("ADD", "EXISTS"), guarded.server.resp_port
    name, other = f"mine:{add}", f"others:{add}"
    with Wire(port) as admin:
        assert admin.ask("AUTH", guarded.token("admin-all")) == b"+OK\r\n"
        admin.ask(add, name, "k")
        admin.ask(add, other, "k")
    with Wire(port) as wire:
        wire.ask("AUTH", guarded.token("read-some"))
        wire.send(request(exists, name, "k") * 3 + request(add, name, "x") * 3)
        assert [wire.reply() for _ in range(3)] == [b":1\r\n"] * 3
        assert all(refused(wire.reply()) for _ in range(3))
        wire.send((request(exists, name, "k") + request(exists, other, "k")) * 3)
        for _ in range(3):
            assert wire.reply() == b":1\r\n"
            assert refused(wire.reply())
        wire.send(request(exists, name, "x"))
        assert wire.reply() == b":0\r\n"
    with Wire(port) as wire:
        wire.ask("AUTH", guarded.token("write-some"))
        wire.send((request(add, name, "y") + request(add, other, "y")) * 2)
        assert wire.reply() == b":1\r\n"
        assert refused(wire.reply())
        assert wire.reply().startswith(b":")
        assert refused(wire.reply())


def test_lists_show_what_is_ones_own(guarded: Guarded) -> None:
    """KEYS, SCAN, RANDOMKEY and DBSIZE know of the filters that a user may use and of no others."""
    port = guarded.server.resp_port
    with Wire(port) as wire:
        wire.ask("AUTH", guarded.token("admin-all"))
        wire.ask("FLUSHALL")
        for number in range(20):
            wire.ask("BF.ADD", f"mine:{number}", "k")
            wire.ask("BF.ADD", f"others:{number}", "k")
    with Wire(port) as wire:
        wire.ask("AUTH", guarded.token("read-some"))
        mine = {f"$mine:{number}" for number in range(20)}
        assert set(shown(wire.ask("KEYS", "*"))) == mine
        assert shown(wire.ask("KEYS", "others:*")) == []
        assert set(shown(wire.ask("SCAN", 0, "COUNT", 1000))[1]) == mine
        assert wire.ask("DBSIZE") == b":20\r\n"
        assert all(shown(wire.ask("RANDOMKEY")) in mine for _ in range(50))
        assert "others" not in shown(wire.ask("INFO"))


def test_a_transaction_is_checked(guarded: Guarded) -> None:
    """A command that one may not do spoils the transaction, of which nothing is done."""
    with Wire(guarded.server.resp_port) as wire:
        wire.ask("AUTH", guarded.token("write-some"))
        assert wire.ask("MULTI") == b"+OK\r\n"
        assert wire.ask("BF.ADD", "mine:multi", "k") == b"+QUEUED\r\n"
        assert refused(wire.ask("BF.ADD", "others:multi", "k"))
        assert wire.ask("EXEC").startswith(b"-EXECABORT")
        assert wire.ask("EXISTS", "mine:multi") == b":0\r\n"
        assert wire.ask("BF.EXISTS", "mine:multi", "k") == b":0\r\n"
        assert wire.ask("MULTI") == b"+OK\r\n"
        assert wire.ask("BF.ADD", "mine:multi", "k") == b"+QUEUED\r\n"
        assert wire.ask("EXEC") == b"*1\r\n:1\r\n"
