"""Who is to answer: a node's copy, or Redis, which knows at once what any node has acknowledged."""

from __future__ import annotations

from typing import Any

from starlette.datastructures import QueryParams

from bloomery import errors

__all__ = ["CONSISTENCY", "HEADER", "consistency"]

HEADER = b"bloomery-consistency"
CONSISTENCY = {
    "name": "consistency",
    "in": "query",
    "required": False,
    "schema": {"enum": ["local", "shared"]},
    "description": "Of a node: its copy (local), or Redis (shared). Without it, store-consistency.",
}


def consistency(scope: Any) -> bool | None:
    """Whether a request wants Redis to be asked; None: it does not say."""
    wanted = QueryParams(scope["query_string"]).get("consistency")
    if wanted not in (None, "local", "shared"):
        raise errors.InvalidRequest(
            f"consistency is {wanted[:60]!r}, must be local (this node's copy) or shared (Redis)"
        )
    return None if wanted is None else wanted == "shared"
