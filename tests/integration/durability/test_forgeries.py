"""Filters that come over the wire are hostile: forged ones are refused, and nothing is allocated,
lost or broken by them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from conftest import effort
from integration.conftest import open_folder
from integration.durability.load import KINDS
from integration.resp.wire import Connection, Refused
from integration.servers import BloomeryServer
from properties.forgery import FIELDS, forged

LIMIT = 64 << 20  # of all filters
GROWTH = 96 << 20  # of the process: the limit, and what a server takes itself
NUMBERS = [0, 1, 2, 63, 64, 65, 255, 2**16 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1]


class Target:
    """A server with a filter of every kind, and its dumps."""

    def __init__(self, server: BloomeryServer) -> None:
        self.server = server
        self.connection = Connection(server.resp_port)
        self.dumps: dict[str, list[tuple[int, bytes]]] = {}
        for layout in ("bloomery", "redisbloom"):
            self.connection.ask("CONFIG", "SET", "bf-layout", layout)
            for kind, (command, *rest) in KINDS.items():
                if layout == "redisbloom" and kind != "scalable":
                    continue
                name = layout if layout == "redisbloom" else kind
                self.connection.ask(command, name, *rest)
                door = str(command)[:2]
                for number in range(300):
                    self.connection.ask(f"{door}.ADD", name, f"key-{number}")
                self.dumps[name] = self.dump(door, name)
        self.before = self.peak()

    def dump(self, door: str, name: str) -> list[tuple[int, bytes]]:
        """All chunks of a filter, each with its iterator."""
        chunks: list[tuple[int, bytes]] = []
        iterator = 0
        while True:
            iterator, data = self.connection.ask(f"{door}.SCANDUMP", name, iterator)
            if iterator == 0:
                return chunks
            chunks.append((iterator, data))

    def peak(self) -> int:
        """Return the most bytes of memory that the server's process ever had: what it has now
        depends on whether the last forgery is freed yet."""
        status = Path(f"/proc/{self.server.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) << 10

    def load(self, kind: str, chunks: list[tuple[int, bytes]]) -> list[Any]:
        """Load chunks under a new name and use what came of them; the replies."""
        door = "CF" if kind == "rediscuckoo" else "BF"
        commands: list[tuple[Any, ...]] = [
            (f"{door}.LOADCHUNK", "forged", iterator, data) for iterator, data in chunks
        ]
        commands += [(f"{door}.EXISTS", "forged", f"key-{number}") for number in range(20)]
        commands += [
            (f"{door}.ADD", "forged", "another"),
            (f"{door}.DEL", "forged", "another"),
            (f"{door}.INFO", "forged"),
            (f"{door}.SCANDUMP", "forged", 0),
            ("COPY", "forged", "copy"),
        ]
        replies = self.connection.ask_all(commands)
        self.connection.ask("DEL", "forged", "copy")
        return replies

    def unharmed(self) -> None:
        """The server has not grown, and its own filters are there."""
        assert self.peak() - self.before < GROWTH
        for kind in self.dumps:
            door = "CF" if kind == "rediscuckoo" else "BF"
            keys = [f"key-{number}" for number in range(300)]
            assert all(self.connection.ask(f"{door}.MEXISTS", kind, *keys)), kind
        assert "internal error" not in self.server.printed()
        assert "Traceback" not in self.server.printed()


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    """A server to be attacked."""
    with open_folder() as folder:
        server = BloomeryServer(folder, "--maxmemory", str(LIMIT))
        server.start()
        try:
            made = Target(server)
            yield made
            made.connection.close()
            server.kill()
            server.start()  # on a log of all these forgeries
            with Connection(server.resp_port) as connection:
                assert connection.info()["recovery_problems"] == "0"
                assert set(connection.ask("KEYS", "*")) == {name.encode() for name in made.dumps}
        finally:
            server.kill()


NAMES = sorted({*KINDS, "redisbloom"})


@pytest.mark.parametrize("kind", NAMES)
def test_what_was_dumped_loads(target: Target, kind: str) -> None:
    """The chunks of a filter, as SCANDUMP gave them, are the filter again, key for key."""
    replies = target.load(kind, target.dumps[kind])
    chunks = len(target.dumps[kind])
    assert replies[:chunks] == [b"OK"] * chunks
    assert replies[chunks : chunks + 20] == [1] * 20


@settings(max_examples=effort(40, 200, 10_000))
@given(data=st.data())
def test_damaged_chunks(target: Target, data: st.DataObject) -> None:
    """Chunks with bytes changed, cut off, in another order or under other iterators do no harm."""
    kind = data.draw(st.sampled_from(NAMES))
    chunks = list(target.dumps[kind])
    at = data.draw(st.integers(0, len(chunks) - 1))
    iterator, body = chunks[at]
    raw = bytearray(body)
    for _ in range(data.draw(st.integers(0, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        raw = raw[: data.draw(st.integers(0, len(raw)))]
    if data.draw(st.booleans()):
        iterator = data.draw(st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 300))
    chunks[at] = (iterator, bytes(raw))
    if data.draw(st.booleans()):
        chunks = data.draw(st.permutations(chunks))
    target.load(kind, chunks)
    target.unharmed()


@settings(max_examples=effort(40, 200, 10_000))
@given(
    kind=st.sampled_from([name for name in NAMES if not name.startswith("redis")]),
    field=st.sampled_from(sorted({*FIELDS} - {"magic", "error_rate"})),
    number=st.sampled_from(NUMBERS) | st.integers(0, 2**64 - 1),
)
@example(kind="bloom", field="capacity", number=2**64 - 1)  # as a float it is 2**64
def test_signed_forgeries(target: Target, kind: str, field: str, number: int) -> None:
    """A header of our format with any number in any field, and a checksum that fits, does no
    harm: what it asks for beyond the limit is refused before it is allocated."""
    (first, head), *rest = target.dumps[kind]
    size = {"B": 8, "H": 16, "Q": 64}[FIELDS[field][1][-1]]
    head = forged(head, **{field: number % 2**size})
    target.load(kind, [(first, head), *rest])
    target.unharmed()


@settings(max_examples=effort(40, 200, 10_000))
@given(
    kind=st.sampled_from(["redisbloom", "rediscuckoo"]),
    words=st.lists(
        st.tuples(st.integers(0, 200), st.sampled_from(NUMBERS), st.sampled_from([1, 2, 4, 8])),
        min_size=1,
        max_size=3,
    ),
)
@example(kind="rediscuckoo", words=[(24, 2**16 - 1, 2)])  # layers of 128 KiB, 8 GiB in all
def test_forged_headers_of_redisbloom(
    target: Target, kind: str, words: list[tuple[int, int, int]]
) -> None:
    """A header of RedisBloom's with any numbers anywhere does no harm: it has no checksum, so only
    what is right in every field is taken."""
    (first, head), *rest = target.dumps[kind]
    raw = bytearray(head)
    for at, number, size in words:
        raw[at % len(raw) : at % len(raw) + size] = number.to_bytes(8, "little")[:size]
    target.load(kind, [(first, bytes(raw[: len(head)])), *rest])
    target.unharmed()


@settings(max_examples=effort(20, 100, 2_000))
@given(head=st.binary(max_size=200), door=st.sampled_from(["BF", "CF"]))
def test_any_bytes(target: Target, head: bytes, door: str) -> None:
    """Bytes that are no filter are refused with one error, and make none."""
    (reply,) = target.connection.ask_all([(f"{door}.LOADCHUNK", "forged", 1, head)])
    assert isinstance(reply, Refused)
    assert target.connection.ask("EXISTS", "forged") == 0
