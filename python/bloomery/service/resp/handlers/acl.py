"""ACL: the users and their permissions, in Redis's words. `bloomery user` changes them."""

from __future__ import annotations

from typing import Any

from bloomery.service.access.permissions import ANYBODY, Role, User
from bloomery.service.resp.arguments import option
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.handlers.introspection import categories_of
from bloomery.service.resp.replies import Failure
from bloomery.service.resp.table import command, every, help_command

# What each role may run, by the categories that `introspection` gives to commands.
_RULES = {
    Role.NOBODY: "-@all",
    Role.READ: "+@all -@admin -@write",
    Role.WRITE: "+@all -@admin",
    Role.ADMIN: "+@all",
}


@command("ACL WHOAMI", group="server", does="session")
async def whoami(client: ClientState, words: list[bytes]) -> bytes:
    """Return the name of the user of this connection."""
    return client.user_name.encode()


@command("ACL CAT", "[category]", group="server", does="session")
async def cat(client: ClientState, words: list[bytes]) -> list[bytes]:
    """Return the categories of commands, or the commands of one category."""
    if not words:
        names = {name for entry in every() for name in categories_of(entry)}
        return [name[1:].encode() for name in sorted(names)]
    category = "@" + option(words[0]).lower()
    found = [entry.full_name for entry in every() if category in categories_of(entry)]
    if not found:
        shown = words[0][:128].decode("utf-8", "replace")
        raise Failure(f"ERR Unknown category '{shown}'")
    return [name.encode() for name in found]


@command("ACL LIST", group="server", does="server")
async def list_(client: ClientState, words: list[bytes]) -> list[bytes]:
    """Return the users and their rules. Passwords and tokens are left out."""
    return [_rule(*user) for user in _users(client)]


@command("ACL USERS", group="server", does="server")
async def users(client: ClientState, words: list[bytes]) -> list[bytes]:
    """Return the names of the users."""
    return [user.name.encode() for user, _ in _users(client)]


@command("ACL GETUSER", "username", group="server", does="server")
async def getuser(client: ClientState, words: list[bytes]) -> dict[bytes, Any] | None:
    """Return the rules of a user; null if there is no such user. Passwords are left out."""
    for user, enabled in _users(client):
        if user.name.encode() == words[0]:
            return {
                b"flags": frozenset(_flags(user, enabled)),
                b"passwords": [],
                b"commands": _RULES[user.role].encode(),
                b"keys": _patterns(user),
                b"channels": b"&*" if user.role is Role.ADMIN else b"",
                b"selectors": [],
            }
    return None


help_command("ACL", "server")


def _users(client: ClientState) -> list[tuple[User, bool]]:
    """Return each user, and whether it can log in."""
    access = client.context.access
    if not access.required:
        return [(ANYBODY, True)]
    return [(account.user, not account.disabled) for account in access.accounts()]


def _flags(user: User, enabled: bool) -> set[bytes]:
    return {b"on" if enabled else b"off"} | ({b"nopass"} if user is ANYBODY else set())


def _patterns(user: User) -> bytes:
    return b" ".join(b"~" + pattern for pattern in user.patterns)


def _rule(user: User, enabled: bool) -> bytes:
    words = [b"user", user.name.encode(), b"on" if enabled else b"off"]
    if user is ANYBODY:
        words.append(b"nopass")
    words += [_patterns(user), b"&*" if user.role is Role.ADMIN else b"resetchannels"]
    return b" ".join([*words, _RULES[user.role].encode()])
