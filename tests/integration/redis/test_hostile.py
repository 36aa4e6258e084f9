"""Whatever a server answers, it is an error of ours, and no later call reads the rest of it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest

from bloomery.errors import (
    BloomeryError,
    CorruptData,
    StoreRefused,
    StoreUnavailable,
    UnsupportedVersion,
)
from bloomery.integrations.redis import RedisFilter
from integration.redis.either import Either
from integration.servers import RedisServer
from waiting import PATIENCE


@contextmanager
def liar(server: RedisServer) -> Iterator[tuple[int, list[bytes]]]:
    """A proxy before a Redis; while `lies` has something, that is what clients are told."""
    lies: list[bytes] = []
    listening = socket.create_server(("127.0.0.1", 0))
    ends: list[socket.socket] = [listening]

    def pump(source: socket.socket, to: socket.socket, lying: bool) -> None:
        try:
            while data := source.recv(65_536):
                if lying and lies:
                    data = lies[0]
                to.sendall(data)
        except OSError:
            pass
        finally:
            for one in (source, to):
                with closing(one):
                    pass

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            behind = socket.create_connection(server.address)
            ends.extend((client, behind))
            for arguments in ((client, behind, False), (behind, client, True)):
                threading.Thread(target=pump, args=arguments, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listening.getsockname()[1], lies
    finally:
        for one in ends:
            with closing(one), suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


LIES = [
    b"garbage\r\n",
    b"$-5\r\n",
    b"*99999999999999999999\r\n",
    b"+OK\r\n" * 99,
    b":1\r\n" * 99,
    b"$-1\r\n" * 99,
    b"*0\r\n" * 99,
    b"-MOVED nonsense\r\n" * 99,
    b"-MOVED 1 127.0.0.1:x\r\n" * 99,
    b"-ASK\r\n" * 99,
    b"-\r\n" * 99,
    b"-ERR no\r\n" * 99,
    b"-OOM no\r\n" * 99,
    b"*1\r\n-ERR in a list\r\n" * 99,
    b"*1\r\n" * 50,
    b"\x00" * 200,
    b"$3\r\n\xff\xfe\xfd\r\n" * 99,
    b":-1\r\n" * 99,
    b"(12345678901234567890123\r\n" * 99,
]


# Most lies are waited out. A busy machine may take as long for the truth.
TIMEOUT = 0.1


def truth(ask: Callable[[], Any]) -> Any:
    """What is answered; asked again where there was no answer, but its time that ended."""
    until = time.monotonic() + PATIENCE
    while True:
        began = time.monotonic()
        try:
            return ask()
        except StoreUnavailable:
            if not began + TIMEOUT <= time.monotonic() < until:
                raise


def test_lies(either: Either, redis_server: RedisServer) -> None:
    """Every lie is an error of ours, and the next call is answered by the truth."""
    with liar(redis_server) as (port, lies):
        url = f"redis://127.0.0.1:{port}"
        either.create(url, "seen", 1000, timeout=PATIENCE).update(range(100))
        made = truth(lambda: either.open(url, "seen", timeout=TIMEOUT))
        for lie in LIES:
            for use in (
                lambda: made.contains_many(range(50)),
                lambda: made.add(7),
                made.info,
                lambda: made.expire(100),
                lambda: either.open(url, "seen", timeout=TIMEOUT),
            ):
                lies[:] = [lie]
                with suppress(BloomeryError):
                    use()
                lies.clear()
                assert all(truth(lambda: made.contains_many(range(100)))), lie


def test_a_lie_is_never_a_no(redis_server: RedisServer) -> None:
    """No lie makes a key that was added a no: short, empty and missing strings are errors."""
    with liar(redis_server) as (port, lies):
        made = RedisFilter.create(f"redis://127.0.0.1:{port}", "seen", 1000, timeout=5)
        made.update(range(100))
        whole = made.nbytes + 1
        for length in (0, whole - 1, whole + 1, -1):
            lies[:] = [b":%d\r\n" % length + b"$64\r\n" + b"\0" * 64 + b"\r\n"]
            with pytest.raises(BloomeryError):
                assert 5 not in made
        lies[:] = [b":%d\r\n$0\r\n\r\n" % whole]
        with pytest.raises(CorruptData):
            assert 5 not in made
        made.close()


def good(server: RedisServer) -> dict[str, Any]:
    """The configuration of a filter that is there."""
    with server.client() as client:
        found: dict[str, Any] = json.loads(client.get("{seen}:config") or b"{}")
        return found


CHANGES: list[dict[str, Any]] = [
    {"header": "00"},
    {"header": "zz"},
    {"header": 5},
    {"header": "ff" * 64},
    {"shards": 0},
    {"shards": "2"},
    {"shards": 1 << 30},
    {"shards": True},
    {"kind": "other"},
    {"kind": 5},
    {"backend": "x"},
    {"backend": ["bits"]},
    {"made": 5},
    {"window": "x"},
    {"window": -1},
    {"generations": 2.5},
    {"extra": 5},
]


def test_configurations_nobody_wrote(either: Either, redis_server: RedisServer) -> None:
    """A configuration that is none of ours is CorruptData, in words, when opened or created."""
    either.create(redis_server.url, "seen", 1000)
    fine = good(redis_server)
    bad: list[bytes] = [json.dumps(fine | change).encode() for change in CHANGES]
    bad += [b"", b"{", b"[]", b"5", b"\xff\xfe", b"[" * 9000, b"x" * 100_000, b"null", b"{}"]
    for config in bad:
        redis_server.run("SET", "{seen}:config", config)
        with pytest.raises(CorruptData, match="configuration of filter 'seen'") as caught:
            either.open(redis_server.url, "seen")
        assert len(str(caught.value)) < 400
        with pytest.raises(CorruptData):
            either.create(redis_server.url, "seen", 1000)
    redis_server.run("SET", "{seen}:config", json.dumps(fine | {"bloomery": 2}).encode())
    with pytest.raises(UnsupportedVersion, match="use a newer one"):
        either.open(redis_server.url, "seen")


def test_refusals_are_read_to_the_end(either: Either, redis_server: RedisServer) -> None:
    """After an error in the middle of a batch the connection is in step."""
    client = either.client(redis_server.url, single_connection_client=False)
    made = either.create(client, "seen", 1000)
    redis_server.run("SET", "{seen}:bits", b"")
    redis_server.run("DEL", "{seen}:bits")
    redis_server.run("LPUSH", "{seen}:bits", "x")
    for _ in range(3):
        with pytest.raises(StoreRefused, match="another value"):
            made.update(range(100))
        assert either.do(client.ping()) is True
