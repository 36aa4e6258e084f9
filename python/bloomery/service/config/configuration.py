"""Reads the settings from a TOML file, the environment and flags.

Flags override the environment, which overrides the file, which overrides the defaults. All errors
are collected, each with the place where it was written, and reported together.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from bloomery import errors
from bloomery.names import printable, typed
from bloomery.service.config import filters, sources
from bloomery.service.config.credentials import FieldError
from bloomery.service.config.settings import HIDDEN, Settings, find, like, plain, secret_in_file
from bloomery.storage import files

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PREFIX = "BLOOMERY_"
FILE_VARIABLE = "BLOOMERY_CONFIG"
DEFAULT = "default"
_MOST_FILE_BYTES = 256 << 10
_MOST_SECRET_BYTES = 64 << 10
_PATHS = {plain(item.name) for item in fields(Settings) if item.metadata["path"]}
# What Kubernetes puts into the environment of everything beside a service named bloomery.
_KUBERNETES = re.compile(r"BLOOMERY_(SERVICE_(HOST|PORT)|PORT$|PORT_\d+_(TCP|UDP|SCTP))")
# As like a setting's name as this, an unknown variable is a slip; others may be somebody else's.
_SLIP = 0.75


class RawSetting(NamedTuple):
    """A setting as it was written in a file, the environment or a flag, and where."""

    name: str
    text: str
    place: str


@dataclass
class Configuration:
    """Settings, where each came from, and what is wrong with what was given."""

    settings: Settings = field(default_factory=Settings)
    file: Path | None = None
    sources: dict[str, sources.SourceSettings] = field(default_factory=dict)
    filters: dict[bytes, dict[str, Any]] = field(default_factory=dict)  # parameters, by name
    origins: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def origin(self, name: str) -> str:
        """Return where a setting's value was written."""
        return self.origins.get(name, DEFAULT)

    def require(self) -> Settings:
        """Return the settings; InvalidConfiguration if anything is wrong with them."""
        if self.problems:
            raise errors.InvalidConfiguration(*self.problems)
        return self.settings

    def secrets(self) -> list[str]:
        """Return the values that nobody is to see."""
        own = self.settings.secrets()
        return own + [secret for source in self.sources.values() for secret in source.secrets()]

    def declared(self) -> dict[str, dict[str, Any]]:
        """Return the parameters of each filter, but for seeds, which may be secrets."""
        return {
            printable(name): {
                field: HIDDEN if field == "seed" else value for field, value in parameters.items()
            }
            for name, parameters in self.filters.items()
        }

    def take(self, given: RawSetting) -> None:
        """Set this setting; if it cannot be, add why to `problems`."""
        try:
            name, text = self._name_and_text(given)
            self.settings.set(name, text, running=False)
        except errors.InvalidParameter as problem:
            self.problems.append(f"{given.place}: {problem}")
        else:
            self.origins[name] = given.place

    def _name_and_text(self, given: RawSetting) -> tuple[str, str]:
        """Return the setting's name and its text; of NAME-file, what that file has."""
        secret = secret_in_file(given.name)
        if secret is None:
            find(given.name)
            return plain(given.name), given.text
        try:
            text = _content(Path(given.text), _MOST_SECRET_BYTES).strip()
        except OSError as problem:
            raise errors.InvalidParameter(
                f"{given.name} is {given.text[:60]!r}, must be a file that can be read: "
                f"{problem.strerror}"
            ) from None
        return secret, text

    def conclude(self) -> None:
        """Add settings that contradict each other to `problems`; make the data path absolute."""
        for name, why in self.settings.conflicts():
            self.problems.append(f"{self.origin(name)}: {why}")
        self.settings.data = os.path.abspath(self.settings.data)


def read(
    flags: Iterable[RawSetting] = (),
    *,
    file: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Configuration:
    """Read everything; what is wrong is in `problems` of what is returned, and nothing is raised.

    Of two flags the later is stronger. BLOOMERY_CONFIG names the file where `file` does not.
    """
    variables = os.environ if environment is None else environment
    config = Configuration()
    named = file or variables.get(FILE_VARIABLE)
    if named:
        config.file = Path(named)
        for given in _of_file(config, variables):
            config.take(given)
    for given in _of_environment(config, variables):
        config.take(given)
    for given in flags:
        config.take(given)
    config.conclude()
    return config


# The file.


def _of_file(config: Configuration, variables: Mapping[str, str]) -> Iterator[RawSetting]:
    path = config.file
    assert path is not None
    try:
        text = _content(path, _MOST_FILE_BYTES)
        table = tomllib.loads(text)
    except OSError as problem:
        config.problems.append(f"{path}: {problem.strerror or problem}")
        return
    except errors.InvalidParameter as problem:
        config.problems.append(f"{path}: {problem}")
        return
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as problem:
        # ValueError: a number of more digits than Python reads.
        why = "nested too deeply" if isinstance(problem, RecursionError) else problem
        config.problems.append(f'{path}: not TOML: {why}; right is, say: maxmemory = "4gb"')
        return
    seen = set[str]()
    for name, value in table.items():
        place = f"{path}:{_line(text, name)}"
        if name == "sources" and isinstance(value, dict):
            _take_sources(config, text, value, variables)
        elif name == "filters" and isinstance(value, dict):
            continue  # behind the sources that they name
        elif isinstance(value, dict):
            config.problems.append(
                f"{place}: {_brief(name)} is a section, must be a setting: all but sources and "
                f"filters are on the top level{like(name)}"
            )
        elif not isinstance(value, (str, int, float)):
            # Not its value, which may be a secret, also of a name that is misspelt.
            config.problems.append(
                f"{place}: {_brief(name)} must be a number, yes or no, or text in quotes, not a "
                f"{type(value).__name__}"
            )
        elif plain(name) in seen:
            config.problems.append(f"{place}: {_brief(name)} is there twice")
        else:
            yield RawSetting(name, _text(path, plain(name), value), place)
        seen.add(plain(name))
    if isinstance(declared := table.get("filters"), dict):
        _take_filters(config, text, declared)


def _take_sources(
    config: Configuration, text: str, sections: Mapping[str, Any], variables: Mapping[str, str]
) -> None:
    assert config.file is not None
    for name, given in sections.items():
        source, wrong = sources.read(name, given, config.file.parent, variables)
        if source is not None:
            config.sources[name] = source
        _note(config, text, f"sources.{name}", wrong)


def _take_filters(config: Configuration, text: str, sections: Mapping[str, Any]) -> None:
    for name, given in sections.items():
        parameters, wrong = filters.read(name, given, config.sources)
        if not wrong:
            config.filters[typed(name)] = parameters
        _note(config, text, f"filters.{name}", wrong)


def _note(config: Configuration, text: str, section: str, wrong: Iterable[FieldError]) -> None:
    """Add the errors of a section to `problems`, each with its line."""
    start = _line(text, section)
    below = "\n".join(text.split("\n")[start:])
    for problem in wrong:
        line = start + (_line(below, problem.name) if problem.name else 0)
        config.problems.append(f"{config.file}:{line}: {section[:70]}: {problem}")


def _content(path: Path, most: int) -> str:
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise errors.InvalidParameter(f"has more than {most} bytes, must be a text file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise errors.InvalidParameter(
            f"line {line} has bytes that are not UTF-8, must be a text file"
        ) from None


def _text(path: Path, name: str, value: str | int | float) -> str:
    """Return a TOML value as CONFIG SET would take it; a path is relative to the file's folder."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value and (secret_in_file(name) or (name in _PATHS)):
        return os.path.join(os.path.abspath(path.parent), str(value))
    return str(value)


def _line(text: str, name: str) -> int:
    """Return the line where a name of the top level is set, or a section (a.b) begins."""
    parts = (re.escape(part).replace(r"\-", "[-_]") for part in name.split(".", 1))
    dotted = r"[ \t]*\.[ \t]*".join(rf"[\"']?{part}[\"']?" for part in parts)
    match = re.search(rf"^[ \t\[]*{dotted}[ \t]*[\].=]", text, re.M)
    return text.count("\n", 0, match.start()) + 1 if match else 1


def _brief(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def rewrite(path: Path, changed: Mapping[str, str | int | float]) -> None:
    """Write settings into a configuration file, which keeps all else that it has: comments, order,
    sections. It is replaced whole or not at all."""
    import tomlkit  # not at every start

    document = tomlkit.parse(_content(path, _MOST_FILE_BYTES))
    written = {plain(name): name for name in document}
    for name, value in changed.items():
        document[written.get(name, name)] = value
    with files.replacing(path) as file:
        file.write(tomlkit.dumps(document).encode())


# The environment.


def _of_environment(config: Configuration, variables: Mapping[str, str]) -> Iterator[RawSetting]:
    for variable in sorted(variables):
        if not variable.startswith(PREFIX) or variable == FILE_VARIABLE:
            continue
        name = plain(variable.removeprefix(PREFIX))
        if name in config.settings.names() or secret_in_file(name):
            if variables[variable]:  # an empty one is how a variable that is not set is passed on
                yield RawSetting(name, variables[variable], variable)
        elif _KUBERNETES.match(variable):
            continue
        elif near := like(name, _SLIP):
            config.problems.append(f"{variable}: there is no setting named {name[:60]!r}{near}")
        else:
            config.warnings.append(
                f"{variable}: there is no setting named {name[:60]!r}{like(name)}"
            )
