"""What a server refuses: more memory, filters or bytes than it may have, in one clear error each
and before anything is allocated."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from bloomery import BloomFilter
from integration.resp.wire import Connection, Refused, ask
from integration.servers import BloomeryServer, Serve

pytestmark = pytest.mark.slow
MEMORY = 4 << 20


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


def refusal(connection: Connection, *words: bytes | str | int | float) -> str:
    """The error that a command gets."""
    with pytest.raises(Refused) as found:
        connection.ask(*words)
    return str(found.value)


def until_refused(connection: Connection, *words: str) -> str:
    """Add thousand keys after thousand; the error that ends it."""
    for start in range(0, 20_000_000, 1000):
        (reply,) = connection.ask_all([(*words, *range(start, start + 1000))])
        last = reply if isinstance(reply, Refused) else reply[-1]
        if isinstance(last, Refused):
            return str(last)
        if last == -1:  # of a cuckoo filter: an item that found no room, and none can be made
            return refusal(connection, "CF.ADD", words[1], start)
    raise AssertionError("it grows without end")


@pytest.mark.parametrize("layout", ["bloomery", "redisbloom"])
def test_maxmemory(serve: Serve, layout: str) -> None:
    """Beyond maxmemory nothing is made, grown, copied or loaded, and the process does not grow;
    what is there answers, and after a DEL there is room again."""
    server = serve("--maxmemory", str(MEMORY), "--bf-layout", layout)
    with Connection(server.resp_port) as connection:
        before = resident(server.pid)
        for words in (
            ("BF.RESERVE", "a", 0.01, 1 << 30),
            ("BF.RESERVE", "a", 0.01, 1 << 36, "KIND", "bloom"),
            ("CF.RESERVE", "a", 1 << 30),
        ):
            assert "memory" in refusal(connection, *words).lower()
        assert connection.ask("DBSIZE") == 0

        connection.ask("BF.RESERVE", "full", 0.0001, 1000)
        assert "problem inserting" in until_refused(connection, "BF.MADD", "full")
        assert all(connection.ask("BF.MEXISTS", "full", *range(1000)))

        connection.ask("CF.RESERVE", "cuckoo", 1000, "EXPANSION", 4)
        for number in range(100_000):  # what is left of the memory
            replies = connection.ask_all([("BF.RESERVE", f"{number}", 0.01, 5000, "KIND", "bloom")])
            if isinstance(replies[0], Refused):
                break
        assert "memory" in until_refused(connection, "CF.INSERT", "cuckoo", "ITEMS").lower()

        assert "memory" in refusal(connection, "COPY", "full", "copy").lower()
        big = BloomFilter(100_000_000, 0.01)
        assert "memory" in refusal(connection, "BF.LOADCHUNK", "b", 1, big.to_bytes()[:128]).lower()
        assert resident(server.pid) - before < 32 << 20  # the server itself takes some
        connection.ask("DEL", "full")
        assert connection.ask("BF.ADD", "fresh", "a") == 1
        connection.ask("BF.RESERVE", "again", 0.01, 1_000_000)
    server.kill()
    server.start()  # the same limit, and all the data
    with Connection(server.resp_port) as connection:
        assert connection.ask("BF.EXISTS", "fresh", "a") == 1


def test_a_lower_limit(serve: Serve) -> None:
    """A server whose filters need more than maxmemory starts with all of them, but makes none."""
    server = serve()
    ask(server.resp_port, "BF.RESERVE", "large", 0.01, 10_000_000)
    ask(server.resp_port, "BF.RESERVE", "second", 0.01, 10_000_000, "KIND", "bloom")
    ask(server.resp_port, "BF.ADD", "second", "a")
    server.kill()
    small = serve("--maxmemory", "1mb", data=server.data)
    with Connection(small.resp_port) as connection:
        assert connection.ask("BF.EXISTS", "second", "a") == 1
        assert connection.ask("BF.ADD", "second", "b") == 1
        assert "memory" in refusal(connection, "BF.RESERVE", "third", 0.01, 100_000).lower()
        connection.ask("CONFIG", "SET", "maxmemory", 0)
        connection.ask("BF.RESERVE", "third", 0.01, 100_000)


def test_max_filters(serve: Serve) -> None:
    """Beyond max-filters no command makes another one; after a DEL one does."""
    server = serve("--set", "max-filters=3")
    with Connection(server.resp_port) as connection:
        for name in ("a", "b", "c"):
            connection.ask("BF.ADD", name, "x")
        dumped = connection.ask("BF.SCANDUMP", "a", 0)[1]
        for words in (
            ("BF.RESERVE", "d", 0.01, 100),
            ("CF.RESERVE", "d", 100),
            ("BF.ADD", "d", "x"),
            ("CF.ADD", "d", "x"),
            ("BF.INSERT", "d", "ITEMS", "x"),
            ("COPY", "a", "d"),
            ("BF.LOADCHUNK", "d", 1, dumped),
        ):
            assert "max-filters" in refusal(connection, *words), words
        assert connection.ask("DBSIZE") == 3
        connection.ask("RENAME", "a", "d")
        assert connection.ask("COPY", "b", "c", "REPLACE") == 1
        connection.ask("DEL", "b")
        assert connection.ask("BF.ADD", "e", "x") == 1


def test_names(serve: Serve) -> None:
    """A name may have 1024 bytes of any value; a longer one is refused by every command that would
    give it to a filter."""
    server = serve()
    longest, longer = bytes(range(256)) * 4, b"n" * 1025
    with Connection(server.resp_port) as connection:
        connection.ask("BF.ADD", longest, "a")
        for words in (
            ("BF.ADD", longer, "a"),
            ("CF.ADD", longer, "a"),
            ("BF.RESERVE", longer, 0.01, 100),
            ("RENAME", longest, longer),
            ("COPY", longest, longer),
        ):
            assert "1024" in refusal(connection, *words)
        assert connection.ask("BF.EXISTS", longer, "a") == 0
    server.kill()
    server.start()
    assert ask(server.resp_port, "KEYS", "*") == [longest]


def test_two_servers_on_one_folder(serve: Serve, tmp_path: Path) -> None:
    """A second server on a folder does not start, and says which process has it; the first one
    notices nothing."""
    server = serve()
    ask(server.resp_port, "BF.ADD", "a", "x")
    message = BloomeryServer(tmp_path, data=server.data).refused()
    assert str(server.pid) in message
    assert str(server.data) in message
    assert ask(server.resp_port, "BF.EXISTS", "a", "x") == 1
    server.kill()
    server.start()  # the lock of one that was killed is no lock


@pytest.mark.parametrize("option", ["--resp-port", "--http-port"])
def test_a_port_that_is_taken(tmp_path: Path, option: str) -> None:
    """A port that somebody else has is refused in one line that names it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        message = BloomeryServer(tmp_path, option, port).refused()
    assert port in message
    assert "in use" in message


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    """A data folder that is a file is refused in one line that names it."""
    path = tmp_path / "file"
    path.write_bytes(b"")
    assert str(path) in BloomeryServer(tmp_path, data=path).refused()


@pytest.mark.parametrize(
    "url", ["mysql://u:secret@h/d", "secret", "postgresql://u:secret@h:port/d", "sqlite://"]
)
def test_a_wrong_registry(tmp_path: Path, url: str) -> None:
    """A registry's URL that cannot be right is refused in one line, without its password."""
    message = BloomeryServer(tmp_path, "--registry", url).refused()
    assert "registry" in message
    assert "secret" not in message


def test_errors_leave_nothing_behind(serve: Serve) -> None:
    """Commands that are refused keep none of their arguments in memory."""
    server = serve()
    large = bytes(100_000)
    with Connection(server.resp_port) as connection:
        connection.ask("BF.ADD", "bf", "a")
        connection.ask("CF.ADD", "cf", "a")
        refused: tuple[tuple[bytes | str | int, ...], ...] = (
            ("BF.LOADCHUNK", "none", 2, large),
            ("BF.LOADCHUNK", "none", 1, large),
            ("CF.LOADCHUNK", "none", 2, large),
            ("BF.MADD", "cf", large, large),
            ("BF.MEXISTS", "cf", large, large),
            ("CF.MEXISTS", "bf", large, large),
            ("RENAME", "none", large),
            ("SCAN", 0, large),
            ("NONE", large),
        )
        connection.ask_all(refused)
        before = resident(server.pid)
        for _ in range(300):
            connection.ask_all(refused)
        assert resident(server.pid) - before < 32 << 20
