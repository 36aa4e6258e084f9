"""Clients that ask through the balancer without a pause, and keep what went wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from integration.servers import HaProxy, wait_until

NAME = "seen"
KEYS = [f"key-{number}" for number in range(20)]


class Worker(threading.Thread):
    """One client: a request at a time, each of them for keys that are in the filter."""

    def __init__(self, ask: Callable[[], list[Any]], stop: threading.Event) -> None:
        super().__init__()
        self.ask, self.stop = ask, stop
        self.answers = 0
        self.failures: list[Exception] = []
        self.wrong: list[list[Any]] = []

    def run(self) -> None:
        while not self.stop.is_set():
            try:
                found = self.ask()
            except (httpx.HTTPError, redis.RedisError) as problem:
                self.failures.append(problem)
            else:
                self.answers += 1
                if [bool(one) for one in found] != [True] * len(KEYS):
                    self.wrong.append(found)
            time.sleep(0.005)  # the tests share two cores


class Traffic:
    """All of them."""

    def __init__(self, resp: list[Worker], http: list[Worker]) -> None:
        self.resp, self.http = resp, http

    @property
    def workers(self) -> list[Worker]:
        """By either door."""
        return [*self.resp, *self.http]

    def flows(self, times: int = 5) -> None:
        """Return when each client has got so many answers more."""
        before = [worker.answers for worker in self.workers]

        def served() -> bool:
            return all(
                worker.answers >= start + times
                for worker, start in zip(self.workers, before, strict=True)
            )

        assert wait_until(served), [worker.failures for worker in self.workers]


@contextmanager
def traffic(balancer: HaProxy, count: int = 4, *, tries: int = 0) -> Iterator[Traffic]:
    """So many clients at each door. Those of RESP repeat what failed so many times, by a connection
    that is new; those of HTTP never do. Nothing may be wrong in the end."""
    stop = threading.Event()
    resp = [
        redis.Redis(port=balancer.resp_port, socket_timeout=60, retry=Retry(NoBackoff(), tries))
        for _ in range(count)
    ]
    http = [httpx.Client(base_url=balancer.url, timeout=60) for _ in range(count)]

    def by_resp(client: Any) -> Callable[[], list[Any]]:
        return lambda: client.execute_command("BF.MEXISTS", NAME, *KEYS)

    def by_http(client: httpx.Client) -> Callable[[], list[Any]]:
        def ask() -> list[Any]:
            answer = client.post(f"/filters/{NAME}/contains", json={"keys": KEYS})
            found: list[Any] = answer.raise_for_status().json()["maybe"]
            return found

        return ask

    asked = Traffic(
        [Worker(by_resp(client), stop) for client in resp],
        [Worker(by_http(client), stop) for client in http],
    )
    for worker in asked.workers:
        worker.start()
    try:
        yield asked
        asked.flows()
    finally:
        stop.set()
        for worker in asked.workers:
            worker.join()
        for one in resp:
            one.close()
        for client in http:
            client.close()
    assert [worker.wrong for worker in asked.workers] == [[]] * 2 * count
