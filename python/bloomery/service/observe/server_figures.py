"""The metrics of the server as a whole."""

from __future__ import annotations

from dataclasses import dataclass

from bloomery import _native


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """What only the server as a whole knows, at one moment."""

    ready: bool
    started: float
    recovery_problems: int
    tls_expires: float | None
    connections: dict[str, int]  # by protocol
    connections_refused: dict[str, int]
    commands: dict[str, int]  # of the Redis protocol, by what did them
    store: dict[str, float | None]  # of a node; empty without a store
    latency: dict[str, _native.Histogram]  # of requests, by protocol
