"""`--json`: every command that says something says it to a program too."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conftest import require

require("typer")

from bloomery.cli.app import build  # noqa: E402

Run = Callable[..., Any]

# What has nothing to say but one word, or runs until it is stopped.
WITHOUT = {"version", "demo", "cluster up"}


def test_every_command_has_it() -> None:
    """No command is made without --json, but for those that say nothing a program wants."""

    def commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from commands(command, f"{before}{name} ")
            else:
                yield before + name, command

    found = dict(commands(build()))
    lack = {
        name
        for name, command in found.items()
        if not any("--json" in parameter.opts for parameter in command.params)
    }
    assert {"dedup", "user add", "mail dedup"} <= {*found}
    assert lack == WITHOUT


def test_what_files_answer(run: Run) -> None:
    """Files of filters and of banks: made, added to, asked, removed from, merged."""

    def answer(*args: str, code: int = 0, stdin: bytes = b"") -> Any:
        out = run(*args, "--json", code=code, stdin=stdin).stdout
        return json.loads(out)

    assert answer("create", "a.bloom", "-n", "1000", "--kind", "counting")["capacity"] == 1000
    assert answer("add", "a.bloom", "x", "y") == {"file": "a.bloom", "new": 2}
    assert answer("add", "a.bloom", stdin=b"y\nz\n") == {"file": "a.bloom", "new": 1}
    lines = run("contains", "a.bloom", "x", "q", "--json").stdout.splitlines()
    wanted = [{"key": "x", "maybe": True}, {"key": "q", "maybe": False}]
    assert [json.loads(line) for line in lines] == wanted
    lines = run("contains", "a.bloom", "--json", stdin=b"x\nq\n").stdout.splitlines()
    assert [json.loads(line) for line in lines] == wanted
    assert answer("remove", "a.bloom", "x") == {"file": "a.bloom", "removed": 1}
    assert answer("remove", "a.bloom", "nothing", code=1)["removed"] == 0
    assert answer("merge", "b.bloom", "a.bloom", "a.bloom")["kind"] == "counting"
    assert answer("create", "bank.bloom", "--kind", "bank")["kind"] == "bank"
    assert answer("add", "bank.bloom", "--user", "ada", "x")["new"] == 1
    [line] = run("contains", "bank.bloom", "--user", "ada", "x", "--json").stdout.splitlines()
    assert json.loads(line) == {"key": "x", "maybe": True}
    assert answer("remove", "bank.bloom", "--user", "ada", "--all")["users_removed"] == 1


@pytest.mark.parametrize("options", [["add", "--new"], ["contains", "-v"], ["contains", "-c"]])
def test_two_ways_to_print_are_refused(run: Run, options: list[str]) -> None:
    """--json beside an option that says what to print is an error, not one of the two."""
    run("create", "a.bloom", "-n", "10")
    command, option = options
    done = run(command, "a.bloom", "x", option, "--json", code=2)
    assert b"leave" in done.stderr
