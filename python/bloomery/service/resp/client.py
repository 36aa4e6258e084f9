"""Who is connected: what a client said about itself, and its transaction."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bloomery import _native
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
    spoiled: bool = False  # one of them was wrong: EXEC will refuse
    # Names that WATCH gave, and how their filters were then.
    watching: dict[bytes, object] = field(default_factory=dict)
    closing: bool = False  # after the replies so far

    @property
    def protocol(self) -> int:
        """2 or 3."""
        return self.session.protocol
