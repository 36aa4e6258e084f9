"""Help, documentation and completion: every command and option is in all of them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import require

require("typer")

from bloomery import __version__  # noqa: E402
from bloomery.cli.app import build  # noqa: E402

Run = Callable[..., Any]

DOCS = Path(__file__).parents[3] / "docs" / "cli.md"
COMMANDS = [
    "plan",
    "create",
    "build",
    "add",
    "contains",
    "remove",
    "info",
    "dedup",
    "serve",
    "demo",
    "version",
]
GROUPS = {
    "user": ["add", "list", "remove", "password", "token", "revoke", "allow"],
    "cluster": ["up"],
}
COMMANDS += GROUPS
UNDER = [f"{group} {one}" for group, names in GROUPS.items() for one in names]


def options() -> Iterator[tuple[str, str]]:
    """Every option of every command, as (command, option)."""
    root = build()
    under = [(name, one) for name in GROUPS for one in root.commands[name].commands.values()]
    for name, command in [("bloomery", root), *root.commands.items(), *under]:
        for parameter in command.params:
            for option in parameter.opts:
                if option.startswith("-"):
                    yield name, option


def section(command: str) -> str:
    """The part of the docs under the command's heading."""
    text = DOCS.read_text()
    start = text.index(f"\n## {command}\n")
    end = text.find("\n## ", start + 1)
    return text[start : end if end > 0 else len(text)]


def test_the_commands_are_these() -> None:
    """No command appears or goes without this list, and so the docs, knowing."""
    root = build()
    assert sorted(root.commands) == sorted(COMMANDS)
    for group, names in GROUPS.items():
        assert sorted(root.commands[group].commands) == sorted(names)


@pytest.mark.parametrize(("command", "option"), list(options()))
def test_docs_mention_every_option(command: str, option: str) -> None:
    """docs/cli.md explains each option under its command."""
    assert f"`{option}" in section(command), f"{option} of {command} is not in docs/cli.md"


@pytest.mark.parametrize("command", [*COMMANDS, *UNDER])
@pytest.mark.slow
def test_every_command_has_help_with_an_example(run: Run, command: str) -> None:
    """--help and -h show what it does and an example to copy."""
    text = run(*command.split(), "--help").stdout.decode()
    assert f"Usage: bloomery {command}" in text
    assert f"bloomery {command}" in text.partition("Example: ")[2]
    assert run(*command.split(), "-h").stdout.decode() == text


def test_docs_have_an_example_for_every_command() -> None:
    """Each command's section in docs/cli.md shows it in use."""
    for command in COMMANDS:
        shown = section(command).replace("`", " ")
        assert f"bloomery {command} " in shown or command == "demo"


def test_version(run: Run) -> None:
    """Both ways to ask print the library's version."""
    for asked in ("--version", "version"):
        assert run(asked).stdout.decode() == f"bloomery {__version__}\n"


@pytest.mark.slow
def test_completion(run: Run, tmp_path: Path) -> None:
    """The shell's request for completions is answered with the commands."""
    asked = {"_BLOOMERY_COMPLETE": "complete_bash", "COMP_WORDS": "bloomery de", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "bloomery"],
        env={**os.environ, **asked},
        capture_output=True,
        check=True,
    )
    assert done.stdout.split() == [b"dedup", b"demo"]


@pytest.mark.slow
def test_start_up_imports_little() -> None:
    """A small dedup in a pipe starts without what would cost more than it does itself."""
    program = (
        "import sys\nfrom bloomery.cli import main\ncode = main(['dedup'])\n"
        "heavy = {'rich.console', 'zstandard', 'pydantic', 'numpy', 'json', 'asyncio'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\nsys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=b"a\n", capture_output=True, check=True
    )
    assert done.stdout == b"a\n"
    assert done.stderr == b"[]\n"
