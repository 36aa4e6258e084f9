"""Permissions: a user has one role, and patterns of the filter names it may be used for.

Each operation of the server is listed here once with the role it takes; RESP commands and HTTP
routes refer to it by its name, and `docs/access.md` is made from this list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

from bloomery import errors
from bloomery.service.access.glob import glob


class Role(IntEnum):
    """Each may do what those before it may."""

    NOBODY = 0  # also without logging in
    READ = 1
    WRITE = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation, and the role that it takes."""

    role: Role
    what: str
    # Done to the whole server and not to named filters: takes a user whose pattern is `*`.
    whole: bool = False


OPERATIONS = {
    "connect": Operation(Role.NOBODY, "log in, choose a protocol, ask if the server is alive"),
    "look": Operation(Role.READ, "list filters (those one may read), the server's figures"),
    "session": Operation(Role.READ, "ask who one is and what there is to ask; transactions"),
    "contains": Operation(Role.READ, "ask for keys, count them"),
    "lookup": Operation(Role.READ, "look keys up in the source that a filter is bound to"),
    "info": Operation(Role.READ, "a filter's parameters, state and samples"),
    "export": Operation(Role.READ, "take a filter out as a file"),
    "reveal": Operation(
        Role.ADMIN, "take a filter out as a file that holds a secret seed (siphash)"
    ),
    "add": Operation(Role.WRITE, "add keys, making the filter if it is not there"),
    "remove": Operation(Role.WRITE, "remove keys"),
    "forget": Operation(Role.WRITE, "let keys be looked up anew, whose answers are cached"),
    "create": Operation(Role.WRITE, "make an empty filter"),
    "import": Operation(Role.ADMIN, "make a filter from a file"),
    "change": Operation(
        Role.ADMIN,
        "rename, copy, expire, merge, rotate, compact, rebuild; set a policy or a source",
    ),
    "clear": Operation(Role.ADMIN, "forget all keys of a filter"),
    "drop": Operation(Role.ADMIN, "forget a filter"),
    "server": Operation(Role.ADMIN, "settings, snapshots, clients, everything at once", whole=True),
}


def exporting(filter: Any) -> str:
    """Return the operation that takes a filter out: its file holds the seed, which is a secret if
    the hasher is siphash."""
    return "reveal" if getattr(filter, "hasher", None) == "siphash" else "export"


@dataclass(frozen=True, slots=True)
class User:
    """The permissions of a user who is logged in."""

    name: str
    role: Role
    patterns: tuple[bytes, ...] = (b"*",)

    @property
    def everything(self) -> bool:
        """Whether the user may use filters of all names."""
        return b"*" in self.patterns

    def covers(self, name: bytes) -> bool:
        """Whether the user may use a filter of this name."""
        return self.everything or any(_matcher(pattern)(name) for pattern in self.patterns)


_SPECIAL = set(b"*?[\\")


@lru_cache(maxsize=4096)
def _matcher(pattern: bytes) -> Callable[[bytes], bool]:
    start = pattern[:-1]
    if pattern.endswith(b"*") and not _SPECIAL & set(start):
        return lambda name: name.startswith(start)  # most are like this: KEYS asks for every name
    return glob(pattern)


# Who everybody is while the server has no users: it then listens on loopback only.
ANYBODY = User("default", Role.ADMIN)


def check(user: User | None, operation: str, *names: bytes) -> None:
    """Raise unless the user may do this to filters of these names; None: not logged in."""
    wanted = OPERATIONS[operation]
    if wanted.role is Role.NOBODY:
        return
    if user is None:
        raise errors.NotLoggedIn("log in first, by token or password: this server has users")
    if user.role < wanted.role:
        raise errors.NotAllowed(
            f"user {user.name} has the role {user.role.name.lower()}; to {wanted.what} takes "
            f"{wanted.role.name.lower()}"
        )
    if wanted.whole and not user.everything:
        raise errors.NotAllowed(
            f"user {user.name} is restricted to some filters; to {wanted.what} takes the pattern *"
        )
    for name in names:
        if not user.covers(name):
            raise errors.NotAllowed(f"user {user.name} may not use a filter of that name")
