"""`bloomery user`: who may use a server, kept in its data folder; a server that runs follows within
a second."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bloomery.cli import terminal
from bloomery.cli.options import Json
from bloomery.errors import InvalidParameter

if TYPE_CHECKING:
    from bloomery.service.access.shared_users import SharedUsers
    from bloomery.service.access.users import Account, UserFile, Users

ADD_EXAMPLE = (
    "bloomery user add ann --role admin; "
    "bloomery user add crawler --role write --filters 'crawl:*' --no-password; "
    "bloomery user add ann --role admin --store redis://10.0.0.5:6379"
)
LIST_EXAMPLE = "bloomery user list --json"
REMOVE_EXAMPLE = "bloomery user remove ann"
PASSWORD_EXAMPLE = "bloomery user password ann --password-stdin < password.txt"
TOKEN_EXAMPLE = "bloomery user token crawler --label 'crawler on web3' --expires 90d"
REVOKE_EXAMPLE = "bloomery user revoke 5f2c09a1b3d4e6f7"
ALLOW_EXAMPLE = (
    "bloomery user allow crawler --role read --filters 'crawl:*' --filters 'news:*'; "
    "bloomery user allow crawler --disable"
)

FOLDER = Path("bloomery-data")
Data = Annotated[
    Path, typer.Option(metavar="DIR", help="The server's folder of data.", envvar="BLOOMERY_DATA")
]
Store = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Users of nodes: the Redis that they share.", envvar="BLOOMERY_STORE"
    ),
]
Role = Literal["read", "write", "admin"]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]
Filters = Annotated[
    list[str] | None,
    typer.Option(
        "--filters",
        metavar="PATTERN",
        help="Names of filters that are theirs to use, as KEYS has patterns; may be repeated.",
    ),
]
Stdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input.")
]
Force = Annotated[
    bool, typer.Option("--force", help="Even if nobody is left who may do everything.")
]

NoPassword = Annotated[bool, typer.Option("--no-password", help="Only tokens log this user in.")]


def add(
    name: Name,
    role: Annotated[
        Role, typer.Option(metavar="ROLE", help="read, write (reads too) or admin (may do all).")
    ],
    filters: Filters = None,
    password_stdin: Stdin = False,
    no_password: NoPassword = False,
    data: Data = FOLDER,
    store: Store = None,
    json: Json = False,
) -> int:
    """Add a user. The password is asked for, or read from standard input."""
    from bloomery.service.access.users import ROLES, Account, hash_password

    hashed = None if no_password else hash_password(_password(password_stdin))
    if store is None:
        data.mkdir(parents=True, exist_ok=True)

    def change(users: "Users") -> None:
        users.add(Account(name, ROLES[role], _patterns(filters) or ("*",), hashed))

    _change(data, store, change, f"add {name}")
    return _tell(json, data, store, name)


def list_(data: Data = FOLDER, store: Store = None, json: Json = False) -> int:
    """Show the users, their roles and their tokens; never a password or a token's secret."""
    users = _source(data, store).load()
    if json:
        from json import dumps

        terminal.emit_line(dumps([_facts(account) for account in users.values()], indent=2))
    elif users:
        terminal.emit_line(terminal.render(_user_table(users)))
    else:
        terminal.say(f"{store or data}: no users: whoever reaches the server may do everything")
    return 0


def remove(
    name: Name, force: Force = False, data: Data = FOLDER, store: Store = None, json: Json = False
) -> int:
    """Remove a user; connections of theirs are closed."""

    def change(users: "Users") -> None:
        users.find(name)
        del users[name]

    _change(data, store, change, f"remove {name}", keep_admin=not force)
    if json:
        terminal.emit_json({"removed": name})
    return 0


def password(
    name: Name,
    password_stdin: Stdin = False,
    no_password: NoPassword = False,
    data: Data = FOLDER,
    store: Store = None,
    json: Json = False,
) -> int:
    """Set a user's password; connections that logged in by the one before are closed."""
    from bloomery.service.access.users import hash_password

    _source(data, store).load().find(name)  # before a person types one
    hashed = None if no_password else hash_password(_password(password_stdin))
    _change(data, store, lambda users: users.change(name, password=hashed), f"password {name}")
    return _tell(json, data, store, name)


def token(
    name: Name,
    label: Annotated[str, typer.Option(metavar="TEXT", help="What it is for.")] = "",
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="For how long it is good: 90d, 12h.")
    ] = None,
    data: Data = FOLDER,
    store: Store = None,
    json: Json = False,
) -> int:
    """Make a token for a user and print it: it is shown this once."""
    import time

    from bloomery.filters.rotating import parse_window

    try:
        until = None if expires is None else time.time() + parse_window(expires)
    except InvalidParameter:
        shown = f"--expires is {expires!r:.40}, must be a time such as 12h or 90d"
        raise InvalidParameter(shown) from None
    token = _change(data, store, lambda users: users.add_token(name, label, until), f"token {name}")
    if json:
        terminal.emit_json({"name": name, "token": token, "label": label, "expires": until})
    else:
        terminal.emit_line(token)
    return 0


def revoke(
    token_id: Annotated[
        str, typer.Argument(metavar="ID", help="Of the token, as `bloomery user list` has it.")
    ],
    data: Data = FOLDER,
    store: Store = None,
    json: Json = False,
) -> int:
    """Let a token be good no more; connections that logged in by it are closed."""
    _change(data, store, lambda users: users.revoke(token_id), f"revoke {token_id[:16]}")
    if json:
        terminal.emit_json({"revoked": token_id})
    return 0


def allow(
    name: Name,
    role: Annotated[
        Role | None, typer.Option(metavar="ROLE", help="From now on: read, write or admin.")
    ] = None,
    filters: Filters = None,
    disable: Annotated[
        bool | None, typer.Option("--disable/--enable", help="Let nobody log in as them, or again.")
    ] = None,
    force: Force = False,
    data: Data = FOLDER,
    store: Store = None,
    json: Json = False,
) -> int:
    """Change what a user may do. It holds for open connections too, within a second."""
    from bloomery.service.access.users import ROLES

    fields: dict[str, Any] = {}
    if role is not None:
        fields["role"] = ROLES[role]
    if filters:
        fields["patterns"] = _patterns(filters)
    if disable is not None:
        fields["disabled"] = disable
    if not fields:
        raise InvalidParameter("nothing to change: give --role, --filters, --disable or --enable")

    def change(users: "Users") -> None:
        users.change(name, **fields)

    _change(data, store, change, f"allow {name}", keep_admin=not force)
    return _tell(json, data, store, name)


COMMANDS: list[tuple[str, Callable[..., int], str]] = [
    ("add", add, ADD_EXAMPLE),
    ("list", list_, LIST_EXAMPLE),
    ("remove", remove, REMOVE_EXAMPLE),
    ("password", password, PASSWORD_EXAMPLE),
    ("token", token, TOKEN_EXAMPLE),
    ("revoke", revoke, REVOKE_EXAMPLE),
    ("allow", allow, ALLOW_EXAMPLE),
]


def _source(data: Path, store: str | None) -> "UserFile | SharedUsers":
    """Where the users are: in the folder, or in the Redis of nodes."""
    from bloomery.service.access.shared_users import SharedUsers
    from bloomery.service.access.users import UserFile

    if store is None:
        return UserFile(_existing(data))
    return SharedUsers(store, os.environ.get("BLOOMERY_STORE_PREFIX", "bloomery"))


def _change(
    data: Path,
    store: str | None,
    change: "Callable[[Users], Any]",
    what: str,
    keep_admin: bool = False,
) -> Any:
    """Change the users, and note it in the audit log of the folder; what `change` returned."""
    import contextlib
    import getpass

    from bloomery.service.access import audit
    from bloomery.service.access.users import as_owner

    try:
        who = getpass.getuser()
    except (KeyError, OSError):  # a number without a name
        who = str(os.getuid())
    outcome, source = "failed", _source(data, store)
    with as_owner(data) if store is None else contextlib.nullcontext():
        try:
            with source.changing() as users:
                had = users.has_admin()
                changed = change(users)
                if keep_admin and had and not users.has_admin():
                    raise InvalidParameter(
                        "nobody would be left who may do everything (an admin with the pattern *): "
                        "add another first, or use --force"
                    )
            outcome = "done"
            return changed
        finally:
            if store is None:
                audit.append(data, [audit.line(who, "", "cli", "user", outcome, command=what)])


def _existing(data: Path) -> Path:
    """Return the folder; InvalidParameter if there is none."""
    if not data.is_dir():
        raise InvalidParameter(f"{data}: no such folder: --data must be that of the server")
    return data


def _tell(json: bool, data: Path, store: str | None, name: str) -> int:
    """Print the user as it is now, for a program; a person is told nothing of what went well."""
    if json:
        terminal.emit_json(_facts(_source(data, store).load().find(name)))
    return 0


def _facts(account: "Account") -> dict[str, Any]:
    tokens = [
        {"id": token.id, "label": token.label, "created": token.created, "expires": token.expires}
        for token in account.tokens
    ]
    return {
        "name": account.name,
        "role": account.role.name.lower(),
        "filters": list(account.patterns),
        "password": account.password is not None,
        "disabled": account.disabled,
        "tokens": tokens,
    }


def _user_table(users: "Users") -> object:
    import time

    from rich.table import Table

    table = Table("user", "role", "filters", "logs in by")
    now = time.time()
    for account in users.values():
        ways = ["disabled"] if account.disabled else []
        ways += ["password"] if account.password is not None else []
        for token in account.tokens:
            until = "" if token.expires is None else f", until {_day(token.expires)}"
            over = " (over)" if token.expired(now) else ""
            ways.append(f"token {token.id} {token.label}".rstrip() + until + over)
        filters = "\n".join(account.patterns)
        table.add_row(
            account.name, account.role.name.lower(), filters, "\n".join(ways) or "nothing"
        )
    return table


def _day(at: float) -> str:
    import time

    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def _patterns(filters: list[str] | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filters or ()))


def _password(from_stdin: bool) -> str:
    """From standard input without its line end, or asked for, twice."""
    if from_stdin:
        raw = sys.stdin.buffer.read(4096)
        return raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "surrogateescape")
    if not terminal.is_terminal(terminal.STDIN):
        raise InvalidParameter(
            "there is no terminal to ask for the password: give --password-stdin, or --no-password "
            "for a user who logs in by tokens only"
        )
    from getpass import getpass

    try:
        while True:
            asked = getpass("Password: ")
            if asked == getpass("Repeat it: "):
                return asked
            terminal.note("these two are not the same")
    except (EOFError, KeyboardInterrupt) as stop:  # Ctrl-D, Ctrl-C
        terminal.note("")  # the prompt's line is not ended
        if isinstance(stop, EOFError):
            raise InvalidParameter("no password was given: nothing has changed") from None
        raise
