"""`bloomery nodes`: the servers that share their filters, as they tell of one another."""

import time
from typing import Annotated, Any, Literal

import typer

from bloomery.cli import options, terminal
from bloomery.cli.server import remote
from bloomery.errors import InvalidParameter

EXAMPLE = (
    "bloomery nodes; bloomery nodes --server https://filters.example.org:8100 --token-file token; "
    "bloomery nodes --json; bloomery nodes recover --keep --server http://10.0.0.7:8100"
)
_TIMEOUT = 30.0  # seconds


def nodes(
    action: Annotated[
        Literal["list", "recover"],
        typer.Argument(help="recover: decide for a node that waits for an operator."),
    ] = "list",
    keep: Annotated[
        bool, typer.Option("--keep", help="recover: the node's copy replaces the log in Redis.")
    ] = False,
    discard: Annotated[
        bool, typer.Option("--discard", help="recover: the node drops its copy, follows that log.")
    ] = False,
    server: Annotated[
        str, typer.Option(metavar="URL", help="The HTTP port of any of them.")
    ] = remote.DEFAULT_URL,
    token_file: remote.TokenFile = None,
    ca: remote.Ca = None,
    json: options.Json = False,
) -> int:
    """Show the nodes that share a log: where each is, how far it is, and which decides for all. Or
    decide for a node whose copy and the log in Redis each have writes that the other lacks (the
    alert `store-differs`)."""
    from bloomery.client.request import Request, member

    if (keep + discard) != (action == "recover"):
        raise InvalidParameter("give recover either --keep or --discard, and list neither")
    if action == "recover":
        return _recover(keep, server, token_file, ca)
    with remote.connect(server, token_file, ca, _TIMEOUT) as client:
        request = Request("GET", "/nodes", member("nodes"), repeatable=True)
        members: list[dict[str, Any]] = client.transport.send(request)
    members.sort(key=lambda node: (node["since"], node["id"]))
    if json:
        terminal.emit_json(members, indent=2)
    elif members:
        terminal.emit_line(terminal.render(_table(members)))
    else:
        terminal.say(f"{server}: a server alone: it has no store, and so there are no nodes")
    return 0


def _recover(keep: bool, server: str, token_file: str | None, ca: str | None) -> int:
    from bloomery.client.request import Request, dumped, member

    with remote.connect(server, token_file, ca, _TIMEOUT) as client:
        body = dumped({"keep": keep})
        reason = client.transport.send(
            Request("POST", "/nodes/recover", member("reason"), body=body)
        )
    result = "its copy replaces the log in Redis" if keep else "it drops its copy and loads the log"
    terminal.say(f"{server}: {reason}; {result}; see bloomery nodes, and /readyz")
    return 0


def _table(members: list[dict[str, Any]]) -> object:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for column in ("node", "resp", "version", "position", "lag", "requests/s", "since", ""):
        table.add_column(column, overflow="fold", no_wrap=column == "node")
    for node in members:
        lag = node["lag_seconds"]
        since = time.strftime("%m-%d %H:%M:%SZ", time.gmtime(node["since"]))
        version = f"{node['version']} (older)" if node["older"] else node["version"]
        notes = {"lease": node["holds_lease"], "here": node["here"]}
        words = (
            *(node["id"], node["resp"], version, node["position"]),
            *("" if lag is None else f"{lag:.3f} s", f"{node['requests_a_second']:,.0f}", since),
            ", ".join(word for word, true in notes.items() if true),
        )
        table.add_row(*(Text(word) for word in words))  # another node's words: no markup
    return table


COMMANDS = [("nodes", nodes, EXAMPLE)]
