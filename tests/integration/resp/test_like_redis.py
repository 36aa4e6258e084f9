"""Commands that are not about filters, beside the real Redis: the same replies, byte by byte.

`MAKE name` stands for a command that makes or changes the key of that name: a filter here, a string
there. A line that begins with `~` has a reply whose order does not count, and one that begins with
`<` has the seconds that are left, which go by between the two.
"""

import itertools
import secrets
import time
from collections.abc import Iterator
from typing import Any

import pytest

from integration.resp.wire import Wire, shown
from integration.servers import BloomeryServer, RedisServer

SCRIPTS = {
    "logging in": """
        HELLO abc
        HELLO 4
        HELLO 2 FOO
        HELLO 2 AUTH other x
        HELLO 2 AUTH x
        HELLO 2 SETNAME "a b"
        HELLO 3 SETNAME
        AUTH
        AUTH x
        AUTH default x
        AUTH other x
        AUTH a b c
        """,
    "saying hello": """
        PING
        ping hi
        PING a b
        ECHO
        ECHO a
        ECHO ""
        SELECT 0
        SELECT 99
        SELECT -1
        SELECT x
        SELECT 99999999999
        """,
    "commands that there are not": """
        FOO
        FOO a b c d
        FOO aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \
            bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb c
        "FOO bar" baz
        CLIENT
        CLIENT FOO
        CONFIG
        CONFIG FOO
        OBJECT
        OBJECT FOO a
        MEMORY FOO
        COMMAND FOO
        SLOWLOG
        SLOWLOG FOO
        LATENCY FOO
        CLUSTER
        CLUSTER FOO
        """,
    "clients": """
        CLIENT GETNAME
        CLIENT SETNAME ab
        CLIENT GETNAME
        CLIENT SETNAME "a b"
        CLIENT SETNAME
        CLIENT SETNAME ""
        CLIENT GETNAME
        CLIENT ID x
        CLIENT NO-EVICT maybe
        CLIENT NO-EVICT on
        CLIENT KILL ID x
        CLIENT KILL ID 0
        CLIENT KILL ID 99999
        CLIENT KILL 1.2.3.4:5
        CLIENT KILL ADDR 1.2.3.4:5 FOO
        CLIENT KILL ADDR 1.2.3.4:5
        CLIENT KILL LADDR 1.2.3.4:5 SKIPME no
        CLIENT KILL FOO bar
        CLIENT KILL ID 99999 SKIPME maybe
        CLIENT LIST TYPE foo
        CLIENT LIST TYPE pubsub
        CLIENT LIST ID x
        CLIENT LIST ID 9999
        CLIENT LIST FOO
        CLIENT SETNAME ab
        RESET
        CLIENT GETNAME
        """,
    "which there are": """
        DEL
        DEL a
        DBSIZE
        RANDOMKEY
        KEYS *
        SCAN 0
        MAKE a
        MAKE b
        EXISTS
        EXISTS a a b c
        TOUCH a a c
        TYPE missing
        TYPE
        OBJECT ENCODING missing
        OBJECT ENCODING
        DBSIZE
        DBSIZE x
        RANDOMKEY x
        MEMORY USAGE missing
        MEMORY USAGE
        MEMORY USAGE a SAMPLES
        MEMORY USAGE a SAMPLES x
        MEMORY USAGE a FOO 1
        DEL a a c
        UNLINK b a
        DBSIZE
        """,
    "patterns": r"""
        MAKE a
        MAKE b
        MAKE abc
        MAKE a*c
        MAKE a]c
        MAKE h-llo
        MAKE hello
        MAKE hallo
        MAKE hillo
        MAKE "with space"
        KEYS
        ~KEYS *
        ~KEYS a*
        ~KEYS **
        ~KEYS *c
        ~KEYS a?c
        ~KEYS a\\*c
        ~KEYS h[ae]llo
        ~KEYS h[^e]llo
        ~KEYS h[a-e]llo
        ~KEYS h[e-a]llo
        ~KEYS h[i-]llo
        ~KEYS h[\\-]llo
        ~KEYS a[\\]]c
        ~KEYS a[]]c
        ~KEYS [ab
        ~KEYS [^a
        ~KEYS [a-
        ~KEYS h[]llo
        ~KEYS "* *"
        ~KEYS ""
        ~KEYS nosuch
        """,
    "scanning": """
        MAKE a
        MAKE b
        SCAN
        SCAN x
        SCAN 0 COUNT
        SCAN 0 COUNT 0
        SCAN 0 COUNT x
        SCAN 0 COUNT -5
        SCAN 0 FOO bar
        SCAN 0 MATCH nosuch
        SCAN 0 COUNT 100 TYPE nosuch
        SCAN 0 COUNT 100 MATCH a
        """,
    "until when": """
        MAKE a
        TTL a
        PTTL a
        TTL missing
        PTTL missing
        EXPIRETIME a
        PEXPIRETIME a
        EXPIRETIME missing
        EXPIRE a
        EXPIRE a x
        EXPIRE a 1.5
        EXPIRE a 99999999999999999999
        EXPIRE a 9223372036854775807
        EXPIRE a -9223372036854775808
        PEXPIRE a 9223372036854775807
        EXPIREAT a 9223372036854775807
        EXPIRE missing 10
        PERSIST a
        EXPIRE a 100
        <TTL a
        PERSIST a
        PERSIST a
        PERSIST missing
        EXPIREAT a 4000000000
        EXPIRETIME a
        PEXPIRETIME a
        PEXPIREAT a 4000000000123
        PEXPIRETIME a
        EXPIRETIME a
        PEXPIREAT a 4000000000500
        EXPIRETIME a
        PEXPIRE a 1500000
        <TTL a
        """,
    "until when, on a condition": """
        MAKE a
        EXPIRE a 10 FOO
        EXPIRE a x FOO
        EXPIRE a 10 NX XX
        EXPIRE a 10 GT LT
        EXPIRE a 10 NX GT
        EXPIRE a 10 XX
        EXPIRE a 10 GT
        EXPIRE a 100 NX
        EXPIRE a 100 NX
        EXPIRE a 50 GT
        EXPIRE a 200 GT
        EXPIRE a 300 LT
        EXPIRE a 100 LT
        EXPIRE a 100 XX
        EXPIRE a 500 XX GT
        <TTL a
        PERSIST a
        EXPIRE a 100 LT
        <TTL a
        """,
    "times that are over": """
        MAKE b
        EXPIRE b -1
        EXISTS b
        MAKE b
        EXPIREAT b 1
        EXISTS b
        MAKE b
        PEXPIREAT b 1
        EXISTS b
        MAKE b
        EXPIRE b 0
        EXISTS b
        """,
    "other names": """
        MAKE a
        MAKE b
        EXPIRE a 100
        RENAME missing x
        RENAME missing missing
        RENAME a a
        RENAMENX a a
        RENAMENX a b
        RENAMENX missing b
        RENAME a c
        EXISTS a c
        <TTL c
        PERSIST c
        RENAMENX c a
        RENAME a b
        EXISTS a b c
        """,
    "copies": """
        MAKE a
        MAKE b
        COPY a
        COPY a a
        COPY missing missing
        COPY missing q
        COPY a b
        COPY a c
        COPY a b REPLACE
        COPY a b DB 0 REPLACE
        COPY a b DB x
        COPY a b DB 99
        COPY a b DB
        COPY a b FOO
        EXPIRE a 100
        COPY a d
        <TTL d
        DBSIZE
        """,
    "flushing": """
        MAKE a
        FLUSHALL x
        DBSIZE
        FLUSHALL ASYNC
        DBSIZE
        MAKE a
        FLUSHDB SYNC
        DBSIZE
        FLUSHDB
        """,
    "transactions": """
        EXEC
        DISCARD
        MULTI x
        MULTI
        MULTI
        PING
        ECHO a
        EXEC
        MULTI
        EXEC
        MULTI
        DISCARD
        MULTI
        RENAME missing x
        TYPE missing
        COPY a a
        EXPIRE a x
        EXEC
        MULTI
        RESET
        EXEC
        """,
    "transactions that are spoiled": """
        MULTI
        FOO
        PING
        EXEC
        MULTI
        ECHO
        PING
        DISCARD
        MULTI
        SAVE
        EXEC
        MULTI
        WATCH a
        PING
        EXEC
        """,
    "watching": """
        WATCH
        UNWATCH
        WATCH a
        MULTI
        PING
        EXEC
        MAKE a
        WATCH a
        DEL a
        MULTI
        PING
        EXEC
        WATCH a
        MAKE a
        MULTI
        PING
        EXEC
        WATCH a
        MAKE a
        MULTI
        PING
        EXEC
        WATCH a
        MAKE a
        UNWATCH
        MULTI
        PING
        EXEC
        WATCH a b
        RENAME a b
        MULTI
        PING
        EXEC
        WATCH b
        EXPIRE b 1000
        MULTI
        PING
        EXEC
        WATCH b
        MAKE b
        DISCARD
        MULTI
        PING
        EXEC
        MULTI
        PING
        EXEC
        WATCH b
        MULTI
        MAKE b
        DISCARD
        """,
    "settings": """
        CONFIG GET
        CONFIG GET nosuch
        CONFIG GET maxmemory-policy
        CONFIG GET maxmemory
        CONFIG GET save
        CONFIG SET
        CONFIG SET a
        CONFIG SET nosuch 1
        CONFIG SET maxmemory 1 x
        CONFIG SET databases 3
        CONFIG SET timeout 5 timeout 6
        CONFIG SET timeout 100 maxclients 100
        ~CONFIG GET timeout maxclients timeout
        CONFIG SET timeout 0 nosuch 1
        CONFIG GET timeout
        CONFIG SET maxmemory 100mb
        CONFIG GET maxmemory
        CONFIG SET timeout 0 maxclients 10000 maxmemory 0
        CONFIG REWRITE
        CONFIG RESETSTAT
        CONFIG RESETSTAT x
        """,
    "what dashboards ask": """
        ROLE
        ROLE x
        TIME x
        SLOWLOG RESET
        SLOWLOG LEN
        SLOWLOG GET
        SLOWLOG GET -1
        SLOWLOG GET -2
        SLOWLOG GET x
        LATENCY LATEST
        LATENCY HISTORY command
        LATENCY HISTORY
        LATENCY RESET
        LATENCY RESET command
        LATENCY GRAPH command
        LATENCY HISTOGRAM nosuch
        CLUSTER INFO
        CLUSTER NODES
        CLUSTER SLOTS
        CLUSTER INFO x
        ACL WHOAMI
        ACL USERS
        ACL LIST
        ACL GETUSER nosuch
        ACL CAT nosuch
        ~CONFIG GET slowlog*
        CLIENT GETREDIR
        CLIENT TRACKINGINFO
        CLIENT TRACKING OFF
        CLIENT TRACKING
        CLIENT TRACKING maybe
        CLIENT CACHING YES
        CLIENT REPLY ON
        CLIENT REPLY maybe
        CLIENT UNPAUSE
        CLIENT PAUSE x
        CLIENT PAUSE -1
        CLIENT PAUSE 1 maybe
        CLIENT UNBLOCK 99999
        CLIENT UNBLOCK x
        CLIENT UNBLOCK 99999 maybe
        """,
    "about the server": """
        INFO nosuch
        LASTSAVE x
        BGSAVE foo
        SAVE x
        COMMAND COUNT x
        COMMAND INFO nosuch
        COMMAND DOCS nosuch
        COMMAND LIST FOO
        COMMAND LIST FILTERBY
        COMMAND LIST FILTERBY FOO bar
        COMMAND LIST FILTERBY MODULE nosuch
        COMMAND LIST FILTERBY PATTERN pin*
        """,
}


def lines(script: str) -> Iterator[str]:
    """The commands of a script, one a line; a backslash at a line's end joins it to the next."""
    for line in script.replace("\\\n", " ").splitlines():
        if line.strip():
            yield line.strip()


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_replies_are_those_of_redis(
    empty: BloomeryServer, redis_server: RedisServer, protocol: int, script: str
) -> None:
    """Whatever is asked about names, clients, settings and transactions, the reply is Redis's."""
    ours, theirs = Wire(empty.resp_port, protocol), Wire(redis_server.port, protocol)
    with ours, theirs:
        began = time.monotonic()
        for line in lines(script):
            if line.startswith("MAKE"):
                name = line.removeprefix("MAKE ").strip('"')
                made = (
                    ours.ask("BF.ADD", name, secrets.token_bytes(16)),
                    theirs.ask("APPEND", name, 1),
                )
                assert (made[0][:1] == b"-") == (made[1][:1] == b"-"), line
                continue
            got, right = (wire.line(line.lstrip("~<")) for wire in (ours, theirs))
            if line.startswith("~"):
                assert in_order(got) == in_order(right), line
            elif line.startswith("<"):
                assert got[:1] == right[:1] == b":"
                went_by = time.monotonic() - began
                assert abs(int(got[1:]) - int(right[1:])) <= round(went_by), line
            else:
                assert got == right, line


def in_order(reply: bytes) -> list[str]:
    """The items of a reply, sorted."""
    value = shown(reply)
    items = itertools.chain(*value.items()) if isinstance(value, dict) else value
    return sorted(items)


def documented(wire: Wire, *names: str) -> dict[str, dict[str, Any]]:
    """COMMAND DOCS of commands and of their subcommands, in RESP3."""
    found: dict[str, dict[str, Any]] = {}
    for name, facts in shown(wire.ask("COMMAND", "DOCS", *names)).items():
        found[name] = facts
        found |= facts.get("$subcommands", {})
    return found


def key_flags(wire: Wire) -> dict[str, list[str]]:
    """The flags of the first key of each command."""
    return {
        name: sorted(specs[0]["$flags"])
        for name, *_, specs, _subcommands in shown(wire.ask("COMMAND"))
        if specs and specs[0]["$flags"]
    }


def test_commands_are_described_as_redis_describes_them(
    empty: BloomeryServer, redis_server: RedisServer
) -> None:
    """Of the commands that Redis has too, the group and the version are Redis's; and every key has
    an access flag of Redis's."""
    with Wire(empty.resp_port, 3) as ours, Wire(redis_server.port, 3) as theirs:
        own, right = documented(ours), documented(theirs)
        shared = own.keys() & right.keys()
        assert len(shared) > 70
        wrong = {
            name: (own[name][field], right[name][field])
            for name in shared
            for field in ("$group", "$since")
            if own[name][field] != right[name][field]
        }
        assert wrong == {}
        known = {flag for flags in key_flags(theirs).values() for flag in flags}
        flags = key_flags(ours)
        assert {flag for some in flags.values() for flag in some} <= known
        assert flags["$bf.add"] == ["+RW", "+access", "+update"]
        assert flags["$bf.exists"] == ["+RO", "+access"]


def argument(name: str, kind: str, *flags: str, **more: Any) -> dict[str, Any]:
    """An argument of COMMAND DOCS."""
    shown_flags = {"$flags": [f"+{flag}" for flag in flags]} if flags else {}
    extra = {f"${key}": value for key, value in more.items()}
    return {"$name": f"${name}", "$type": f"${kind}", **shown_flags, **extra}


def test_filters_are_documented_as_redisbloom_documents_them(empty: BloomeryServer) -> None:
    """The arguments of a command are RedisBloom's, with those that only bloomery has."""
    key, item = argument("key", "key"), argument("item", "string", "multiple")
    with Wire(empty.resp_port, 3) as wire:
        found = documented(wire, "bf.madd", "bf.insert", "bf.card", "bf.info", "config")
    assert found["$bf.madd"]["$group"] == "$module"
    assert found["$bf.madd"]["$module"] == "$bf"
    assert found["$bf.madd"]["$since"] == "$1.0.0"
    assert found["$bf.card"]["$since"] == "$2.4.4"
    assert found["$bf.madd"]["$arguments"] == [key, item]
    inserts = found["$bf.insert"]["$arguments"]
    for one in (
        key,
        argument("capacity", "integer", "optional", token="$CAPACITY"),
        argument("error", "double", "optional", token="$ERROR"),
        argument("expansion", "integer", "optional", token="$EXPANSION"),
        argument("nocreate", "pure-token", "optional", token="$NOCREATE"),
        argument("nonscaling", "pure-token", "optional", token="$NONSCALING"),
    ):
        assert one in inserts
    field = found["$bf.info"]["$arguments"][1]
    assert field["$type"] == "$oneof"
    assert field["$flags"] == ["+optional"]
    assert argument("size", "pure-token", token="$SIZE") in field["$arguments"]
    [pair] = found["$config|set"]["$arguments"]
    assert (pair["$type"], pair["$flags"]) == ("$block", ["+multiple"])
