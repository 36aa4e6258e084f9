"""RedisBloom's filters beside the model: the same bytes after every step."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bloomery.errors import FilterFull
from bloomery.filters import RedisBloomFilter, RedisCuckooFilter
from bloomery.filters.internals import add_hashes, remove_hashes
from privates import hashes_of
from properties import redisbloom_model as model
from properties.machines import driven

keys = st.one_of(
    st.integers(0, 60).map(lambda n: b"key %d" % n),
    st.binary(max_size=40),
    st.text(max_size=12).map(str.encode),
)
batches = st.lists(keys, max_size=60)


def dumped(filter: Any) -> list[tuple[int, bytes]]:
    """Every part of a dump, with the iterator that came with it."""
    parts: list[tuple[int, bytes]] = []
    iterator = 0
    while True:
        iterator, data = filter.chunk(iterator)
        if iterator == 0:
            assert data == b""
            return parts
        parts.append((iterator, data))


def loaded(parts: list[tuple[int, bytes]], one: Any) -> Any:
    """The filter of a dump."""
    filter = one.from_dump(parts[0][1])
    for iterator, data in parts[1:]:
        filter.load_chunk(iterator, data)
    return filter


def by_file(filter: Any, **how: bool) -> Any:
    """Saved to a file that is then opened."""
    with tempfile.TemporaryDirectory(prefix="bloomery-machine-") as folder:
        path = Path(folder, "f")
        filter.save(path)
        return type(filter).load(path, **how)


JOURNEYS: dict[str, Any] = {
    "copy": lambda filter: filter.copy(),
    "bytes": lambda filter: type(filter).from_bytes(filter.to_bytes()),
    "pickle": lambda filter: pickle.loads(pickle.dumps(filter)),
    "file": by_file,
    "map": lambda filter: by_file(filter, mmap=True, verify=True).copy(),
}


class BesideTheModel(RuleBasedStateMachine):
    """What the machines of both have in common."""

    filter: Any
    model: Any
    one: ClassVar[Any]

    def __init__(self) -> None:
        super().__init__()
        self.held: list[bytes] = []

    def hashes(self, keys: list[bytes]) -> bytes:
        """Those of all of them, as in a log."""
        return b"".join(hashes_of(self.filter, key) for key in keys)

    def add(self, key: bytes) -> None:
        """Add to both: the same answer, or both are full."""
        try:
            expected = self.model.add(key)
        except model.Full as full:
            with pytest.raises(FilterFull, match=str(full)):
                self.filter.add(key)
            return
        assert self.filter.add(key) is expected
        self.held.append(key)

    @rule(key=keys)
    def add_one(self, key: bytes) -> None:
        self.add(key)

    @rule(batch=batches)
    def add_some(self, batch: list[bytes]) -> None:
        for key in batch:
            self.add(key)

    @rule(start=st.integers(0, 10**6), count=st.integers(50, 300))
    def replay(self, start: int, count: int) -> None:
        """By hashes, as from a log; what finds no room is left out."""
        batch, new = [b"%d" % n for n in range(start, start + count)], 0
        for key in batch:
            try:
                new += self.model.add(key) in (True, None)
                self.held.append(key)
            except model.Full:
                pass
        assert add_hashes(self.filter, self.hashes(batch)) == new

    @rule(key=keys)
    def ask(self, key: bytes) -> None:
        assert (key in self.filter) == self.model.contains(key)

    @rule(name=st.sampled_from(sorted(JOURNEYS)))
    def travel(self, name: str) -> None:
        before = self.filter
        self.filter = JOURNEYS[name](before)
        assert self.filter == before

    @rule()
    def dump_and_load(self) -> None:
        parts = dumped(self.filter)
        if parts:
            self.filter = loaded(parts, self.one)
            assert dumped(self.filter) == parts

    @invariant()
    def every_byte_is_the_models(self) -> None:
        parts = [data for _, data in dumped(self.filter)]
        expected = [self.model.header(), *self.model.parts()]
        assert parts == ([] if self.one is RedisCuckooFilter and not self.model.items else expected)

    @invariant()
    def nothing_is_forgotten(self) -> None:
        assert all(key in self.filter for key in self.held[-200:])


class BloomBesideTheModel(BesideTheModel):
    """BF: it grows, or is full."""

    one = RedisBloomFilter

    @initialize(
        rate=st.sampled_from([0.9, 0.3, 0.25, 0.1, 0.01, 1e-4, 1e-9]),
        capacity=st.integers(1, 100),
        expansion=st.sampled_from([0, 1, 2, 3, 7]),
        nonscaling=st.booleans(),
    )
    def start(self, rate: float, capacity: int, expansion: int, nonscaling: bool) -> None:
        nonscaling = nonscaling and capacity % 3 == 0
        capacity = capacity + 40 if expansion == 1 else capacity  # else it has hundreds of layers
        self.filter = RedisBloomFilter(rate, capacity, expansion, nonscaling)
        self.model = model.Bloom(rate, capacity, expansion, nonscaling)

    @invariant()
    def the_figures_are_the_models(self) -> None:
        assert self.filter.redis_size == self.model.size
        assert self.filter.estimated_count == self.model.items
        assert self.filter.num_layers == len(self.model.links)
        assert [layer["keys"] for layer in self.filter.layers()] == [
            link.size for link in self.model.links
        ]


class CuckooBesideTheModel(BesideTheModel):
    """CF: it grows, shrinks, or is full."""

    one = RedisCuckooFilter

    @initialize(
        capacity=st.integers(1, 200),
        bucket_size=st.sampled_from([1, 2, 3, 4, 8, 255]),
        iterations=st.sampled_from([1, 5, 20]),
        expansion=st.sampled_from([0, 1, 2, 3, 4]),
    )
    def start(self, capacity: int, bucket_size: int, iterations: int, expansion: int) -> None:
        self.filter = RedisCuckooFilter(capacity, bucket_size, iterations, expansion)
        self.model = model.Cuckoo(capacity, bucket_size, iterations, expansion)

    @rule(key=keys)
    def add_if_new(self, key: bytes) -> None:
        if self.model.contains(key):
            assert self.filter.add_new(key) is False
        elif self.filter.expansion:
            self.model.add(key)
            assert self.filter.add_new(key) is True
            self.held.append(key)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), share=st.sampled_from([0.02, 0.3, 0.9]))
    def remove(self, data: st.DataObject, share: float) -> None:
        data.draw(st.randoms(use_true_random=False)).shuffle(self.held)
        gone = [self.held.pop() for _ in range(int(len(self.held) * share))]
        for key in gone[::2]:
            assert self.model.remove(key)
            assert self.filter.discard(key)
        hashes = self.hashes(gone[1::2])
        assert all(self.model.remove(key) for key in gone[1::2])
        assert remove_hashes(self.filter, hashes) == len(gone[1::2])

    @rule(key=st.binary(min_size=50, max_size=60))
    def remove_what_is_not_there(self, key: bytes) -> None:
        if not self.model.contains(key):
            assert self.filter.discard(key) is False

    @rule()
    def compact(self) -> None:
        self.model.compact()
        self.filter.compact()

    @rule(key=keys)
    def count(self, key: bytes) -> None:
        assert self.filter.count(key) == self.model.count(key)

    @invariant()
    def the_figures_are_the_models(self) -> None:
        assert self.filter.redis_size == self.model.info_size
        assert self.filter.estimated_count == self.model.items
        assert self.filter.num_removed == self.model.deletes


TestBloomBesideTheModel = driven(BloomBesideTheModel)
TestCuckooBesideTheModel = driven(CuckooBesideTheModel)
