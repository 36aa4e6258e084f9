"""The configuration of a server that runs: CONFIG SET and SIGHUP change it, CONFIG REWRITE writes
it back into its file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import fields, replace
from pathlib import Path

from bloomery import errors
from bloomery.service.config import configuration
from bloomery.service.config.configuration import Configuration
from bloomery.service.config.settings import Settings, find
from bloomery.service.declared import DeclaredFilters
from bloomery.service.engine import Engine
from bloomery.service.events import Event
from bloomery.service.lookup.lookups import Lookups
from bloomery.service.observe import logs
from bloomery.service.observe.logs import Say
from bloomery.service.policy.alerts import Alerts


class LiveConfiguration:
    """The configuration that a server goes by now, and where each setting came from."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        lookups: Lookups,
        declared: DeclaredFilters,
        exchange_webhook: Callable[[], Awaitable[None]],
        alerts: Alerts,
        say: Say,
        *,
        file: Path | None,
        read: Callable[[], Configuration] | None,
    ) -> None:
        """`file` is the one that settings came from, if there was one; `read` reads it, the
        environment and the flags again."""
        self.settings, self.file = settings, file
        self._engine, self._lookups, self._declared = engine, lookups, declared
        self._exchange_webhook, self._alerts = exchange_webhook, alerts
        self._say, self._read = say, read
        self.on_change: Event[[]] = Event()  # other settings are used

    def apply(self, new: Settings) -> None:
        """Go by other settings from now on; the caller has checked them."""
        self._engine.set_memory_limit(new.maxmemory, new.bytes_per_filter)
        self._engine.shelf.most_layers = new.cf_max_expansions
        logs.set_level(new.log_level)
        for item in fields(new):
            setattr(self.settings, item.name, getattr(new, item.name))
        self.on_change()

    async def reload(self) -> None:
        """Read the configuration again, go by what can be changed while the server runs, and say
        what changed and what takes a restart. If anything is wrong with it, nothing is changed."""
        if self._read is None:
            return
        latest = await asyncio.to_thread(self._read)
        for secret in latest.secrets():
            logs.hide(secret)
        before, new = replace(self.settings), replace(self.settings)
        names = [
            name for name in before.names() if _value(latest.settings, name) != _value(new, name)
        ]
        live = [name for name in names if find(name).metadata["reloads"]]
        for name in live:
            setattr(new, find(name).name, _value(latest.settings, name))
        problems = latest.problems or [why for _, why in new.conflicts()]
        try:
            sources = {} if problems else self._lookups.prepare(latest.sources)
        except errors.BloomeryError as why:
            problems = [str(why)]
        for problem in problems:
            self._say(f"the configuration stays as it was: {problem}", level="error")
        if problems:
            return
        self.apply(new)
        if {"webhook-url", "webhook-secret"} & {*live}:
            await self._exchange_webhook()
        for warning in latest.warnings:
            self._say(warning, level="warning")
        for name in names:
            values = f"{name} is {latest.settings.get(name)}, was {before.get(name)}"
            if name in live:
                self._say(f"the configuration has changed: {values}", origin=latest.origin(name))
            else:
                text = f"the configuration has changed, but {name} needs a restart: {values}"
                self._say(text, level="warning", origin=latest.origin(name))
        for name in self._lookups.sources.keys() - sources.keys():
            self._alerts.end("source-unavailable", f"the source {name} was removed", source=name)
        changed = await self._lookups.exchange(sources, self._say)
        changed += await self._declared.exchange(latest.filters)
        for text in changed:
            self._say(f"the configuration has changed: {text}")
        if not names and not changed:
            self._say("the configuration was read again: nothing has changed")

    async def rewrite(self) -> None:
        """Write what CONFIG SET has changed into the file. OSError or InvalidParameter if that
        cannot be done."""
        assert self._read is not None
        assert self.file is not None
        latest = await asyncio.to_thread(self._read)
        latest.require()
        changed = {
            name: _value(self.settings, name)
            for name in _differences(self.settings, latest.settings)
            if find(name).metadata["live"]
        }
        if changed:
            await asyncio.to_thread(configuration.rewrite, self.file, changed)
        for name in changed:
            origin = latest.origin(name)
            self._say(f"{name} is {self.settings.get(name)} in {self.file} now")
            if origin != configuration.DEFAULT and not origin.startswith(f"{self.file}:"):
                text = f"{origin} is stronger than the file: after a restart {name} is as it says"
                self._say(text, level="warning")


def _differences(one: Settings, other: Settings) -> list[str]:
    return [name for name in one.names() if _value(one, name) != _value(other, name)]


def _value(settings: Settings, name: str) -> str | int | float:
    value: str | int | float = getattr(settings, find(name).name)
    return value
