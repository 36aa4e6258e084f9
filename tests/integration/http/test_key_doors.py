"""A key by every door of a server: JSON, lines, Arrow, Redis, and a client's columns."""

from __future__ import annotations

import io
import itertools
import json
from typing import Any
from uuid import UUID

import pytest

from bloomery import Client, _native
from bloomery.errors import BloomeryError
from bloomery.json_keys import encode_key
from conftest import require
from integration.http.asking import Http, at
from integration.servers import BloomeryServer
from properties.doors import DOORS, KEYS, NO_KEYS, UUIDS

pytestmark = pytest.mark.slow

NUMBERS = itertools.count()
ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"
SCALARS = [key for kind, keys in KEYS.items() if kind not in NO_KEYS for key in keys]


def new_name() -> str:
    """A name that no other test has."""
    return f"doors/{next(NUMBERS)}"


# Of DuckDB's types those that become another in Arrow: the others come as Arrow's own do.
LOSSY = ("duckdb uuid", "duckdb uuid lossless", "duckdb bit", "duckdb str")
SOME = [name for name in DOORS if not name.startswith("duckdb") or name in LOSSY]


@pytest.mark.parametrize("name", SOME)
@pytest.mark.filterwarnings("ignore")
def test_a_clients_column_is_the_keys_that_its_library_shows(client: Client, name: str) -> None:
    """What a local filter refuses a client refuses; what it takes is there, key by key."""
    door, remote = DOORS[name], client.create(new_name(), 1000, 1e-9)
    for kind, keys in KEYS.items():
        try:
            batch = door.make(keys)
            shown = door.show(batch)
        except Exception:  # noqa: BLE001  (the library cannot hold such keys)
            continue
        try:
            remote.update(batch)
        except BloomeryError:
            assert kind not in door.takes, f"{kind} refused"
            continue
        assert list(remote.contains_many(shown)) == [True] * len(shown), f"{kind}: not {shown}"
        assert list(remote.contains_many(batch)) == [True] * len(shown)


def test_json_lines_and_single_keys_are_the_same(http: Http, client: Client) -> None:
    """What one form adds, every other finds, and a local key of the same type as well."""
    name = new_name()
    http.create(name, error_rate=1e-9)
    distinct = set(map(_native.canonical, SCALARS))
    assert http.keys(name, "add", *map(encode_key, SCALARS)).count(True) == len(distinct)
    lines = b"".join(json.dumps(encode_key(key)).encode() + b"\n" for key in SCALARS)
    told = http.client.post(f"{at(name)}/contains", content=lines, headers={"Content-Type": NDJSON})
    assert told.json()["maybe"] == len(SCALARS)
    remote = client.filter(name)
    assert all(key in remote for key in SCALARS)


def test_an_arrow_stream_of_uuids(http: Http) -> None:
    """UUIDs are UUIDs; a type that the server does not know is not taken for its storage."""
    pa, name = require("pyarrow"), new_name()
    http.create(name, error_rate=1e-9)
    other = pa.field("key", pa.int64(), metadata={"ARROW:extension:name": "someone.else"})
    for column, field, status in (
        (pa.array(UUIDS, pa.uuid()), pa.field("key", pa.uuid()), 200),
        (pa.array([1]), other, 422),
    ):
        file, schema = io.BytesIO(), pa.schema([field])
        with pa.ipc.new_stream(file, schema) as writer:
            writer.write_table(pa.table([column], schema=schema))
        told = http.client.post(
            f"{at(name)}/add", content=file.getvalue(), headers={"Content-Type": ARROW}
        )
        assert told.status_code == status, told.text
    assert http.keys(name, "contains", *[{"uuid": str(key)} for key in UUIDS], 1) == [
        *[True] * len(UUIDS),
        False,
    ]


def test_the_redis_protocol_knows_text_and_bytes(server: BloomeryServer, http: Http) -> None:
    """A key by RESP is its bytes: the text that a number or a UUID is written as, not these."""
    redis, name = require("redis"), new_name()
    http.create(name, error_rate=1e-9)
    given: list[Any] = ["a", "é", b"\xff\0", "5", str(UUIDS[0])]
    with redis.Redis(port=server.resp_port) as wire:
        assert wire.bf().madd(name, *given) == [1] * len(given)
    assert http.keys(name, "contains", *map(encode_key, given)) == [True] * len(given)
    assert http.keys(name, "contains", 5, encode_key(UUID(str(UUIDS[0])))) == [False, False]
