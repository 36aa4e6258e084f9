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
from bloomery.building.build import KINDS  # noqa: E402
from bloomery.cli.app import build  # noqa: E402

Run = Callable[..., Any]

DOCS = Path(__file__).parents[3] / "docs" / "cli.md"
COMMANDS = [
    "plan",
    "admission",
    "nodes",
    "create",
    "build",
    "add",
    "contains",
    "remove",
    "merge",
    "info",
    "dedup",
    "diff",
    "count",
    "serve",
    "top",
    "plot",
    "backup",
    "restore",
    "migrate",
    "feed-key",
    "publish",
    "fetch",
    "demo",
    "version",
]
GROUPS = {
    "exact": ["build"],
    "index": ["build", "find", "stats", "verify"],
    "log": ["dump"],
    "user": ["add", "list", "remove", "password", "token", "revoke", "allow"],
    "cluster": ["up"],
    "corpus": ["dedup"],
    "mail": ["dedup"],
    "pgindex": ["advise"],
    "parquet": ["inspect", "add-bloom", "find"],
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


def test_build_offers_the_kinds_that_it_can_build(run: Run) -> None:
    """The help of `build` has every kind that can be filled row by row, and no other."""
    said = run("build", "--help").stdout.decode()
    assert all(kind in said for kind in KINDS)
    assert not [kind for kind in ("rotating", "static", "bank") if kind in said]


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
    assert sorted(done.stdout.split()) == [b"dedup", b"demo"]


@pytest.mark.slow
def test_help_fits_a_terminal_and_names_no_function(run: Run) -> None:
    """At 80 columns build's help has 90 lines at most; types are words, and pages have URLs."""
    texts = {one: run(one, "--help", columns=80).stdout.decode() for one in ("build", "plan")}
    assert len(texts["build"].splitlines()) <= 90
    for text in texts.values():
        assert max(map(len, text.splitlines())) <= 80
        assert "parse_" not in text
        assert "docs/cli.md" in text.partition("More: https://")[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "meant"), [("mrge", "merge"), ("union", "merge"), ("exists", "contains")]
)
def test_a_wrong_command_gets_the_right_one(run: Run, word: str, meant: str) -> None:
    """By its spelling, or by the word that others have for it; nonsense gets no suggestion."""
    assert f"did you mean '{meant}'?" in run(word, code=2).stderr.decode()
    assert b"did you mean" not in run("verse", code=2).stderr


def test_a_key_that_begins_with_a_minus(run: Run) -> None:
    """A number below 0 is taken for an option: the error says where it goes."""
    assert b"goes behind --" in run("contains", "n.bloom", "-7", code=2).stderr
    assert b"goes behind --" not in run("contains", "n.bloom", "-x", code=2).stderr


@pytest.mark.slow
def test_a_command_imports_its_own_module_alone() -> None:
    """Neither the help nor a run imports what other commands are made of."""
    for argv, own in ((["--help"], set()), (["dedup"], {"dedup"}), (["info", "none"], {"info"})):
        program = (
            f"import sys\nfrom bloomery.cli import main\nmain({argv})\n"
            "names = {name.split('.')[-1] for name in sys.modules if '.cli.' in name}\n"
            "commands = {'build', 'dedup', 'demo', 'info', 'membership', 'plan', 'serve', 'user'}\n"
            "print(sorted(commands & names), file=sys.stderr)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], input=b"", capture_output=True, check=True
        )
        assert done.stderr.decode().splitlines()[-1] == str(sorted(own))


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
