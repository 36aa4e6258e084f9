"""Who is connected: what a client said about itself, and its transaction."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bloomery.service.access.permissions import ANYBODY, Role, User
from bloomery.service.slices import FEW

if TYPE_CHECKING:
    from bloomery import _native
    from bloomery.service.access.authentication import Login
    from bloomery.service.server import Server

__all__ = ["Client"]


@dataclass(slots=True, eq=False)
class Client:
    """One connection, as commands see it."""

    id: int
    server: Server
    session: _native.Session
    address: str
    local: str
    name: bytes = b""
    library: bytes = b""
    library_version: bytes = b""
    since: float = field(default_factory=time.monotonic)
    last: float = field(default_factory=time.monotonic)
    command: str = ""
    # Commands of a transaction that has begun; None: there is none.
    queue: list[list[bytes]] | None = None
    queued_bytes: int = 0
    shared: bool | None = None  # does it want answers of the store? None: as the server is set
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
        self.leave()

    # Who it is.

    @property
    def host(self) -> str:
        """Its address without the port."""
        return self.address.rpartition(":")[0]

    def enter(self, login: Login) -> None:
        """Be logged in."""
        self.login, self.user = login, login.user
        self.server.door.strangers.pop(self.id, None)
        self.observe()

    def leave(self) -> None:
        """Be as one that has not logged in."""
        if self.user is not None:  # RESET gives a stranger no more time
            self.unknown_since = time.monotonic()
        self.login = None
        self.user = None if self.server.access.required else ANYBODY
        door = self.server.door
        if self.user is None and self.id in door.connections:
            door.strangers[self.id] = door.connections[self.id]
        self.observe()

    def still_welcome(self) -> bool:
        """Follow a change of the users; False if it is to go."""
        if self.login is None:
            if self.user is not None and self.server.access.required:
                self.leave()
            return True
        login = self.server.access.current(self.login)
        if login is not None:
            self.enter(login)
        return login is not None

    def observe(self) -> None:
        """Let Python see those commands that are not to be done at once."""
        user = self.user
        self.session.watched = user is None or self.queue is not None or bool(self.shared)
        # This also forgets what was permitted before.
        self.session.restricted = user is None or user.role < Role.WRITE or not user.everything

    def permit(self, name: bytes) -> None:
        """Let the native path do the usual commands on this name, which is the user's to use."""
        if self.user is not None and self.session.restricted:
            self.session.permit(name, self.user.role >= Role.WRITE)

    @property
    def asks_store(self) -> bool:
        """Are its questions for Redis, and not for this node's copy?"""
        return self.server.commands.asks_store(self.shared)

    def waits(self, items: Sequence[object]) -> bool:
        """Is a command about these to be waited for? Else it is done at once."""
        return self.asks_store or self.slices(items)

    def slices(self, items: Sequence[object]) -> bool:
        """Are these so many that others are to have their turn in between? Not in a transaction,
        which is short as a whole."""
        return len(items) > FEW and not self.executing

    @property
    def protocol(self) -> int:
        """2 or 3."""
        return self.session.protocol
