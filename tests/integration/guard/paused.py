"""A process that drains a queue, and pauses in the midst of its first write, before or after the
database has done it. `python paused.py URL QUEUE before|after ONCE`."""

import sys
import time
from typing import Any

from bloomery import BloomFilter
from bloomery.guard import Guard, SqlSource
from bloomery.guard.queues import draining
from integration.guard import doomed

OPTIONS: Any = {"on_outage": "queue", "timeout": None, "retry": 3600, "most_retry": 3600}
LEASE_SECONDS = 0.3


def table(url: str, once: bool) -> SqlSource:
    """The table; a guard does not close it."""
    return SqlSource(url, table="paused", key="k", value="v", once="paused_once" if once else None)


class Pausing:
    """The table as this process writes to it."""

    def __init__(self, source: SqlSource, when: str) -> None:
        self.source, self.when, self.first = source, when, True

    def get_many(self, keys: Any) -> Any:
        """As it is."""
        return self.source.get_many(keys)

    def add(self, key: Any, value: Any, idempotency_key: str) -> Any:
        """Say so, and wait a while, the first time."""
        if self.first and self.when == "before":
            self.pause()
        done = self.source.add(key, value, idempotency_key)
        if self.first and self.when == "after":
            self.pause()
        return done

    def pause(self) -> None:
        """Long enough to be stopped."""
        self.first = False
        print("pausing", flush=True)
        time.sleep(1)


def main(url: str, where: str, when: str, once: bool) -> None:
    """Drain what is there."""
    draining.LEASE_SECONDS = LEASE_SECONDS
    source = Pausing(table(url, once), when)
    guard = Guard(BloomFilter(100), source, queue=doomed.queue(where), **OPTIONS)
    guard.drain()
    print("drained", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4] == "True")
