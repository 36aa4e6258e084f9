"""Traffic through a guard while its servers go and come: every answer is written down, with what
the source may have held at that time."""

import asyncio
import itertools
import math
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bloomery import CountingBloomFilter
from bloomery.errors import SourceUnavailable
from bloomery.guard import Answer, AsyncGuard, AsyncRedisCache, Guard, RedisCache, SqliteQueue
from bloomery.guard.options import GuardOptions, OnOutage
from bloomery.guard.sources.sql.source import SqlSource
from integration.guard.changes import log_changes
from integration.servers import PostgresServer, RedisServer

TTL = 0.5
TIMEOUT = 1.5
OPTIONS: GuardOptions = {
    "ttl": TTL,
    "negative_ttl": TTL,
    "timeout": TIMEOUT,
    "retry": 0.1,
    "most_retry": 0.4,
}
PAUSE = 0.06  # between two questions of a thread: two cores have eight guards to serve
ROWS, WRITTEN, ABSENT = 60, 12, 60


@dataclass
class History:
    """What a key was set to, one write after the other; None: it is not there."""

    values: list[int | None]
    began: list[float] = field(default_factory=lambda: [-math.inf])
    ended: list[float] = field(default_factory=lambda: [-math.inf])

    def write(self, value: int | None) -> None:
        """A write begins."""
        self.values.append(value)
        self.began.append(time.time())
        self.ended.append(math.inf)

    def between(self, start: float, end: float) -> list[int | None]:
        """What the source may have held in that time: who asks then may hear any of these."""
        first = max(at for at, ended in enumerate(self.ended) if ended <= start)
        last = max(at for at, began in enumerate(self.began) if began <= end)
        return self.values[first : last + 1]


@dataclass
class Seen:
    """A question, and what came of it."""

    what: str  # "look", "add", "remove", or "told" by on_answer
    key: str
    began: float
    ended: float
    answer: Answer | None = None
    problem: BaseException | None = None

    @property
    def without_source(self) -> bool:
        """Is this what is said while the source is down?"""
        return self.answer is None or not self.answer.confirmed


class Traffic:
    """Two readers and one writer at a guard of their own, on a table of its own."""

    def __init__(
        self,
        policy: OnOutage,
        for_asyncio: bool,
        postgres: PostgresServer,
        redis: RedisServer,
        folder: Path,
        queue: Any = None,
    ) -> None:
        self.policy = policy
        self.name = f"{policy}_{'asyncio' if for_asyncio else 'threads'}"
        self.postgres = postgres
        self.history = {
            **{f"row{n}": History([n]) for n in range(ROWS)},
            **{f"new{n}": History([None]) for n in range(WRITTEN)},
            **{f"no{n}": History([None]) for n in range(ABSENT)},
        }
        self.seen: list[Seen] = []
        self.written: list[tuple[str, int | None]] = []
        self.good: dict[str, float] = defaultdict(float)  # when each last asked not in vain
        self.end = threading.Event()
        self.stack = ExitStack()
        postgres.run(
            f"CREATE TABLE {self.name} (k text PRIMARY KEY, v int);"
            f"INSERT INTO {self.name} SELECT 'row' || n, n FROM generate_series(0, {ROWS - 1}) n"
        )
        log_changes(postgres, self.name)
        source = SqlSource(
            postgres.url("postgres"), table=self.name, key="k", value="v", once=f"{self.name}_once"
        )
        self.stack.callback(source.close)
        held = CountingBloomFilter(ROWS + WRITTEN, 0.1)
        held.update(key for key, history in self.history.items() if history.values[0] is not None)
        url = f"redis://127.0.0.1:{redis.port}"
        options: dict[str, Any] = {**OPTIONS, "on_outage": policy}
        if policy == "queue":
            options["queue"] = queue or SqliteQueue(folder / self.name, fsync=False)
            options["on_answer"] = self._told
        if for_asyncio:
            self._open(held, source, url, options)
        else:
            cache = RedisCache(url, prefix=self.name)
            guard = Guard(held, source, cache=cache, **options)
            self.call: Callable[..., Any] = lambda what, *args, **more: getattr(guard, what)(
                *args, **more
            )
            self.stack.callback(cache.close)
        self.stack.callback(lambda: self.call("close"))
        self.threads = [
            threading.Thread(target=what, args=(f"{self.name}-{number}",), daemon=True)
            for number, what in enumerate((self._read, self._read, self._write))
        ]

    def _open(self, held: Any, source: Any, url: str, options: dict[str, Any]) -> None:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()

        def wait(coroutine: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(coroutine, loop).result(60)

        def end() -> None:
            wait(cache.close())
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

        cache = AsyncRedisCache(url, prefix=self.name)
        guard = AsyncGuard(held, source, cache=cache, **options)
        self.call = lambda what, *args, **more: wait(getattr(guard, what)(*args, **more))
        self.stack.callback(end)
        wait(guard.__aenter__())

    # The traffic.

    def start(self) -> None:
        """Begin."""
        for thread in self.threads:
            thread.start()

    def stop(self) -> bool:
        """End; whether all did."""
        self.end.set()
        for thread in self.threads:
            thread.join(30)
        return not any(thread.is_alive() for thread in self.threads)

    def _read(self, me: str) -> None:
        draw = random.Random(me)
        keys = list(self.history)
        while not self.end.wait(PAUSE):
            some = draw.sample(keys, draw.choice((1, 1, 1, 8)))
            if len(some) == 1:
                self._ask(me, "look", some, "get", some[0])
            else:
                self._ask(me, "look", some, "get_many", some)

    def _write(self, me: str) -> None:
        """Values are numbers, each written once; what failed is tried again until it is done."""
        draw = random.Random(me)
        keys = [key for key in self.history if key.startswith("new")]
        for number in itertools.count(1000):
            key = draw.choice(keys)
            history = self.history[key]
            token = None if self.policy == "queue" else f"{me}-{number}"
            if history.values[-1] is not None and draw.random() < 0.4:
                what, value = "remove", None
            else:
                what, value = "add", number
            args = (key,) if value is None else (key, value)
            history.write(value)
            while not self._ask(me, what, [key], what, *args, idempotency_key=token):
                if self.end.wait(PAUSE):
                    return
            history.ended[-1] = time.time()
            self.written.append((key, value))
            if self.end.wait(PAUSE):
                return

    def _ask(self, me: str, what: str, keys: list[str], *call: Any, **more: Any) -> bool:
        """Write down what comes of it; False if it can be tried again."""
        began = time.time()
        try:
            said = self.call(*call, **more)
        except BaseException as problem:  # noqa: BLE001  # judged later, whatever it is
            ended = time.time()
            self.seen += [Seen(what, key, began, ended, problem=problem) for key in keys]
            return not isinstance(problem, SourceUnavailable)
        ended = time.time()
        answers: list[Answer] = said if isinstance(said, list) else [said]
        self.seen += [
            Seen(what, key, began, ended, answer) for key, answer in zip(keys, answers, strict=True)
        ]
        if all(answer.confirmed for answer in answers):
            self.good[me] = began
        return True

    def _told(self, key: str, answer: Answer) -> None:
        now = time.time()
        self.seen.append(Seen("told", key, now, now, answer))

    # How it goes.

    def count(self, since: float, what: Callable[[Seen], bool]) -> int:
        """How many such answers to questions that were asked since then."""
        seen = reversed(self.seen[:])
        recent = itertools.takewhile(lambda one: one.ended >= since, seen)
        return sum(1 for one in recent if one.began >= since and what(one))

    def is_well(self, since: float) -> bool:
        """Has every thread got a confirmed answer since then, and waits nothing any more?"""
        if len(self.good) < len(self.threads) or min(self.good.values()) < since:
            return False
        info = self.call("info")
        return info["source"] == "closed" and not info.get("queued")
