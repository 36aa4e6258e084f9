"""Options that are declared without typer: typer sees them as its own."""

from typing import Annotated, Any

import pytest

from conftest import require

require("typer")

import typer  # noqa: E402

from bloomery.cli.parsing.declared import Argument, Option, bad_parameter, for_typer  # noqa: E402


def command(
    name: Annotated[str, Argument(metavar="NAME", help="Whose.")],
    size: Annotated[int, Option("--size", "-s", help="How large.")] = 3,
    theirs: Annotated[bool, typer.Option("--theirs")] = False,
) -> str:
    """Say what came."""
    return f"{name} {size} {theirs}"


def test_typer_reads_what_was_declared() -> None:
    """Names, defaults, types and help are those of the declaration; the function stays as it is."""
    app = typer.Typer()
    app.command()(for_typer(command))
    made = typer.main.get_command(app)
    with made.make_context("it", ["ada", "-s", "5"]) as context:
        assert made.invoke(context) == "ada 5 False"
    size: Any = made.params[1]
    assert ("-s" in size.opts, size.help) == (True, "How large.")
    assert isinstance(command.__annotations__["size"].__metadata__[0], Option)


def test_a_wrong_value_is_an_error_of_typer() -> None:
    """It names the option, where there is one."""
    with pytest.raises(typer.BadParameter, match="no such thing"):
        raise bad_parameter("no such thing", "--size")
