"""COMMAND: the commands of the table, as Redis describes its own."""

from __future__ import annotations

from typing import Any

from bloomery.service.access.glob import glob
from bloomery.service.access.permissions import OPERATIONS, Role
from bloomery.service.resp import grammar
from bloomery.service.resp.arguments import option
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.replies import Failure
from bloomery.service.resp.table import COMMANDS, CONTAINERS, Command, command, find, help_command

# The version of Redis that got each command, and for BF and CF that of RedisBloom.
_VERSIONS = {
    "1.0.0": "AUTH BGSAVE DBSIZE DEL ECHO EXISTS EXPIRE FLUSHALL FLUSHDB INFO KEYS LASTSAVE "
    "MONITOR PING QUIT RANDOMKEY RENAME RENAMENX SAVE SELECT TTL TYPE BF.ADD BF.EXISTS BF.INFO "
    "BF.INSERT BF.LOADCHUNK BF.MADD BF.MEXISTS BF.RESERVE BF.SCANDUMP BF.DEBUG BF.LOAD CF.ADD "
    "CF.ADDNX CF.COUNT CF.DEBUG CF.DEL CF.EXISTS CF.INFO CF.INSERT CF.INSERTNX CF.LOADCHUNK "
    "CF.MEXISTS CF.RESERVE CF.SCANDUMP CF.COMPACT",
    "1.2.0": "EXEC EXPIREAT MULTI",
    "2.0.0": "CONFIG DISCARD",
    "2.2.0": "PERSIST UNWATCH WATCH",
    "2.2.3": "OBJECT",
    "2.2.12": "SLOWLOG",
    "2.4.0": "CLIENT",
    "2.4.4": "BF.CARD",
    "2.6.0": "DUMP PEXPIRE PEXPIREAT PTTL RESTORE TIME",
    "2.6.9": "CLIENT|GETNAME CLIENT|SETNAME",
    "2.8.0": "CONFIG|REWRITE SCAN",
    "2.8.12": "ROLE",
    "2.8.13": "COMMAND LATENCY",
    "2.9.50": "CLIENT|PAUSE",
    "3.0.0": "CLUSTER WAIT",
    "3.2.0": "CLIENT|REPLY",
    "3.2.1": "TOUCH",
    "4.0.0": "MEMORY MODULE OBJECT|FREQ UNLINK",
    "5.0.0": "CLIENT|HELP CLIENT|ID CLIENT|UNBLOCK CLUSTER|HELP COMMAND|HELP CONFIG|HELP "
    "MODULE|HELP",
    "6.0.0": "ACL CLIENT|CACHING CLIENT|GETREDIR CLIENT|TRACKING HELLO",
    "6.2.0": "CLIENT|INFO CLIENT|TRACKINGINFO CLIENT|UNPAUSE COPY OBJECT|HELP RESET SLOWLOG|HELP",
    "7.0.0": "CLIENT|NO-EVICT CLUSTER|SHARDS COMMAND|DOCS COMMAND|LIST EXPIRETIME "
    "LATENCY|HISTOGRAM PEXPIRETIME",
    "7.2.0": "CLIENT|NO-TOUCH CLIENT|SETINFO",
}
_SINCE = {name: version for version, names in _VERSIONS.items() for name in names.split()}
_OWN_SINCE = "0.1.0"  # bloomery's version, for commands that no other server has


def since(name: str) -> str:
    """Return the version that introduced a command; a subcommand is as old as its container."""
    return _SINCE.get(name.replace(" ", "|")) or _SINCE.get(name.partition(" ")[0]) or _OWN_SINCE


_CATEGORIES = {
    "bf": "@bloom",
    "cf": "@cuckoo",
    "generic": "@keyspace",
    "transactions": "@transaction",
}


def categories_of(entry: Command) -> frozenset[str]:
    """Return the categories of a command. @admin and @write are those of roles: a user with the
    role `read` may run neither, and one with `write` none of @admin."""
    role = OPERATIONS[entry.does].role
    categories = {_CATEGORIES.get(entry.group, f"@{entry.group}")}
    if entry.write and role >= Role.WRITE:
        categories.add("@write")
    elif entry.keys[0]:
        categories.add("@read")
    if role is Role.ADMIN:
        categories.add("@admin")
    return frozenset(categories)


def _flags(entry: Command) -> frozenset[str]:
    flags = set()
    if entry.group in ("bf", "cf"):
        flags.add("module")
    if entry.does == "server":
        flags.add("admin")
    if entry.does in ("add", "create", "import"):
        flags.add("denyoom")
    if entry.write:
        flags.add("write")
    elif entry.keys[0]:
        flags |= {"readonly", "fast"}
    return frozenset(flags)


def _key_specs(entry: Command) -> list[dict[bytes, Any]]:
    """Where the names of filters stand, as Redis 7 says it: `lastkey` counts from the first."""
    first, last, step = entry.keys
    if not first:
        return []
    spec = {b"lastkey": last if last < 0 else last - first, b"keystep": step, b"limit": 0}
    access = {"RW", "access", "update"} if entry.write else {"RO", "access"}
    return [
        {
            b"flags": frozenset(access),
            b"begin_search": {b"type": b"index", b"spec": {b"index": first}},
            b"find_keys": {b"type": b"range", b"spec": spec},
        }
    ]


def _described(entry: Command) -> list[Any]:
    """As COMMAND INFO has it: name, arity, flags, where names stand, categories, subcommands."""
    first = entry.name.encode()
    inner = CONTAINERS.get(first, {}) if entry.words == 1 else {}
    subcommands = [_described(subcommand) for subcommand in inner.values()]
    name = entry.full_name.encode()
    return [
        *(name, entry.arity, _flags(entry), *entry.keys),
        *(categories_of(entry), [], _key_specs(entry), subcommands),
    ]


def _container(name: bytes) -> Command:
    """Describe what only has subcommands, as if it were a command."""
    first = next(iter(CONTAINERS[name].values()))
    text = name.decode()
    summary = f"A container for {text} subcommands"
    return Command(
        text, first.handler, "", summary, 1, None, False, first.group, (0, 0, 0), first.does
    )


def _all() -> dict[bytes, Command]:
    return {**{name: _container(name) for name in CONTAINERS}, **COMMANDS}


def _commands_named(words: list[bytes]) -> list[Command | None]:
    """The commands of these names, which must not be more than there are: each may be long."""
    known = _all()
    if len(words) > len(known):
        raise Failure(f"ERR {len(words)} names, and there are {len(known)} commands")
    entries = []
    for word in words:
        first, _, second = word.upper().partition(b"|")
        entries.append(CONTAINERS.get(first, {}).get(second) if second else known.get(first))
    return entries


@command("COMMAND", most=None, group="server", does="session")
async def everything(client: ClientState, words: list[bytes]) -> list[Any]:
    """Describe every command."""
    return [_described(entry) for entry in _all().values()]


@command("COMMAND COUNT", group="server", does="session")
async def count(client: ClientState, words: list[bytes]) -> int:
    """Tell how many commands there are."""
    return len(_all())


@command("COMMAND INFO", "[command-name [command-name ...]]", group="server", does="session")
async def info(client: ClientState, words: list[bytes]) -> list[Any]:
    """Describe some commands; null for what is none."""
    if not words:
        return await everything(client, [])
    return [None if entry is None else _described(entry) for entry in _commands_named(words)]


@command("COMMAND GETKEYS", "command [arg ...]", group="server", does="session")
async def getkeys(client: ClientState, words: list[bytes]) -> list[bytes]:
    """Tell which words of a command are names of filters."""
    try:
        entry = find(words)
    except Failure as failure:
        wrong = "number of arguments" in failure.text
        text = "Invalid number of arguments specified for command" if wrong else None
        raise Failure(f"ERR {text or 'Invalid command specified'}") from None
    names = entry.names(words)
    if not names:
        raise Failure("ERR The command has no key arguments")
    return names


def _documented(entry: Command) -> dict[bytes, Any]:
    of_module = entry.group in ("bf", "cf")
    facts: dict[bytes, Any] = {
        b"summary": entry.summary.encode(),
        b"since": since(entry.name).encode(),
        b"group": b"module" if of_module else entry.group.encode(),
    }
    if of_module:
        facts[b"module"] = b"bf"
    if arguments := grammar.arguments(entry.grammar):
        facts[b"arguments"] = arguments
    inner = CONTAINERS.get(entry.name.encode(), {})
    if inner:
        facts[b"subcommands"] = {
            subcommand.full_name.encode(): _documented(subcommand) for subcommand in inner.values()
        }
    return facts


@command("COMMAND DOCS", "[command-name [command-name ...]]", group="server", does="session")
async def docs(client: ClientState, words: list[bytes]) -> dict[bytes, Any]:
    """Tell what commands do."""
    wanted = _commands_named(words) if words else _all().values()
    return {entry.full_name.encode(): _documented(entry) for entry in wanted if entry is not None}


@command(
    "COMMAND LIST",
    "[FILTERBY MODULE module-name|ACLCAT category|PATTERN pattern]",
    most=3,
    group="server",
    does="session",
)
async def list_(client: ClientState, words: list[bytes]) -> list[bytes]:
    """Tell the names of commands."""
    entries = list(_all().values())
    if words:
        if len(words) != 3 or option(words[0]) != "FILTERBY":
            raise Failure("ERR syntax error")
        which, value = option(words[1]), words[2].lower()
        if which == "MODULE":
            entries = [entry for entry in entries if value == b"bf" and entry.group in ("bf", "cf")]
        elif which == "ACLCAT":
            category = "@" + value.decode("utf-8", "replace")
            entries = [entry for entry in entries if category in categories_of(entry)]
        elif which == "PATTERN":
            match = glob(value)
            entries = [entry for entry in entries if match(entry.full_name.encode())]
        else:
            raise Failure("ERR syntax error")
    return [entry.full_name.encode() for entry in entries]


help_command("COMMAND", "server")
