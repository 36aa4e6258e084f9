"""The table of commands: each handler stands once, with its grammar, and COMMAND tells of it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from bloomery.service.resp.replies import Failure

if TYPE_CHECKING:
    from bloomery.service.resp.client import Client

__all__ = ["COMMANDS", "Command", "command", "find", "wrong_arity"]

# A handler is given who asks and the arguments after the command's name. It returns a value for
# `replies.encode`, or something to wait for that does; what it refuses it raises as a Failure.
Handler: TypeAlias = "Callable[[Client, list[bytes]], Any | Awaitable[Any]]"


@dataclass(frozen=True, slots=True)
class Command:
    """What is known about a command."""

    name: str  # as documented: upper case
    handler: Handler
    grammar: str  # its arguments
    summary: str
    least: int  # arguments after the name, at least
    most: int | None  # and at most
    write: bool
    group: str
    keys: tuple[int, int, int]  # first, last, step: where the names of filters stand

    @property
    def arity(self) -> int:
        """As Redis counts: the name too; negative for at least."""
        return self.least + 1 if self.most == self.least else -(self.least + 1)


COMMANDS: dict[bytes, Command] = {}


def command(
    name: str,
    grammar: str = "",
    *,
    least: int = 0,
    most: int | None = -1,
    write: bool = False,
    group: str = "bf",
    keys: tuple[int, int, int] = (0, 0, 0),
) -> Callable[[Handler], Handler]:
    """Enter a handler into the table. `most` is `least` unless given; None: any number."""

    def enter(handler: Handler) -> Handler:
        summary = (inspect.getdoc(handler) or "").partition("\n")[0]
        upper = least if most == -1 else most
        COMMANDS[name.encode().upper()] = Command(
            name, handler, grammar, summary, least, upper, write, group, keys
        )
        return handler

    return enter


def find(arguments: list[bytes]) -> Command:
    """Return the command that these arguments call; Failure if there is none, or too few."""
    found = COMMANDS.get(arguments[0].upper())
    if found is None:
        shown = " ".join(f"'{word[:128].decode('utf-8', 'replace')}'" for word in arguments[1:4])
        name = arguments[0][:128].decode("utf-8", "replace")
        raise Failure(f"ERR unknown command '{name}', with args beginning with: {shown}")
    given = len(arguments) - 1
    if given < found.least or (found.most is not None and given > found.most):
        raise wrong_arity(found.name)
    return found


def wrong_arity(name: str) -> Failure:
    """The error for too few or too many arguments."""
    return Failure(f"ERR wrong number of arguments for '{name.lower()}' command")
