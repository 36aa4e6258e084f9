"""Snapshots in Redis, as chunks of some megabytes.

Both functions block and have a connection of their own: for a thread, or for a process that was
forked. Chunks go by themselves after a while unless a manifest names their snapshot meanwhile.
"""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from bloomery import errors
from bloomery.redis_client import RedisClient, redis_client
from bloomery.service.replication.redis_log.layout import (
    CHUNK,
    CHUNK_HEAD,
    MOST_CHUNKS,
    LogKeys,
    SnapshotDescription,
    chunk_checksum,
)

_TTL = 3600  # seconds; more than any snapshot takes to be written
_TIMEOUT = 10.0  # seconds that Redis has for an answer
_AHEAD = 3  # chunks that are asked for before they are wanted
_LONGEST_DESCRIPTION = 100


class SnapshotDamaged(errors.CorruptData):
    """A snapshot's chunks are missing, or not as they were written."""


def write_chunks(
    url: str, prefix: str, id: bytes, parts: Iterable[bytes | bytearray | memoryview]
) -> int:
    """Write a snapshot's bytes, given in parts of any size; return how many. StoreUnavailable if
    Redis does not answer, StoreRefused if it is full or otherwise unwilling."""
    keys = LogKeys(prefix)
    number, size, checksum = 0, 0, 0
    with _client(url, keys, _TIMEOUT) as client, _connection(client, keys) as connection:
        try:
            for data in _chunks(parts):
                if number == MOST_CHUNKS:
                    raise errors.StoreRefused("a snapshot has too many bytes for the log in Redis")
                head = CHUNK_HEAD.pack(chunk_checksum(id, number, data))
                # Not packed by redis-py, which copies: half of the processor time went there.
                name, length = keys.part(id, number), len(head) + len(data)
                command = (len(name), name, len(b"%d" % _TTL), _TTL, length, head)
                before = b"*4\r\n$5\r\nSETEX\r\n$%d\r\n%s\r\n$%d\r\n%d\r\n$%d\r\n%s" % command
                connection.send_packed_command([before, data, b"\r\n"], check_health=False)
                connection.read_response()
                number, size = number + 1, size + len(data)
                checksum = zlib.crc32(head, checksum)
            client.set(
                keys.description(id),
                SnapshotDescription(number, size, checksum).to_bytes(),
                ex=_TTL,
            )
        except BaseException:
            # A Redis that is full would keep what nobody reads for an hour.
            _drop(client, [keys.part(id, part) for part in range(number + 1)])
            raise
    return size


def _drop(client: Any, names: list[bytes]) -> None:
    with suppress(Exception):  # then they go by themselves
        for name in names:
            client.unlink(name)


def read_chunks(
    url: str, prefix: str, id: bytes, *, timeout: float = _TIMEOUT
) -> Iterator[memoryview]:
    """Read a snapshot's bytes, each chunk verified. SnapshotDamaged if some are missing or others
    (also after the first have been returned: what they made is worth nothing then);
    StoreUnavailable if Redis does not answer."""
    keys = LogKeys(prefix)
    with _client(url, keys, timeout) as client:
        data = client.getrange(keys.description(id), 0, _LONGEST_DESCRIPTION)
        if not data:
            raise SnapshotDamaged("a snapshot is not in Redis")
        try:
            whole = SnapshotDescription.from_bytes(data)
        except errors.CorruptData as problem:
            raise SnapshotDamaged(str(problem)) from None
        names = [keys.part(id, number) for number in range(whole.chunks)]
        sizes = _sizes(client, names)
        if sum(sizes) != whole.size + len(names) * CHUNK_HEAD.size or 0 in sizes:
            raise SnapshotDamaged("a snapshot's chunks are missing, or not as long as they were")
        checksum = 0
        for number, chunk in enumerate(_values(client, keys, names, sizes)):
            body = memoryview(chunk)[CHUNK_HEAD.size : sizes[number]]
            head = bytes(chunk[: CHUNK_HEAD.size])
            if CHUNK_HEAD.pack(chunk_checksum(id, number, body)) != head:
                raise SnapshotDamaged(f"the checksum of a snapshot's chunk {number} is wrong")
            checksum = zlib.crc32(head, checksum)
            yield body
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


def _sizes(client: Any, names: list[bytes]) -> list[int]:
    """The lengths of values."""
    sizes: list[int] = []
    for first in range(0, len(names), 1000):
        with client.pipeline(transaction=False) as pipeline:
            for name in names[first : first + 1000]:
                pipeline.strlen(name)
            sizes += pipeline.execute()
    return sizes


def _values(
    client: Any, keys: LogKeys, names: list[bytes], sizes: list[int]
) -> Iterator[bytes | bytearray]:
    """Values of known lengths, each asked for some time before it is wanted; SnapshotDamaged if one
    has another length by now."""
    with _connection(client, keys) as connection:
        read = _reader(connection)
        for number in range(len(names) + _AHEAD):
            if number < len(names):
                connection.send_command("GET", names[number], check_health=False)
            if number >= _AHEAD:
                yield read(sizes[number - _AHEAD])


def _reader(connection: Any) -> Callable[[int], bytes | bytearray]:
    """What reads a value of a length from a connection: from the socket if it is a plain one, a
    whole chunk at a time. By redis-py, 64 KiB at a time, it took half as much processor time
    again."""
    sock: Any = connection._sock  # redis-py has no public name for it

    def read_plain(size: int) -> bytearray:
        expected = b"$%d\r\n" % size
        # No reply is shorter than its first 5 bytes (`$-1`: there is none), so this does not hang.
        for part in (expected[:5], expected[5:]):
            if _received(sock, len(part)) != part:
                raise SnapshotDamaged("a chunk of a snapshot has changed while it was read")
        return _received(sock, size + 2)

    def read_reply(size: int) -> bytes:
        reply = connection.read_response()
        if not isinstance(reply, bytes) or len(reply) != size:
            raise SnapshotDamaged("a chunk of a snapshot has changed while it was read")
        return reply

    seconds = sock.gettimeout()
    if type(sock) is not socket.socket or not seconds:
        return read_reply  # TLS
    # Blocking, with a time limit that the kernel keeps: Python would look after each packet.
    sock.settimeout(None)
    limit = struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    return read_plain


def _received(sock: socket.socket, size: int) -> bytearray:
    """So many bytes from a socket that blocks."""
    data, at = bytearray(size), 0
    while at < size:
        got = sock.recv_into(memoryview(data)[at:], size - at, socket.MSG_WAITALL)
        if not got:
            raise ConnectionResetError("the server closed the connection")
        at += got
    return data


@contextmanager
def _connection(client: Any, keys: LogKeys) -> Iterator[Any]:
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
def _client(url: str, keys: LogKeys, timeout: float) -> Iterator[Any]:
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
