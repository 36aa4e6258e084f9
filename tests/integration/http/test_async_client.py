"""The client for asyncio: the same requests as the other one's, awaited."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bloomery
from bloomery import AsyncClient, BloomFilter, Client, CountingBloomFilter, errors
from bloomery.client import AsyncRemoteFilter, RemoteFilter
from integration.servers import BloomeryServer


@pytest.fixture
def run(server: BloomeryServer) -> Callable[[Callable[[AsyncClient], Awaitable[None]]], None]:
    """Run a coroutine function with a client."""

    def running(work: Callable[[AsyncClient], Awaitable[None]]) -> None:
        async def main() -> None:
            async with AsyncClient(server.url) as client:
                await work(client)

        asyncio.run(main())

    return running


def public(one: type) -> dict[str, Any]:
    return {name: value for name, value in vars(one).items() if not name.startswith("_")}


@pytest.mark.parametrize(
    ("sync", "aio"), [(Client, AsyncClient), (RemoteFilter, AsyncRemoteFilter)]
)
def test_both_clients_are_alike(sync: type, aio: type) -> None:
    """What one client has the other has too, with the same arguments: but for `in` of a client,
    which cannot be awaited and has a name there, and figures, which are in `info`."""
    mine, other = public(sync), public(aio)
    figures = {name for name, value in mine.items() if isinstance(value, property)} - {"name"}
    assert set(other) - {"has"} == set(mine) - figures
    for name in set(mine) & set(other):
        if callable(mine[name]):
            assert inspect.signature(mine[name]).parameters == inspect.signature(
                other[name]
            ).parameters or name in {"merge"}, name


def test_everything_once(run: Any, tmp_path: Path) -> None:
    """All that a filter can do, awaited, does what it says."""

    async def work(client: AsyncClient) -> None:
        seen = await client.create("aio", 100_000, 1e-6, kind="counting")
        assert await seen.add("alice")
        assert not await seen.add("alice")
        assert await seen.contains("alice")
        assert not await seen.contains("bob")
        assert await seen.add_many(["a", ("b", 1), b"\xff"]) == [True] * 3
        found = await seen.contains_many(np.array([1, 2]))
        assert isinstance(found, np.ndarray)
        await seen.update(f"key {n}" for n in range(30_000))
        assert sum(await seen.contains_many([f"key {n}" for n in range(30_000)])) == 30_000
        assert sum(await seen.remove_many([f"key {n}" for n in range(10)])) == 10
        assert await seen.remove("a")
        assert not await seen.discard("a")
        with pytest.raises(KeyError):
            await seen.remove("a")
        assert (await seen.info())["kind"] == "counting"
        assert isinstance(await seen.samples(), list)
        await seen.save(tmp_path / "aio.bloom")
        assert await seen.copy_to_local() == bloomery.open(tmp_path / "aio.bloom")
        other = await client.load("aio-2", tmp_path / "aio.bloom")
        await seen.clear()
        assert not await seen.contains("alice")
        await seen.merge(other)
        assert await seen.contains("alice")
        local = CountingBloomFilter(100)
        await other.load(local)
        assert (await other.info())["capacity"] == 100
        await other.rename("aio-3")
        assert await client.has("aio-3")
        assert not await client.has("aio-2")
        assert {name async for name in client} >= {"aio", "aio-3"}
        assert [name async for name in client.names("aio-*")] == ["aio-3"]
        await other.change(expires_at=4e9)
        await other.drop()
        await client.drop("aio")
        assert not await client.has("aio")

    run(work)


def test_many_at_once(run: Any) -> None:
    """Requests that are awaited together are under way together, on several connections."""

    async def work(client: AsyncClient) -> None:
        seen = await client.create("aio-many", 10_000)
        added = await asyncio.gather(*(seen.add(n) for n in range(200)))
        assert sum(added) == 200
        streams = (seen.contains_many(np.arange(20_000)) for _ in range(4))
        for found in await asyncio.gather(*streams):
            assert np.asarray(found)[:200].all()
        await seen.drop()

    run(work)


def test_errors(run: Any, server: BloomeryServer) -> None:
    """Errors are those of the other client."""

    async def work(client: AsyncClient) -> None:
        with pytest.raises(errors.UnknownFilter):
            await client["nowhere"].add("a")
        with pytest.raises(errors.UnknownFilter):
            await client["nowhere"].copy_to_local()
        wrong: Any = 1.5
        with pytest.raises(errors.UnsupportedKey):
            await client["nowhere"].add(wrong)
        async with AsyncClient("http://127.0.0.1:1") as nobody:
            with pytest.raises(errors.ServerUnavailable):
                await nobody.snapshot()
        with pytest.raises(errors.FilterExists):
            await client.load((await client.create("aio-there", 10)).name, BloomFilter(10))
        await client.drop("aio-there")

    run(work)
