"""A node knows when a part of the stream went before it was read."""

from types import SimpleNamespace
from typing import Any

from bloomery.service.replication.catalogue import Catalogue
from bloomery.service.replication.shared import Recent
from bloomery.service.replication.stream import START
from bloomery.service.replication.tail import Tail

from bloomery.integrations.redis.wire.link import Link
from integration.servers import RedisServer


def test_a_trimmed_stream_has_a_gap(redis_server: RedisServer) -> None:
    """Entries that were trimmed unread are a gap, also where nothing is left; trimmed after they
    were read they are none, and a stream that was never trimmed has none from its start."""
    catalogue = Catalogue("gaps", 1000)
    node: Any = SimpleNamespace(catalogue=catalogue)
    unused: Any = None
    tail, link = Tail(node, unused, unused), Link(redis_server.url)

    def missed(position: bytes) -> tuple[bool, bool]:
        tail.position = position
        return link.run(tail._missed())

    with redis_server.client() as client:
        client.delete(catalogue.stream)
        try:
            ids = [client.xadd(catalogue.stream, {"w": b"x", "d": b""}) for _ in range(6)]
            assert missed(START) == missed(ids[0]) == missed(ids[5]) == (False, False)
            client.xtrim(catalogue.stream, maxlen=3, approximate=False)
            assert missed(START) == missed(ids[0]) == missed(ids[1]) == (True, False)
            assert missed(ids[3]) == missed(ids[5]) == (False, False)
            client.xtrim(catalogue.stream, maxlen=0, approximate=False)
            assert missed(ids[4]) == (True, False)
            assert missed(ids[5]) == (False, False)
            assert missed(b"9999999999999-0") == (False, True)
        finally:
            link.close()
            client.delete(catalogue.stream)


def test_what_is_trimmed_while_all_is_loaded_is_loaded(redis_server: RedisServer) -> None:
    """Loading takes seconds: entries that came and went meanwhile are in no bits that were read."""
    catalogue = Catalogue("gaps", 1000)
    link, loads = Link(redis_server.url), 0
    with redis_server.client() as client:

        def add(count: int) -> None:
            for _ in range(count):
                client.xadd(catalogue.stream, {"w": b"12345678", "d": b""})

        def load() -> None:
            nonlocal loads
            loads += 1
            if loads == 1:
                add(6)
                client.xtrim(catalogue.stream, maxlen=2, approximate=False)

        node: Any = SimpleNamespace(
            catalogue=catalogue,
            tail_link=link,
            recent=Recent(60),
            damaged=False,
            down_since=None,
            ask=lambda *_: None,
            call=lambda *_: None,
            found=None,
        )
        loader: Any = SimpleNamespace(identify=lambda: "one", load=load)
        mirror: Any = SimpleNamespace(take=None)
        tail = Tail(node, mirror, loader)
        client.delete(catalogue.stream)
        try:
            add(3)
            for _ in range(3):
                tail._follow()
            assert loads == 2
        finally:
            link.close()
            client.delete(catalogue.stream)
