"""What can be done to any filter by its name: the commands that Redis has for keys."""

from __future__ import annotations

import random
from typing import Any

from bloomery import errors
from bloomery.service.access.glob import glob
from bloomery.service.access.permissions import User
from bloomery.service.domain.entry import Entry
from bloomery.service.resp import limits
from bloomery.service.resp.arguments import integer, option, parse_integer
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.replies import OK, Failure
from bloomery.service.resp.table import command, help_command
from bloomery.service.slices import FEW, batches, gathered

_SYNTAX = Failure("ERR syntax error")
_NO_SUCH_KEY = Failure("ERR no such key")
_MOST = (1 << 63) - 1
_FLUSHES = 8  # rounds in which FLUSHALL drops what other clients create at the same time


def _type(entry: Entry) -> str:
    return "MBbloomCF" if entry.settings.get("door") == "cf" else "MBbloom--"


@command("DEL", "key [key ...]", write=True, group="generic", does="drop")
@command("UNLINK", "key [key ...]", write=True, group="generic", does="drop")
async def delete(client: ClientState, words: list[bytes]) -> int:
    """Drop filters, and tell how many there were."""
    if client.slices(words):
        return await _drop_many(client, words)
    return await client.context.commands.drop(*words)


async def _drop_many(client: ClientState, names: list[bytes]) -> int:
    """Drop many filters, in batches between which others have their turn."""
    dropped = 0
    async for batch in batches(names, FEW):
        await client.context.engine.locks.unlocked(*batch)
        dropped += await client.context.commands.drop(*batch)
    return dropped


@command("EXISTS", "key [key ...]", group="generic", does="info")
@command("TOUCH", "key [key ...]", group="generic", does="info")
async def exists(client: ClientState, words: list[bytes]) -> Any:
    """Tell how many of the names have a filter; one that is given twice counts twice."""
    find = client.context.engine.find
    if client.slices(words):
        return len(await gathered(words, lambda name: find(name) is not None))
    return sum(find(name) is not None for name in words)


@command("TYPE", "key", group="generic", does="info")
async def type_(client: ClientState, words: list[bytes]) -> str:
    """Tell which commands a filter answers to: MBbloom-- for BF, MBbloomCF for CF."""
    entry = client.context.engine.find(words[0])
    return "none" if entry is None else _type(entry)


@command("OBJECT ENCODING", "key", group="generic", does="info")
async def encoding(client: ClientState, words: list[bytes]) -> bytes | None:
    """Accepted: all filters are raw."""
    return None if client.context.engine.find(words[0]) is None else b"raw"


@command("OBJECT REFCOUNT", "key", group="generic", does="info")
async def refcount(client: ClientState, words: list[bytes]) -> int | None:
    """Accepted: every filter is there once."""
    return None if client.context.engine.find(words[0]) is None else 1


@command("OBJECT IDLETIME", "key", group="generic", does="info")
@command("OBJECT FREQ", "key", group="generic", does="info")
async def idletime(client: ClientState, words: list[bytes]) -> None:
    """Refused for a filter that is there: when it was last used is not kept."""
    if client.context.engine.find(words[0]) is not None:
        raise Failure("ERR when a filter was last used is not kept: none is ever evicted")


help_command("OBJECT", "generic")


# Which there are: those that are one's own to use.


def _user(client: ClientState) -> User:
    assert client.user is not None  # or `authorize` would have refused
    return client.user


@command("KEYS", "pattern", group="generic", does="look")
async def keys(client: ClientState, words: list[bytes]) -> Any:
    """Tell every name that matches a pattern and is one's own to use."""
    user, match, names = _user(client), glob(words[0]), client.context.commands.listing.names()

    def matches(name: bytes) -> bool:
        # In this order: how long it takes then tells nothing of names that are others'.
        return user.covers(name) and match(name)

    if len(names) <= FEW:
        return [name for name in names if matches(name)]
    return await gathered(names, matches)


@command(
    "SCAN",
    "cursor [MATCH pattern] [COUNT count] [TYPE type]",
    most=None,
    group="generic",
    does="look",
)
async def scan(client: ClientState, words: list[bytes]) -> Any:
    """Tell some names and the cursor for the next ones; from 0 until it is 0 again."""
    cursor = integer(words[0])
    if cursor is None or cursor < 0:
        raise Failure("ERR invalid cursor")
    match, count, kind = glob(b"*"), 10, None
    if len(words) % 2 == 0:
        raise _SYNTAX
    for word, value in zip(words[1::2], words[2::2], strict=True):
        which = option(word)
        if which == "MATCH":
            match = glob(value)
        elif which == "COUNT":
            count = parse_integer(value)
            if count < 1:
                raise _SYNTAX
        elif which == "TYPE":
            kind = option(value)
        else:
            raise _SYNTAX
    count = min(count, limits.MAX_SCANNED)
    following, entries = client.context.commands.listing.scan(cursor, count, _user(client))

    def matches(entry: Entry) -> bool:
        return (kind is None or _type(entry).upper() == kind) and match(entry.name)

    if count <= FEW:
        return [b"%d" % following, [entry.name for entry in entries if matches(entry)]]
    listed = await gathered(entries, matches)
    return [b"%d" % following, [entry.name for entry in listed]]


@command("RANDOMKEY", group="generic", does="look")
async def randomkey(client: ClientState, words: list[bytes]) -> Any:
    """Tell any name."""
    names, user = client.context.commands.listing.names(), _user(client)
    if user.everything:
        return random.choice(names) if names else None
    names = await gathered(names, user.covers)
    return random.choice(names) if names else None


@command("DBSIZE", group="server", does="look")
async def dbsize(client: ClientState, words: list[bytes]) -> Any:
    """Tell how many filters there are that are one's own to use."""
    client.context.engine.begin()
    commands, user = client.context.commands, _user(client)
    if user.everything:
        return commands.listing.number(user)
    return len(await gathered(commands.listing.names(), user.covers))


@command("FLUSHALL", "[ASYNC|SYNC]", write=True, group="server", does="server")
@command("FLUSHDB", "[ASYNC|SYNC]", write=True, group="server", does="server")
async def flush(client: ClientState, words: list[bytes]) -> str:
    """Drop every filter."""
    if words and option(words[0]) not in ("ASYNC", "SYNC"):
        raise _SYNTAX
    await client.context.commands.prepare("drop")  # other nodes may have created some
    engine, listing = client.context.engine, client.context.commands.listing
    for _ in range(_FLUSHES):  # what was being created, a copy say, is dropped too
        await engine.settle()
        names = listing.names()
        if not names:
            break
        if client.executing and engine.locks.is_locked(names):
            # The other transaction could wait for this one.
            raise Failure("ERR a filter is busy with a long operation; retry in a moment")
        await _drop_many(client, names)
    return OK


# Other names.


@command("RENAME", "key newkey", write=True, group="generic", keys=(1, 2, 1), does="change")
async def rename(client: ClientState, words: list[bytes]) -> str:
    """Give a filter another name; a filter that had it is dropped."""
    if client.context.engine.find(words[0]) is None:
        raise _NO_SUCH_KEY
    await client.context.commands.rename(*words)
    return OK


@command("RENAMENX", "key newkey", write=True, group="generic", keys=(1, 2, 1), does="change")
async def renamenx(client: ClientState, words: list[bytes]) -> int:
    """Give a filter another name: 0 if that has a filter."""
    find = client.context.engine.find
    if find(words[0]) is None:
        raise _NO_SUCH_KEY
    if find(words[1]) is not None:
        return 0
    try:
        await client.context.commands.rename(*words, replace=False)
    except errors.FilterExists:  # another client was faster
        return 0
    return 1


@command(
    "COPY",
    "source destination [DB destination-db] [REPLACE]",
    most=None,
    write=True,
    group="generic",
    keys=(1, 2, 1),
    does="change",
)
async def copy(client: ClientState, words: list[bytes]) -> int:
    """Copy a filter to another name: 0 if there is none, or the name has one."""
    source, target, replace, at = words[0], words[1], False, 2
    while at < len(words):
        word = option(words[at])
        if word == "REPLACE":
            replace = True
        elif word == "DB" and at + 1 < len(words):
            at += 1
            if parse_integer(words[at]) != 0:
                raise Failure("ERR DB index is out of range")
        else:
            raise _SYNTAX
        at += 1
    if source == target:
        raise Failure("ERR source and destination objects are the same")
    if client.context.engine.find(source) is None:
        return 0
    try:
        await client.context.commands.copy(source, target, replace=replace)
    except errors.FilterExists:
        return 0
    return 1


# Until when.


def _expire(name: str, unit: int, since_now: bool) -> None:
    """Enter EXPIRE or one of its kin: `unit` is how many ms its number counts."""

    async def handler(client: ClientState, words: list[bytes]) -> int:
        options = _conditions(words[2:])
        number, now = parse_integer(words[1]), client.context.engine.running
        at = number * unit + (int(now * 1000) if since_now else 0)
        if not -_MOST <= number * unit <= _MOST or at > _MOST:
            raise Failure(f"ERR invalid expire time in '{name.lower()}' command")
        entry = client.context.engine.find(words[0])
        if entry is None or not _allowed(entry.expires_at, at / 1000, options):
            return 0
        if at <= now * 1000:
            at = 1  # over at once on a node too, where the time of the log may be a moment behind
        await client.context.commands.expire(words[0], at / 1000, check=True)
        return 1

    what = "seconds" if unit == 1000 else "milliseconds"
    unix = "" if since_now else "unix-time-"
    when = f"in so many {what}" if since_now else f"at a Unix time in {what}"
    handler.__doc__ = f"Let a filter end {when}: 0 if there is none, or the condition is not met."
    grammar = f"key {unix}{what} [NX|XX|GT|LT]"
    command(name, grammar, most=None, write=True, group="generic", does="change")(handler)


def _conditions(words: list[bytes]) -> set[str]:
    options = set()
    for word in words:
        if option(word) not in ("NX", "XX", "GT", "LT"):
            raise Failure(f"ERR Unsupported option {word[:128].decode('utf-8', 'replace')}")
        options.add(option(word))
    if "NX" in options and len(options) > 1:
        raise Failure("ERR NX and XX, GT or LT options at the same time are not compatible")
    if {"GT", "LT"} <= options:
        raise Failure("ERR GT and LT options at the same time are not compatible")
    return options


def _allowed(before: float | None, at: float, conditions: set[str]) -> bool:
    if "NX" in conditions and before is not None:
        return False
    if "XX" in conditions and before is None:
        return False
    if "GT" in conditions and (before is None or at <= before):  # none: it never ends
        return False
    return not ("LT" in conditions and before is not None and at >= before)


def _tell(name: str, unit: int, since_now: bool) -> None:
    """Enter TTL or one of its kin."""

    async def handler(client: ClientState, words: list[bytes]) -> int:
        engine = client.context.engine
        entry = engine.find(words[0])
        if entry is None:
            return -2
        if entry.expires_at is None:
            return -1
        left = round(entry.expires_at * 1000)
        if since_now:
            left = max(left - int(engine.running * 1000), 0)
        return (left + unit // 2) // unit

    what = "seconds" if unit == 1000 else "milliseconds"
    when = f"in how many {what}" if since_now else f"at which Unix time in {what}"
    handler.__doc__ = f"Tell {when} a filter ends: -1 never, -2 there is none."
    command(name, "key", group="generic", does="info")(handler)


for _prefix, _unit in (("", 1000), ("P", 1)):
    _expire(f"{_prefix}EXPIRE", _unit, since_now=True)
    _expire(f"{_prefix}EXPIREAT", _unit, since_now=False)
    _tell(f"{_prefix}TTL", _unit, since_now=True)
    _tell(f"{_prefix}EXPIRETIME", _unit, since_now=False)


@command("PERSIST", "key", write=True, group="generic", does="change")
async def persist(client: ClientState, words: list[bytes]) -> int:
    """Let a filter not end: 0 if it does not, or there is none."""
    entry = client.context.engine.find(words[0])
    if entry is None or entry.expires_at is None:
        return 0
    await client.context.commands.expire(words[0], None, check=True)
    return 1
