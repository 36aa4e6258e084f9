"""How many connections the system lets us have: each is an open file."""

from __future__ import annotations

import contextlib

from bloomery.service.config.settings import Settings
from bloomery.service.network.listening import MOST_HANDSHAKES

__all__ = ["allow_files"]

_OTHERS = 64  # files that are no connections: the log, the registry, snapshots


def allow_files(settings: Settings) -> int:
    """Let as many connections be open as both doors take, as far as the system lets us (many give
    a process 1024 files until it asks for more); how many there can be."""
    handshakes = 2 * MOST_HANDSHAKES if settings.tls_cert else 0
    wanted = settings.maxclients + settings.http_maxclients + handshakes + _OTHERS
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return wanted - _OTHERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted - _OTHERS
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OTHERS
