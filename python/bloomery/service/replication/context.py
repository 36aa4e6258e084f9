"""What the parts of a node use of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from bloomery import errors
from bloomery.integrations.redis.wire.link import Link
from bloomery.service.engine import Engine
from bloomery.service.group_commit import GroupCommit
from bloomery.service.observe.logs import Say
from bloomery.service.replication.catalogue import Catalogue
from bloomery.service.replication.sender import Sender
from bloomery.service.replication.shared import Filters, Recent


class NodeContext(Protocol):
    """A node, as its parts see it (`node.py`)."""

    say: Say
    accept_loss: bool
    loop: asyncio.AbstractEventLoop
    engine: Engine
    group_commit: GroupCommit
    catalogue: Catalogue
    filters: Filters
    recent: Recent
    link: Link
    tail_link: Link
    sender: Sender
    down_since: float | None
    broken: str
    damaged: bool

    def require_link(self) -> None:
        """Raise StoreUnavailable at once where it is known that Redis does not answer."""

    def call(self, what: Callable[..., Any], *args: Any) -> None:
        """Let the event loop do something."""

    def ask(self, what: Callable[..., Any], *args: Any) -> Any:
        """Let the event loop do something, and wait for what comes of it; in another thread."""

    def lost(self, problem: errors.BloomeryError) -> None:
        """Redis does not answer."""

    def found(self) -> None:
        """Redis answers."""

    def stumbled(self, problem: Exception) -> None:
        """Something nobody expected."""

    def damage(self) -> None:
        """Redis has lost a string: this node has its bits."""

    def mended(self) -> None:
        """Redis has what it had lost."""

    def caught_up(self, at: float) -> None:
        """At this moment (monotonic) nobody had added what is not here."""
