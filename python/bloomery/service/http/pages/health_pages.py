"""The page of nodes and health: what runs, what lags, what is durable, alerts, the audit log."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any

from fastapi import Query, Request, Response

from bloomery import __version__, _native
from bloomery.service.access.audit import audit_file
from bloomery.service.access.permissions import User
from bloomery.service.http.origin import PAGES
from bloomery.service.http.pages import frame
from bloomery.service.http.pages.board import board_of
from bloomery.service.http.route import ApiResponse, context_of, does, routes
from bloomery.service.observe.server_figures import ServerFigures
from bloomery.service.parts import Parts

data = routes()
_TAIL = 256 << 10  # bytes of the audit log that are looked at
_ALERTS = 50


@frame.page(f"{PAGES}nodes")
async def show_health(request: Request, user: User | None) -> Response:
    """Nodes and health."""
    listed = any(getattr(route, "path", "") == "/nodes" for route in request.app.routes)
    return frame.render(request, "health.html", user, lists_nodes=listed)


@data.get(f"{PAGES}data/health", openapi_extra=does("look"), include_in_schema=False)
async def health(request: Request) -> Response:
    """The state of this server, and the alerts that the user may see."""
    state, user = request.app.state, request.state.user
    parts, figures = context_of(request), state.server_figures()
    answer = {
        "server": _server(parts, figures, state.not_ready, user),
        "durability": _durability(parts, figures),
        "store": figures.store,
        "alerts": [
            alert.as_dict()
            for alert in parts.alerts.active.values()
            if alert.name is None or user.covers(alert.name)
        ],
        "recent": board_of(request).recent_alerts(user, _ALERTS),
    }
    return ApiResponse(answer)


def _server(
    parts: Parts, figures: ServerFigures, not_ready: Callable[[bool], str], user: User
) -> dict[str, Any]:
    return {
        "version": __version__,
        "now": time.time(),
        "started": figures.started,
        "not_ready": not_ready(True),
        "resp": parts.resp_address,
        "filters": parts.commands.listing.number(user),
        "memory": _native.memory_used(),
        "memory_limit": parts.settings.maxmemory or None,
        "connections": figures.connections,
        "commands": sum(figures.commands.values()),
        "latency": {
            protocol: _quantiles(histogram) for protocol, histogram in figures.latency.items()
        },
        "tls_expires": figures.tls_expires,
    }


def _durability(parts: Parts, figures: ServerFigures) -> dict[str, Any]:
    log, snapshots, writer = parts.engine.log, parts.snapshots, parts.publisher.writer
    return {
        "fsync": parts.settings.fsync,
        "rows": log.seq,
        "unsynced": log.unsynced(time.monotonic()),
        "refusing": None if parts.engine.problem is None else str(parts.engine.problem),
        "late": parts.sequencer.late_since is not None,
        "commit": _quantiles(parts.sequencer.latency),
        "snapshot": {
            "number": snapshots.snapshot_number,
            "at": snapshots.last_save,
            "seconds": snapshots.seconds,
            "running": snapshots.running,
            "problem": None if snapshots.problem is None else str(snapshots.problem),
        },
        "recovery_problems": figures.recovery_problems,
        "registry": {
            "healthy": writer.healthy,
            "behind": writer.behind,
            "lost": writer.lost_samples,
        },
    }


def _quantiles(histogram: _native.Histogram) -> dict[str, float | None]:
    """Within how many seconds half, and 99%, were done; None before the first, or if the last
    bucket has no end."""
    bounds, counts, _ = histogram.read()
    sums = list(accumulate(counts))
    ends = [*bounds, None]
    quantiles = {
        name: next((ends[at] for at, total in enumerate(sums) if total >= share * sums[-1]), None)
        for name, share in (("half", 0.5), ("most", 0.99))
    }
    return quantiles if sums and sums[-1] else dict.fromkeys(quantiles)


@data.get(f"{PAGES}data/audit", openapi_extra=does("server"), include_in_schema=False)
async def audit(request: Request, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Response:
    """The last lines of the audit log, the newest first."""
    lines = await asyncio.to_thread(_tail, audit_file(context_of(request).data), limit)
    return ApiResponse({"lines": lines})


def _tail(path: Path, limit: int) -> list[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            raw = file.read(_TAIL).splitlines()
    except FileNotFoundError:
        return []
    lines = []
    for line in reversed(raw):
        try:
            read = json.loads(line)
        except ValueError:  # the first may be cut
            continue
        lines.append(read)
        if len(lines) == limit:
            break
    return lines
