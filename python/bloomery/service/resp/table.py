"""The table of commands: each stands here once, with its handler and its grammar, for dispatch and
for COMMAND. A name of two words is a subcommand: CONFIG GET."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from bloomery.service.access.permissions import OPERATIONS
from bloomery.service.resp import grammar as grammars
from bloomery.service.resp import limits
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.replies import Failure

# A handler gets the client and the arguments after the command's name. It returns a value for
# `replies.encode`, and raises Failure to refuse the command.
Handler: TypeAlias = Callable[[ClientState, list[bytes]], Coroutine[Any, Any, Any]]
H = TypeVar("H", bound=Handler)


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
    does: str  # which of `permissions.OPERATIONS`

    @property
    def words(self) -> int:
        """How many words of a request are its name."""
        return self.name.count(" ") + 1

    def names(self, words: list[bytes]) -> list[bytes]:
        """The names of filters in a request."""
        first, last, step = self.keys
        end = last + 1 if last >= 0 else len(words) + last + 1
        return words[first:end:step] if first else []

    @property
    def limit(self) -> int | None:
        """How many arguments it takes at most; None: as many as a request may have. Those that are
        not done in slices take no more than can be looked at in some milliseconds."""
        if self.most is not None:
            return self.most
        if self.does in ("add", "contains", "remove", "lookup", "forget"):
            return None
        return limits.MAX_NAMES if self.keys[1] == -1 else limits.MAX_OPTIONS

    @property
    def full_name(self) -> str:
        """As Redis writes it in replies: lower case, and config|get."""
        return self.name.lower().replace(" ", "|")

    @property
    def arity(self) -> int:
        """As Redis counts: the name too; negative for at least."""
        least = self.least + self.words
        return least if self.most == self.least else -least


COMMANDS: dict[bytes, Command] = {}
CONTAINERS: dict[bytes, dict[bytes, Command]] = {}  # those that only have subcommands


def command(
    name: str,
    grammar: str = "",
    *,
    least: int | None = None,
    most: int | None = -1,
    write: bool = False,
    group: str = "",
    keys: tuple[int, int, int] | None = None,
    does: str,
) -> Callable[[H], H]:
    """Enter a handler into the table. `does` says which operation it is, and so who may. How many
    arguments it takes and where names of filters stand the grammar says, unless `least`, `most`
    (None: any number) or `keys` do; the group is that of the name's prefix, bf or cf."""
    assert does in OPERATIONS, does
    required, all_words = grammars.arity(grammar)
    fewest = required if least is None else least
    upper = all_words if most == -1 else most
    where = grammars.keys(name, grammar) if keys is None else keys
    group = group or name[:2].lower()

    def enter(handler: H) -> H:
        summary = (inspect.getdoc(handler) or "").partition("\n")[0]
        entry = Command(name, handler, grammar, summary, fewest, upper, write, group, where, does)
        first, _, second = name.encode().partition(b" ")
        if second:
            CONTAINERS.setdefault(first, {})[second] = entry
        else:
            COMMANDS[first] = entry
        return handler

    return enter


def every() -> list[Command]:
    """Every command, subcommands too, in order."""
    own = [
        *COMMANDS.values(),
        *(entry for inner in CONTAINERS.values() for entry in inner.values()),
    ]
    return sorted({entry.name: entry for entry in own}.values(), key=lambda entry: entry.name)


def find(arguments: list[bytes]) -> Command:
    """Return the command that these arguments call; Failure if there is none, or too few."""
    first = arguments[0].upper()
    entry = COMMANDS.get(first)
    if first in CONTAINERS and (entry is None or len(arguments) > 1):
        entry = _subcommand(first, arguments)
    if entry is None:
        shown = ""
        for word in arguments[1:]:
            if len(shown) >= 128:
                break
            shown += f"'{word[: 128 - len(shown)].decode('utf-8', 'replace')}' "
        name = arguments[0][:128].decode("utf-8", "replace")
        # By their beginnings, which are looked at in microseconds: a client may send many of these.
        near = [known.decode() for known in COMMANDS if len(first) > 3 and known.startswith(first)]
        meant = f"(did you mean {near[0]}?)" if near else ""
        raise Failure(f"ERR unknown command '{name}', with args beginning with: {shown}{meant}")
    given = len(arguments) - entry.words
    if given < entry.least or (entry.most is not None and given > entry.most):
        raise wrong_arity(entry.name)
    if entry.limit is not None and given > entry.limit:
        raise Failure(f"ERR {given} arguments, of which '{entry.full_name}' takes {entry.limit}")
    return entry


def _subcommand(first: bytes, arguments: list[bytes]) -> Command:
    if len(arguments) < 2:
        raise wrong_arity(first.decode())
    entry = CONTAINERS[first].get(arguments[1].upper())
    if entry is None:
        shown = arguments[1][:128].decode("utf-8", "replace")
        raise Failure(f"ERR unknown subcommand '{shown}'. Try {first.decode()} HELP.")
    return entry


def help_command(container: str, group: str) -> None:
    """Enter HELP for a command that has subcommands."""

    async def handler(client: ClientState, words: list[bytes]) -> list[str]:
        lines = [f"{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"]
        for name, entry in sorted(CONTAINERS[container.encode()].items()):
            lines += [f"{name.decode()} {entry.grammar}".rstrip(), f"    {entry.summary}"]
        return lines

    handler.__doc__ = f"Tell what {container} can do."
    command(f"{container} HELP", group=group, does="session")(handler)


def wrong_arity(name: str) -> Failure:
    """The error for too few or too many arguments."""
    return Failure(f"ERR wrong number of arguments for '{name.lower().replace(' ', '|')}' command")
