"""Dumps that somebody has changed: refused with an error, or loaded into a filter that works."""

import random
import struct

import pytest

from conftest import effort, require
from integration.resp.wire import Wire, dump, told
from integration.servers import Serve

psutil = require("psutil")
MIB = 1 << 20
# Numbers that overflow, are negative or enormous where a size is expected.
NUMBERS = (0, 1, 2, 7, 255, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 63, (1 << 64) - 1)


def changed(rng: random.Random, data: bytes) -> bytes:
    """The same bytes with something wrong about them."""
    out = bytearray(data)
    kind = rng.randrange(5)
    if kind == 0 and out:
        out[rng.randrange(len(out))] = rng.randrange(256)
    elif kind == 1 and len(out) >= 8:
        number = struct.pack("<Q", rng.choice(NUMBERS))
        at, width = rng.randrange(len(out) - 7), rng.choice((1, 2, 4, 8))
        out[at : at + width] = number[:width]
    elif kind == 2:
        del out[rng.randrange(len(out) + 1) :]
    elif kind == 3:
        out += rng.randbytes(rng.randrange(1, 100))
    return bytes(out)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["BF bloomery", "BF redisbloom", "CF redisbloom"])
def test_changed_dumps(serve: Serve, case: str) -> None:
    """Whatever parts a client loads, in whatever order, the server answers, within its memory; what
    it then has can be used, dumped and read again after a kill."""
    door, layout = case.split()
    server = serve("--maxmemory", "64mb", "--bf-layout", layout)
    rng = random.Random(20_261_116)
    with Wire(server.resp_port) as wire:
        wire.ask(f"{door}.RESERVE", "a", *(("0.01", 50) if door == "BF" else (50,)))
        wire.ask(f"{door}.INSERT", "a", "ITEMS", *range(200))
        parts = dump(wire, f"{door}.SCANDUMP", "a")
        most = psutil.Process(server.pid).memory_info().rss + 256 * MIB
        for number in range(effort(200, 500, 50_000)):
            name = f"b{number % 20}"
            wire.ask("DEL", name)
            for iterator, data in parts if rng.random() < 0.8 else rng.sample(parts, len(parts)):
                at = (
                    iterator if rng.random() < 0.9 else rng.choice([*NUMBERS[:6], -1, iterator + 1])
                )
                reply = told(wire.ask(f"{door}.LOADCHUNK", name, at, changed(rng, data)))
                assert reply == "+OK" or reply.startswith("-"), reply
                assert "Traceback" not in reply
            for words in (
                (f"{door}.MEXISTS", name, *range(20)),
                (f"{door}.INSERT", name, "NOCREATE", "ITEMS", *range(50)),
                (f"{door}.INFO", name),
                (f"{door}.DEBUG", name),
                (f"{door}.SCANDUMP", name, 0),
                (f"{door}.SCANDUMP", name, 1),
                (f"{door}.DEL", name, 3),
                ("COPY", name, "copy", "REPLACE"),
            ):
                assert wire.ask(*words), words
            if number % 50 == 0:
                assert psutil.Process(server.pid).memory_info().rss < most
        names = sorted(told(wire.ask("KEYS", "*")).strip("[]").split(", "))
        cards = [wire.ask(f"{door}.DEBUG", name.strip('"')) for name in names]
    assert "Traceback" not in server.printed(), server.printed()[-4000:]
    server.kill()
    server.start()
    assert "recovery:" not in server.printed(), server.printed()
    with Wire(server.resp_port) as wire:
        assert sorted(told(wire.ask("KEYS", "*")).strip("[]").split(", ")) == names
        if layout == "redisbloom":
            assert [wire.ask(f"{door}.DEBUG", name.strip('"')) for name in names] == cards
