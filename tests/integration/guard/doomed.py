"""A process with a guard and a queue, which writes and asks until it is killed, and prints what it
has done. `python doomed.py URL QUEUE FIRST FAST`."""

import itertools
import sys
import time
from typing import Any

from bloomery import BloomFilter
from bloomery.guard import Answer, Guard, RedisQueue, SqliteQueue, SqlSource
from bloomery.guard.queues import draining

KEYS = 7
ROWS = 20
OPTIONS: Any = {"on_outage": "queue", "timeout": 0.5, "retry": 0.05, "most_retry": 0.2}


def written(number: int) -> tuple[str, int | None]:
    """The key and value of a write: None takes out what was there for certain."""
    if number % 3 == 2:
        return f"new{(number - 1) % KEYS}", None
    return f"new{number % KEYS}", number


def table(url: str) -> SqlSource:
    """The table; a guard does not close it."""
    return SqlSource(url, table="doomed", key="k", value="v", once="doomed_once")


def made(source: SqlSource, where: str, on_answer: Any) -> Guard:
    """A guard in front of the table, with a queue in this file, or in this Redis."""
    held = BloomFilter(1000)
    held.update(f"row{number}" for number in range(ROWS))
    return Guard(held, source, queue=queue(where), on_answer=on_answer, **OPTIONS)


def queue(where: str) -> Any:
    """The queue."""
    return RedisQueue(where, "doomed") if "://" in where else SqliteQueue(where, fsync=False)


def told(_key: str, answer: Answer) -> None:
    """Print what the queue's look-ups heard."""
    print("told", answer.queued, answer.value, flush=True)


def main(url: str, where: str, first: int, fast: int) -> None:
    """Write from the first number on; so many without a pause."""
    draining.LEASE_SECONDS = 0.3  # for the one who comes after us
    guard = made(table(url), where, told)
    for number in itertools.count(first):
        key, value = written(number)
        token = f"w{number}"
        if value is None:
            guard.remove(key, idempotency_key=token)
        else:
            guard.add(key, value, idempotency_key=token)
        print("wrote", number, flush=True)
        row = number % ROWS
        answer = guard.get(f"row{row}")
        if answer.queued is not None:
            print("asked", answer.queued, row, flush=True)
        if number - first >= fast:
            time.sleep(0.005)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
