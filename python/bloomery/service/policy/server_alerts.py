"""Alerts about the server itself: its data folder, log, registry, sources and clock."""

from __future__ import annotations

import time
from pathlib import Path

from bloomery import errors
from bloomery.service.clock import ALARM_SECONDS
from bloomery.service.durability import quarantine
from bloomery.service.engine import Engine
from bloomery.service.lookup.lookups import Lookups
from bloomery.service.policy.alerts import Alerts
from bloomery.service.registry.publisher import Publisher
from bloomery.service.sequencer import Sequencer

_REGISTRY_SECONDS = 60.0  # a change that has been waiting for longer: the tables are late


def log_unavailable(alerts: Alerts, problem: errors.LogUnavailable) -> None:
    """Raise the alert that the log cannot be written; `ServerAlerts` ends it."""
    text = f"the log cannot be written, writes are refused: {problem}"
    alerts.begin("log-unavailable", text)


class ServerAlerts:
    """Looks at the parts of a server each second, and raises and ends their alerts."""

    def __init__(
        self,
        alerts: Alerts,
        data: Path,
        engine: Engine,
        sequencer: Sequencer,
        publisher: Publisher,
        lookups: Lookups,
    ) -> None:
        self._alerts, self._data, self._engine, self._sequencer = (
            alerts,
            data,
            engine,
            sequencer,
        )
        self._publisher, self._lookups = publisher, lookups

    def start(self) -> None:
        """Raise an alert for damaged files that were set aside, by this start or an earlier one."""
        for damaged in quarantine.find(self._data):
            what = "what was acknowledged is lost" if damaged.lost else "nothing is lost"
            problems = "; ".join(damaged.problems[:3])
            text = (
                f"damaged files were set aside, {what}: {problems}: they are in "
                f"{damaged.folder}, and this is told until they are moved away"
            )
            self._alerts.begin("data-damaged", text, folder=damaged.folder.name, lost=damaged.lost)

    def check(self) -> None:
        """See, each second, what has begun and what is over."""
        self._check_quarantine()
        self._check_log()
        self._check_registry()
        self._check_sources()
        self._check_clock()

    def _check_quarantine(self) -> None:
        active = self._alerts.active.values()
        for alert in [alert for alert in active if alert.kind == "data-damaged"]:
            folder = alert.fields["folder"]
            if not (quarantine.damaged_folder(self._data) / folder).exists():
                text = "the damaged files were moved away"
                self._alerts.end("data-damaged", text, folder=folder)

    def _check_log(self) -> None:
        alerts, late_since = self._alerts, self._sequencer.late_since
        if self._engine.problem is None:
            alerts.end("log-unavailable", "the log can be written again: writes are taken")
        if late_since is not None:
            waiting = time.monotonic() - late_since
            text = f"the disk does not follow: replies to writes wait, for {waiting:.1f} s"
            alerts.begin("log-late", text)
        else:
            alerts.end("log-late", "the disk follows again: writes are answered at once")

    def _check_registry(self) -> None:
        registry = self._publisher.writer
        behind = registry.behind
        if behind > _REGISTRY_SECONDS:
            why = registry.last_error or "its database is slow"
            text = f"the registry is {behind:.0f} s behind: {why}"
            self._alerts.begin("registry-late", text, seconds=round(behind))
        elif behind < _REGISTRY_SECONDS / 2:
            self._alerts.end("registry-late", "the registry is up to date again")

    def _check_sources(self) -> None:
        for name, source in self._lookups.sources.items():
            if source.down_since is None:
                text = f"the source {name} answers again"
                self._alerts.end("source-unavailable", text, source=name)
            else:
                text = f"the source {name} does not answer: look-ups that need it go by on-outage"
                self._alerts.begin("source-unavailable", text, source=name)

    def _check_clock(self) -> None:
        if not self._engine.batches.exclusive:
            return  # nodes use Redis's time
        off = self._engine.clock.off
        if abs(off) > ALARM_SECONDS:
            where = "ahead of" if off > 0 else "behind"
            text = (
                f"the wall clock is {abs(off):.0f} s {where} the server's time, which follows it "
                "slowly: nothing is forgotten early"
            )
            self._alerts.begin("clock", text, seconds=round(off))
        elif abs(off) < ALARM_SECONDS / 2:
            self._alerts.end("clock", "the server's time is the wall clock's again")
