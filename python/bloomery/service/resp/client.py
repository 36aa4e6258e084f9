"""The clients that are connected: what each said about itself, as whom it is logged in, and its
transaction."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from bloomery import _native
from bloomery.service.access.authentication import Login
from bloomery.service.access.permissions import ANYBODY, Role, User
from bloomery.service.parts import Parts
from bloomery.service.resp.sockets import Sockets
from bloomery.service.slices import FEW


class Connected(Protocol):
    """A client's connection, as others see it."""

    client: ClientState
    transport: asyncio.Transport
    busy: bool  # a command of its own is under way

    def send(self) -> None:
        """Write the replies so far."""

    def sweep(self, now: float) -> None:
        """End the connection if its client is too slow."""

    def stop_reading(self) -> None:
        """Read no more."""

    def has_left(self) -> bool:
        """Whether the client has ended its side, or the connection is closed."""

    def abort(self) -> None:
        """End the connection at once."""


class Clients:
    """Every client that is connected, and how many there were."""

    def __init__(self, context: Parts) -> None:
        self.context = context
        self.connections: dict[int, Connected] = {}
        self.strangers: dict[int, Connected] = {}  # those who have yet to log in, oldest first
        self.tasks: set[asyncio.Future[Any]] = set()  # commands that take long
        self.sockets: Sockets | None = None  # those that native code reads, where it can
        self.draining = False  # the server ends: nothing more is read
        self.received = 0  # connections, ever
        self.refused = 0  # those that were turned away
        self.python_commands = 0  # those that native code did not do
        self._forgotten = (0, 0, 0, 0)

    def welcome(self, connection: Connected) -> ClientState:
        """Take in a new client, or turn it away if there are too many."""
        context, settings = self.context, self.context.settings
        session = _native.Session(
            context.engine.shelf,
            settings.max_arguments,
            settings.proto_max_bulk_len,
            settings.max_request_bytes,
        )
        peer, local = (_address(connection, which) for which in ("peername", "sockname"))
        self.received += 1
        client = ClientState(self.received, context, self, session, peer, local)
        if len(self.connections) >= settings.maxclients and not self._make_room():
            self.refused += 1
            session.reply(b"-ERR max number of clients reached\r\n")
            client.closing = True
            asyncio.get_running_loop().call_soon(connection.send)
        self.connections[client.id] = connection
        if client.user is None:
            self.strangers[client.id] = connection
        return client

    def _make_room(self) -> bool:
        """Hang up on the client that has been here longest without logging in, if there is one:
        those who only connect must not keep users out."""
        stranger = next(iter(self.strangers), None)
        if stranger is None:
            return False
        self.strangers.pop(stranger).abort()
        return True

    def farewell(self, client: ClientState) -> None:
        """Forget a client that is gone."""
        self.connections.pop(client.id, None)
        self.strangers.pop(client.id, None)

    def figures(self) -> tuple[int, ...]:
        """Connections received and refused, commands done natively and by Python, since the server
        started or CONFIG RESETSTAT."""
        return tuple(now - then for now, then in zip(self._all(), self._forgotten, strict=True))

    def forget_figures(self) -> None:
        """Count from 0."""
        self._forgotten = self._all()

    def _all(self) -> tuple[int, int, int, int]:
        native = self.context.engine.shelf.commands
        return self.received, self.refused, native, self.python_commands


def _address(connection: Connected, which: str) -> str:
    address = connection.transport.get_extra_info(which)
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
    # Commands of a transaction that has begun; None: there is none.
    queue: list[list[bytes]] | None = None
    queued_bytes: int = 0
    # On a node: must reads see all that any node acknowledged? None: as the server is set.
    strong: bool | None = None
    executing: bool = False  # is EXEC under way?
    spoiled: bool = False  # one of them was wrong: EXEC will refuse
    # Names that WATCH gave, and how their filters were then.
    watching: dict[bytes, object] = field(default_factory=dict)
    closing: bool = False  # after the replies so far
    # Who it is; None: it has yet to log in, and this long it has been so.
    user: User | None = None
    login: Login | None = None
    unknown_since: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.session.last = self.since
        self.log_out()

    # Who it is.

    @property
    def host(self) -> str:
        """Its address without the port."""
        return self.address.rpartition(":")[0]

    def log_in(self, login: Login) -> None:
        """Let the client act as this user from now on."""
        self.login, self.user = login, login.user
        self.clients.strangers.pop(self.id, None)
        self.observe()

    def log_out(self) -> None:
        """Let the client act as one that has not logged in."""
        if self.user is not None:  # RESET gives a stranger no more time
            self.unknown_since = time.monotonic()
        self.login = None
        self.user = None if self.context.access.required else ANYBODY
        clients = self.clients
        if self.user is None and self.id in clients.connections:
            clients.strangers[self.id] = clients.connections[self.id]
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
        self.session.watched = user is None or self.queue is not None or bool(self.strong)
        # This also forgets what was permitted before.
        self.session.restricted = user is None or user.role < Role.WRITE or not user.everything

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
