"""docs/reference.md is whole: every public name is there, as it is, and nothing else."""

import inspect
import re

import pytest

import bloomery
import bloomery.guard
from bloomery import BloomFilter, errors
from bloomery.client import AsyncRemoteFilter, RemoteFilter
from bloomery.filters import Filter, RemovingFilter
from docs.pages import DOCS

PAGE = (DOCS / "reference.md").read_text("utf-8")
ERRORS = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, errors.BloomeryError)
]
CLASSES = [value for name in bloomery.__all__ if isinstance(value := getattr(bloomery, name), type)]
CLASSES += [RemoteFilter, AsyncRemoteFilter]  # which the clients make
# Which classes have what a section lists.
SECTIONS: dict[str, list[type]] = {
    "Every filter": [one for one in CLASSES if issubclass(one, BloomFilter | Filter)],
    "Removing": [one for one in CLASSES if issubclass(one, RemovingFilter)],
    **{one.__name__: [one] for one in CLASSES},
}
# What a table may name that is no name of a class.
BUILTINS = {"memoryview", "len"}


def section(title: str) -> str:
    """What stands under a heading, up to the next of its rank."""
    found = re.search(rf"^## {title}$(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert found is not None, f"there is no section {title}"
    return found[1]


def named(title: str) -> set[str]:
    """The methods and properties in the first columns of a section's tables."""
    cells = re.findall(r"^\| ([^|]*`[^|]*) \|", section(title).replace("\\|", "or"), re.M)
    found = (re.findall(r"`(?:[A-Z]\w*\.)?([a-z_]+)(?:\(.*?\))?`", cell) for cell in cells)
    return {name for names in found for name in names} - BUILTINS


def public_names(one: type) -> set[str]:
    """The public methods and properties of a class."""
    return {name for name, _ in inspect.getmembers(one) if not name.startswith("_")}


def test_every_public_name_is_documented() -> None:
    """All that is public in the package is in the reference."""
    code = " ".join(re.findall(r"`([^`\n]+)`", PAGE))
    words = set(re.findall(r"\w+", code))
    assert words >= set(bloomery.__all__)


@pytest.mark.parametrize("one", CLASSES, ids=lambda c: c.__name__)
def test_every_method_and_property_is_in_a_table(one: type) -> None:
    """Each public name of a class is in its own section or in one that it shares with others."""
    listed = {name for title, has in SECTIONS.items() if one in has for name in named(title)}
    assert public_names(one) - listed == set()


@pytest.mark.parametrize("title", SECTIONS)
def test_the_reference_names_nothing_that_is_not_there(title: str) -> None:
    """What the tables of a section list, all the classes have that it is about."""
    for one in SECTIONS[title]:
        assert named(title) - public_names(one) == set(), one.__name__


def arguments(written: str) -> set[str]:
    """The names of the arguments in a signature as the page writes it."""
    return set(re.findall(r"(?<![\"\w.])\*?([a-z_]+)(?=[,=]|$)", written))


def parameters(function: object) -> set[str]:
    assert callable(function)
    return set(inspect.signature(function).parameters) - {"self"}


@pytest.mark.parametrize("title", SECTIONS)
def test_signatures(title: str) -> None:
    """Where the reference writes out arguments, the method has them by these names."""
    for one in SECTIONS[title]:
        for name, written in re.findall(
            r"`(?:[A-Z]\w*\.)?(?!memoryview|len)([a-z_]+)\(([^)]*)\)`", section(title)
        ):
            assert arguments(written) == parameters(getattr(one, name)), (one, name)


@pytest.mark.parametrize("one", CLASSES, ids=lambda c: c.__name__)
def test_how_each_is_made(one: type) -> None:
    """The section of a class begins with its arguments and their defaults, or says how else."""
    written = re.findall(rf"`{one.__name__}\(([^`]*)\)`:\s", section(one.__name__))
    real = inspect.signature(one).parameters
    if hasattr(one, "build"):
        assert not written
        return
    assert len(written) == 1
    assert arguments(written[0]) == set(real)
    for name, default in re.findall(r"(\w+)=([^,]+)", written[0]):
        assert eval(default) == real[name].default, name


@pytest.mark.parametrize("name", bloomery.guard.__all__)
def test_how_each_part_of_a_guard_is_made(name: str) -> None:
    """What `bloomery.guard` offers has a row with its arguments and their defaults."""
    (written,) = re.findall(rf"^\| `{name}\(([^`]*)\)` \|", section("guard"), re.M)
    real = inspect.signature(getattr(bloomery.guard, name)).parameters
    assert re.findall(r"(?:^|, )(?:\*\*)?(\w+)", written) == list(real)
    defaults = {name: eval(default) for name, default in re.findall(r"(\w+)=([^,]+)", written)}
    assert defaults == {
        one.name: one.default for one in real.values() if one.default is not one.empty
    }


def test_what_a_guard_does() -> None:
    """The table of a guard's methods is that of both guards."""
    (table,) = re.findall(r"^\| of a guard \|.*?(?=^$)", section("guard"), re.M | re.S)
    listed = {*re.findall(r"`([a-z_]+)(?:\([^`]*\))?`", table)} - {"with", "new"}
    for one in (bloomery.guard.Guard, bloomery.guard.AsyncGuard):
        assert public_names(one) == listed


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: e.__name__)
def test_every_error_is_documented(error: type[errors.BloomeryError]) -> None:
    """Each error has a row: its class, the class it also is, and its code."""
    base = error.__bases__[-1].__name__
    assert f"| `{error.__name__}` | `{base}` | `{error.code}` |" in PAGE
