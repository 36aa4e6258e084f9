"""What is sent again and what is not: by commands that tell how often they were done."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import redis

from bloomery.errors import StoreUnavailable
from bloomery.integrations.redis.wire.aiolink import AsyncLink
from bloomery.integrations.redis.wire.flow import Ask, packed
from bloomery.integrations.redis.wire.link import Link
from integration.redis.either import Either
from integration.servers import RedisCluster, RedisServer

KEY = b"{counted}:3"


def linked(either: Either, redis: Any, **options: Any) -> Any:
    """A link of the right kind; closed with its client."""
    made = AsyncLink(redis, **options) if either.loop else Link(redis, **options)
    either.filters.append(made)
    return made


def counting(times: int, *, again: bool) -> list[Ask]:
    """So many INCRs."""
    return [Ask(KEY, packed(("INCR", KEY)) * times, times, again)]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("half", [False, True])
def test_a_slot_that_moves(
    either: Either, redis_cluster: RedisCluster, again: bool, half: bool
) -> None:
    """Commands that were redirected were not done, and are done once where they lead."""
    link = linked(either, either.cluster(redis_cluster.url))
    assert either.do(link.exchange(counting(3, again=again))) == [[1, 2, 3]]
    source = redis_cluster.master_of(KEY)
    to = next(one for one in redis_cluster.masters() if one is not source)
    redis_cluster.begin_move(KEY, to)
    if not half:
        redis_cluster.finish_move(KEY, to)
    assert either.do(link.exchange(counting(3, again=again))) == [[4, 5, 6]]
    both = [*counting(2, again=again), Ask(b"other", packed(("PING",)), 1, again)]
    assert either.do(link.exchange(both)) == [[7, 8], [b"PONG"]]


@contextmanager
def cutting(server: RedisServer, times: int) -> Iterator[int]:
    """A proxy that passes on what it is sent and cuts the line before the answer, so many times;
    then it does as it should. What a client sends when it connects is answered."""
    listening = socket.create_server(("127.0.0.1", 0))
    open_ones: list[socket.socket] = [listening]
    left = [times]

    def serve(client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(server.address) as behind:
            while asked := client.recv(65_536):
                behind.sendall(asked)
                answer = behind.recv(65_536)
                if b"INCR" in asked and left[0]:
                    left[0] -= 1
                    return
                client.sendall(answer)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                open_ones.append(client)
                threading.Thread(target=serve, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        for one in open_ones:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def test_an_answer_that_is_lost(either: Either, redis_server: RedisServer) -> None:
    """What may be done twice is sent until it is answered; the rest once, and the error says so."""
    with cutting(redis_server, 2) as port:
        link = linked(either, f"redis://127.0.0.1:{port}")
        assert either.do(link.exchange(counting(1, again=True))) == [[3]]
    redis_server.run("DEL", KEY)
    with cutting(redis_server, 1) as port:
        link = linked(either, f"redis://127.0.0.1:{port}")
        with pytest.raises(StoreUnavailable, match="may or may not have been done"):
            either.do(link.exchange(counting(1, again=False)))
        assert redis_server.run("GET", KEY) == b"1"
        assert either.do(link.exchange(counting(1, again=False))) == [[2]]


def test_a_node_that_is_not_known(either: Either, redis_cluster: RedisCluster) -> None:
    """A client that knows a cluster as it was finds a slot that has moved twice meanwhile."""
    link = linked(either, either.cluster(redis_cluster.url))
    either.do(link.exchange(counting(1, again=False)))
    for _ in range(2):
        source = redis_cluster.master_of(KEY)
        to = next(one for one in redis_cluster.masters() if one is not source)
        redis_cluster.move_slot(KEY, to)
    assert either.do(link.exchange(counting(1, again=False))) == [[2]]


def test_connections_go_back(redis_server: RedisServer) -> None:
    """Whatever happens, a pool of one connection has it for the next call."""
    pool = redis.BlockingConnectionPool.from_url(redis_server.url, max_connections=1, timeout=2)
    with redis.Redis(connection_pool=pool) as client:
        link = Link(client, timeout=2)
        for _ in range(3):
            link.exchange(counting(1, again=False))
            [[problem]] = link.exchange([Ask(KEY, packed(("GETRANGE", KEY)), 1)])
            assert isinstance(problem, redis.ResponseError)
        link.exchange([Ask(KEY, packed(("CLIENT", "REPLY", "ON")), 1)])
        assert client.get(KEY) == b"3"
    pool.disconnect()
