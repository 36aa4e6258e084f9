"""Options and arguments, declared without typer: importing it takes 80 ms and 5 MB.

`Option` and `Argument` are written where typer's own would stand, with the same words. typer gets
its own out of them by `for_typer`; `plain` reads them as they are.
"""

from collections.abc import Callable
from typing import Annotated, Any, get_origin


class Declared:
    """A parameter of a command: its names, and what else typer is to know about it."""

    def __init__(self, *names: str, **about: Any) -> None:
        self.names, self.about = names, about


class Option(Declared):
    """As `typer.Option`."""


class Argument(Declared):
    """As `typer.Argument`."""


def declared(annotation: Any) -> Declared | None:
    """What an annotation declares, if it is one of ours."""
    if get_origin(annotation) is Annotated and isinstance(annotation.__metadata__[0], Declared):
        return annotation.__metadata__[0]
    return None


def for_typer(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same command, its parameters declared as typer has it."""
    from inspect import get_annotations
    from types import FunctionType

    import typer

    kinds: dict[type[Declared], Callable[..., Any]]
    kinds = {Option: typer.Option, Argument: typer.Argument}
    assert isinstance(function, FunctionType)
    same = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    same.__doc__, same.__kwdefaults__ = function.__doc__, function.__kwdefaults__
    for name, annotation in get_annotations(function, eval_str=True).items():
        if ours := declared(annotation):
            theirs = kinds[type(ours)](*ours.names, **ours.about)
            annotation = Annotated[annotation.__origin__, theirs]
        same.__annotations__[name] = annotation
    return same


def bad_parameter(problem: str, name: str | None = None) -> Exception:
    """What to raise for a command line that cannot be meant: typer's own error."""
    from typer import BadParameter  # only now: nearly every run is without it

    return BadParameter(problem, param_hint=name)
