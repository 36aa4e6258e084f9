"""What is kept beside a filter's bits, and the errors that Redis's own become."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import exceptions

from bloomery.errors import CorruptData, FilterExists, StoreRefused
from bloomery.integrations.redis.config import Config, planned
from bloomery.integrations.redis.naming import Keys
from bloomery.integrations.redis.wire.failures import checked, refused


def plan(capacity: int = 1000, **options: Any) -> Config:
    """A configuration."""
    usual: dict[str, Any] = {"layout": "blocked", "hasher": "xxh3", "seed": 0, "shards": "auto"}
    return planned(capacity, options.pop("error_rate", 0.01), **usual | options)


def test_there_and_back() -> None:
    """What is written can be read, whatever its settings."""
    for config in (plan(), plan(layout="classic", shards=3), plan().settled()):
        assert Config.from_json("seen", config.to_json()) == config


@given(st.binary(max_size=200) | st.text(max_size=50) | st.none() | st.integers())
def test_what_is_none(data: Any) -> None:
    """Whatever Redis holds there, it is CorruptData or a configuration."""
    with pytest.raises(CorruptData):
        Config.from_json("seen", data)


@given(st.data())
def test_damage(data: st.DataObject) -> None:
    """A byte that changed is told, or changes nothing that matters to reading."""
    good = bytearray(plan().to_json())
    good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = Config.from_json("seen", bytes(good))
    except CorruptData:
        return
    assert found.shards >= 1
    assert found.kind in ("bloom", "counting", "rotating")


DIFFERENT: list[tuple[dict[str, Any], str]] = [
    ({"capacity": 2000}, "capacity 1,000 and not 2,000:"),
    ({"error_rate": 0.02}, r"error_rate 0\.01 and not 0\.02:"),
    ({"layout": "classic"}, "layout 'blocked' and not 'classic'"),
    ({"hasher": "fnv1a"}, "hasher 'xxh3' and not 'fnv1a':"),
    ({"seed": 9}, "seed 0 and not 9:"),
    ({"shards": 4}, "shards 1 and not 4:"),
]


@pytest.mark.parametrize(("options", "told"), DIFFERENT, ids=lambda v: str(v)[:20])
def test_what_differs(options: dict[str, Any], told: str) -> None:
    """The error names what differs, and nothing else."""
    with pytest.raises(FilterExists, match=told) as caught:
        plan().require_same("seen", plan(**options))
    assert "num_bits" not in str(caught.value)
    plan(**options).settled().require_same("seen", plan(**options))


def test_shards_that_do_not_go_round() -> None:
    """Four lines on three shards are two shards of two lines."""
    tiny = plan(180)
    assert plan(180, shards=3).shards in (2, 3)
    assert tiny.shards == 1
    # Past 512 MiB by itself.
    assert plan(10**9).shards == 3
    assert plan(10**9, shards=64).shards == 64


@given(st.lists(st.text(min_size=1, max_size=6).filter(lambda t: t.isprintable()), max_size=8))
def test_names_apart(names: list[str]) -> None:
    """Two filters never share a key, and each key has one hash tag, which is its shard's."""
    shards = {(name, n): Keys(name).bits(n) for name in set(names) for n in (1, 3)}
    keys = [key for some in shards.values() for key in some]
    keys += [Keys(name).config for name in set(names)]
    assert all(key.count(b"{") == key.count(b"}") == 1 for key in keys)
    assert all(key.startswith(b"{") for key in keys)
    configs = {Keys(name).config for name in names}
    assert len(configs) == len(set(names))


SAID: list[tuple[Exception, str]] = [
    (exceptions.OutOfMemoryError("command not allowed"), "maxmemory"),
    (exceptions.ReadOnlyError("You can't write"), "replica"),
    (exceptions.ResponseError("MISCONF Redis is configured to save"), "disk"),
    (exceptions.AuthenticationError("Authentication required."), "wants a password"),
    (exceptions.AuthenticationError("invalid username-password pair"), "no such user"),
    (exceptions.NoPermissionError("User x has no permissions"), "may not"),
    (exceptions.ResponseError("WRONGTYPE Operation against a key"), "another value"),
    (exceptions.MovedError("5 host:1"), "redis\\+cluster"),
    (exceptions.ResponseError("NOREPLICAS Not enough good replicas"), "min-replicas-to-write"),
    (exceptions.ResponseError("something about OOM and READONLY"), "Redis refused: something"),
]


@pytest.mark.parametrize(("problem", "told"), SAID, ids=lambda v: str(v)[:20])
def test_refusals(problem: Exception, told: str) -> None:
    """Each refusal of Redis has its own words and a next step."""
    with pytest.raises(StoreRefused, match=told):
        checked([1, problem])
    assert len(str(refused(exceptions.ResponseError("x" * 9999)))) < 400
