"""The nodes of a shared log, as each tells the others of itself now and then."""

from __future__ import annotations

import json
from typing import Any

from bloomery.service.replication.core.ledger import Ledger

# What a node tells: the types that each field may have, and its value if it was not told.
_FIELDS: dict[str, tuple[tuple[type, ...], Any]] = {
    "resp": ((str,), ""),
    "http": ((str,), ""),
    "version": ((str,), ""),
    "position": ((str,), ""),
    "lag_seconds": ((int, float, type(None)), None),
    "requests_a_second": ((int, float), 0.0),
}


def list_members(ledger: Ledger, here: bytes, version: int) -> list[dict[str, Any]]:
    """The nodes that were heard of within a minute, ready for JSON. `here`: the node that asks;
    `version`: which operations it knows."""
    present = ledger.present()
    newest = max((member.version for member in present.values()), default=version)
    return [
        {
            **_parse(member.about),
            "id": node.hex(),
            "here": node == here,
            "holds_lease": node == ledger.holder,
            "operations": member.version,
            "older": member.version < newest,
            "since": member.since / 1000,
            "heard_seconds_ago": max(0.0, (ledger.latest_ms - member.heard) / 1000),
        }
        for node, member in present.items()
    ]


def _parse(about: bytes) -> dict[str, Any]:
    """What a node told of itself; without what it cannot be."""
    try:
        told = json.loads(about or b"{}")
    except ValueError:
        told = {}
    if not isinstance(told, dict):
        told = {}
    return {
        name: told[name] if name in told and isinstance(told[name], types) else missing
        for name, (types, missing) in _FIELDS.items()
    }
