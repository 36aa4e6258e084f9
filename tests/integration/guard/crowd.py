"""One of a crowd: a guard on a cache and a queue that others share, which writes keys of its own
and reads all, and writes down what came of it. `python crowd.py URL CACHE QUEUE LOG NUMBER OF`."""

import itertools
import json
import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from bloomery import BloomFilter
from bloomery.errors import QueueUnavailable, SourceUnavailable
from bloomery.guard import Answer, Guard, RedisCache, SqlSource
from bloomery.guard.queues import draining
from integration.guard import doomed
from privates import core_of

KEYS = 24
OPTIONS: Any = {
    "on_outage": "queue",
    "ttl": 30,
    "negative_ttl": 30,
    "timeout": 1.0,
    "retry": 0.1,
    "most_retry": 0.3,
}


def key(number: int) -> str:
    """One of those that are written."""
    return f"key {number}"


class Slow(SqlSource):
    """One whose answers are old, now and then, when they come."""

    def get_many(self, keys: Sequence[Any]) -> Mapping[Any, Any]:
        """As ever."""
        found = super().get_many(keys)
        if random.random() < 0.2:
            time.sleep(random.random() * 0.05)
        return found


def table(url: str) -> SqlSource:
    """The table that they share; a guard does not close it."""
    return Slow(url, table="crowd", key="k", value="v", once="crowd_once")


def made(filter: Any, source: SqlSource, cache: str, queue: str) -> Guard:
    """A guard with a cache and a queue of its own, at places that others use too."""
    held = RedisCache(cache, "crowd:")
    return Guard(filter, source, cache=held, queue=doomed.queue(queue), **OPTIONS)


def work(guard: Guard, number: int, of: int, log: TextIO, ended: Callable[[], bool]) -> None:
    """Write down [what, key, value, by, began, ended] of each write and each answer, by a clock
    that all processes share; of a write, too, whether the cache may not have heard of it."""
    caching = core_of(guard).cache
    assert caching is not None
    draw = random.Random(number)
    for value in itertools.count(number, of):
        mine = key(number + of * draw.randrange(KEYS // of))
        began = time.monotonic()
        removes = draw.random() < 0.3
        line = ["write", mine, None if removes else value]
        # First, since it may be seen before it has ended.
        print(json.dumps([*line, "", began, None]), file=log, flush=True)
        away = caching.breaker.since is not None
        answer = write(guard, mine, None if removes else value, f"{number}-{value}")
        away = away or caching.breaker.since is not None
        print(json.dumps([*line, answer.by, began, time.monotonic(), away]), file=log, flush=True)
        for _ in range(4):
            some = [key(draw.randrange(KEYS)) for _ in range(draw.choice((1, 1, 5)))]
            began = time.monotonic()
            try:
                answers = guard.get_many(some) if len(some) > 1 else [guard.get(some[0])]
            except (
                SourceUnavailable,
                QueueUnavailable,
            ):  # as below, or another's that does not end
                continue
            now = time.monotonic()
            for one, heard in zip(some, answers, strict=True):
                said = heard.value if heard.found else None
                print(json.dumps(["look", one, said, heard.by, began, now]), file=log)
        if ended():
            return
        time.sleep(0.002)


def write(guard: Guard, key: str, value: int | None, token: str) -> Answer:
    """Try until it is done: one that was paused may hold the queue's file."""
    while True:
        try:
            if value is None:
                return guard.remove(key, idempotency_key=token)
            return guard.add(key, value, idempotency_key=token)
        except QueueUnavailable:
            time.sleep(0.05)


def main(url: str, cache: str, queue: str, path: str, number: int, of: int) -> None:
    """Until the file is there that ends it."""
    draining.LEASE_SECONDS = 0.5
    filter = BloomFilter(100)
    filter.update(map(key, range(KEYS)))
    with open(path, "w") as log:
        guard = made(filter, table(url), cache, queue)
        work(guard, number, of, log, lambda: os.path.exists(f"{path}.end"))
        guard.close()


if __name__ == "__main__":
    url, cache, queue, log, number, of = sys.argv[1:]
    main(url, cache, queue, log, int(number), int(of))
