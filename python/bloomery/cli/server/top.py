"""`bloomery top`: a server's filters as a table that is drawn again every few seconds."""

import os
import shutil
import time
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from bloomery import errors
from bloomery.cli import options, terminal
from bloomery.cli.amounts import show_memory, show_rate
from bloomery.cli.server import remote

if TYPE_CHECKING:
    from bloomery.cli.server.live import LiveFilter, LiveReader, LiveServer

EXAMPLE = (
    "bloomery top; bloomery top --sort error --match 'users:*'; bloomery top --once --json; "
    "bloomery top --url https://filters.example.org:8100 --token-file token"
)
Sort = Literal["name", "keys", "fill", "error", "memory", "adds", "checks", "full"]
_TIMEOUT = 10.0
_ALL = 140  # characters at which every column has room
# Columns that are left out in a narrower terminal, the first of them first, each below its width.
_OPTIONAL = {"kind": 132, "allowed": 120, "of its capacity": 108, "memory": 92, "full in": 78}
_UNFRAMED = 6  # lines of a terminal that are no rows: title, frame, head, and what is below
_STYLES = {"healthy": "green", "filling": "yellow", "saturated": "bold red", "lagging": "magenta"}


def top(
    url: remote.Url = remote.DEFAULT_URL,
    sort: Annotated[
        Sort,
        typer.Option(metavar="BY", help=f"{', '.join(get_args(Sort))}: the largest first."),
    ] = "checks",
    match: Annotated[
        str, typer.Option(metavar="PATTERN", help="Only names like this: `*`, `?`, `[a-z]`.")
    ] = "*",
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.2, help="Between two readings.")
    ] = 2.0,
    limit: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Rows; as many as fit, and with --once all."),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print one table, and end; so it does in a pipe.")
    ] = False,
    token_file: remote.TokenFile = None,
    ca: remote.Ca = None,
    json: options.Json = False,
) -> int:
    """Show a server's filters and how they fare, again every few seconds; Ctrl-C ends it.

    Adds and checks are keys a second since the reading before, so the first table takes two
    readings.
    """
    from bloomery.cli.server.live import LiveReader

    live = terminal.is_terminal(terminal.STDOUT) and os.environ.get("TERM", "dumb") != "dumb"
    with remote.connect(url, token_file, ca, _TIMEOUT) as client:
        reader = LiveReader(client)
        reader.read()
        if live and not once and not json:
            return _watch(reader, url, sort, match, interval, limit)
        time.sleep(interval)
        server = reader.read()
    rows = _chosen(server, sort, match)[:limit]
    if json:
        terminal.emit_json({"filters": [asdict(row) for row in rows]}, indent=2)
    else:
        width = _width()
        terminal.emit_line(terminal.render(_table(server, rows, url, width), width=width))
    return 0


def _watch(
    reader: "LiveReader", url: str, sort: str, match: str, interval: float, limit: int | None
) -> int:
    """Draw until Ctrl-C. A server that goes away is waited for, and that is said."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console()
    screen: Any = Text(f"{url}: reading …")
    note = ""
    with Live(screen, console=console, screen=True, auto_refresh=False) as display:
        try:
            while True:
                time.sleep(interval)
                try:
                    server = reader.read()
                except errors.ServerUnavailable as problem:
                    note = f"{time.strftime('%H:%M:%S')}: {problem}; waiting for it"
                else:
                    note = ""
                    fitting = max(1, console.height - _UNFRAMED)
                    rows = _chosen(server, sort, match)[: limit or fitting]
                    screen = _table(server, rows, url, console.width)
                display.update(Group(screen, Text(note, style="bold red")), refresh=True)
        except KeyboardInterrupt:
            return 0


def _width() -> int:
    return shutil.get_terminal_size().columns if terminal.is_terminal(terminal.STDOUT) else _ALL


def _chosen(server: "LiveServer", sort: str, match: str) -> "list[LiveFilter]":
    rows = [row for row in server.filters if fnmatchcase(row.name, match)]
    rows.sort(key=lambda row: row.name)
    if sort != "name":
        rows.sort(key=lambda row: _measure(row, sort), reverse=True)
    return rows


def _measure(row: "LiveFilter", sort: str) -> float:
    value: float | None
    if sort == "error":
        rate = row.observed_error_rate or row.estimated_error_rate or 0.0
        return rate / (row.error_rate or 1.0)
    if sort == "full":  # the soonest first
        return -row.full_in_seconds if row.full_in_seconds is not None else float("-inf")
    if sort == "fill":
        return _share(row) or 0.0
    value = {
        "keys": row.keys,
        "memory": row.nbytes,
        "adds": row.adds_per_second,
        "checks": row.checks_per_second,
    }[sort]
    return value or 0.0


def _share(row: "LiveFilter") -> float | None:
    """Its keys, of those that it is made for."""
    return row.keys / row.capacity if row.capacity else None


def _table(server: "LiveServer", rows: "list[LiveFilter]", url: str, width: int) -> object:
    from rich.table import Table
    from rich.text import Text

    count = len(server.filters) + server.not_shown
    title = f"{url}: {count:,} filter{'s' if count != 1 else ''}, {show_memory(server.nbytes)}"
    left = count - len(rows)
    caption = f"and {left:,} more" if left else None
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        caption=caption,
        caption_justify="left",
    )
    left_out = {name for name, least in _OPTIONAL.items() if width < least}
    table.add_column("filter", overflow="ellipsis", no_wrap=True, min_width=8)
    words = ("kind", "state")
    numbers = (
        *("keys", "of its capacity", "wrong maybes", "allowed"),
        *("memory", "adds/s", "checks/s", "full in"),
    )
    for name in (*words, *numbers):
        if name not in left_out:
            table.add_column(name, justify="left" if name in words else "right", no_wrap=True)
    for row in rows:
        share, rate = _share(row), row.observed_error_rate
        rate = row.estimated_error_rate if rate is None else rate
        cells: dict[str, Any] = {
            "kind": row.kind,
            "state": Text(row.state, style=_STYLES[row.state]),
            "keys": f"{row.keys:,}",
            "of its capacity": "" if share is None else f"{terminal.bar(share, 8)} {share:4.0%}",
            "wrong maybes": "" if rate is None else show_rate(rate),
            "allowed": "" if row.error_rate is None else show_rate(row.error_rate),
            "memory": show_memory(row.nbytes),
            "adds/s": _count(row.adds_per_second),
            "checks/s": _count(row.checks_per_second),
            "full in": "" if row.full_in_seconds is None else _span(row.full_in_seconds),
        }
        table.add_row(
            Text(row.name),  # what is in brackets is no markup
            *(cell for name, cell in cells.items() if name not in left_out),
        )
    return table


def _count(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"


def _span(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} s"


COMMANDS = [("top", top, EXAMPLE)]
