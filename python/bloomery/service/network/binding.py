"""The addresses that the server binds: loopback, or, with users and TLS, any other."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable

from bloomery import errors
from bloomery.service.config.settings import Settings


def addresses(host: str) -> list[str]:
    """Return the addresses of a host, as they are bound; InvalidParameter if it has none."""
    try:
        resolved = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise errors.InvalidParameter(
            f"host is {host!r}, must be a name or an address of this machine: 127.0.0.1, ::1, "
            "0.0.0.0 for all of them"
        ) from None
    return list(dict.fromkeys(str(address[4][0]) for address in resolved))


def is_loopback(address: str) -> bool:
    """Can only this machine reach it?"""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def require(settings: Settings, users: bool, say: Callable[..., None]) -> list[str]:
    """Return the addresses to serve at; InvalidConfiguration if others could reach them and are not
    kept out, and a warning if they can listen in."""
    bound = addresses(settings.host)
    if problems := check(settings, bound, users=users):
        raise errors.InvalidConfiguration(*problems)
    reached = [address for address in bound if not is_loopback(address)]
    if reached and not settings.tls_cert:
        say("others can listen in: there is no TLS", level="warning", at=", ".join(reached))
    return bound


def check(settings: Settings, bound: list[str], *, users: bool) -> list[str]:
    """Return what has to be done before others may reach the server, a line each; nothing if all
    is well."""
    if all(is_loopback(address) for address in bound):
        return []
    reached = f"host is {settings.host}, which others than this machine can reach"
    problems = []
    if not users:
        problems.append(
            f"{reached}, and there are no users: bloomery user add NAME --role admin --data "
            f"{settings.data}; or --host 127.0.0.1"
        )
    if not settings.tls_cert and not settings.insecure:
        problems.append(
            f"{reached}, and there is no TLS: --tls-cert FILE --tls-key FILE; or --insecure, where "
            "nobody can listen in; or --host 127.0.0.1"
        )
    return problems
