"""Errors of a server as a client of it sees them: each of the class that says what is wrong."""

from __future__ import annotations

import contextlib
import itertools
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nursery
from bloomery import BloomFilter, Client, CountingBloomFilter, ScalableBloomFilter, errors
from integration.servers import BloomeryServer, Serve, wait_until

NUMBERS = itertools.count()


@pytest.fixture
def filter(client: Client) -> Any:
    """A plain filter for ten keys."""
    return client.create(f"error {next(NUMBERS)}", 10, kind="bloom")


def test_names_that_are_taken_or_missing(client: Client, filter: Any) -> None:
    """FilterExists and UnknownFilter."""
    with pytest.raises(errors.FilterExists):
        client.create(filter.name, 10)
    with pytest.raises(errors.UnknownFilter):
        client.filter("nowhere").info()
    with pytest.raises(errors.UnknownFilter):
        client.filter("nowhere").contains_many(np.arange(20_000))
    other = client.create(f"error {next(NUMBERS)}", 10)
    with pytest.raises(errors.FilterExists):
        other.rename(filter.name)


@pytest.mark.parametrize(
    "settings",
    [
        {"capacity": 0},
        {"capacity": 10, "error_rate": 2.0},
        {"capacity": 10, "kind": "other"},
        {"capacity": 10, "layot": "blocked"},
        {},
    ],
    ids=repr,
)
def test_parameters(client: Client, settings: dict[str, Any]) -> None:
    """InvalidParameter, for whatever is wrong about a new filter."""
    with pytest.raises(errors.InvalidParameter):
        client.create(f"error {next(NUMBERS)}", **settings)


def test_a_filter_that_is_full(filter: Any) -> None:
    """FilterFull, for one key, for a list and in a stream; those before it are in."""
    filter.update(range(10))
    with pytest.raises(errors.FilterFull):
        filter.add("one too many")
    with pytest.raises(errors.FilterFull):
        filter.add_many(["one", "more"])
    with pytest.raises(errors.FilterFull):
        filter.update(np.arange(20_000))
    assert all(filter.contains_many(range(10)))


def test_kinds_that_cannot(client: Client, filter: Any) -> None:
    """ReadOnlyFilter for what a kind cannot do, IncompatibleFilters for what does not fit."""
    with pytest.raises(errors.ReadOnlyFilter):
        filter.remove("a")
    with pytest.raises(errors.ReadOnlyFilter):
        filter.remove_many(["a"])
    with pytest.raises(errors.ReadOnlyFilter):
        filter.remove_many(np.arange(20_000))
    with pytest.raises(errors.BloomeryError):
        filter.rotate()
    other = client.create(f"error {next(NUMBERS)}", 1000)
    with pytest.raises(errors.IncompatibleFilters):
        filter.merge(other)


def test_saved_filters_that_are_none(client: Client, tmp_path: Path) -> None:
    """CorruptData and UnsupportedVersion, for files that are damaged or from the future."""
    whole = BloomFilter.from_keys(range(100)).to_bytes()
    path = tmp_path / "saved"
    name = f"error {next(NUMBERS)}"
    wrong = {
        "empty": b"",
        "short": whole[:100],
        "cut": whole[:-1],
        "longer": whole + b"a",
        "flipped": whole[:-1] + bytes([whole[-1] ^ 1]),
        "other": b"GIF89a" + whole,
    }
    for what, data in wrong.items():
        path.write_bytes(data)
        with pytest.raises(errors.CorruptData):
            client.load(name, path)
        assert name not in client, what


def test_keys_that_are_none(filter: Any) -> None:
    """UnsupportedKey, InvalidKey, NullKey and UnsupportedBatch, before anything is sent or in
    mid-stream."""
    wrong: list[tuple[Any, type[Exception]]] = [
        (1.5, errors.UnsupportedKey),
        ("\ud800", errors.InvalidKey),
        (None, errors.UnsupportedKey),
    ]
    for key, error in wrong:
        with pytest.raises(error):
            filter.add(key)
        with pytest.raises(errors.BloomeryError):
            filter.add_many(itertools.chain(range(20_000), [key]))
    with pytest.raises(errors.NullKey, match="row 1"):
        filter.add_many(["a", None])
    with pytest.raises(errors.UnsupportedBatch):
        filter.add_many("abc")


def test_no_memory(serve: Serve) -> None:
    """NotEnoughMemory where a server may not take more, for a new filter and for one that grows."""
    with Client(serve("--set", "maxmemory=4mb").url) as client:
        with pytest.raises(errors.NotEnoughMemory):
            client.create("large", 100_000_000)
        grows = client.create("grows", 1000, kind="scalable")
        with pytest.raises(errors.NotEnoughMemory):
            grows.update(np.arange(20_000_000))
        with pytest.raises(errors.NotEnoughMemory):
            client.load("local", ScalableBloomFilter(10_000_000))


def test_too_many_answers(serve: Serve) -> None:
    """RequestTooLarge for more answers than a server holds; without answers there is no limit."""
    with Client(serve("--set", "http-max-answers=20000").url) as client:
        filter = client.create("seen", 100_000)
        with pytest.raises(errors.RequestTooLarge, match="20000"):
            filter.add_many(np.arange(30_000))
        filter.update(np.arange(30_000))
        assert np.asarray(filter.contains_many(np.arange(20_000))).all()


def test_a_server_that_cannot_write(serve: Serve) -> None:
    """LogUnavailable where the log cannot be written, for one key and in a stream; questions go
    on."""
    server = serve()
    with Client(server.url) as client:
        filter = client.create("seen", 1_000_000)
        filter.add("a")
        assert server.process is not None
        limit(server, 0)
        with pytest.raises(errors.LogUnavailable):
            filter.update(np.arange(10))
        with pytest.raises(errors.LogUnavailable):
            filter.update(np.arange(500_000))
        with pytest.raises(errors.LogUnavailable):
            filter.add("b")
        assert "a" in filter
        limit(server, -1)
        wait_until(lambda: _added(filter))
        assert "c" in filter


def limit(server: BloomeryServer, nbytes: int) -> None:
    """Let no file of the server become longer than that; -1: as long as they like."""
    assert server.process is not None
    most = resource.RLIM_INFINITY
    resource.prlimit(
        server.process.pid, resource.RLIMIT_FSIZE, (most if nbytes < 0 else nbytes, most)
    )


def _added(filter: Any) -> bool:
    with contextlib.suppress(errors.LogUnavailable):
        filter.add("c")
        return True
    return False


@pytest.fixture
def closed(serve: Serve) -> tuple[BloomeryServer, str]:
    """A server with users, and the token of one who may only read some filters."""
    server = serve()

    def user(*words: str, given: str = "") -> str:
        done = nursery.run(["user", *words, "--data", str(server.data)], given.encode())
        assert done.returncode == 0, done.stderr
        return done.stdout.decode().strip()

    user("add", "ann", "--role", "admin", "--password-stdin", given="correct horse\n")
    user("add", "reader", "--role", "read", "--filters", "open:*", "--no-password")
    token = user("token", "reader").splitlines()[-1]
    server.stop()
    server.start()  # it would follow within a second; now it knows them from the first request on
    return server, token


def test_users(closed: tuple[BloomeryServer, str]) -> None:
    """NotLoggedIn and NotAllowed; a password and a token let in who they belong to."""
    server, token = closed
    with Client(server.url) as nobody, pytest.raises(errors.NotLoggedIn):
        list(nobody)
    with Client(server.url, user="ann", password="correct horse") as ann:
        ann.create("open:a", 10).add("a")
        ann.create("closed", 10)
    with Client(server.url, token=token) as reader:
        assert list(reader) == ["open:a"]
        assert "a" in reader["open:a"]
        assert reader["open:a"].copy_to_local().contains_many(["a", "b"]) == [True, False]
        for refused in (
            lambda: reader["open:a"].add("b"),
            lambda: reader["open:a"].update(np.arange(20_000)),
            lambda: reader["closed"].info(),
            lambda: reader.load("open:b", CountingBloomFilter(10)),
            lambda: reader["open:a"].clear(),
            lambda: reader.snapshot(),
        ):
            with pytest.raises(errors.NotAllowed):
                refused()
    # Last: failed logins are slowed.
    wrong_ones: list[Any] = [{"token": "bloomery_no"}, {"user": "ann", "password": "wrong"}]
    for wrong in wrong_ones:
        with Client(server.url, **wrong) as stranger, pytest.raises(errors.NotLoggedIn):
            list(stranger)
