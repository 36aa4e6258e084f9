"""`help()` and `?` have a text for every public name, and the stub has the same."""

import ast
import enum
import inspect
from pathlib import Path
from typing import Any

import pytest

import bloomery
import bloomery.apps
import bloomery.building
import bloomery.client
import bloomery.guard
import bloomery.integrations.redis
import bloomery.segments
from bloomery import _native

MODULES = (
    bloomery,
    bloomery.apps,
    bloomery.building,
    bloomery.client,
    bloomery.errors,
    bloomery.guard,
    bloomery.integrations.redis,
    bloomery.segments,
    bloomery.sizing,
)
PUBLIC = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in MODULES
    for name in getattr(module, "__all__", vars(module))
    if name[0] != "_"
}
STUB = ast.parse(Path(_native.__file__).with_name("_native.pyi").read_text("utf-8"))


def wordless(name: str, thing: Any) -> list[str]:
    """The public names of a class, or the thing itself, that have no docstring."""
    found = [] if inspect.getdoc(thing) else [name]
    if isinstance(thing, type) and not issubclass(thing, BaseException | enum.Enum):
        members = {one: inspect.getattr_static(thing, one) for one in dir(thing)}
        for one, member in members.items():
            documented = callable(member) or hasattr(member, "__get__")
            slot = type(member).__name__ == "member_descriptor"  # a field of a dataclass
            if not one.startswith("_") and documented and not slot and not inspect.getdoc(member):
                found.append(f"{name}.{one}")
    return found


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_a_docstring(name: str) -> None:
    """A class, a function, a method or a property says what it is."""
    thing = PUBLIC[name]
    if isinstance(thing, type) or inspect.isroutine(thing) or inspect.ismodule(thing):
        assert wordless(name, thing) == []


def documented() -> list[Any]:
    classes = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
    return [
        pytest.param(name, node, id=f"{name}.{node.name}")
        for name in NATIVE
        for owner in (name, *(one.id for one in classes[name].bases if isinstance(one, ast.Name)))
        for node in classes[owner].body
        if isinstance(node, ast.FunctionDef) and node.name[0] != "_"
    ]


NATIVE = ("Bank", "Bloom", "Chain", "Cuckoo", "Family")


@pytest.mark.parametrize(("owner", "node"), documented())
def test_the_stub_says_the_same(owner: str, node: ast.FunctionDef) -> None:
    """What an editor shows, from the stub, is what `help` shows, from the extension."""
    there = inspect.getdoc(getattr(getattr(_native, owner), node.name))
    assert there == ast.get_docstring(node)
