"""Authorization: each command is checked before it is run or queued, and those that are
administrative are written to the audit log."""

from __future__ import annotations

from typing import Any

from bloomery import errors
from bloomery.service.access import permissions
from bloomery.service.access.audit import AUDITED
from bloomery.service.access.permissions import ANYBODY, OPERATIONS, Role
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.replies import Failure
from bloomery.service.resp.table import Command

NO_LOGIN = Failure("NOAUTH Authentication required.")
_NATIVE = ("contains", "add", "remove")  # what native code does, for names that it is permitted
_NOT_THAT_NAME = Failure("NOPERM No permissions to access a key")


def check(client: ClientState, command: Command, words: list[bytes]) -> None:
    """Raise the error reply, in Redis's words, unless this client may do that."""
    user = client.user
    if user is ANYBODY or OPERATIONS[command.does].role is Role.NOBODY:
        return
    if user is None:
        note(client, command, words, "refused")
        raise NO_LOGIN
    names = command.names(words)
    try:
        permissions.check(user, command.does)
    except errors.NotAllowed:
        note(client, command, words, "refused")
        raise Failure(
            f"NOPERM User {user.name} has no permissions to run the '{command.full_name}' command"
        ) from None
    try:
        permissions.check(user, command.does, *names)
    except errors.NotAllowed:
        note(client, command, words, "refused")
        raise _NOT_THAT_NAME from None
    if command.does in _NATIVE:
        client.permit(names[0])


def check_export(
    client: ClientState, name: bytes, command: str, filter: Any, *, begins: bool = True
) -> None:
    """Raise the error reply unless this client may take this filter out: the file of one with a
    secret seed is for administrators. Each such export is noted when it `begins`."""
    operation, user = permissions.exporting(filter), client.user
    if operation not in AUDITED:
        return
    refusal = None
    try:
        permissions.check(user, operation, name)
    except errors.BloomeryError as problem:
        refusal = Failure(f"NOPERM {problem}")
    if begins or refusal is not None:
        client.context.audit.note(
            None if user is None else user.name,
            client.host,
            "resp",
            operation,
            "done" if refusal is None else "refused",
            command=command,
            names=[name],
        )
    if refusal is not None:
        raise refusal


def note(client: ClientState, command: Command, words: list[bytes], outcome: str) -> None:
    """Note what a client did, or was not let do, if it is administrative."""
    if command.does not in AUDITED:
        return
    changed = words[2::2] if command.name == "CONFIG SET" else []
    client.context.audit.note(
        None if client.user is None else client.user.name,
        client.host,
        "resp",
        command.does,
        outcome,
        command=command.full_name,
        names=command.names(words),
        settings=[name[:64].decode("utf-8", "replace") for name in changed],
    )
