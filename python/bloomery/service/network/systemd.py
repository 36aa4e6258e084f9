"""Notifies systemd of the server's state (`Type=notify`), by a datagram to the socket it names."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(*states: str) -> None:
    """Send `READY=1` and the like; nothing where nobody listens."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if not where.startswith(("/", "@")):
        return
    address = "\0" + where[1:] if where.startswith("@") else where
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender,
    ):
        sender.setblocking(False)
        sender.sendto("\n".join(states).encode(), address)


def watched() -> bool:
    """Does systemd want to hear WATCHDOG=1 from this process?"""
    ours = os.environ.get("WATCHDOG_PID") in (None, str(os.getpid()))
    return ours and os.environ.get("WATCHDOG_USEC", "").isdigit()
