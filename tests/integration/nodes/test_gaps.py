"""A node knows when a part of the stream went before it was read."""

from types import SimpleNamespace
from typing import Any

from bloomery.integrations.redis.link import Link
from bloomery.service.store.catalogue import Catalogue
from bloomery.service.store.stream import START
from bloomery.service.store.tail import Tail
from integration.servers import RedisServer


def test_a_trimmed_stream_has_a_gap(redis_server: RedisServer) -> None:
    """Entries that were trimmed unread are a gap, also where nothing is left; trimmed after they
    were read they are none, and a stream that was never trimmed has none from its start."""
    catalogue = Catalogue("gaps", 1000)
    node: Any = SimpleNamespace(catalogue=catalogue)
    tail, link = Tail(node), Link(redis_server.url)

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
