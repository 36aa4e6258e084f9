"""The clients that are connected: what each said about itself, as whom it is logged in, and its
transaction."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bloomery import _native
from bloomery.service.access.authentication import Login
from bloomery.service.access.permissions import ANYBODY, Role, User
from bloomery.service.parts import Parts
from bloomery.service.resp.slowlog import SlowLog
from bloomery.service.slices import FEW


class Clients:
    """Every client that is connected, and how many there were."""

    # Set when the server opens.
    workers: _native.Workers

    def __init__(self, context: Parts) -> None:
        self.context = context
        self.connections: dict[int, ClientState] = {}
        self.unauthenticated: dict[int, ClientState] = {}  # must log in first; oldest first
        self.tasks: set[asyncio.Future[Any]] = set()  # commands under way
        self.received = 0  # connections, ever
        self.refused = 0  # those that were turned away
        self.python_commands = 0  # those that native code did not do
        self.slow_log = SlowLog(context.settings)
        self.commands_per_second = 0
        self._counted = (time.monotonic(), 0)  # when `sample` last counted commands, and how many
        self._memory_peak = 0
        self._hits, self._misses = 0, 0  # of commands that Python did
        self._forgotten: tuple[int, ...] = (0,) * 7

    def welcome(self, connection: socket.socket) -> ClientState:
        """Register a client, or reject it if `maxclients` is reached."""
        context, settings = self.context, self.context.settings
        self.received += 1
        session = _native.Session(
            context.engine.shelf,
            self.received,
            settings.max_arguments,
            settings.proto_max_bulk_len,
            settings.max_request_bytes,
        )
        peer, local = _address(connection.getpeername), _address(connection.getsockname)
        client = ClientState(self.received, context, self, session, peer, local)
        if len(self.connections) >= settings.maxclients and not self._make_room():
            self.refused += 1
            session.reply(b"-ERR max number of clients reached\r\n")
            client.closing = True
        self.connections[client.id] = client
        if client.user is None:
            self.unauthenticated[client.id] = client
        return client

    def _make_room(self) -> bool:
        """Disconnect the client that has been connected longest without logging in, if there is
        one: clients that only connect must not keep users out."""
        oldest = next(iter(self.unauthenticated.values()), None)
        if oldest is None:
            return False
        oldest.abort()
        return True

    def farewell(self, number: int) -> None:
        """Delete a client whose connection is closed."""
        self.connections.pop(number, None)
        self.unauthenticated.pop(number, None)

    def count_lookups(self, names: Sequence[bytes]) -> None:
        """Count the filters of a read that exist, and those that do not."""
        existing = self.context.engine.state.names
        found = sum(name in existing for name in names)
        self._hits += found
        self._misses += len(names) - found

    def note_memory(self) -> int:
        """Return the most memory that filters used, as far as that was noted each second."""
        self._memory_peak = max(self._memory_peak, _native.memory_used())
        return self._memory_peak

    def sample(self) -> None:
        """Measure the rate of commands. Called each second."""
        self.note_memory()
        (since, before), now = self._counted, time.monotonic()
        commands = self.context.engine.shelf.commands + self.python_commands
        self.commands_per_second = round((commands - before) / max(now - since, 1e-3))
        self._counted = now, commands

    def figures(self) -> tuple[int, ...]:
        """Connections received and refused, commands done natively and by Python, reads of filters
        that existed and that did not, and filters that expired, since the server started or CONFIG
        RESETSTAT."""
        return tuple(now - then for now, then in zip(self._all(), self._forgotten, strict=True))

    def forget_figures(self) -> None:
        """Count from 0."""
        self._forgotten = self._all()

    def _all(self) -> tuple[int, ...]:
        engine = self.context.engine
        native, (hits, misses) = engine.shelf.commands, engine.shelf.hits_and_misses
        return (
            *(self.received, self.refused, native, self.python_commands),
            *(self._hits + hits, self._misses + misses, engine.state.expired),
        )


def _address(name: Callable[[], Any]) -> str:
    try:
        address = name()
    except OSError:  # the client has gone
        return ""
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address or "")


@dataclass(slots=True, eq=False)
class ClientState:
    """One client, as commands see it."""

    id: int
    context: Parts
    clients: Clients
    session: _native.Session
    address: str
    local: str
    name: bytes = b""
    library: bytes = b""
    library_version: bytes = b""
    since: float = field(default_factory=time.monotonic)
    command: str = ""
    busy: bool = False  # one of its commands is under way
    # Commands of a transaction that has begun; None: there is none.
    queue: list[list[bytes]] | None = None
    # On a node: must reads see all that any node acknowledged? None: as the server is set.
    strong: bool | None = None
    executing: bool = False  # is EXEC under way?
    spoiled: bool = False  # one of them was wrong: EXEC will refuse
    # Names that WATCH gave, and how their filters were then.
    watching: dict[bytes, object] = field(default_factory=dict)
    closing: bool = False  # after the replies so far
    muted: bool = False  # CLIENT REPLY OFF
    skipped_replies: int = 0  # that CLIENT REPLY SKIP leaves out next
    # Who it is; None: it has yet to log in, and this long it has been so.
    user: User | None = None
    login: Login | None = None
    unknown_since: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.log_out()

    def abort(self) -> None:
        """Close the connection at once: requests that were not read are not done."""
        self.clients.farewell(self.id)
        self.clients.workers.abort(self.session)

    # Who it is.

    @property
    def host(self) -> str:
        """Its address without the port."""
        return self.address.rpartition(":")[0]

    def log_in(self, login: Login) -> None:
        """Let the client act as this user from now on."""
        self.login, self.user = login, login.user
        self.clients.unauthenticated.pop(self.id, None)
        self.observe()

    def log_out(self) -> None:
        """Let the client act as one that has not logged in."""
        if self.user is not None:  # RESET gives a stranger no more time
            self.unknown_since = time.monotonic()
        self.login = None
        self.user = None if self.context.access.required else ANYBODY
        clients = self.clients
        if self.user is None and self.id in clients.connections:
            clients.unauthenticated[self.id] = self
        self.observe()

    def follow_users(self) -> bool:
        """Follow a change of the users; False if this one may stay no longer."""
        if self.login is None:
            if self.user is not None and self.context.access.required:
                self.log_out()
            return True
        login = self.context.access.current(self.login)
        if login is not None:
            self.log_in(login)
        return login is not None

    def login_is_over(self, now: float) -> bool:
        """Whether it has taken too long to log in, or its token's time is over."""
        if self.user is None:
            return now - self.unknown_since > self.context.settings.login_seconds
        return self.login is not None and self.login.over()

    def observe(self) -> None:
        """Choose which commands native code hands to Python instead of doing them at once."""
        user = self.user
        self.session.unauthenticated = user is None
        silent = self.muted or self.skipped_replies > 0
        self.session.watched = user is None or self.queue is not None or bool(self.strong) or silent
        # This also forgets what was permitted before.
        self.session.restricted = user is None or user.role < Role.WRITE or not user.everything

    def takes_no_reply(self) -> bool:
        """Return whether CLIENT REPLY leaves out the reply to the command that just ran."""
        if self.skipped_replies and not self.muted:
            self.skipped_replies -= 1
            self.observe()
            return True
        return self.muted

    @property
    def user_name(self) -> str:
        """The name of the user, as ACL WHOAMI and CLIENT LIST show it."""
        return "(not logged in)" if self.user is None else self.user.name

    def permit(self, name: bytes) -> None:
        """Let native code do the usual commands on this filter, which the user may use."""
        if self.user is not None and self.session.restricted:
            self.session.permit(name, self.user.role >= Role.WRITE)

    @property
    def waits_for_others(self) -> bool:
        """Whether a read must wait until the writes of other nodes are applied here."""
        commands = self.context.commands
        return commands.is_strong(self.strong) or not self.context.engine.batches.may_answer

    def slices(self, items: Sequence[object]) -> bool:
        """Return whether a command with these arguments must run in slices between which other
        clients are served."""
        return len(items) > FEW

    @property
    def protocol(self) -> int:
        """The version of RESP that the client speaks: 2 or 3."""
        return self.session.protocol
