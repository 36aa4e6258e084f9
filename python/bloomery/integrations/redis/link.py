"""Round trips to Redis, in the caller's thread."""

from __future__ import annotations

from typing import Any, TypeVar

from bloomery.integrations.redis.failures import unavailable
from bloomery.integrations.redis.trips import Ask, Flow

__all__ = ["Link"]

T = TypeVar("T")


class Link:
    """A client of redis-py that is given packed commands: packing each in Python took most of the
    time of a pipeline."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def run(self, flow: Flow[T]) -> T:
        """Make the round trips of a flow."""
        try:
            asks = next(flow)
            while True:
                try:
                    replies = self.exchange(asks)
                except BaseException as problem:  # noqa: BLE001  # the flow's to judge
                    asks = flow.throw(problem)
                else:
                    asks = flow.send(replies)
        except StopIteration as end:
            value: T = end.value
            return value

    def exchange(self, asks: list[Ask]) -> list[list[Any]]:
        """Send everything, then read the replies to each."""
        from redis.exceptions import ConnectionError, TimeoutError

        pool = self.client.connection_pool
        try:
            connection = pool.get_connection()
            try:
                connection.send_packed_command([ask.data for ask in asks])
                return [self._read(connection, ask.replies) for ask in asks]
            finally:
                pool.release(connection)
        except (ConnectionError, TimeoutError) as problem:
            raise unavailable(problem) from problem

    @staticmethod
    def _read(connection: Any, count: int) -> list[Any]:
        from redis.exceptions import ResponseError

        read = connection.read_response
        found: list[Any] = []
        while len(found) < count:
            try:
                found.append(read(disable_decoding=True))
            except ResponseError as problem:
                found.append(problem)
        return found
