"""What of the server itself calls for an alert: its data folder, its log, its registry, its
sources, its clock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bloomery import errors
from bloomery.service.clock import ALARM_SECONDS
from bloomery.service.durability import quarantine

if TYPE_CHECKING:
    from bloomery.service.server import Server

__all__ = ["log_unavailable", "look", "tell_damaged"]

_REGISTRY_SECONDS = 60.0  # a change that has been waiting for longer: the tables are late


def log_unavailable(server: Server, problem: errors.LogUnavailable) -> None:
    """The log cannot be written, from now on."""
    server.alerts.begin(
        "log-unavailable", f"the log cannot be written, writes are refused: {problem}"
    )


def tell_damaged(server: Server) -> None:
    """Files are set aside since they were damaged, by this start or an earlier one."""
    for one in quarantine.find(server.data):
        what = "what was acknowledged is lost" if one.lost else "nothing is lost"
        text = (
            f"damaged files were set aside, {what}: {'; '.join(one.problems[:3])}: they are in "
            f"{one.folder}, and this is told until they are moved away"
        )
        server.alerts.begin("data-damaged", text, folder=one.folder.name, lost=one.lost)


def look(server: Server) -> None:
    """See, each second, what has begun and what is over."""
    for alert in [one for one in server.alerts.active.values() if one.kind == "data-damaged"]:
        folder = alert.fields["folder"]
        if not (quarantine.damaged_folder(server.data) / folder).exists():
            server.alerts.end("data-damaged", "the damaged files were moved away", folder=folder)
    alerts, registry, off = server.alerts, server.mirror.projection, server.engine.clock.off
    if server.engine.problem is None:
        alerts.end("log-unavailable", "the log can be written again: writes are taken")
    _look_at_disk(server)
    behind = registry.behind
    if behind > _REGISTRY_SECONDS:
        why = registry.last_error or "its database is slow"
        text = f"the registry is {behind:.0f} s behind: {why}"
        alerts.begin("registry-late", text, seconds=round(behind))
    elif behind < _REGISTRY_SECONDS / 2:
        alerts.end("registry-late", "the registry is up to date again")
    for name, backing in server.commands.lookups.backings.items():
        if backing.down_since is None:
            alerts.end("source-unavailable", f"the source {name} answers again", source=name)
        else:
            text = f"the source {name} does not answer: look-ups that need it go by on-outage"
            alerts.begin("source-unavailable", text, source=name)
    if abs(off) > ALARM_SECONDS:
        where = "ahead of" if off > 0 else "behind"
        text = (
            f"the wall clock is {abs(off):.0f} s {where} the server's time, which follows it "
            "slowly: nothing is forgotten early"
        )
        alerts.begin("clock", text, seconds=round(off))
    elif abs(off) < ALARM_SECONDS / 2:
        alerts.end("clock", "the server's time is the wall clock's again")


def _look_at_disk(server: Server) -> None:
    alerts, log, since = server.alerts, server.engine.log, server.turns.late_since
    if since is not None:
        waiting = time.monotonic() - since
        alerts.begin(
            "log-late", f"the disk does not follow: replies to writes wait, for {waiting:.1f} s"
        )
    else:
        alerts.end("log-late", "the disk follows again: writes are answered at once")
    if log.unfolded is not None:
        alerts.begin("log-unfolded", f"an old segment of the log is not closed: {log.unfolded}")
    else:
        alerts.end("log-unfolded", "old segments of the log are closed")
