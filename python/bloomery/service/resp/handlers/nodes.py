"""BF.NODES: the nodes that share a log."""

from __future__ import annotations

from typing import Any

from bloomery.service.resp.client import ClientState
from bloomery.service.resp.table import command


@command("BF.NODES", does="look")
async def nodes(client: ClientState, words: list[bytes]) -> list[Any]:
    """Tell which nodes there are, how far each is, and who decides; none on a server alone."""
    node = client.context.node
    members = [] if node is None else node.members()
    return [{name: _plain(value) for name, value in member.items()} for member in members]


def _plain(value: Any) -> Any:
    return f"{value:.3f}" if isinstance(value, float) else value
