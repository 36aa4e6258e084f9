"""The commands and their help, as one typer application."""

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.main import get_command

from bloomery.cli import demo, plan
from bloomery.cli.files import build as building
from bloomery.cli.files import create, dedup, info, membership
from bloomery.cli.server import cluster, serve, user
from bloomery.cli.terminal import version

_COMMANDS: list[tuple[str, Callable[..., int], str]] = [
    ("plan", plan.plan, plan.EXAMPLE),
    ("create", create.create, create.EXAMPLE),
    ("build", building.build, building.EXAMPLE),
    ("add", membership.add, membership.ADD_EXAMPLE),
    ("contains", membership.contains, membership.CONTAINS_EXAMPLE),
    ("remove", membership.remove, membership.REMOVE_EXAMPLE),
    ("info", info.info, info.INFO_EXAMPLE),
    ("dedup", dedup.dedup, dedup.EXAMPLE),
    ("serve", serve.serve, serve.EXAMPLE),
    ("demo", demo.demo, demo.EXAMPLE),
    ("version", version, "bloomery version"),
]
_GROUPS: list[tuple[str, Any, str]] = [
    ("user", user, "Users of a server: who may log in, and what they may do."),
    ("cluster", cluster, "Several servers that share their filters, on this machine."),
]


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


def build() -> Any:
    """The command object; `Any`, because typer keeps the types it is made of to itself."""
    app = typer.Typer(
        name="bloomery",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode="rich",
        epilog="Example: bloomery plan 1e9 1%",
    )
    app.callback()(_main)
    for name, function, example in _COMMANDS:
        app.command(name, epilog=_epilog(example))(function)
    for group, module, about in _GROUPS:
        under = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
        for name, function, example in module.COMMANDS:
            under.command(name, epilog=_epilog(example))(function)
        app.add_typer(under, name=group, help=about, epilog=_epilog(module.EXAMPLE))
    return get_command(app)


def _epilog(example: str) -> str:
    return "Example: " + "\n\nExample: ".join(example.split("; "))
