"""The seed of siphash is a secret: whoever knows it can choose keys that collide. Only
administrators get it out of a server."""

import json
from collections.abc import Iterator
from itertools import product

import httpx
import pytest

from bloomery.service.access.audit import audit_file
from integration.access.conftest import Guarded
from integration.resp.wire import Wire
from waiting import wait_until

SEED = 0x5EC2E7_0DDBA11_5
KINDS = ("bloom", "scalable", "counting", "deletable", "cuckoo", "rotating", "bank")
DUMPED = [kind for kind in KINDS if kind != "bank"]  # over RESP
FORMS = [SEED.to_bytes(8, "little"), SEED.to_bytes(8, "big"), b"%d" % SEED, b"%x" % SEED]


@pytest.fixture(scope="module")
def filters(guarded: Guarded) -> Iterator[Guarded]:
    """The server with a filter of each kind that has a secret seed, and one that has none."""
    with _http(guarded, "admin-all") as http:
        for kind in KINDS:
            settings = {"name": f"mine:{kind}", "kind": kind, "capacity": 1000}
            made = http.post("/filters", json={**settings, "hasher": "siphash", "seed": SEED})
            assert made.status_code == 201, made.text
        made = http.post("/filters", json={"name": "mine:open", "capacity": 1000, "seed": SEED})
        assert made.status_code == 201, made.text
        yield guarded
        for name in (*KINDS, "open"):
            http.delete(f"/filters/mine:{name}")


def _http(guarded: Guarded, user: str) -> httpx.Client:
    login = {"Authorization": f"Bearer {guarded.token(user)}"}
    return httpx.Client(base_url=guarded.server.url, headers=login, timeout=60)


@pytest.mark.parametrize("user", ["read-all", "read-some", "write-all"])
def test_only_administrators_export_a_secret_seed(filters: Guarded, user: str) -> None:
    """Others get an error over either protocol, and still export filters without one."""
    with _http(filters, user) as http:
        for kind in KINDS:
            refused = http.get(f"/filters/mine:{kind}/file")
            assert refused.status_code == 403, (kind, refused.content[:100])
            assert "seed" in refused.json()["detail"]
        assert http.get("/filters/mine:open/file").content.startswith(b"BLOOMERY")
    with Wire(filters.server.resp_port) as wire:
        assert wire.ask("AUTH", filters.token(user)) == b"+OK\r\n"
        for kind in DUMPED:
            for words in (("DUMP",), ("BF.SCANDUMP", 0), ("BF.SCANDUMP", 1)):
                reply = wire.ask(words[0], f"mine:{kind}", *words[1:])
                assert reply.startswith(b"-NOPERM"), (kind, words, reply[:100])
        wire.ask("MULTI")
        wire.ask("DUMP", "mine:bloom")
        assert b"-NOPERM" in wire.ask("EXEC")
        assert b"BLOOMERY" in wire.ask("DUMP", "mine:open")
        assert b"BLOOMERY" in wire.ask("BF.SCANDUMP", "mine:open", 0)


@pytest.mark.parametrize("user", ["admin-all", "admin-some"])
def test_administrators_export_it(filters: Guarded, user: str) -> None:
    """A file without its seed could not be asked for any key."""
    with _http(filters, user) as http:
        for kind in KINDS:
            taken = http.get(f"/filters/mine:{kind}/file")
            assert taken.status_code == 200
            assert SEED.to_bytes(8, "little") in taken.content
    with Wire(filters.server.resp_port) as wire:
        assert wire.ask("AUTH", filters.token(user)) == b"+OK\r\n"
        for kind in DUMPED:
            assert SEED.to_bytes(8, "little") in wire.ask("DUMP", f"mine:{kind}")
            assert SEED.to_bytes(8, "little") in wire.ask("BF.SCANDUMP", f"mine:{kind}", 0)


def test_readers_learn_nothing_of_a_secret_seed(filters: Guarded) -> None:
    """Nothing that a reader can ask for has it, nor the positions of chosen keys, from which keys
    that collide could be found."""
    paths = ("", "/samples", "/file")
    pages = ("", "/series?seconds=60", "/anatomy")
    with _http(filters, "read-all") as http:
        for kind in KINDS:
            asked = [http.get(f"/filters/mine:{kind}{path}") for path in paths]
            asked += [http.get(f"/ui/data/filters/mine:{kind}{path}") for path in pages]
            asked += [http.get(f"/ui/filters/mine:{kind}")]
            if kind != "bank":  # its keys have users
                tested = http.post(f"/ui/data/filters/mine:{kind}/test", json={"key": "a"})
                assert tested.json()["evidence"]["places"] == [], kind
                asked.append(tested)
            for response, form in product(asked, FORMS):
                assert form not in response.content, (response.request.url, form)
        shown = http.get("/ui/filters/mine:bloom").text
        assert "/file" not in shown
        assert "/file" in http.get("/ui/filters/mine:open").text
    with _http(filters, "admin-all") as http:
        tested = http.post("/ui/data/filters/mine:bloom/test", json={"key": "a"})
        assert tested.json()["evidence"]["places"]
    with Wire(filters.server.resp_port) as wire:
        assert wire.ask("AUTH", filters.token("read-all")) == b"+OK\r\n"
        for kind, command in product(KINDS, ("BF.INFO", "BF.DEBUG", "BF.SCANDUMP", "DUMP")):
            words = ("0",) if command == "BF.SCANDUMP" else ()
            reply = wire.ask(command, f"mine:{kind}", *words)
            assert not any(form in reply for form in FORMS), (command, kind)


def test_exports_of_a_secret_seed_are_audited(filters: Guarded) -> None:
    """Who took one out, and who tried to."""
    with _http(filters, "admin-some") as http:
        assert http.get("/filters/mine:bloom/file").status_code == 200
    with _http(filters, "write-some") as http:
        assert http.get("/filters/mine:bloom/file").status_code == 403
    with Wire(filters.server.resp_port) as wire:
        wire.ask("AUTH", filters.token("admin-some"))
        wire.ask("DUMP", "mine:bloom")
        wire.ask("AUTH", filters.token("write-some"))
        wire.ask("DUMP", "mine:bloom")

    def noted() -> set[tuple[str, str, str]]:
        lines = map(json.loads, audit_file(filters.server.data).read_text().splitlines())
        return {
            (line["user"], line["door"], line["outcome"])
            for line in lines
            if line["operation"] == "reveal" and "mine:bloom" in line.get("names", [])
        }

    expected = {
        (user, door, outcome)
        for user, outcome in (("admin-some", "done"), ("write-some", "refused"))
        for door in ("http", "resp")
    }
    assert wait_until(lambda: expected <= noted()), noted()
