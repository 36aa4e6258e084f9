"""`bloomery user list`, and the folder that all of `bloomery user` is about."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bloomery.cli import terminal
from bloomery.cli.options import Json
from bloomery.errors import InvalidParameter

if TYPE_CHECKING:
    from bloomery.service.access.users import Account, Users

EXAMPLE = "bloomery user list --json"
FOLDER = Path("bloomery-data")
Data = Annotated[
    Path, typer.Option(metavar="DIR", help="The server's folder of data.", envvar="BLOOMERY_DATA")
]


def list_(data: Data = FOLDER, json: Json = False) -> int:
    """Show the users, their roles and their tokens; never a password or a token's secret."""
    from bloomery.service.access.users import load

    users = load(existing(data))
    if json:
        import json as encoder

        terminal.emit_line(encoder.dumps([_facts(one) for one in users.values()], indent=2))
    elif users:
        terminal.emit_line(terminal.render(_table(users)))
    else:
        terminal.say(f"{data}: no users: whoever reaches the server may do everything")
    return 0


def existing(data: Path) -> Path:
    """Return the folder; InvalidParameter if there is none."""
    if not data.is_dir():
        raise InvalidParameter(f"{data}: no such folder: --data must be that of the server")
    return data


def _facts(account: "Account") -> dict[str, Any]:
    tokens = [
        {"id": one.id, "label": one.label, "created": one.created, "expires": one.expires}
        for one in account.tokens
    ]
    return {
        "name": account.name,
        "role": account.role.name.lower(),
        "filters": list(account.patterns),
        "password": account.password is not None,
        "disabled": account.disabled,
        "tokens": tokens,
    }


def _table(users: "Users") -> object:
    import time

    from rich.table import Table

    table = Table("user", "role", "filters", "logs in by")
    now = time.time()
    for account in users.values():
        ways = ["disabled"] if account.disabled else []
        ways += ["password"] if account.password is not None else []
        for one in account.tokens:
            until = "" if one.expires is None else f", until {_day(one.expires)}"
            over = " (over)" if one.expired(now) else ""
            ways.append(f"token {one.id} {one.label}".rstrip() + until + over)
        filters = "\n".join(account.patterns)
        table.add_row(
            account.name, account.role.name.lower(), filters, "\n".join(ways) or "nothing"
        )
    return table


def _day(at: float) -> str:
    import time

    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
