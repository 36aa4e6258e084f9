"""Plain command lines: what is read without typer is what typer would have read."""

import subprocess
import sys
from typing import Any

import pytest

from conftest import require

require("typer")

from bloomery.cli.app import build  # noqa: E402
from bloomery.cli.parsing.plain import parse  # noqa: E402

PLAIN = [
    ["dedup"],
    ["dedup", "-"],
    ["dedup", "a", "b.gz"],
    ["dedup", "--key", ".url", "a"],
    ["dedup", "a", "--key=.url", "-q", "--json"],
    ["dedup", "--across-runs", "seen.bloom", "-n", "10M", "-e", "1e-9", "a b", ""],
    ["dedup", "-c", "email", "-d", "", "--no-header", "--strict"],
    ["dedup", "--key", ".a", "--key", ".b"],
    ["dedup", "--exact", "--window", "7d"],
    ["count", "-e", "1%", "a"],
    ["diff", "a", "-", "--exact"],
]
FOR_TYPER = [
    [],
    ["--help"],
    ["plan", "1e9"],
    ["dedup", "--help"],
    ["dedup", "-h"],
    ["dedup", "--", "-a"],
    ["dedup", "-qk", ".url"],
    ["dedup", "-k.url"],
    ["dedup", "-k=.url"],
    ["dedup", "--quiet=yes"],
    ["dedup", "--key"],
    ["dedup", "--key", "-q"],
    ["dedup", "--nokey"],
    ["dedup", "-n", "many"],
    ["diff", "a"],
    ["diff", "a", "b", "c"],
]


def by_typer(argv: list[str]) -> dict[str, Any]:
    """What typer gives the command."""
    root = build(argv)
    with root.make_context("bloomery", list(argv)) as context:
        name, command, rest = root.resolve_command(context, argv)
        with command.make_context(name, list(rest), parent=context) as inner:
            return dict(inner.params)


@pytest.mark.parametrize("argv", PLAIN, ids=" ".join)
def test_as_typer_reads_it(argv: list[str]) -> None:
    """The same values for the same parameters; those that are not given have their defaults."""
    found = parse(argv)
    assert found is not None
    command, given = found
    names = command.__code__.co_varnames[: command.__code__.co_argcount]
    defaults = command.__defaults__ or ()
    filled = {**dict(zip(names[len(names) - len(defaults) :], defaults, strict=True)), **given}
    theirs = by_typer(argv)
    for values in (filled, theirs):
        values["files"] = [*(values.get("files") or ())]
    assert filled == theirs


@pytest.mark.parametrize("argv", FOR_TYPER, ids=" ".join)
def test_all_else_is_left_to_typer(argv: list[str]) -> None:
    """Help, errors, and what can be read in two ways."""
    assert parse(argv) is None


@pytest.mark.slow
def test_a_plain_run_imports_little() -> None:
    """Neither typer nor what else takes long to import, or much memory: peak memory of a run is
    half of what it is made of."""
    heavy = {"typer", "rich", "dataclasses", "pathlib", "decimal", "csv", "shutil", "inspect"}
    heavy |= {"bloomery.client", "numpy", "pyarrow", "asyncio", "json", "zstandard"}
    program = (
        "import sys\nfrom bloomery.cli import main\ncode = main(['dedup', '--key', '.url'])\n"
        f"print(sorted({heavy} & set(sys.modules)), file=sys.stderr)\nsys.exit(code)"
    )
    data = b'{"url": "a"}\n{"url": "a"}\n'
    done = subprocess.run(
        [sys.executable, "-c", program], input=data, capture_output=True, check=True
    )
    assert done.stdout == b'{"url": "a"}\n'
    assert done.stderr == b"[]\n"
