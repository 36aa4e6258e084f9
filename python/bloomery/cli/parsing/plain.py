"""Command lines that leave no question, read without typer: most that scripts have.

`dedup` in a pipe starts in half of the time, and in 15 MB instead of 20, if typer is not there.
Whatever is not plain is typer's: help, completion, `--`, options run together (`-qk.url`), and
everything that is wrong, so that there is one place which says what.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from bloomery.cli.parsing.declared import Argument, declared

_MODULES = {"count": "lines.count", "dedup": "lines.dedup", "diff": "lines.diff"}
Command = Callable[..., int]


class _NotPlain(Exception):
    """typer is to read it."""


def parse(argv: list[str]) -> tuple[Command, dict[str, Any]] | None:
    """The command and its arguments; None: this is for typer."""
    module = _MODULES.get(argv[0]) if argv else None
    if module is None:
        return None
    commands = import_module(f"bloomery.cli.{module}").COMMANDS
    command = next(function for name, function, _ in commands if name == argv[0])
    try:
        return command, _Words(command).read(argv[1:])
    except _NotPlain:
        return None


class _Words:
    """Reads the words behind a command's name."""

    def __init__(self, command: Command) -> None:
        self._options: dict[str, tuple[str, bool, Callable[[str], Any]]] = {}
        self._arguments: list[tuple[str, bool]] = []
        for name, annotation in command.__annotations__.items():
            about, kind = declared(annotation), getattr(annotation, "__origin__", None)
            if isinstance(about, Argument):
                self._arguments.append((name, kind is not str))
            elif about is not None:
                parser = about.about.get("parser", str)
                for flag in about.names:
                    self._options[flag] = name, kind is bool, parser

    def read(self, words: list[str]) -> dict[str, Any]:
        given: dict[str, Any] = {}
        others: list[str] = []
        rest = iter(words)
        for word in rest:
            if word == "-" or not word.startswith("-"):
                others.append(word)
                continue
            name, value = self._option(word, rest)
            given[name] = value
        return {**given, **self._positional(others)}

    def _option(self, word: str, rest: Iterator[str]) -> tuple[str, Any]:
        flag, equals, text = word.partition("=")
        name, is_flag, parser = self._options.get(flag, ("", False, str))
        if not name or (equals and (is_flag or not flag.startswith("--"))):
            raise _NotPlain
        if is_flag:
            return name, True
        text = text if equals else next(rest, "-")
        if text.startswith("-"):  # an option whose value was forgotten
            raise _NotPlain
        try:
            return name, parser(text)
        except Exception:  # noqa: BLE001  # whatever it is, typer will come upon it too
            raise _NotPlain from None

    def _positional(self, words: list[str]) -> dict[str, Any]:
        match self._arguments:
            case [(name, True)]:
                return {name: words}
            case arguments if len(arguments) == len(words) and not any(m for _, m in arguments):
                return {name: word for (name, _), word in zip(arguments, words, strict=True)}
        raise _NotPlain
