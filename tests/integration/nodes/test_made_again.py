"""A filter that one node drops, and makes again, while another has not yet heard of it: whatever is
asked of that other is done as on a server alone, to the filter that has the name by then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import redis

from integration.nodes.fleet import Fleet
from integration.nodes.proxy import Proxy
from integration.servers import RedisServer, wait_until

MANY = [f"key {number}" for number in range(5000)]  # more than native code takes in one command
SLOW = 2000.0  # bytes a second


class Late:
    """Two nodes, of which the first hears late of what the second does."""

    def __init__(self, fleet: Fleet, proxy: Proxy) -> None:
        self.fleet, self._proxy = fleet, proxy
        self.late, self.other = fleet.client(0), fleet.client(1)
        self.strong = fleet.client(1, strong=True)

    def make(self, name: str = "f") -> None:
        """Have the other node make a filter."""
        self.other.execute_command("BF.RESERVE", name, 1e-6, 20_000, "KIND", "bloom")

    @contextmanager
    def unheard(self) -> Iterator[None]:
        """What is done meanwhile the first node knows of some tenths of a second later."""
        known = [self.late.execute_command("BF.EXISTS", "f", key) for key in ("old", "alice")]
        assert known == [1, 0]
        self._proxy.bytes_a_second = SLOW
        yield
        assert self.late.execute_command("BF.EXISTS", "f", "old") == 1  # still the one of before

    def mend(self) -> None:
        """Let news come as they are."""
        self._proxy.bytes_a_second = None

    def there(self, key: str, name: str = "f") -> bool:
        """Whether a key was added, as all know."""
        return bool(self.strong.execute_command("BF.EXISTS", name, key))

    def http(self, method: str, path: str, **options: Any) -> httpx.Response:
        """What the late node answers."""
        return httpx.request(method, f"{self.fleet.nodes[0].url}/filters{path}", **options)


@pytest.fixture(scope="module")
def _late(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    server: RedisServer = request.getfixturevalue("_redis")
    server.ask(b"FLUSHALL\r\n")
    with (
        Proxy(server.address) as proxy,
        Fleet(tmp_path_factory.mktemp("late"), [proxy.url, server.url]) as fleet,
    ):
        yield Late(fleet, proxy)


@pytest.fixture
def late(_late: Late) -> Iterator[Late]:
    """Two nodes that know of `f`, with `old` in it."""
    _late.make()
    _late.other.execute_command("BF.ADD", "f", "old")
    assert wait_until(lambda: _late.late.execute_command("BF.EXISTS", "f", "old") == 1)
    try:
        yield _late
    finally:
        _late.mend()
        _late.other.flushall()
        assert wait_until(lambda: _late.late.dbsize() == 0)


ADDS: dict[str, tuple[Any, ...]] = {
    "one": ("BF.ADD", "f", "alice"),
    "some": ("BF.MADD", "f", "alice", "old"),
    "many": ("BF.MADD", "f", "alice", *MANY),
    "insert": ("BF.INSERT", "f", "ITEMS", "alice"),
    "only there": ("BF.INSERT", "f", "NOCREATE", "ITEMS", "alice"),
}


@pytest.mark.parametrize("words", ADDS.values(), ids=ADDS)
def test_keys_go_to_the_new_filter(late: Late, words: tuple[Any, ...]) -> None:
    """And are new there, also those that the old one had."""
    with late.unheard():
        late.other.delete("f")
        late.make()
    told = late.late.execute_command(*words)
    assert told == 1 or set(told) == {1}
    assert late.there("alice")
    assert late.there("old") == ("old" in words)


def test_each_reply_of_a_pipeline_has_its_place(late: Late) -> None:
    """Of commands that were done at once, and again, and behind them."""
    late.make(name="g")
    assert wait_until(lambda: late.late.exists("g"))
    with late.unheard():
        late.other.delete("f")
        late.make()
    pipeline = late.late.pipeline(transaction=False)
    for words in ("ADD f old", "ADD g old", "MADD f old alice", "EXISTS f alice", "CARD f"):
        pipeline.execute_command(*f"BF.{words}".split())
    assert pipeline.execute() == [1, 1, [0, 1], 1, 2]


def test_a_filter_that_is_gone_is_made_where_that_is_the_rule(late: Late) -> None:
    """BF.ADD makes one; NOCREATE and HTTP do not."""
    with late.unheard():
        late.other.delete("f")
    with pytest.raises(redis.ResponseError, match="not found"):
        late.late.execute_command("BF.INSERT", "f", "NOCREATE", "ITEMS", "alice")
    late.mend()
    late.make()
    late.other.execute_command("BF.ADD", "f", "old")
    assert wait_until(lambda: late.late.execute_command("BF.EXISTS", "f", "old") == 1)
    with late.unheard():
        late.other.delete("f")
    assert late.late.execute_command("BF.ADD", "f", "alice") == 1
    assert late.there("alice")
    assert not late.there("old")


def test_over_http(late: Late) -> None:
    """Keys, a stream of them, and 404 where there is none any more."""
    with late.unheard():
        late.other.delete("f")
        late.make()
    told = late.http("POST", "/f/add", json={"keys": ["old", "alice"]})
    assert told.json() == {"new": [True, True]}
    late.mend()
    assert wait_until(lambda: late.late.execute_command("BF.EXISTS", "f", "alice") == 1)
    late._proxy.bytes_a_second = SLOW
    late.other.delete("f")
    late.make()
    lines = b"".join(b'"key %d"\n' % number for number in range(3000))
    headers = {"content-type": "application/x-ndjson"}
    told = late.http("POST", "/f/add", content=lines, headers=headers)
    assert told.json() == {"keys": 3000, "new": 3000}
    assert late.there("key 2999")
    late.mend()
    assert wait_until(lambda: late.late.execute_command("BF.EXISTS", "f", "key 0") == 1)
    late._proxy.bytes_a_second = SLOW
    late.other.delete("f")
    assert late.http("POST", "/f/add", json={"keys": ["alice"]}).status_code == 404
    assert late.http("POST", "/f/clear").status_code == 404


@pytest.mark.parametrize(
    "words",
    ["BF.CLEAR f", "DEL f", "EXPIRE f 1000", "RENAME f g", "COPY f g", "BF.MERGE f f", "FLUSHALL"],
)
def test_what_is_done_to_whole_filters(late: Late, words: str) -> None:
    """It is decided by what there is, not by what this node has heard of."""
    with late.unheard():
        late.other.delete("f")
        late.make()
        late.other.execute_command("BF.ADD", "f", "new")
    assert late.late.execute_command(*words.split()) in (b"OK", "OK", 1, True)
    name = "g" if "g" in words else "f"
    assert late.there("new", name) == (words not in ("BF.CLEAR f", "DEL f", "FLUSHALL"))
    assert not late.there("old", name)


def test_a_name_that_is_free_again_is_taken(late: Late) -> None:
    """And one that is taken is not free."""
    with late.unheard():
        late.other.delete("f")
        late.make(name="g")
    assert late.late.execute_command("BF.RESERVE", "f", 1e-6, 1000) in (b"OK", "OK")
    with pytest.raises(redis.ResponseError, match="exists"):
        late.late.execute_command("BF.RESERVE", "g", 1e-6, 1000)
    assert late.http("POST", "", json={"name": "g", "capacity": 10}).status_code == 409
