"""Filters that clients use while another filter replaces them (RESTORE, COPY, RENAME, PUT) or is
loaded into them (LOADCHUNK): acknowledged keys stay."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress

import httpx
import pytest

from bloomery import BloomFilter
from conftest import effort
from integration.durability.exports import differences, exports
from integration.resp.wire import Connection, Refused, Word
from integration.servers import BloomeryServer, Serve
from waiting import PATIENCE

RATE = 1e-7  # such that no key of a test collides with another one
KEYS = [f"key {number}" for number in range(500)]
MEDIA = "application/octet-stream"


def payload(capacity: int, *keys: str) -> bytes:
    """Return a saved filter that has these keys."""
    filter = BloomFilter(capacity, 0.001)
    filter.update(keys)
    return filter.to_bytes()


def lost(connection: Connection, name: str, keys: list[str], family: str = "BF") -> list[str]:
    """Return the keys that a filter definitely does not have."""
    answers = connection.ask(f"{family}.MEXISTS", name, *keys)
    return [key for key, answer in zip(keys, answers, strict=True) if not answer]


# RESTORE … REPLACE that fails.


def check_refused(server: BloomeryServer, cases: dict[str, tuple[Word, ...]]) -> None:
    """Restore over the filter "old": the server refuses it, and "old" stays, after a kill too."""
    before = exports(server)
    with Connection(server.resp_port) as connection:
        for case, words in cases.items():
            (reply,) = connection.ask_all([("RESTORE", "old", *words)])
            assert isinstance(reply, Refused), (case, reply)
            assert connection.ask("EXISTS", "old") == 1, f"{case}: dropped, though refused: {reply}"
            assert lost(connection, "old", KEYS) == [], case
    assert differences(before, exports(server)) == []
    server.kill()
    server.start()
    assert differences(before, exports(server)) == []


def with_old(server: BloomeryServer) -> BloomeryServer:
    """Return the server, after it got the filter "old", which ends some day."""
    with Connection(server.resp_port) as connection:
        connection.ask("BF.RESERVE", "old", RATE, 1000, "KIND", "bloom")
        connection.ask("BF.MADD", "old", *KEYS)
        connection.ask("EXPIRE", "old", 9000)
    return server


GOOD = payload(1000, "new")
WRONG: dict[str, tuple[Word, ...]] = {
    "truncated": (0, GOOD[:-1], "REPLACE"),
    "damaged": (0, GOOD[:-1] + bytes([GOOD[-1] ^ 1]), "REPLACE"),
    "empty": (0, b"", "REPLACE"),
    "of another program": (0, b"\x00\x05hello" * 10, "REPLACE"),
    "too large": (0, payload(5_000_000), "REPLACE"),
    "negative TTL": (-1, GOOD, "REPLACE"),
    "TTL that is not a number": ("soon", GOOD, "REPLACE"),
    "unknown option": (0, GOOD, "REPLACE", "SOON"),
    "without REPLACE": (0, GOOD),
}


def test_refused_payload_leaves_the_old_filter(serve: Serve) -> None:
    check_refused(with_old(serve()), WRONG)


def test_restore_above_max_filters_loses_nothing(serve: Serve) -> None:
    """The limit is lower than the number of filters: "old" is replaced, or it stays."""
    server = with_old(serve())
    with Connection(server.resp_port) as connection:
        for name in ("second", "third"):
            connection.ask("BF.ADD", name, "key")
        connection.ask("CONFIG", "SET", "max-filters", 1)
        (reply,) = connection.ask_all([("RESTORE", "old", 0, GOOD, "REPLACE")])
        expected = [1, 0] if reply == b"OK" else [0, 1]
        assert connection.ask("BF.MEXISTS", "old", "new", KEYS[0]) == expected, reply
    server.kill()
    server.start()
    with Connection(server.resp_port) as connection:
        assert connection.ask("BF.MEXISTS", "old", "new", KEYS[0]) == expected


def test_restore_at_max_filters_replaces(serve: Serve) -> None:
    """As many filters as the limit allows: one of them may still be replaced."""
    server = with_old(serve("--set", "max-filters=2"))
    with Connection(server.resp_port) as connection:
        connection.ask("BF.ADD", "second", "key")
        assert connection.ask("RESTORE", "old", 0, GOOD, "REPLACE") == b"OK"
        assert connection.ask("BF.MEXISTS", "old", "new", KEYS[0]) == [1, 0]
        assert connection.ask("PTTL", "old") == -1


def test_refused_for_memory_leaves_the_old_filter(serve: Serve) -> None:
    """No memory for the new filter: the old one, which is small, stays."""
    server = with_old(serve("--maxmemory", "8mb"))
    with Connection(server.resp_port) as connection:
        connection.ask("BF.RESERVE", "ballast", 0.01, 5_000_000, "KIND", "bloom")
    check_refused(server, {"maxmemory": (0, payload(2_000_000, "new"), "REPLACE")})


# A filter that is replaced while clients read it.


def restore(server: BloomeryServer, saved: bytes) -> None:
    with Connection(server.resp_port) as connection:
        assert connection.ask("RESTORE", "old", 0, saved, "REPLACE") == b"OK"


def copy(server: BloomeryServer, saved: bytes) -> None:
    with Connection(server.resp_port) as connection:
        assert connection.ask("RESTORE", "other", 0, saved, "REPLACE") == b"OK"
        assert connection.ask("COPY", "other", "old", "REPLACE") == 1


def rename(server: BloomeryServer, saved: bytes) -> None:
    with Connection(server.resp_port) as connection:
        assert connection.ask("RESTORE", "other", 0, saved, "REPLACE") == b"OK"
        assert connection.ask("RENAME", "other", "old") == b"OK"


def put(server: BloomeryServer, saved: bytes) -> None:
    url, headers = f"{server.url}/filters/old/file?replace=true", {"Content-Type": MEDIA}
    done = httpx.put(url, content=saved, headers=headers, timeout=60)
    assert done.status_code == 200, done.text


class Reader(threading.Thread):
    """A client that checks a key again and again."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.ending = threading.Event()
        self.checks = 0
        self.wrong: list[object] = []

    def run(self) -> None:
        with Connection(self.port) as connection:
            while not self.ending.is_set():
                replies = connection.ask_all([("BF.EXISTS", "old", "both"), ("EXISTS", "old")])
                self.wrong += [reply for reply in replies if reply != 1]
                self.checks += 1


@pytest.mark.slow
@pytest.mark.parametrize("replace", [restore, copy, rename, put])
def test_readers_never_miss_a_key_of_both_filters(
    serve: Serve, replace: Callable[[BloomeryServer, bytes], None]
) -> None:
    """A key that the old and the new filter have is there at any moment."""
    server = serve()
    filters = [payload(2_000_000, "both", name) for name in ("one", "other")]
    restore(server, filters[1])
    readers = [Reader(server.resp_port) for _ in range(3)]
    with ExitStack() as ends:
        for reader in readers:
            ends.callback(reader.join)
            ends.callback(reader.ending.set)
            reader.start()
        for number in range(effort(6, 10, 200)):
            replace(server, filters[number % 2])
    assert all(reader.checks for reader in readers)
    assert [reader.wrong[:3] for reader in readers] == [[]] * len(readers)


@pytest.mark.slow
def test_killed_while_filters_are_replaced(serve: Serve) -> None:
    """Killed at any moment, the server has the old filter or the new one."""
    server = serve()
    filters = [payload(200_000, "both", name) for name in ("one", "other")]
    restore(server, filters[1])
    for _ in range(effort(2, 3, 50)):
        done = threading.Event()

        def replace(port: int, done: threading.Event = done) -> None:
            with suppress(ConnectionError), Connection(port) as connection:
                while True:
                    for saved in filters:
                        connection.ask("RESTORE", "old", 0, saved, "REPLACE")
                        done.set()

        thread = threading.Thread(target=replace, args=(server.resp_port,), daemon=True)
        thread.start()
        assert done.wait(PATIENCE)
        server.kill()
        thread.join()
        server.start()
        with Connection(server.resp_port) as connection:
            both, *either = connection.ask("BF.MEXISTS", "old", "both", "one", "other")
        assert (both, sorted(either)) == (1, [0, 1])


# LOADCHUNK.

# How a filter is made, by its commands and its layout.
LOADED: dict[str, tuple[str, tuple[Word, ...]]] = {
    "BF redisbloom": ("BF", (RATE, 1000)),
    "BF bloomery": ("BF", (RATE, 1000)),
    "CF redisbloom": ("CF", (4096,)),
}
Part = tuple[int, bytes]


class Load:
    """A server with a filter "source", and its dump."""

    def __init__(self, serve: Serve, case: str) -> None:
        self.family, self.settings = LOADED[case]
        self.server = serve("--bf-layout", case.split()[1])
        self.keys = [f"source {number}" for number in range(1500)]
        self.parts: list[Part] = []
        with Connection(self.server.resp_port) as connection:
            self.reserve(connection, "source")
            assert self.add(connection, "source", self.keys) == self.keys
            iterator = 0
            while True:
                iterator, data = connection.ask(f"{self.family}.SCANDUMP", "source", iterator)
                if iterator == 0:
                    break
                self.parts.append((iterator, data))

    def reserve(self, connection: Connection, name: str) -> None:
        assert connection.ask(f"{self.family}.RESERVE", name, *self.settings) == b"OK"

    def add(self, connection: Connection, name: str, keys: list[str]) -> list[str]:
        """Add keys; return those that were acknowledged: all or none."""
        words = (f"{self.family}.INSERT", name, "ITEMS", *keys)  # this makes a filter if it must
        (reply,) = connection.ask_all([words])
        if isinstance(reply, Refused):
            return []
        assert not any(isinstance(one, Refused) for one in reply)
        return keys

    def load(self, connection: Connection, name: str, parts: list[Part], sure: list[str]) -> bool:
        """Load parts, and check after each that the acknowledged keys are there; return whether the
        server took them all."""
        taken = True
        for iterator, data in parts:
            words = (f"{self.family}.LOADCHUNK", name, iterator, data)
            (reply,) = connection.ask_all([words])
            taken = taken and not isinstance(reply, Refused)
            self.check(connection, name, sure, f"after chunk {iterator}: {reply!r}")
        return taken

    def check(self, connection: Connection, name: str, sure: list[str], when: str) -> None:
        found = lost(connection, name, sure, self.family) if sure else []
        assert not found, f"{len(found)} of {len(sure)} acknowledged keys are lost {when}"

    def check_killed(self, name: str, sure: list[str]) -> None:
        self.server.kill()
        self.server.start()
        with Connection(self.server.resp_port) as connection:
            self.check(connection, name, sure, "after a kill")


@pytest.mark.parametrize("case", LOADED)
def test_keys_added_during_a_load_stay(serve: Serve, case: str) -> None:
    """A client adds keys between the first chunk and the others. The server refuses the keys, or it
    refuses the chunks, or the filter has both."""
    load = Load(serve, case)
    with Connection(load.server.resp_port) as connection:
        assert load.load(connection, "target", load.parts[:1], [])
        sure = load.add(connection, "target", KEYS)
        if load.load(connection, "target", load.parts[1:], sure):
            sure = sure + load.keys
        load.check(connection, "target", sure, "at the end")
    load.check_killed("target", sure)


@pytest.mark.parametrize("case", LOADED)
def test_load_into_a_filter_with_keys_erases_none(serve: Serve, case: str) -> None:
    """Chunks for a filter that a client has made itself, with the header chunk and without."""
    load = Load(serve, case)
    with Connection(load.server.resp_port) as connection:
        for name, parts in (("target", load.parts), ("other", load.parts[1:])):
            load.reserve(connection, name)
            assert load.add(connection, name, KEYS) == KEYS
            load.load(connection, name, parts, KEYS)
    for name in ("target", "other"):
        load.check_killed(name, KEYS)


@pytest.mark.parametrize("case", LOADED)
def test_chunk_that_is_sent_again_erases_none(serve: Serve, case: str) -> None:
    """A load is complete and clients have added keys; then its last chunk arrives once more."""
    load = Load(serve, case)
    with Connection(load.server.resp_port) as connection:
        assert load.load(connection, "target", load.parts, [])
        load.check(connection, "target", load.keys, "after the load")
        sure = load.keys + load.add(connection, "target", KEYS)
        assert len(sure) > len(load.keys)
        load.load(connection, "target", load.parts[-1:], sure)
    load.check_killed("target", sure)
