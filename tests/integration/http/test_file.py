"""Filters in and out of a server as their files: whole, checksummed, and never half there."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pytest

import bloomery
from bloomery import BloomFilter, Client, CountingBloomFilter, FilterBank, errors
from integration.http.asking import Raw
from integration.resp.wire import Connection
from integration.servers import BloomeryServer, Serve, wait_until
from unit.kinds import KEYS, every_kind, made

NUMBERS = itertools.count()


def new_name() -> str:
    """A name that no other test has."""
    return f"file {next(NUMBERS)}"


@every_kind
def test_every_kind_goes_in_and_out(client: Client, kind: str, tmp_path: Path) -> None:
    """A local filter of any kind, put in and taken out again, is the same filter; over RESP it
    answers too."""
    local = made(kind)
    name = new_name()
    remote = client.load(name, local)
    assert remote.kind == kind
    assert remote.contains_many(KEYS) == [True] * len(KEYS)
    path = tmp_path / "out.bloom"
    remote.save(path)
    found: Any = bloomery.open(path)
    assert type(found) is type(local)
    assert found.contains_many([*KEYS, "other"]) == local.contains_many([*KEYS, "other"])
    assert remote.copy_to_local().to_bytes() == path.read_bytes()
    if kind != "rotating":  # whose time goes by
        assert found == local


@pytest.mark.parametrize("command", ["BF.RESERVE {} 0.01 100 NONSCALING", "CF.RESERVE {} 100"])
def test_filters_of_redisbloom(
    server: BloomeryServer, client: Client, command: str, tmp_path: Path
) -> None:
    """RedisBloom's own filters go out and in, and answer to the same commands as before."""
    name = new_name().replace(" ", "-")
    door = command[:2]
    path = tmp_path / "out"
    with Connection(server.resp_port) as resp:
        resp.ask("CONFIG", "SET", "bf-layout", "redisbloom")
        try:
            resp.ask(*command.format(name).split())
        finally:
            resp.ask("CONFIG", "SET", "bf-layout", "bloomery")
        resp.ask(f"{door}.ADD", name, "a")
        client[name].save(path)
        client.load(f"{name}-in", path)
        assert resp.ask(f"{door}.EXISTS", f"{name}-in", "a") == 1
        assert resp.ask(f"{door}.EXISTS", f"{name}-in", "b") == 0


def test_a_bank_goes_out_and_not_in(client: Client) -> None:
    """A bank can be taken out; to put one in is refused with what to do instead."""
    bank = client.create(new_name(), 10, kind="bank")
    bank.add("ann\tbook")
    found = bank.copy_to_local()
    assert isinstance(found, FilterBank)
    assert found.contains("ann", "book")
    with pytest.raises(errors.InvalidParameter, match="bank"):
        client.load(new_name(), found)


def test_what_is_sent(server: BloomeryServer, client: Client) -> None:
    """The response has the length, a name to save it under, and the bytes of `save`."""
    local = BloomFilter.from_keys(KEYS)
    client.load("file/é", local)
    response = httpx.get(f"{server.url}/filters/file%2F%C3%A9/file")
    assert response.content == local.to_bytes()
    assert response.headers["content-length"] == str(len(response.content))
    assert response.headers["content-type"] == "application/octet-stream"
    disposition = response.headers["content-disposition"]
    assert disposition == "attachment; filename*=UTF-8''file%2F%C3%A9.bloom"


def test_names_that_are_taken(server: BloomeryServer, client: Client) -> None:
    """A name that is taken stays what it is, unless it is to be replaced: then at once, with what
    others meanwhile asked of it answered by one or the other."""
    name = new_name()
    client.create(name, 100).add("old")
    new = CountingBloomFilter(100)
    new.add("new")
    with pytest.raises(errors.FilterExists, match="replace"):
        client.load(name, new)
    assert client[name].contains_many(["old", "new"]) == [True, False]
    client[name].load(new)
    assert client[name].contains_many(["old", "new"]) == [False, True]
    assert client[name].kind == "counting"
    assert client[name].discard("new")
    put = httpx.put(f"{server.url}/filters/{name}/file", content=new.to_bytes())
    assert put.status_code == 415
    headers = {"Content-Type": "application/octet-stream"}
    url = f"{server.url}/filters/{name}/file?replace=true"
    assert httpx.put(url, content=new.to_bytes(), headers=headers).status_code == 200
    url = f"{server.url}/filters/{new_name()}/file"
    assert httpx.put(url, content=new.to_bytes(), headers=headers).status_code == 201


@pytest.mark.parametrize("kind", ["bloom", "scalable", "counting"])
def test_a_filter_that_changes_meanwhile(server: BloomeryServer, client: Client, kind: str) -> None:
    """What was added before a filter is taken out is in the file, whose checksum holds, however
    many keys are added meanwhile."""
    filter = client.create(new_name(), 3_000_000, kind=kind)
    before = np.arange(100_000)
    filter.update(before)
    stop = threading.Event()

    def add() -> None:
        with Client(server.url) as other:
            for start in itertools.count(1_000_000, 20_000):
                if stop.is_set():
                    return
                other[filter.name].update(np.arange(start, start + 20_000))
                time.sleep(0.005)

    thread = threading.Thread(target=add)
    thread.start()
    try:
        for _ in range(4):
            assert np.asarray(filter.copy_to_local().contains_many(before)).all()
    finally:
        stop.set()
        thread.join(60)


@contextlib.contextmanager
def uploading(server: BloomeryServer, name: str, data: bytes, sent: int) -> Iterator[Client]:
    """Be in mid-upload of a file, with a chunk of it in the log; at the end hang up."""
    over = threading.Event()

    def body() -> Iterator[bytes]:
        yield data[:sent]
        over.wait(60)
        raise InterruptedError

    def put() -> None:
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(len(data))}
        url = f"{server.url}/filters/{name}/file"
        with pytest.raises((httpx.TransportError, InterruptedError)):
            httpx.put(url, content=body(), headers=headers)

    thread = threading.Thread(target=put)
    with Client(server.url) as client:
        before = set(client)
        thread.start()
        try:
            assert wait_until(lambda: set(client) != before)
            yield client
        finally:
            over.set()
            thread.join(60)


def test_an_upload_that_breaks_off(serve: Serve) -> None:
    """A client that hangs up in mid-upload, and a server that is killed in one, leave nothing of it
    behind: under its name nothing, and what came so far ends by itself."""
    server = serve()
    data = BloomFilter(16_000_000).to_bytes()
    assert len(data) > 18 << 20  # two chunks
    with uploading(server, "half", data, 17 << 20) as client:
        assert "half" not in client
    with Client(server.url) as client:
        assert wait_until(lambda: list(client) == [])
    with uploading(server, "half", data, 17 << 20) as client:
        client.create("after", 10)  # once this is told, all before it is in the log
        server.kill()
    server.start()
    with Client(server.url) as client:
        assert "half" not in client
        (left,) = set(client) - {"after"}
        ends = client[left].info()["expires_at"]
        assert time.time() < ends < time.time() + 3700
        client.load("half", BloomFilter.from_keys(KEYS))
        assert list(client["half"].contains_many(KEYS)) == [True] * len(KEYS)


def test_it_survives_a_kill(serve: Serve) -> None:
    """A filter that was put in, in chunks, and in another's place, is there after a kill."""
    server = serve()
    local = BloomFilter(16_000_000)
    local.update(np.arange(10_000))
    with Client(server.url) as client:
        client.create("seen", 10).add("old")
        client["seen"].load(local)
        client["seen"].add("after")
    server.kill()
    server.start()
    with Client(server.url) as client:
        assert list(client) == ["seen"]
        assert client["seen"].info()["expires_at"] is None
        assert np.asarray(client["seen"].contains_many(np.arange(10_000))).all()
        assert client["seen"].contains_many(["after", "old"]) == [True, False]


def test_an_upload_gets_its_place_in_one_record(serve: Serve) -> None:
    """The last record makes it permanent and gives it its name. So a server that is killed before
    that record keeps no part of the upload for longer than its time."""
    server = serve()
    with Client(server.url) as client:
        client.create("seen", 1000).add("old")
        client["seen"].load(BloomFilter.from_keys(["new"]))
        assert client["seen"].contains_many(["old", "new"]) == [False, True]
        assert client["seen"].info()["expires_at"] is None
    records = [row for row in _logged(server) if row["name"].startswith("\\x00upload:")]
    assert [row["operation"] for row in records] == ["CHUNK", "EXPIRE", "RENAME"]
    moved: dict[str, Any] = {"settings": {}, "at": None, "to": "seen", "replace": True}
    assert records[2]["fields"] == moved


def _logged(server: BloomeryServer) -> list[dict[str, Any]]:
    """The records of a server's log."""
    command = [sys.executable, "-m", "bloomery", "log", "dump", "--json", str(server.data)]
    lines = subprocess.run(command, check=True, capture_output=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


def test_a_file_is_all_there_or_not_at_all(client: Client, tmp_path: Path) -> None:
    """A download that fails leaves the file that was there."""
    path = tmp_path / "seen.bloom"
    path.write_bytes(b"before")
    with pytest.raises(errors.UnknownFilter):
        client["nowhere"].save(path)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_not_all_of_the_disk_is_taken(server: BloomeryServer, client: Client) -> None:
    """So many filters may be taken out at once, by who reads slowly or not at all; then others may
    again."""
    name = new_name()
    client.create(name, capacity=10_000_000)
    path = f"/filters/{quote(name, safe='')}/file"

    def take() -> int:
        with httpx.stream("GET", server.url + path, timeout=30) as answer:
            return answer.status_code

    with contextlib.ExitStack() as ends:
        for _ in range(8):
            raw = ends.enter_context(Raw(server.http_port))
            raw.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert raw.socket.recv(12) == b"HTTP/1.1 200"
        assert take() == 503
    assert wait_until(lambda: take() == 200)
