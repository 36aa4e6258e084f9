"""Filters that are declared and not made by a client: made where they are missing, and left alone
where they are there, whatever the declaration says by now. What differs is reported."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import cycle, islice
from typing import Any

from bloomery import errors
from bloomery.filters.rotating import parse_window
from bloomery.names import printable
from bloomery.service.commands import Commands
from bloomery.service.domain import policy
from bloomery.service.domain.entry import Entry
from bloomery.service.policy.alerts import Alerts

_TIMES = ("window", "warn_within", "grace")
_A_SECOND = 100  # filters that are looked at in a second, some 15 µs each


async def ensure(commands: Commands, name: bytes, parameters: Mapping[str, Any]) -> list[str]:
    """Make a filter of these parameters (`parameters.parse`), unless there is one of that name;
    return what that one has otherwise. It is in the log by then."""
    await commands.discover(name)  # another node may have made it
    if commands.engine.find(name) is None:
        try:
            await commands.run([name], partial(commands.create, name, **parameters))
        except (errors.FilterExists, errors.IncompatibleFilters):
            await commands.discover(name)  # another node has made one just now
            if commands.engine.find(name) is None:
                raise
    return differences(commands.find(name), parameters)


def differences(entry: Entry, parameters: Mapping[str, Any]) -> list[str]:
    """The settings in which a filter differs from these parameters: name and both values."""
    if entry.filter is None:  # it is being loaded: nothing is known of it yet
        return []
    differing = []
    actual = {**entry.settings, **policy.policy_of(entry).as_dict(), "kind": entry.filter.kind}
    for name, given in parameters.items():
        value = actual.get(name, getattr(entry.filter, name, None))
        if name == "seed" and given != value:
            differing.append("seed is another")  # it may be a secret
        elif given is not None and _plain(name, given) != _plain(name, value):
            differing.append(f"{name} is {value!r}, not {given!r}")
    return differing


def _plain(name: str, value: Any) -> Any:
    """A time as seconds."""
    return parse_window(value) if name in _TIMES and isinstance(value, str) else value


class DeclaredFilters:
    """The filters of a server's configuration."""

    def __init__(
        self,
        commands: Commands,
        alerts: Alerts,
        declared: Mapping[bytes, Mapping[str, Any]],
    ) -> None:
        """`declared`: parameters by name."""
        self.declared: Mapping[bytes, Mapping[str, Any]] = {}
        self._commands, self._alerts = commands, alerts
        self._declare(declared)
        self._refused: dict[bytes, str] = {}  # why one could not be made

    def _declare(self, declared: Mapping[bytes, Mapping[str, Any]]) -> None:
        for name in self.declared.keys() - declared.keys():
            text = f"the filter {printable(name)} is not in the configuration any more"
            self._alerts.end("filter-differs", text, name)
        self.declared, self._turns = dict(declared), cycle(declared)

    async def exchange(self, declared: Mapping[bytes, Mapping[str, Any]]) -> list[str]:
        """Go by another configuration: make what is missing of it, or could not be made before.
        Returns what has changed."""
        changed = []
        for name in {**self.declared, **declared}:
            before, now = self.declared.get(name), declared.get(name)
            if before != now:
                what = "is new" if before is None else "is gone" if now is None else "is another"
                changed.append(f"filters.{printable(name)} {what}")
        if changed or self._refused:  # what could not be made may be possible now
            self._declare(declared)
            await self.make()
        return changed

    async def make(self) -> None:
        """Make those that are missing; one that cannot be made is an alert."""
        for name, parameters in self.declared.items():
            self._refused.pop(name, None)
            try:
                await ensure(self._commands, name, parameters)
            except errors.BloomeryError as problem:
                self._refused[name] = str(problem)
            self._report(name)

    def check(self) -> None:
        """See, each second, which are not as they are declared, and which are again."""
        for name in islice(self._turns, min(len(self.declared), _A_SECOND)):
            self._report(name)

    def _report(self, name: bytes) -> None:
        shown, entry = printable(name), self._commands.engine.find(name)
        if entry is None:
            why = self._refused.get(name, "it was dropped, and the next start makes it")
            text = f"the filter {shown} of the configuration is not there: {why}"
        elif differing := differences(entry, self.declared[name]):
            text = (
                f"the filter {shown} is not as the configuration says: {'; '.join(differing)}; "
                "it is left as it is, with all its keys"
            )
        else:
            text = f"the filter {shown} is as the configuration says"
            self._alerts.end("filter-differs", text, name)
            return
        self._alerts.begin("filter-differs", text, name)
