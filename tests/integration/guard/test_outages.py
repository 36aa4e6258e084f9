"""PostgreSQL and Redis stopped, killed and frozen in mid-traffic, under each policy, for threads
and for asyncio; every answer is counted, and right."""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from bloomery.guard.options import OnOutage
from conftest import effort, require
from integration.guard.traffic import Seen, Traffic
from integration.guard.verdict import SETTLED, Window, judge
from integration.servers import PostgresServer, RedisServer, wait_until

require("sqlalchemy")
require("psycopg")
require("redis")


class Scene:
    """A guard for each policy, all with traffic, at one PostgreSQL and one Redis."""

    def __init__(self, traffics: list[Traffic], postgres: PostgresServer, redis: RedisServer):
        self.traffics = traffics
        self.postgres, self.redis = postgres, redis
        self.outages: list[Window] = []

    def all_have(self, times: int, since: float, what: Callable[[Seen], bool]) -> None:
        """Wait until every guard gave so many such answers."""
        for one in self.traffics:
            assert wait_until(lambda: one.count(since, what) >= times), (  # noqa: B023
                f"{one.name}: {one.count(since, what)} of {times} answers; {one.call('info')}"
            )

    def source_is_away(self, goes: Callable[[], object], comes: Callable[[], object]) -> None:
        """It goes, each guard notices, and it comes back: soon all is well."""
        down = time.time()
        goes()
        self.all_have(10, down, lambda one: one.without_source)
        self.all_have(1, down, lambda one: one.what != "look" and one.without_source)
        comes()
        up = time.time()
        for one in self.traffics:
            left = up + SETTLED - time.time()
            assert wait_until(lambda: one.is_well(up), left), (  # noqa: B023
                f"{one.name} is not well again: {one.call('info')}"
            )
        self.outages.append((down, time.time()))

    def cache_is_away(self, goes: Callable[[], object], comes: Callable[[], object]) -> None:
        """Without it the source answers; once it is back, it does again."""
        down = time.time()
        goes()
        self.all_have(10, down, by("source"))
        comes()
        self.all_have(5, time.time(), by("cache"))


def both(first: Callable[[], object], second: Callable[[], object]) -> Callable[[], object]:
    """One, then the other."""
    return lambda: (first(), second())


def by(who: str) -> Callable[[Seen], bool]:
    """Answers of look-ups by this one."""
    return lambda one: one.what == "look" and one.answer is not None and one.answer.by == who


@pytest.fixture
def scene(
    postgres: PostgresServer, postgres_url: str, redis_server: RedisServer, tmp_path: Path
) -> Iterator[Scene]:
    """Traffic that runs."""
    traffics = [
        Traffic(policy, for_asyncio, postgres, redis_server, tmp_path)
        for policy in get_args(OnOutage)
        for for_asyncio in (False, True)
    ]
    try:
        for one in traffics:
            one.start()
        made = Scene(traffics, postgres, redis_server)
        made.all_have(1, 0.0, by("cache"))
        yield made
    finally:
        for server in (postgres, redis_server):
            server.thaw()
            if server.process is None:
                server.start()
        for one in traffics:
            one.end.set()
        for one in traffics:
            one.stop()
            one.stack.close()


@pytest.mark.long
def test_every_answer_is_right_while_servers_go_and_come(scene: Scene) -> None:
    """Under each policy: nothing is denied that is there, and nothing said that is not so."""
    postgres, redis = scene.postgres, scene.redis
    ways: list[Callable[[], Any]] = [
        lambda: scene.source_is_away(postgres.kill, postgres.start),
        lambda: scene.source_is_away(postgres.stop, postgres.start),
        lambda: scene.source_is_away(postgres.freeze, postgres.thaw),
        lambda: scene.cache_is_away(redis.kill, redis.start),
        lambda: scene.cache_is_away(redis.freeze, redis.thaw),
        lambda: scene.source_is_away(
            both(redis.kill, postgres.kill), both(postgres.start, redis.start)
        ),
    ]
    for number in range(effort(1, 1, 10)):
        for way in random.Random(number).sample(ways, len(ways)) if number else ways:
            way()
    assert [one.name for one in scene.traffics if not one.stop()] == []
    assert [wrong for one in scene.traffics for wrong in judge(one, scene.outages)] == []
