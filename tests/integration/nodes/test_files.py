"""Files and dumps through nodes: what is put in at one is taken out at the other, byte for byte."""

from __future__ import annotations

import io
from typing import Any

import httpx
import numpy
import pytest

from bloomery import BloomFilter, CountingBloomFilter, StaticFilter
from bloomery import open as open_filter
from conftest import require
from integration.nodes.conftest import StartFleet
from integration.servers import RedisServer, wait_until

pa = require("pyarrow")
KEYS = [f"key-{number}" for number in range(2000)]
BINARY = {"content-type": "application/octet-stream"}


def _made() -> dict[str, Any]:
    bloom, counting = BloomFilter(1_000_000, 0.01), CountingBloomFilter(10_000)
    bloom.update(KEYS)
    counting.update(KEYS)
    return {"bloom": bloom, "counting": counting, "static": StaticFilter.build(KEYS)}


@pytest.mark.slow
def test_files_go_in_and_out(start_fleet: StartFleet, redis_server: RedisServer) -> None:
    """A file of any kind, also of megabytes, in several entries of the log; it replaces another; a
    node that comes later has it too. RedisBloom's own dumps, in chunks, as well."""
    fleet = start_fleet(redis_server.url, nodes=2)
    one, other = (httpx.Client(base_url=node.url, timeout=60) for node in fleet.nodes)
    with one, other, fleet.client(0) as here, fleet.client(1) as there:
        for name, made in _made().items():
            data = made.to_bytes()
            put = one.put(f"/filters/{name}/file", content=data, headers=BINARY)
            assert put.status_code == 201, put.text
            again = other.put(f"/filters/{name}/file?replace=true", content=data, headers=BINARY)
            assert again.status_code == 200, again.text
            assert wait_until(
                lambda name=name, data=data: one.get(f"/filters/{name}/file").content == data  # type: ignore[misc]
            )
            assert other.get(f"/filters/{name}/file").content == data
        here.execute_command("CONFIG", "SET", "bf-layout", "redisbloom")
        here.execute_command("BF.RESERVE", "theirs", 0.01, 1000)
        here.execute_command("BF.MADD", "theirs", *KEYS)
        iterator, data = 0, b""
        while True:
            iterator, data = here.execute_command("BF.SCANDUMP", "theirs", iterator)
            if not iterator:
                break
            there.execute_command("BF.LOADCHUNK", "loaded", iterator, data)
        assert wait_until(lambda: all(here.execute_command("BF.MEXISTS", "loaded", *KEYS)))
        fleet.nodes[1].kill()
        fleet.nodes[1].start()
        for name in ("bloom", "counting", "static", "theirs", "loaded"):
            assert fleet.answers(name, KEYS) == [0, 0], name
        kept = httpx.get(f"{fleet.nodes[1].url}/filters/static/file").content
    path = fleet.folder / "static.bloom"
    path.write_bytes(kept)
    assert open_filter(path) == _made()["static"]


@pytest.mark.slow
def test_more_than_an_entry_has_room_for(
    start_fleet: StartFleet, redis_server: RedisServer
) -> None:
    """What a server alone takes a node takes too: a stream whose batches are more hashes than an
    entry may have, and a chunk of RedisBloom's filters of more bytes."""
    settings = {"proto_max_bulk_len": "128mb", "max_request_bytes": "256mb"}
    settings |= {"max_input_bytes": "1gb"}
    patient = {"store_timeout_ms": 30_000, "store_max_lag_ms": 60_000}  # on a busy machine
    fleet = start_fleet(redis_server.url, nodes=2, **settings, **patient)
    with fleet.client(0, socket_timeout=60) as here, fleet.client(1) as there:
        # Keys of a byte each in one batch: 36 MB of hashes.
        count = 4_500_000
        here.execute_command("BF.RESERVE", "bytes", 0.01, 1000, "KIND", "bloom")
        column = pa.array(numpy.arange(count, dtype="int8"))
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, pa.schema([("key", pa.int8())])) as stream:
            stream.write_batch(pa.record_batch([column], names=["key"]))
        told = httpx.post(
            f"{fleet.nodes[0].url}/filters/bytes/add",
            content=sink.getvalue(),
            headers={"content-type": "application/vnd.apache.arrow.stream"},
            timeout=60,
        )
        assert told.json() == {"keys": count, "new": 256}, told.text
        assert wait_until(lambda: there.execute_command("BF.CARD", "bytes") == 256)
        # A layer of 36 MB in one chunk.
        here.execute_command("CONFIG", "SET", "bf-layout", "redisbloom")
        here.execute_command("BF.RESERVE", "theirs", 0.01, 30_000_000)
        here.execute_command("BF.MADD", "theirs", *KEYS)
        _, head = here.execute_command("BF.SCANDUMP", "theirs", 0)
        data, iterator = b"", 1
        while True:
            iterator, part = here.execute_command("BF.SCANDUMP", "theirs", iterator)
            if not iterator:
                break
            data += part
        assert len(data) > 33 << 20
        here.execute_command("BF.LOADCHUNK", "loaded", 1, head)
        here.execute_command("BF.LOADCHUNK", "loaded", len(data) + 1, data)
        assert here.execute_command("BF.MEXISTS", "loaded", *KEYS) == [1] * len(KEYS)
        # It takes the other a while to hear of all that.
        assert wait_until(lambda: fleet.answers("loaded", KEYS) == [0, 0])
    assert [node.printed().count("Traceback") for node in fleet.nodes] == [0, 0]
