"""What clients can see of all filters of a server, to compare two moments."""

from __future__ import annotations

import hashlib
from typing import Any

import httpx

from integration.http.asking import at
from integration.resp.wire import Connection
from integration.servers import BloomeryServer

# Counted since the start of the process, or sampled by the clock.
_VOLATILE = ("adds", "checks", "maybes", "sample", "lookups", "rebuild")
Exports = dict[str, dict[str, Any]]  # by filter, then by what it is


def exports(server: BloomeryServer, *, prefix: str = "") -> Exports:
    """Return the saved file, item counts, settings and expiry of each filter whose name starts with
    `prefix`."""
    with Connection(server.resp_port) as connection, httpx.Client(timeout=60) as http:
        names = sorted(name.decode() for name in connection.ask("KEYS", f"{prefix}*"))
        return {name: _export(connection, http, server.url, name) for name in names}


def _export(connection: Connection, http: httpx.Client, url: str, name: str) -> dict[str, Any]:
    file = http.get(f"{url}{at(name)}/file")
    assert file.status_code == 200, file.text
    described = http.get(f"{url}{at(name)}").json()
    family = "CF" if connection.ask("TYPE", name) == b"MBbloomCF" else "BF"
    found = {
        "bytes": len(file.content),
        "sha256": hashlib.sha256(file.content).hexdigest()[:16],
        "PEXPIRETIME": connection.ask("PEXPIRETIME", name),
        f"{family}.INFO": connection.ask(f"{family}.INFO", name),
    }
    if family == "BF":
        found["BF.CARD"] = connection.ask("BF.CARD", name)
    return found | {field: described[field] for field in described if field not in _VOLATILE}


def differences(before: Exports, after: Exports) -> list[str]:
    """Return a line for each filter that is on one side only, and for each fact that differs."""
    lines = [f"{name}: is missing" for name in before if name not in after]
    lines += [f"{name}: is new" for name in after if name not in before]
    for name in before.keys() & after.keys():
        one, other = before[name], after[name]
        lines += [
            f"{name}: {fact} was {one.get(fact)}, is {other.get(fact)}"
            for fact in one.keys() | other.keys()
            if one.get(fact) != other.get(fact)
        ]
    return sorted(lines)
