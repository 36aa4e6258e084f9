"""A filter of a server after an internal error in the middle of a change: it answers no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from bloomery import Client, _native
from bloomery.errors import CorruptData
from integration.resp.wire import Wire
from unit.filters.test_panics import in_time, panic
from unit.kinds import KEYS, every_other, made
from unit.service.inside import running


@every_other
def test_the_shelf_never_says_no(kind: str) -> None:
    """A key that was added may be nowhere now: to say "definitely not" would be a lie."""
    shelf, filter = _native.Shelf(), made(kind)
    shelf.put(b"broken", filter, 1, family="cf" if kind == "cuckoo" else "bf")
    assert shelf.contains(b"broken", KEYS) == b"\x01" * len(KEYS)
    assert shelf.count(b"broken", KEYS[0]) == 1
    panic(filter, False)
    asks: list[Callable[[], object]] = [
        lambda: shelf.contains(b"broken", KEYS[:1]),
        lambda: shelf.contains(b"broken", KEYS),
        lambda: shelf.count(b"broken", KEYS[0]),
    ]

    def refused(ask: Callable[[], object]) -> None:
        with pytest.raises(CorruptData, match="load it again"):
            ask()

    for ask in asks:
        in_time(partial(refused, ask))


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_server_never_says_no(tmp_path: Path) -> None:
    """Whatever the command, and for however many keys."""
    asks: list[list[str]] = [
        ["BF.EXISTS", "seen", KEYS[0]],
        ["BF.MEXISTS", "seen", KEYS[0]],
        ["BF.MEXISTS", "seen", *KEYS],
        ["BF.MEXISTS", "seen", *KEYS * 20],
        ["BF.ADD", "seen", KEYS[0]],
        ["BF.MADD", "seen", *KEYS * 20],
        ["BF.EXISTS", "kept", KEYS[0]],
        ["BF.MEXISTS", "kept", *KEYS],
    ]

    def ask(port: int, *commands: list[str]) -> list[bytes]:
        with Wire(port) as wire:
            return [wire.ask(*words) for words in commands]

    def ask_http(address: str) -> list[str]:
        told = []
        with Client(f"http://{address}") as client:
            for keys in (KEYS[:1], KEYS, KEYS * 20):
                try:
                    told.append(f"{client.filter('seen').contains_many(keys)}")
                except Exception as problem:  # noqa: BLE001 - looked at below
                    told.append(f"{type(problem).__name__}: {problem}")
        return told

    async def main() -> list[bytes]:
        async with running(tmp_path) as server:
            port = int(server.parts.resp_address.rpartition(":")[2])
            await server.parts.commands.create(b"kept", "cuckoo", capacity=10_000)
            made = ["BF.MADD", "seen", *KEYS], ["BF.MADD", "kept", *KEYS]
            await asyncio.to_thread(ask, port, *made)
            for name in (b"seen", b"kept"):
                panic(server.parts.engine.state.names[name].filter, False)
            told = await asyncio.to_thread(ask_http, server.http_address)
            assert all("load it again" in one for one in told), told
            return await asyncio.to_thread(ask, port, *asks)

    wrong = [
        (words[0], len(words) - 2, reply[:100])
        for words, reply in zip(asks, asyncio.run(main()), strict=True)
        if b":0\r\n" in reply or b"load it again" not in reply
    ]
    assert wrong == []
