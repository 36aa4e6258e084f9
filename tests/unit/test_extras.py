"""The table of extras agrees with the package's metadata, and with what the package imports."""

import ast
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

import bloomery
from bloomery import extras
from bloomery.errors import MissingExtra
from unit.distributions import closure

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def requirements() -> dict[str, list[str]]:
    """What each extra of pyproject.toml asks for."""
    project = tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]
    found: dict[str, list[str]] = project["optional-dependencies"]
    return found


def test_each_module_has_the_extras_that_bring_it() -> None:
    """The table names, for every module, exactly the extras whose installation has it."""
    asked = requirements()
    requires = [f"{r}; extra == '{x}'" for x, rs in asked.items() for r in rs if ";" not in r]
    brought = {extra: closure(requires, extra) for extra in asked if extra != "all"}
    brought["serve"] |= {"tomli", "uvloop"}  # which have a marker, so they are not everywhere
    assert {"tomli", "uvloop"} <= {re.split(r"\W", r)[0] for r in asked["serve"] if ";" in r}
    distributions = packages_distributions()
    for module, named in extras.EXTRAS.items():
        (name,) = set(map(canonicalize_name, distributions.get(module, [module])))
        assert {extra for extra, names in brought.items() if name in names} == set(named), module


def test_all_is_every_extra() -> None:
    """`bloomery[all]` leaves none out but `spark`, which weighs 400 MB and needs Java."""
    asked = requirements()
    (everything,) = asked.pop("all")
    del asked["spark"]
    assert everything == f"bloomery[{','.join(asked)}]"


def test_every_optional_import_is_in_the_table() -> None:
    """Whatever the package imports is Python's, its own, or has an extra."""
    package = Path(str(bloomery.__file__)).parent
    for source in package.rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            # typing_extensions: for type checkers alone, which bring it.
            tops = {n.partition(".")[0] for n in names} - {"bloomery", "typing_extensions"}
            assert tops <= sys.stdlib_module_names | set(extras.EXTRAS), source


@pytest.mark.parametrize(
    ("module", "asker", "named"),
    [
        ("typer", "", "cli"),
        ("typer", "serve", "serve"),
        ("fastapi", "cli", "serve"),
        ("redis.asyncio", "guard", "guard"),
        ("psycopg", "serve", "postgresql"),
    ],
)
def test_the_extra_of_the_asker_is_named_if_it_brings_the_module(
    module: str, asker: str, named: str
) -> None:
    """Where several extras bring a module, it is the asker's; else the one that is for it."""
    with pytest.raises(MissingExtra, match=rf"this needs \w+: pip install 'bloomery\[{named}\]'$"):
        raise extras.missing(module, "this", asker)


def test_a_module_of_no_extra() -> None:
    """What no extra brings, none is named for."""
    assert str(extras.missing("MySQLdb", "it")).startswith("it needs MySQLdb: install it")
