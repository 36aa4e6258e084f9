"""RedisBloom's filters, saved and dumped last year and loaded today: the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import bloomery
from golden.make_redisbloom import BUILD, GONE, HELD, dump_of, path_of
from properties.redisbloom_model import Bloom, Cuckoo

every_golden = pytest.mark.parametrize("name", BUILD)
MODELS: dict[str, Callable[[], Any]] = {
    "redisbloom": lambda: Bloom(0.01, 100, 2),
    "redisbloom-nonscaling": lambda: Bloom(0.001, 300, 2, nonscaling=True),
    "rediscuckoo": lambda: Cuckoo(64, 2, 20, 1),
    "rediscuckoo-expanding": lambda: Cuckoo(20, 3, 5, 4),
}


@every_golden
def test_a_fresh_build_is_the_golden_file(name: str) -> None:
    """The same keys in the same order give the same file and the same dump, byte for byte."""
    golden, built = path_of(name, "bloom").read_bytes(), BUILD[name]()
    assert built.to_bytes() == golden
    assert dump_of(built) == path_of(name, "dump").read_bytes()


@every_golden
def test_a_golden_file_is_read(name: str) -> None:
    """Read or mapped, it is a filter of its kind that holds its keys and gives the same dump."""
    for how in ({}, {"mmap": True, "verify": True}):
        filter: Any = bloomery.open(path_of(name, "bloom"), **how)
        assert filter.kind == name.partition("-")[0]
        assert all(key in filter for key in HELD)
        assert dump_of(filter) == path_of(name, "dump").read_bytes()


@every_golden
def test_a_golden_dump_is_the_models(name: str) -> None:
    """The model, written from the facts about RedisBloom, gives the same dump."""
    model = MODELS[name]()
    for key in HELD:
        model.add(key)
    if isinstance(model, Cuckoo):
        for key in GONE:
            model.add(key)
        for key in GONE:
            model.remove(key)
    assert model.header() + b"".join(model.parts()) == path_of(name, "dump").read_bytes()
