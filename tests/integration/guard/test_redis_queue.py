"""A queue in a real Redis: the same in every respect as the one in a file, and still there when
Redis was killed."""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bloomery import BloomFilter, _native
from bloomery.errors import InvalidParameter, QueueUnavailable
from bloomery.guard import AsyncGuard, AsyncRedisQueue, Guard, RedisQueue, SqliteQueue
from bloomery.guard.protocols import Item
from bloomery.guard.queues import redis_scripts as scripts
from conftest import effort, require
from integration.conftest import open_folder, started
from integration.servers import RedisCluster, RedisServer, Sentinel, free_port, wait_until
from unit.guard.flaky import QUIET, Flaky

redis = require("redis")


class Awaited:
    """A queue for asyncio, asked as one for threads is."""

    def __init__(self, url: str, name: str, **options: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.queue = AsyncRedisQueue(url, name, **options)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.queue, name)
        assert inspect.iscoroutinefunction(method)
        return lambda *args: self.loop.run_until_complete(method(*args))

    def close(self) -> None:
        """And the loop."""
        self.loop.run_until_complete(self.queue.close())
        self.loop.close()


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    """Of an empty Redis."""
    return f"redis://127.0.0.1:{redis_server.port}"


def item(
    number: int, key: Any = "k", *, what: Literal["look", "add", "remove"] = "add", value: Any = 1
) -> Item:
    """An item with this idempotency key."""
    return Item(what, key, value, f"t{number}", number + 0.25)


def seen(queue: Any) -> dict[str, Any]:
    """All that a queue says, but for its own ids."""
    names = [_native.canonical(key) for key in KEYS]

    def plain(items: Sequence[Item]) -> list[Any]:
        return [(i.what, i.key, i.value, i.idempotency_key, i.at) for i in items]

    parked = queue.parked()
    return {
        "head": plain(queue.head(1000)),
        "two": plain(queue.head(2)),
        "pending": queue.pending(names),
        "none": queue.pending([]),
        "counts": (queue.writes(), queue.waiting()),
        "keys": queue.keys(),
        "parked": (plain([one for one, _ in parked]), [why for _, why in parked]),
    }


KEYS: list[Any] = ["k", b"\x00\xff{}", ("a", 1)]
STEPS = st.tuples(
    st.sampled_from(["look", "add", "remove", "done", "park", "retry", "drop", "lease", "release"]),
    st.integers(0, 5),
    st.integers(0, 2),
)


@pytest.mark.parametrize("kind", [RedisQueue, Awaited])
@settings(
    max_examples=effort(5, 12, 500), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(STEPS, max_size=30))
def test_it_does_what_the_one_in_a_file_does(
    kind: Any, url: str, redis_server: RedisServer, tmp_path_factory: Any, steps: list[Any]
) -> None:
    """Every step leaves both with the same items, counts, keys and leases; and when nothing waits,
    nothing is left in Redis."""
    redis_server.ask(b"FLUSHALL\r\n")
    there = kind(url, "q", max_items=6)
    here = SqliteQueue(tmp_path_factory.mktemp("queue") / "q", max_items=6, fsync=False)
    both: list[Any] = [there, here]
    for step, number, key in steps:
        said: list[Any] = []
        for queue in both:
            try:
                said.append(_do(queue, step, number, KEYS[key]))
            except QueueUnavailable as full:
                said.append(str(full).partition("full")[2])
        assert said[0] == said[1]
        assert seen(there) == seen(here)
    for queue in both:
        queue.done([*queue.head(100), *(one for one, _ in queue.parked())])
    assert seen(there) == seen(here)
    with redis.Redis.from_url(url) as plain:
        assert plain.hlen("{q}:names") == plain.hlen("{q}:tokens") == 0
        assert plain.hlen("{q}:parkedtokens") == 0
    for queue in both:
        queue.close()


def _do(queue: Any, step: Any, number: int, key: Any) -> Any:
    parked = [one for one, _ in queue.parked()]
    if step == "done":
        return queue.done(queue.head(number))
    if step == "park":
        for one in queue.head(1):
            queue.park(one, f"because {number}")
            queue.park(one, "twice")
    elif step == "retry":
        return queue.put(parked[:number])
    elif step == "drop":
        return queue.done(parked[:1])
    elif step == "lease":
        return queue.lease(f"owner {key}", 60)
    elif step == "release":
        return queue.release(f"owner {key}")
    else:
        return queue.put([item(number, key, what=step), item(number, key, what=step)])
    return None


class Durable(RedisServer):
    """One that writes down every command before it answers."""

    def command(self) -> list[str]:
        return [*super().command(), "--appendonly", "yes", "--appendfsync", "always"]


@pytest.fixture
def durable() -> Iterator[Durable]:
    """A server of the test's own."""
    with open_folder() as folder, started(Durable(folder), kill=True) as server:
        yield server


def test_a_redis_that_was_killed_has_lost_nothing(durable: Durable) -> None:
    """While it is away a guard says so and takes nothing; afterwards all that it took is done, in
    order and once, the scripts being unknown to the new one."""
    source = Flaky()
    source.mode = "down"
    queue = RedisQueue(f"redis://127.0.0.1:{durable.port}", "q")
    with Guard(BloomFilter(1000), source, queue=queue, **QUIET) as guard:
        taken = [guard.add(number, "value").queued for number in range(50)]
        assert queue.lease("one that dies", 0.001)
        durable.kill()
        with pytest.raises(QueueUnavailable, match=r"Redis at 127\.0\.0\.1:\d+: .*does it run"):
            guard.add("lost", "value")
        durable.start()
        source.mode = "up"
        assert guard.get(7).by == "unconfirmed"
        assert guard.drain() == 51
        assert list(source.did) == taken
        assert guard.add("more", 1).by == "source"
        assert guard.info()["queued"] == 0


def test_an_async_guard_with_an_async_queue(url: str) -> None:
    """It drains by itself; a Guard refuses such a queue."""
    source = Flaky()
    source.mode = "down"
    options: Any = {**QUIET, "retry": 0.02, "most_retry": 0.02}
    heard = asyncio.Event()

    async def main() -> None:
        queue = AsyncRedisQueue(url, "q")
        with pytest.raises(InvalidParameter, match="AsyncRedisQueue is for asyncio"):
            Guard(BloomFilter(9), source, queue=queue, **QUIET)  # type: ignore[arg-type]
        async with AsyncGuard(
            BloomFilter(99),
            source,
            queue=queue,
            on_answer=lambda key, answer: heard.set(),
            **options,
        ) as guard:
            for number in range(3):
                await guard.add(number, number)
            await guard.get(2)
            assert (await guard.info())["queued"] == 4
            source.mode = "up"
            await asyncio.wait_for(heard.wait(), 20)
        with pytest.raises(QueueUnavailable, match="closed: make a new one"):
            await queue.writes()

    asyncio.run(main())
    assert source.rows == {0: 0, 1: 1, 2: 2}


async def _ask_once(queue: AsyncRedisQueue) -> None:
    try:
        await queue.writes()
    finally:
        await queue.close()


def test_a_redis_that_drops_keys_is_refused(url: str) -> None:
    """One whose policy is for keys that expire is not, nor one without a limit."""
    with redis.Redis.from_url(url) as plain:
        try:
            plain.config_set("maxmemory-policy", "allkeys-lru")
            RedisQueue(plain, "q")
            plain.config_set("maxmemory", "100mb")
            with pytest.raises(InvalidParameter, match=r"allkeys-lru.*use one with noeviction"):
                RedisQueue(plain, "q")
            with pytest.raises(InvalidParameter, match="noeviction"):
                asyncio.run(_ask_once(AsyncRedisQueue(url, "q")))
            plain.config_set("maxmemory-policy", "volatile-lru")
            RedisQueue(plain, "q")
            plain.acl_setuser(
                "few", enabled=True, nopass=True, keys="*", commands=["+@all", "-info"]
            )
            few = RedisQueue(url.replace("//", "//few:any@"), "q")
            few.put([item(1)])
            few.close()
            plain.config_set("maxmemory", "1")
            with pytest.raises(QueueUnavailable, match=r"maxmemory.*give it more memory"):
                RedisQueue(plain, "q").put([item(2)])
        finally:
            plain.config_set("maxmemory", "0")
            plain.config_set("maxmemory-policy", "noeviction")
            plain.acl_deluser("few")


def test_a_script_that_found_no_memory(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before version 7, Redis says so of a script in a text of its own; here a script says it."""
    text = "ERR Error running script (call to f_1): @user_script:9: -OOM command not allowed when"
    said = scripts.Script(f"""return redis.error_reply("{text} used memory > 'maxmemory'.")""")
    monkeypatch.setattr(scripts, "PUT", said)
    for queue in (RedisQueue(url, "q"), Awaited(url, "q")):
        with pytest.raises(QueueUnavailable, match="give it more memory"):
            queue.put([item(1)])
        queue.close()


def test_a_redis_that_is_away_at_the_start_is_checked_later(tmp_path: Path) -> None:
    """Making a queue does not need it; using it says what is missing, without the password."""
    queue = RedisQueue("redis://me:secret@127.0.0.1:1/0", "q")
    with pytest.raises(QueueUnavailable, match=r"Redis at 127\.0\.0\.1:1:") as raised:
        queue.put([item(1)])
    assert "secret" not in str(raised.value)
    queue.close()


def test_by_the_urls_of_a_cluster_and_of_sentinels(
    redis_cluster: RedisCluster, redis_sentinel: Sentinel
) -> None:
    """A queue lies in one slot; who drains it after a failover finds what was written down."""
    host = redis_cluster.url.removeprefix("redis://").removesuffix("/0")
    hosts = ",".join(f"{host}:{port}" for host, port in redis_sentinel.addresses)
    urls = f"redis+cluster://{host}", f"redis+sentinel://{hosts}/{redis_sentinel.name}"
    for url in urls:
        queue = RedisQueue(url, "q")
        queue.put([item(1), item(2)])
        assert queue.waiting() == 2
        if url.startswith("redis+sentinel"):
            assert redis_sentinel.master is not None
            redis_sentinel.master.wait_for_replicas(2)
            redis_sentinel.fail_over()

        def drained(queue: RedisQueue = queue) -> bool:
            try:
                return queue.done(queue.head(10)) == 2
            except QueueUnavailable:  # which a guard tries again later
                return False

        assert wait_until(drained)
        assert queue.waiting() == 0
        queue.close()


def test_a_cluster_that_is_away_at_the_start() -> None:
    """As one server: making a queue does not need it."""
    port = free_port()
    queue = RedisQueue(f"redis+cluster://me:secret@127.0.0.1:{port}", "q")
    with pytest.raises(QueueUnavailable, match=rf"the cluster of 127\.0\.0\.1:{port}") as raised:
        queue.put([item(1)])
    assert "secret" not in str(raised.value)
    queue.close()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"redis": "http://x"}, "the URL of Redis begins with 'http', must be redis://"),
        ({"redis": 5}, "redis is a int, must be a URL or a client"),
        ({"name": "a{b}"}, "must be a string without braces"),
        ({"max_items": 1}, "max_items is 1, must be an integer of at least 2"),
    ],
)
def test_what_cannot_be_a_queue_says_why(given: dict[str, Any], message: str) -> None:
    """What was given, and what is right."""
    with pytest.raises(InvalidParameter, match=message):
        RedisQueue(**{"redis": "redis://127.0.0.1:1", "name": "q", **given})


def test_a_client_of_the_wrong_kind_is_refused(url: str) -> None:
    """One for asyncio, one for threads, one that decodes."""
    with pytest.raises(InvalidParameter, match="is for asyncio: give one for threads"):
        RedisQueue(redis.asyncio.Redis.from_url(url), "q")
    with redis.Redis.from_url(url) as plain:
        with pytest.raises(InvalidParameter, match=r"is for threads: give one of redis\.asyncio"):
            AsyncRedisQueue(plain, "q")
        RedisQueue(plain, "q").close()
        assert plain.ping()  # it is not ours to close
    with pytest.raises(InvalidParameter, match="without decode_responses"):
        RedisQueue(redis.Redis.from_url(url, decode_responses=True), "q")


def test_a_damaged_entry_is_named_and_not_guessed_at(url: str) -> None:
    """What somebody else wrote into the stream stops the queue, and is no remove."""
    queue = RedisQueue(url, "damaged")
    stream = "{damaged}:waiting"
    with redis.Redis.from_url(url) as other:
        for fields in (
            {"x": "y"},
            {"what": "ADD", "key": '"a"', "value": "1", "token": "t", "at": "0.0"},
            {"what": "add", "key": "\xff", "value": "1", "token": "t", "at": "0.0"},
            {"what": "add", "key": '"a"', "value": "1", "token": "t", "at": "no"},
        ):
            number = other.xadd(stream, fields).decode()
            for ask in (lambda: queue.head(10), queue.keys):
                with pytest.raises(QueueUnavailable, match=f"entry {number} .* is damaged"):
                    ask()
            other.xdel(stream, number)
    queue.close()
