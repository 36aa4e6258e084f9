"""Commands about the connection itself: HELLO, AUTH, CLIENT and the like."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any, NoReturn

from bloomery import errors
from bloomery.service.access.users import split_token
from bloomery.service.resp import limits
from bloomery.service.resp.arguments import integer, option, parse_integer
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.handlers import transactions
from bloomery.service.resp.handlers.info import MODULES, REDIS_VERSION
from bloomery.service.resp.replies import OK, Failure, TextReply
from bloomery.service.resp.table import command, help_command
from bloomery.service.slices import FEW, batches

_SYNTAX = Failure("ERR syntax error")
_NO_LOGIN = Failure(
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO "
    "<proto> AUTH <user> <pass> option can be used to authenticate the client and select the "
    "RESP protocol version at the same time"
)


@command("MODULE LIST", group="server", does="session")
async def modules(client: ClientState, words: list[bytes]) -> list[dict[bytes, Any]]:
    """Tell which modules a Redis would need to be this server."""
    return MODULES


help_command("MODULE", "server")


def _label(word: bytes, what: str) -> bytes:
    """Return a name that a client gave itself: it stands in lines of CLIENT LIST."""
    if not all(0x21 <= byte <= 0x7E for byte in word):
        raise Failure(f"ERR {what} cannot contain spaces, newlines or special characters.")
    return word


async def _log_in(client: ClientState, name: bytes | None, word: bytes) -> None:
    """Log in by a token, at once, or by a name and a password, which takes time."""
    user = None if name is None else name.decode("utf-8", "surrogateescape")
    text = word.decode("utf-8", "surrogateescape")
    login = client.context.access.known_token(user, text)
    if login is None:
        access = client.context.access
        login = await access.log_in(user, text, client.host, protocol="resp")
    client.log_in(login)


def _log_in_without_users(name: bytes) -> None:
    """There is one user then, without a password."""
    if name != b"default":
        raise errors.NotLoggedIn


@command(
    "HELLO",
    "[protover [AUTH username password] [SETNAME clientname]]",
    most=None,
    group="connection",
    does="connect",
)
async def hello(client: ClientState, words: list[bytes]) -> dict[bytes, Any]:
    """Choose the protocol, 2 or 3, and learn who answers."""
    protocol, name, at = client.protocol, client.name, 1
    credentials: list[bytes] = []
    if words:
        number = integer(words[0])
        if number is None:
            raise Failure("ERR Protocol version is not an integer or out of range")
        if number not in (2, 3):
            raise Failure("NOPROTO unsupported protocol version")
        protocol = number
    while at < len(words):
        word = option(words[at])
        if word == "AUTH" and at + 2 < len(words):
            credentials = words[at + 1 : at + 3]
            at += 3
        elif word == "SETNAME" and at + 1 < len(words):
            name = _label(words[at + 1], "Client names")
            at += 2
        else:
            shown = words[at][:128].decode("utf-8", "replace")
            raise Failure(f"ERR Syntax error in HELLO option '{shown}'")
    if credentials and client.context.access.required:
        await _log_in(client, credentials[0], credentials[1])
    elif credentials:
        _log_in_without_users(credentials[0])
    elif client.user is None:
        raise _NO_LOGIN
    return _greet(client, protocol, name)


def _greet(client: ClientState, protocol: int, name: bytes) -> dict[bytes, Any]:
    client.session.protocol, client.name = protocol, name
    return {
        b"server": b"redis",  # some clients know no other
        b"version": REDIS_VERSION.encode(),
        b"proto": protocol,
        b"id": client.id,
        b"mode": b"standalone",
        b"role": b"master",
        b"modules": MODULES,
    }


@command("AUTH", "[username] password", most=None, group="connection", does="connect")
async def auth(client: ClientState, words: list[bytes]) -> str:
    """Log in: a name and a password or token, a token, or the password of the user `default`."""
    if len(words) > 2:
        raise _SYNTAX
    if client.context.access.required:
        name = words[0] if len(words) == 2 else None
        if name is None and split_token(words[-1].decode("latin-1")) is None:
            name = b"default"
        await _log_in(client, name, words[-1])
        return OK
    if len(words) == 1:
        raise Failure(
            "ERR AUTH <password> called without any password configured for the default user. "
            "Are you sure your configuration is correct?"
        )
    _log_in_without_users(words[0])
    return OK


def _message(word: bytes) -> bytes:
    most = limits.MAX_PING_BYTES
    if len(word) > most:
        raise Failure(f"ERR a message of {len(word)} bytes, must have at most {most}")
    return word


@command("PING", "[message]", group="connection", does="session")
async def ping(client: ClientState, words: list[bytes]) -> str | bytes:
    """Answer PONG, or the message."""
    return _message(words[0]) if words else "PONG"


@command("ECHO", "message", group="connection", does="session")
async def echo(client: ClientState, words: list[bytes]) -> bytes:
    """Answer the message."""
    return _message(words[0])


@command("SELECT", "index", group="connection", does="session")
async def select(client: ClientState, words: list[bytes]) -> str:
    """Choose a database: there is one, 0."""
    index = parse_integer(words[0])
    if not -(1 << 31) <= index < 1 << 31:
        raise Failure("ERR value is out of range, value must between -2147483648 and 2147483647")
    if index != 0:
        raise Failure("ERR DB index is out of range")
    return OK


@command("QUIT", most=None, group="connection", does="connect")
async def quit(client: ClientState, words: list[bytes]) -> str:
    """Close the connection after this reply."""
    client.closing = True
    return OK


@command("RESET", group="connection", does="connect")
async def reset(client: ClientState, words: list[bytes]) -> str:
    """Be as a new connection: not logged in, no transaction, no name, protocol 2."""
    transactions.end(client)
    client.muted, client.skipped_replies = False, 0
    client.log_out()
    client.session.protocol, client.name = 2, b""
    return "RESET"


# CLIENT


def _line(client: ClientState) -> str:
    session, now = client.session, time.monotonic()
    multi = -1 if client.queue is None else len(client.queue)
    facts = {
        "id": client.id,
        "addr": client.address,
        "laddr": client.local,
        "fd": -1,  # a worker's
        "name": client.name.decode(),
        "age": int(now - client.since),
        "idle": int(session.idle),
        "flags": "x" if client.queue is not None else "N",
        "db": 0,
        "sub": 0,
        "psub": 0,
        "ssub": 0,
        "multi": multi,
        "watch": len(client.watching),
        "qbuf": (waiting := session.waiting),
        "qbuf-free": 0,
        "argv-mem": 0,
        "multi-mem": (queued := session.queued_bytes),
        "rbs": 0,
        "rbp": 0,
        "obl": (pending := session.pending),
        "oll": 0,
        "omem": pending,
        "tot-mem": waiting + queued + pending,
        "events": "r",
        "cmd": client.command or "NULL",
        "user": client.user_name,
        "redir": -1,
        "resp": client.protocol,
        "lib-name": client.library.decode(),
        "lib-ver": client.library_version.decode(),
    }
    return " ".join(f"{name}={value}" for name, value in facts.items()) + "\n"


@command("CLIENT ID", group="connection", does="session")
async def client_id(client: ClientState, words: list[bytes]) -> int:
    """Tell the number of this connection."""
    return client.id


@command("CLIENT INFO", group="connection", does="session")
async def client_info(client: ClientState, words: list[bytes]) -> TextReply:
    """Tell about this connection."""
    return TextReply(_line(client))


@command(
    "CLIENT LIST", "[TYPE type] [ID client-id [client-id ...]]", group="connection", does="server"
)
async def client_list(client: ClientState, words: list[bytes]) -> TextReply:
    """Tell about every connection."""
    chosen = list(client.clients.connections)
    if words:
        word = option(words[0])
        if word == "TYPE" and len(words) == 2:
            if option(words[1]) not in ("NORMAL", "MASTER", "REPLICA", "PUBSUB"):
                shown = words[1][:128].decode("utf-8", "replace")
                raise Failure(f"ERR Unknown client type '{shown}'")
            chosen = chosen if option(words[1]) == "NORMAL" else []
        elif word == "ID" and len(words) > 1:
            chosen = [_number(word) for word in words[1:]]
        else:
            raise _SYNTAX
    if not client.slices(chosen):
        return TextReply(_lines(client, chosen))
    return TextReply("".join([_lines(client, some) async for some in batches(chosen)]))


def _lines(client: ClientState, numbers: Iterable[int]) -> str:
    """Return a line for each of these clients that is still connected."""
    connections = client.clients.connections
    return "".join(_line(connections[number]) for number in numbers if number in connections)


def _number(word: bytes) -> int:
    number = integer(word)
    if number is None or number < 1:
        raise Failure("ERR Invalid client ID")
    return number


@command("CLIENT SETNAME", "connection-name", group="connection", does="session")
async def client_setname(client: ClientState, words: list[bytes]) -> str:
    """Give this connection a name."""
    client.name = _label(words[0], "Client names")
    return OK


@command("CLIENT GETNAME", group="connection", does="session")
async def client_getname(client: ClientState, words: list[bytes]) -> bytes | None:
    """Tell the name of this connection."""
    return client.name or None


@command("CLIENT SETINFO", "LIB-NAME|LIB-VER value", group="connection", does="session")
async def client_setinfo(client: ClientState, words: list[bytes]) -> str:
    """Tell which library the client uses."""
    which = option(words[0])
    if which == "LIB-NAME":
        client.library = _label(words[1], "lib-name")
    elif which == "LIB-VER":
        client.library_version = _label(words[1], "lib-ver")
    else:
        shown = words[0][:128].decode("utf-8", "replace")
        raise Failure(f"ERR Unrecognized option '{shown}'")
    return OK


@command("CLIENT NO-EVICT", "ON|OFF", group="connection", does="session")
@command("CLIENT NO-TOUCH", "ON|OFF", group="connection", does="session")
async def client_no(client: ClientState, words: list[bytes]) -> str:
    """Accepted: nothing is evicted here, and no filter knows when it was asked last."""
    if option(words[0]) not in ("ON", "OFF"):
        raise _SYNTAX
    return OK


@command(
    "CLIENT KILL",
    "ip:port | [ID client-id] [ADDR ip:port] [LADDR ip:port] [SKIPME YES|NO]",
    least=1,
    most=None,
    group="connection",
    does="server",
)
async def client_kill(client: ClientState, words: list[bytes]) -> int | str:
    """Close connections: one by its address, or all that match, and tell how many."""
    if len(words) == 1:
        if not await _close(client, {"address": _text(words[0])}, skip_me=False):
            raise Failure("ERR No such client")
        return OK
    if len(words) % 2:
        raise _SYNTAX
    wanted: dict[str, object] = {}
    skip_me = True
    for word, value in zip(words[::2], words[1::2], strict=True):
        which = option(word)
        if which == "ID":
            number = integer(value)
            if number is None or number < 1:
                raise Failure("ERR client-id should be greater than 0")
            wanted["id"] = number
        elif which == "ADDR":
            wanted["address"] = _text(value)
        elif which == "LADDR":
            wanted["local"] = _text(value)
        elif which == "SKIPME" and option(value) in ("YES", "NO"):
            skip_me = option(value) == "YES"
        else:
            raise _SYNTAX
    return await _close(client, wanted, skip_me=skip_me)


@command("CLIENT REPLY", "ON|OFF|SKIP", group="connection", does="session")
async def client_reply(client: ClientState, words: list[bytes]) -> str:
    """Send replies (ON) or none (OFF), or leave out the reply to the next command (SKIP)."""
    which = option(words[0])
    if which not in ("ON", "OFF", "SKIP"):
        raise _SYNTAX
    if which == "SKIP":
        client.skipped_replies = 2  # this one, and the next
    else:
        client.muted, client.skipped_replies = which == "OFF", 0
    client.observe()
    return OK


@command(
    "CLIENT TRACKING",
    "ON|OFF [REDIRECT client-id] [PREFIX prefix] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]",
    most=None,
    group="connection",
    does="session",
)
async def client_tracking(client: ClientState, words: list[bytes]) -> str:
    """Refused, but for OFF: filters change with every key, so caching replies cannot help."""
    which = option(words[0])
    if which == "OFF" and len(words) == 1:
        return OK
    if which not in ("ON", "OFF"):
        raise _SYNTAX
    raise Failure(
        "ERR CLIENT TRACKING is not supported: a filter changes with every new key; disable "
        "client-side caching"
    )


@command("CLIENT TRACKINGINFO", group="connection", does="session")
async def client_trackinginfo(client: ClientState, words: list[bytes]) -> dict[bytes, Any]:
    """Return that tracking is off."""
    return {b"flags": frozenset({b"off"}), b"redirect": -1, b"prefixes": []}


@command("CLIENT GETREDIR", group="connection", does="session")
async def client_getredir(client: ClientState, words: list[bytes]) -> int:
    """Return -1: tracking is off."""
    return -1


@command("CLIENT CACHING", "YES|NO", group="connection", does="session")
async def client_caching(client: ClientState, words: list[bytes]) -> NoReturn:
    """Refused, as in Redis while tracking is off."""
    raise Failure(
        "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or "
        "OPTOUT mode enabled"
    )


@command("CLIENT PAUSE", "timeout [WRITE|ALL]", group="connection", does="server")
async def client_pause(client: ClientState, words: list[bytes]) -> NoReturn:
    """Refused: HTTP and other nodes would go on. SIGTERM and `drain-seconds` end a server."""
    timeout = integer(words[0])
    if timeout is None:
        raise Failure("ERR timeout is not an integer or out of range")
    if timeout < 0:
        raise Failure("ERR timeout is negative")
    if words[1:] and option(words[1]) not in ("WRITE", "ALL"):
        raise Failure("ERR CLIENT PAUSE mode must be WRITE or ALL")
    raise Failure(
        "ERR CLIENT PAUSE is not supported: HTTP and other nodes would continue; send SIGTERM to "
        "drain a server"
    )


@command("CLIENT UNPAUSE", group="connection", does="server")
async def client_unpause(client: ClientState, words: list[bytes]) -> str:
    """Accepted: clients are never paused."""
    return OK


@command("CLIENT UNBLOCK", "client-id [TIMEOUT|ERROR]", group="connection", does="server")
async def client_unblock(client: ClientState, words: list[bytes]) -> int:
    """Return 0: no command blocks a client until others write."""
    parse_integer(words[0])
    if words[1:] and option(words[1]) not in ("TIMEOUT", "ERROR"):
        raise Failure("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
    return 0


def _text(word: bytes) -> str:
    return word.decode("utf-8", "replace")


async def _close(client: ClientState, wanted: dict[str, object], *, skip_me: bool) -> int:
    """Close the connections of clients with these attributes. Return how many."""
    numbers = list(client.clients.connections)
    closed = 0
    if not client.slices(numbers):
        closed = _close_others(client, numbers, wanted)
    else:
        for start in range(0, len(numbers), FEW):
            closed += _close_others(client, numbers[start : start + FEW], wanted)
            await asyncio.sleep(0)  # the loop closes them now, which takes longer than to find them
    if not skip_me and _matches(client, wanted):
        client.closing = True  # after this reply
        closed += 1
    return closed


def _close_others(client: ClientState, numbers: Iterable[int], wanted: dict[str, object]) -> int:
    """Do the same to those of these clients that are still connected and did not ask for it."""
    closed = 0
    for number in numbers:
        other = client.clients.connections.get(number)
        if other is not None and other is not client and _matches(other, wanted):
            other.abort()
            closed += 1
    return closed


def _matches(client: ClientState, wanted: dict[str, object]) -> bool:
    return all(getattr(client, name) == value for name, value in wanted.items())


help_command("CLIENT", "connection")
