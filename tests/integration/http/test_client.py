"""A remote filter beside a local one: the same calls, the same answers; and filters by name."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bloomery import Client, errors
from bloomery.filters import COMMON_KINDS
from conftest import effort, require
from integration.resp.wire import Connection
from integration.servers import Serve
from properties import strategies

NUMBERS = itertools.count()
REMOVING = ("counting", "deletable", "cuckoo")


def new_name() -> str:
    """A name that no other test has."""
    return f"client/é {next(NUMBERS)}"


def outcome(work: Callable[[], Any]) -> Any:
    """What a call gives, or the class of what it raises."""
    try:
        found = work()
    except (errors.BloomeryError, KeyError) as problem:
        return type(problem)
    return found.tolist() if isinstance(found, np.ndarray) else found


_key = strategies.keys | st.sampled_from(["a", "b", b"\xff", 7, ("a", 1)])
_keys = st.lists(_key, max_size=8)
_ints = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 5), max_size=8)
_texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), max_size=8)
# The name of what is done, what with, and how that is made a batch.
_steps = st.one_of(
    st.tuples(st.sampled_from(["add", "in", "contains"]), _key),
    st.tuples(st.sampled_from(["add_many", "contains_many", "update"]), _keys),
    st.tuples(
        st.sampled_from(["add_many", "contains_many", "update"]),
        _ints.map(lambda keys: np.array(keys, dtype="int64")),
    ),
    st.tuples(
        st.sampled_from(["add_many", "contains_many"]),
        _texts.map(lambda keys: require("pyarrow").array(keys, "string")),
    ),
    st.tuples(st.sampled_from(["clear"]), st.none()),
)
_removals = st.one_of(
    st.tuples(st.sampled_from(["remove", "discard"]), _key),
    st.tuples(st.sampled_from(["remove_many"]), _keys),
)


def done(filter: Any, step: tuple[str, Any]) -> Any:
    """What a step comes to."""
    what, given = step
    if what == "in":
        return outcome(lambda: given in filter)
    method = getattr(filter, what)
    return outcome(method if given is None else lambda: method(given))


def beside(client: Client, kind: str, **options: Any) -> tuple[Any, Any]:
    """A remote filter and a local one, made alike."""
    one: Any = COMMON_KINDS[kind]
    remote = client.create(new_name(), 1000, 1e-6, kind=kind, **options)
    return remote, one(1000, 1e-6, **options)


@pytest.mark.parametrize("kind", ["bloom", "scalable", "counting", "deletable", "cuckoo"])
def test_remote_and_local_side_by_side(client: Client, kind: str) -> None:
    """Whatever is done to a remote filter and to a local one comes to the same, errors too; and
    taken out of the server it is the local one."""
    steps = _steps | _removals if kind in REMOVING else _steps

    @settings(
        max_examples=effort(5, 12, 500),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(st.lists(steps, min_size=1, max_size=25))
    def run(steps: list[tuple[str, Any]]) -> None:
        remote, local = beside(client, kind)
        try:
            for step in steps:
                assert done(remote, step) == done(local, step), step
            assert remote.copy_to_local() == local
        finally:
            remote.drop()

    run()


@pytest.mark.parametrize("kind", ["bloom", "counting"])
def test_figures_and_merging(client: Client, kind: str) -> None:
    """What a filter says about itself is what the local one says; so is a merge."""
    (one, local), (other, its) = beside(client, kind), beside(client, kind)
    for filters, keys in (((one, local), range(300)), ((other, its), range(200, 500))):
        for filter in filters:
            filter.update(np.array(keys))
    for name in ("kind", "capacity", "error_rate", "nbytes"):
        assert getattr(one, name) == getattr(local, name), name
    for name in ("fill_ratio", "estimated_count", "estimated_error_rate"):
        assert getattr(one, name) == pytest.approx(getattr(local, name)), name
    assert one.info().items() >= {"kind": kind, "items": 300, "adds": 300}.items()
    one |= other
    local |= its
    assert one.copy_to_local() == local
    one.merge(other.name, other)
    assert one.estimated_count == pytest.approx(500, abs=5)


def test_a_rotating_filter(client: Client) -> None:
    """A rotating filter forgets what its generations are done with, when it is told to rotate."""
    filter = client.create(new_name(), 100, kind="rotating", window="7d", generations=2)
    filter.add("a")
    for _ in range(2):
        filter.rotate()
        assert "a" in filter
    filter.rotate()
    assert "a" not in filter


NAMES = [
    *("plain", "with space", "a/b", "..", ".", "%2F", "é", "a?b#c", "a\\b", "\u2028", "q\x00"),
    *("x" * 1024, b"\xff\xfe", "a\\xff", "a+b&c=d", "*", "[a-z]", "~", "filters"),
]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:20])
def test_any_name(client: Client, name: str | bytes) -> None:
    """A filter of any name is made, found, listed, renamed and dropped."""
    filter = client.create(name, 10)
    assert filter.add("a")
    assert "a" in client[name]
    assert name in client
    assert name in list(client)
    filter.rename(new_name())
    assert name not in client
    filter.rename(name)
    assert filter.name == name
    client.drop(name)
    assert name not in client
    with pytest.raises(errors.UnknownFilter):
        client.drop(name)


def test_many_names(serve: Serve) -> None:
    """All names come, however many pages that takes; a pattern picks some."""
    server = serve()
    with Client(server.url) as client, Connection(server.resp_port) as resp:
        assert list(client) == []
        wanted = {f"{n % 7}:{n}" for n in range(1_100)}
        resp.ask_all(("BF.ADD", name, "a") for name in wanted)
        assert set(client) == wanted
        assert len(list(client)) == len(wanted)
        assert set(client.names("3:*")) == {name for name in wanted if name.startswith("3:")}


def test_a_filter_needs_no_round_trip(client: Client) -> None:
    """Asking for a filter by name asks the server nothing; the first use does."""
    filter = client["not there"]
    assert filter.name == "not there"
    with pytest.raises(errors.UnknownFilter, match="not there"):
        filter.add("a")


def test_what_is_changed(client: Client) -> None:
    """A filter can be given an end, and is gone when that has come."""
    filter = client.create(new_name(), 10)
    filter.change(expires_at=4e9)
    assert filter.info()["expires_at"] == 4e9
    filter.change(expires_at=1.0)
    assert filter.name not in client


def test_an_error_rate_as_people_write_it(client: Client) -> None:
    """A client takes "1%" too, as a local filter does, and refuses what is no rate."""
    assert client.create(new_name(), 10, "1%").error_rate == 0.01
    with pytest.raises(errors.InvalidParameter, match="error_rate must be a number"):
        client.create(new_name(), 10, "often")


def test_samples(client: Client) -> None:
    """A filter's samples are a list, with or without a range."""
    filter = client.create(new_name(), 10)
    assert isinstance(filter.samples(), list)
    assert filter.samples(since=0, until=1, limit=5) == []


def test_a_server_that_is_gone(serve: Serve) -> None:
    """A server that went away is ServerUnavailable; back at the same place, it is used again."""
    server = serve()
    with Client(server.url) as client:
        client.create("seen", 10)
        server.stop()
        with pytest.raises(errors.ServerUnavailable):
            client["seen"].add("a")
        with pytest.raises(errors.ServerUnavailable):
            assert "seen" in client
