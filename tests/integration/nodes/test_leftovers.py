"""A filter is dropped while a node gives Redis back what it lost of it: at each of its steps."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from bloomery.service.replication.catalogue import Catalogue, Listed
from bloomery.service.replication.context import NodeContext
from bloomery.service.replication.copying import loaded, restored
from bloomery.service.replication.lifecycle import Control, dropping
from bloomery.service.replication.shared import Shared

from bloomery import BloomFilter, errors
from bloomery.integrations.redis import RedisFilter
from bloomery.integrations.redis.wire.link import Link
from integration.servers import RedisServer

PREFIX = "leftovers"
CAPACITIES = (1000, 100)  # of the filter that is dropped, and of the next one of its name


class Interrupted(Link):
    """Somebody else does something, once, before this round trip."""

    def __init__(self, url: str, at: int, what: Callable[[], None]) -> None:
        super().__init__(url)
        self.left, self.what = at, what

    def _step(self) -> None:
        self.left -= 1
        if self.left == -1:
            self.what()

    def run(self, flow: Any) -> Any:
        def steps() -> Any:
            reply = None
            try:
                while True:
                    asks = flow.send(reply)
                    self._step()
                    reply = yield asks
            except StopIteration as end:
                return end.value

        return super().run(steps())


@pytest.fixture
def link(redis_server: RedisServer) -> Iterator[Link]:
    link = Link(redis_server.url)
    for key in redis_server.run("KEYS", "*"):
        redis_server.run("DEL", key)
    yield link
    link.close()


class World:
    """What several nodes do, one call after another."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.catalogue = Catalogue(PREFIX, 1000)

    def make(self, capacity: int) -> Listed:
        node = SimpleNamespace(catalogue=self.catalogue, link=self.link, filters=_Held())
        node.require_link = lambda: None
        control = Control(cast(NodeContext, node), lambda listed: True)
        control._create(1, {"name": "f", "settings": {"capacity": capacity, "error_rate": 1e-6}})
        made: Listed = node.filters.shared.listed
        return made

    def drop(self, listed: Listed) -> None:
        self.link.run(dropping(self.catalogue, listed))

    def left(self) -> list[bytes]:
        """What is there of the filter, but for a copy that was begun: that ends by itself."""
        client = self.link.client
        return [key for key in client.keys("{f}*") if b":load:" not in key or client.ttl(key) < 0]


class _Held:
    shared: Shared

    def put(self, shared: Shared) -> None:
        self.shared = shared


@pytest.mark.parametrize("lost", ["string", "catalogue", "all"])
@pytest.mark.parametrize("every_bit", [False, True])
def test_dropped_while_it_is_restored(
    link: Link, redis_server: RedisServer, lost: str, every_bit: bool
) -> None:
    """It does not come back, nothing is left of it, and the next of its name can be made; a next
    one that is made at that very moment is whole in the end."""
    world = World(link)
    happened = 0
    for at in range(30):
        for again in (False, True):
            listed = world.make(CAPACITIES[0])
            if lost in ("string", "all"):
                redis_server.run("DEL", "{f}:bits")
            if lost in ("catalogue", "all"):
                redis_server.run("HDEL", world.catalogue.key.decode(), "f")
            next_one: list[Listed] = []
            done: list[int] = []

            def meanwhile(
                listed: Listed = listed,
                again: bool = again,
                next_one: list[Listed] = next_one,
                done: list[int] = done,
            ) -> None:
                found = world.link.run(world.catalogue.find(b"f"))
                if found is None:  # nobody can drop what is not there
                    return
                done.append(1)
                world.drop(listed)
                if again:
                    next_one.append(world.make(CAPACITIES[1]))

            interrupted = Interrupted(redis_server.url, at, meanwhile)
            bits = BloomFilter(CAPACITIES[0], 1e-6)
            bits.add("a")
            try:
                kept = restored(interrupted, world.catalogue, Shared.of(listed, 1), bits, every_bit)
            finally:
                interrupted.close()
            if done:
                happened += 1
                assert not kept or interrupted.left == -1, at
            elif kept:
                world.drop(listed)
            if next_one:
                [new] = next_one
                found = link.run(world.catalogue.find(b"f"))
                assert found is not None
                assert found.uid == new.uid
                world.drop(new)
            assert not world.left(), (at, again, world.left())
            assert link.run(world.catalogue.find(b"f")) is None
            world.drop(world.make(CAPACITIES[1]))
    assert happened >= 2


def test_strings_that_were_left(link: Link, redis_server: RedisServer) -> None:
    """Whoever makes the next one of that name does not take over the bits of one that was dropped,
    whether it is made alike or not."""
    world = World(link)
    for capacity in CAPACITIES:
        listed = world.make(CAPACITIES[0])
        kept = {key: redis_server.run("DUMP", key.decode()) for key in world.left()}
        world.drop(listed)
        for key, value in kept.items():
            redis_server.run("RESTORE", key.decode(), 0, value)
        made = world.make(capacity)
        assert made.uid != listed.uid
        assert loaded(link, made).estimated_count == 0
        world.drop(made)
    assert not world.left()


def test_strings_that_are_not_listed(link: Link) -> None:
    """Whoever made them died before: one that is made alike takes them over; for who wants another
    one they are listed, so that they can be dropped."""
    world = World(link)
    listed = world.make(CAPACITIES[0])
    link.run(world.catalogue.change(b"f", listed, None))
    assert world.make(CAPACITIES[0]).uid == listed.uid
    link.run(world.catalogue.change(b"f", link.run(world.catalogue.find(b"f")), None))
    with pytest.raises(errors.FilterExists, match="capacity 1,000 and not 100"):
        world.make(CAPACITIES[1])
    found = link.run(world.catalogue.find(b"f"))
    assert found is not None
    assert (found.uid, found.settings["capacity"]) == (listed.uid, CAPACITIES[0])
    world.drop(found)
    world.drop(world.make(CAPACITIES[1]))
    assert not world.left()


def test_strings_of_a_program(link: Link, redis_server: RedisServer) -> None:
    """They are nobody's to clear or to list."""
    world = World(link)
    with RedisFilter.create(redis_server.url, "f", CAPACITIES[0], 1e-6) as own:
        for capacity in CAPACITIES:
            with pytest.raises(errors.IncompatibleFilters, match="made by a program"):
                world.make(capacity)
        assert link.run(world.catalogue.find(b"f")) is None
        assert own.add("a")
        own.delete()
