"""A filter in Redis beside a local one, through whatever is done to both."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from bloomery import BloomFilter
from bloomery.integrations.redis import RedisFilter
from conftest import effort
from integration.servers import RedisServer

NUMBERS = itertools.count()
KEYS = st.integers(0, 300) | st.text(max_size=3) | st.binary(max_size=3)
BATCHES = st.lists(KEYS, max_size=60)


class Machine(RuleBasedStateMachine):
    """Two clients of one filter, and its model."""

    server: RedisServer

    @initialize(
        layout=st.sampled_from(["blocked", "classic"]),
        rate=st.sampled_from([0.3, 0.01, 1e-6]),
        shards=st.sampled_from([1, 2, 3]),
        hasher=st.sampled_from(["xxh3", "murmur3", "siphash"]),
        seed=st.integers(0, 2**64 - 1),
    )
    def make(self, layout: Any, rate: float, shards: int, hasher: Any, seed: int) -> None:
        self.name = f"model-{next(NUMBERS)}"
        options: dict[str, Any] = {"layout": layout, "hasher": hasher, "seed": seed}
        self.local = BloomFilter(500, rate, **options)
        self.one = RedisFilter.create(
            self.server.url, self.name, 500, rate, shards=shards, **options
        )
        self.other = RedisFilter.open(self.server.url, self.name)

    @rule(keys=BATCHES, turn=st.booleans())
    def add_many(self, keys: list[Any], turn: bool) -> None:
        used = self.one if turn else self.other
        assert used.add_many(keys) == self.local.add_many(keys)

    @rule(key=KEYS, turn=st.booleans())
    def add(self, key: Any, turn: bool) -> None:
        used = self.one if turn else self.other
        assert used.add(key) == self.local.add(key)

    @rule(keys=BATCHES)
    def contains_many(self, keys: list[Any]) -> None:
        assert self.other.contains_many(keys) == self.local.contains_many(keys)

    @rule()
    def clear(self) -> None:
        self.one.clear()
        self.local.clear()

    @rule()
    def open_again(self) -> None:
        self.other.close()
        self.other = RedisFilter.open(self.server.url, self.name)

    @invariant()
    def same_bytes(self) -> None:
        if not hasattr(self, "one"):
            return
        with self.server.client() as client:
            strings = [(client.get(name) or b"")[:-1] for name in self.one.store.names]
        assert b"".join(strings) == bytes(memoryview(self.local))

    def teardown(self) -> None:
        if hasattr(self, "one"):
            self.one.delete()
            self.one.close()
            self.other.close()


@contextmanager
def served(server: RedisServer) -> Iterator[type[Machine]]:
    """The machine, with a server."""
    Machine.server = server
    yield Machine


def test_as_a_local_filter(redis_server: RedisServer) -> None:
    """Answers and bytes are the local filter's after every step."""
    with served(redis_server) as machine:
        run_state_machine_as_test(
            machine, settings=settings(max_examples=effort(5, 25, 500), stateful_step_count=15)
        )
