"""Round trips to Redis, on an event loop."""

from __future__ import annotations

from typing import Any, TypeVar

from bloomery.integrations.redis.failures import unavailable
from bloomery.integrations.redis.trips import Ask, Flow

__all__ = ["AsyncLink"]

T = TypeVar("T")


class AsyncLink:
    """The same as `Link`, with a client of redis.asyncio."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def run(self, flow: Flow[T]) -> T:
        """Make the round trips of a flow."""
        try:
            asks = next(flow)
            while True:
                try:
                    replies = await self.exchange(asks)
                except BaseException as problem:  # noqa: BLE001  # the flow's to judge
                    asks = flow.throw(problem)
                else:
                    asks = flow.send(replies)
        except StopIteration as end:
            value: T = end.value
            return value

    async def exchange(self, asks: list[Ask]) -> list[list[Any]]:
        """Send everything, then read the replies to each."""
        from redis.exceptions import ConnectionError, TimeoutError

        pool = self.client.connection_pool
        try:
            connection = await pool.get_connection()
            try:
                await connection.send_packed_command(b"".join(ask.data for ask in asks))
                return [await self._read(connection, ask.replies) for ask in asks]
            finally:
                await pool.release(connection)
        except (ConnectionError, TimeoutError) as problem:
            raise unavailable(problem) from problem

    @staticmethod
    async def _read(connection: Any, count: int) -> list[Any]:
        from redis.exceptions import ResponseError

        read = connection.read_response
        found: list[Any] = []
        while len(found) < count:
            try:
                found.append(await read(disable_decoding=True))
            except ResponseError as problem:
                found.append(problem)
        return found
