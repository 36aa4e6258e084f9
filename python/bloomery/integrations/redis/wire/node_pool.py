"""The connections of a cluster's node, for asyncio."""

from __future__ import annotations

from typing import Any

__all__ = ["AsyncNodePool"]


class AsyncNodePool:
    """A node of a cluster, used as a pool of connections is: redis-py's own hands out connections
    that have ended, or are out of step."""

    def __init__(self, node: Any) -> None:
        self.node = node

    async def get_connection(self) -> Any:
        """Return a connection that is open, and has nothing left to be read."""
        connection = self.node.acquire_connection()
        try:
            if connection.is_connected and await _is_stale(connection):
                await connection.disconnect(nowait=True)
            if not connection.is_connected:
                await connection.connect()
        except BaseException:
            self.node.release(connection)
            raise
        return connection

    async def release(self, connection: Any) -> None:
        """Let the next one have it."""
        self.node.release(connection)


async def _is_stale(connection: Any) -> bool:
    try:
        return bool(await connection.can_read())
    except Exception:  # noqa: BLE001  # whatever it is, this one is not to be used
        return True
