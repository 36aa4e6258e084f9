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
        self.one_connection = True  # does all that is sent together go the same way, in order?

    @classmethod
    def connect(cls, url: str, *, timeout: float) -> Link:
        """Return a link with a client of its own."""
        import redis

        return cls(
            redis.Redis.from_url(url, socket_timeout=timeout, socket_connect_timeout=timeout)
        )

    def close(self) -> None:
        """Let go of the connections."""
        self.client.close()

    def identity(self) -> object:
        """Which server this is: another one after each restart, and after a failover."""
        from redis.exceptions import RedisError

        try:
            info = self.client.info("server")
            replication = self.client.info("replication")
        except RedisError as problem:
            raise unavailable(problem) from problem
        return info.get("run_id"), replication.get("master_replid")

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
