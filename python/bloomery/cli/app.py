"""The commands and their help, as one typer application.

Only the module of the command that is run is imported: start-up is most of what a small run takes.
Each module has COMMANDS: name, function, and examples with `; ` between them.
"""

import re
from collections.abc import Callable
from importlib import import_module
from inspect import getdoc
from typing import Annotated, Any

import typer
from typer.main import get_command

from bloomery.cli.parsing.declared import for_typer
from bloomery.cli.version import version

_PAGE = "https://github.com/bloomery/bloomery/blob/main/docs/cli.md"
_BEGIN, _FILES, _LINES = "To begin with", "Filters in files", "Lines, JSON lines and CSV"
_SERVER, _FEEDS = "Servers", "Feeds: filters that others keep a copy of"
_ENGINES = "Databases and data engines"
# Each with its module, its place in the help, and what stands beside it there.
_COMMANDS = {
    "plan": ("plan", _BEGIN, "How much memory so many keys take, or how many servers."),
    "admission": ("admission", _BEGIN, "What cache admission would do for a trace of requests."),
    "version": ("version", _BEGIN, "Print the version."),
    "demo": ("demo", _BEGIN, "Ten seconds of a crawler that asks a filter about every link."),
    "create": ("files.create", _FILES, "Make an empty filter."),
    "build": ("files.build", _FILES, "Make a filter of a database's or a file's keys."),
    "exact": ("files.exact", _FILES, "Known members and non-members, told apart without error."),
    "add": ("files.membership", _FILES, "Add keys."),
    "contains": ("files.membership", _FILES, "Print the keys that may be in it, or are not."),
    "remove": ("files.membership", _FILES, "Remove keys, from kinds that can."),
    "merge": ("files.merge", _FILES, "Make one filter of several."),
    "info": ("files.info", _FILES, "What it was made for, and how full it is."),
    "dedup": ("lines.dedup", _LINES, "Print each line once, the first time it comes."),
    "diff": ("lines.diff", _LINES, "Print the lines of B that are not in A."),
    "count": ("lines.count", _LINES, "Count distinct lines."),
    "corpus": ("corpus", _LINES, "Text corpora: JSONL files without duplicates."),
    "mail": ("mail", _LINES, "Mailboxes: find, move or delete messages that are there twice."),
    "index": ("files.index", _FILES, "Index a folder of Parquet, CSV and JSONL files."),
    "parquet": ("files.parquet", _FILES, "Parquet's own filters: list, add, find rows by them."),
    "serve": ("server.serve", _SERVER, "Serve filters over the Redis protocol and HTTP."),
    "top": ("server.top", _SERVER, "A server's filters and how they fare, live."),
    "plot": ("plotting.plot", _SERVER, "Draw a filter of a server, or a file: how often it errs."),
    "backup": ("server.backup", _SERVER, "Back up a running server into one file."),
    "restore": ("server.backup", _SERVER, "Make a server's data folder out of a backup."),
    "migrate": ("server.migrate", _SERVER, "Copy all filters of a RedisBloom server to bloomery."),
    "log": ("server.log", _SERVER, "Print the write-ahead log of a server."),
    "user": ("server.user", _SERVER, "Users of a server: who may log in, and what they may do."),
    "nodes": ("server.nodes", _SERVER, "The servers that share their filters, and how each is."),
    "cluster": ("server.cluster", _SERVER, "Several servers that share their filters, to try out."),
    "feed-key": ("feeds.publish", _FEEDS, "Make a key to sign feeds with."),
    "publish": ("feeds.publish", _FEEDS, "Publish a filter file as a signed feed."),
    "fetch": ("feeds.fetch", _FEEDS, "Keep a copy of a feed current, by deltas."),
    "pgindex": ("pgindex", _ENGINES, "The bloom index of PostgreSQL that suits a table."),
}
_GROUPS = {
    "cluster",
    "exact",
    "corpus",
    "index",
    "log",
    "mail",
    "parquet",
    "pgindex",
    "user",
}  # with commands under them


def _version(wanted: bool) -> None:
    if wanted:
        raise typer.Exit(version())


def _main(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Have I seen this before? A no is certain; a maybe is wrong no more often than you allowed."""


def build(argv: list[str] | None = None) -> Any:
    """The command object for a command line, or for any: then all modules are imported.

    `Any`, because typer keeps the types it is made of to itself.
    """
    app = typer.Typer(
        name="bloomery",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode="rich",
        suggest_commands=False,  # `main` does that
        epilog=f"Example: bloomery plan 1e9 1%\n\nMore: {_PAGE}",
    )
    app.callback()(_main)
    wanted = next((word for word in argv if not word.startswith("-")), "") if argv else ""
    for name, (module, panel, summary) in _COMMANDS.items():
        listed_as: dict[str, Any] = {"short_help": summary, "rich_help_panel": panel}
        if argv is not None and name != wanted:
            app.command(name, **listed_as)(_named_only)
            continue
        commands = import_module(f"bloomery.cli.{module}").COMMANDS
        if name in _GROUPS:
            group = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
            for under, function, examples in commands:
                group.command(under, **_texts(name, function, examples))(for_typer(function))
            epilog = _texts(name, _main, commands[0][2])["epilog"]
            app.add_typer(group, name=name, help=summary, epilog=epilog, **listed_as)
        else:
            [(function, examples)] = [each[1:] for each in commands if each[0] == name]
            app.command(name, **_texts(name, function, examples), **listed_as)(for_typer(function))
    return get_command(app)


def _named_only() -> None:
    """In the place of a command that another one's run does not need."""


def _texts(name: str, function: Callable[..., object], examples: str) -> dict[str, Any]:
    """The help of a command: its docstring, in paragraphs that flow, and what comes last."""
    last = [f"Example: {example}" for example in examples.split("; ")]
    return {
        "help": re.sub(r"(?<!\n)\n(?!\n)", " ", getdoc(function) or ""),
        "epilog": "\n\n".join([*last, f"More: {_PAGE}#{name}"]),
    }
