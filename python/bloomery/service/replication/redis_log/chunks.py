"""Snapshots in Redis, as chunks of some megabytes.

Both functions block and have a connection of their own: for a thread, or for a process that was
forked. Chunks go by themselves after a while unless a manifest names their snapshot meanwhile.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from bloomery import errors
from bloomery.redis_client import RedisClient, redis_client
from bloomery.service.replication.redis_log.layout import (
    CHUNK,
    CHUNK_HEAD,
    MOST_CHUNKS,
    Description,
    Keys,
    chunk_checksum,
)

_TTL = 3600  # seconds; more than any snapshot takes to be written
_AHEAD = 3  # chunks that are asked for before they are wanted
_LONGEST_DESCRIPTION = 100


class SnapshotDamaged(errors.CorruptData):
    """A snapshot's chunks are missing, or not as they were written."""


def write_chunks(
    url: str,
    prefix: str,
    id: bytes,
    parts: Iterable[bytes | bytearray | memoryview],
    *,
    ttl: int = _TTL,
    timeout: float = 10.0,
) -> int:
    """Write a snapshot's bytes, given in parts of any size; return how many. StoreUnavailable if
    Redis does not answer, StoreRefused if it is full or otherwise unwilling."""
    keys = Keys(prefix)
    number, size, checksum = 0, 0, 0
    with _client(url, keys, timeout) as client, _connection(client, keys) as connection:
        try:
            for data in _chunks(parts):
                if number == MOST_CHUNKS:
                    raise errors.StoreRefused("a snapshot has too many bytes for the log in Redis")
                head = CHUNK_HEAD.pack(chunk_checksum(id, number, data))
                # Not packed by redis-py, which copies: half of the processor time went there.
                name, length = keys.part(id, number), len(head) + len(data)
                command = (len(name), name, len(b"%d" % ttl), ttl, length, head)
                before = b"*4\r\n$5\r\nSETEX\r\n$%d\r\n%s\r\n$%d\r\n%d\r\n$%d\r\n%s" % command
                connection.send_packed_command([before, data, b"\r\n"], check_health=False)
                connection.read_response()
                number, size = number + 1, size + len(data)
                checksum = zlib.crc32(head, checksum)
            client.set(keys.description(id), Description(number, size, checksum).to_bytes(), ex=ttl)
        except BaseException:
            # A Redis that is full would keep what nobody reads for an hour.
            _drop(client, [keys.part(id, one) for one in range(number + 1)])
            raise
    return size


def _drop(client: Any, names: list[bytes]) -> None:
    with suppress(Exception):  # then they go by themselves
        for name in names:
            client.unlink(name)


def read_chunks(url: str, prefix: str, id: bytes, *, timeout: float = 10.0) -> Iterator[memoryview]:
    """Read a snapshot's bytes, each chunk verified. SnapshotDamaged if some are missing or others
    (also after the first have been returned: what they made is worth nothing then);
    StoreUnavailable if Redis does not answer."""
    keys = Keys(prefix)
    with _client(url, keys, timeout) as client:
        data = client.getrange(keys.description(id), 0, _LONGEST_DESCRIPTION)
        if not data:
            raise SnapshotDamaged("a snapshot is not in Redis")
        try:
            whole = Description.from_bytes(data)
        except errors.CorruptData as problem:
            raise SnapshotDamaged(str(problem)) from None
        names = [keys.part(id, number) for number in range(whole.chunks)]
        _check_sizes(client, names, whole.size)  # nothing larger than that is asked for
        checksum = 0
        for number, chunk in enumerate(_pipelined(client, keys, names)):
            if not isinstance(chunk, bytes) or len(chunk) < CHUNK_HEAD.size:
                raise SnapshotDamaged(f"chunk {number} of a snapshot is not in Redis")
            found = memoryview(chunk)[CHUNK_HEAD.size :]
            if CHUNK_HEAD.pack(chunk_checksum(id, number, found)) != chunk[: CHUNK_HEAD.size]:
                raise SnapshotDamaged(f"the checksum of a snapshot's chunk {number} is wrong")
            checksum = zlib.crc32(chunk[: CHUNK_HEAD.size], checksum)
            yield found
        if checksum != whole.checksum:
            raise SnapshotDamaged("a snapshot's chunks are not those that it was described by")


def _chunks(parts: Iterable[bytes | bytearray | memoryview]) -> Iterator[bytes | memoryview]:
    """The same bytes in pieces of one size, the last but smaller; large parts are not copied."""
    rest = bytearray()
    for part in parts:
        view = memoryview(part).cast("B")
        if rest:
            wanted = CHUNK - len(rest)
            rest += view[:wanted]
            view = view[wanted:]
            if len(rest) < CHUNK:
                continue
            yield bytes(rest)
            rest.clear()
        while len(view) >= CHUNK:
            yield view[:CHUNK]
            view = view[CHUNK:]
        rest += view
    if rest:
        yield bytes(rest)


def _check_sizes(client: Any, names: list[bytes], size: int) -> None:
    left = size + len(names) * CHUNK_HEAD.size
    for first in range(0, len(names), 1000):
        with client.pipeline(transaction=False) as pipeline:
            for name in names[first : first + 1000]:
                pipeline.strlen(name)
            left -= sum(pipeline.execute())
    if left:
        raise SnapshotDamaged("a snapshot's chunks are missing, or longer than they were")


def _pipelined(client: Any, keys: Keys, names: list[bytes]) -> Iterator[Any]:
    """The values of keys, each asked for some time before it is wanted."""
    with _connection(client, keys) as connection:
        for number in range(len(names) + _AHEAD):
            if number < len(names):
                connection.send_command("GET", names[number], check_health=False)
            if number >= _AHEAD:
                yield connection.read_response()


@contextmanager
def _connection(client: Any, keys: Keys) -> Iterator[Any]:
    """A connection to the server that has the keys."""
    if hasattr(client, "get_node_from_key"):
        client = client.get_redis_connection(client.get_node_from_key(keys.log.decode()))
    pool = client.connection_pool
    connection = pool.get_connection()
    try:
        yield connection
    finally:
        connection.disconnect()  # replies may be left if nobody wanted more
        pool.release(connection)


@contextmanager
def _client(url: str, keys: Keys, timeout: float) -> Iterator[Any]:
    """A client of redis-py, whose errors are ours."""
    redis: RedisClient = redis_client(url, "log", for_asyncio=False, timeout=timeout, retries=1)
    exceptions = redis.module.exceptions
    try:
        try:
            redis.client.exists(keys.log)
        except exceptions.MovedError:
            if not redis.switch_to_cluster():  # a URL of one server that is a cluster's node
                raise
        yield redis.client
    except exceptions.MovedError:
        raise errors.StoreUnavailable(f"Redis at {redis.place}: its keys have moved") from None
    except exceptions.ResponseError as problem:
        if str(problem).startswith(("LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN")):
            raise errors.StoreUnavailable(redis.describe(problem)) from None
        raise errors.StoreRefused(redis.describe(problem)) from None
    except redis.failures as problem:
        raise errors.StoreUnavailable(redis.describe(problem)) from None
    finally:
        redis.close()
