"""What a client may take of the server: time, memory, connections; and that others are served."""

import json
import resource
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol

import pytest

from integration.conftest import open_folder, started
from integration.http.asking import Http, Raw, at, post, problem
from integration.resp.wire import Wire
from integration.servers import BloomeryServer, wait_until

MIB = 1 << 20


@contextmanager
def others_served(server: BloomeryServer) -> Iterator[None]:
    """Another client asks all the while, on connections old and new, and is answered."""
    stop, failed, answered = threading.Event(), list[str](), 0

    def ask() -> None:
        nonlocal answered
        with Http(server) as old:
            while not stop.is_set():
                with Http(server) as new:
                    for client in (old, new):
                        if client.keys("watched", "contains", "a", "b") != [True, False]:
                            failed.append("a wrong answer")
                        answered += 1

    def watch() -> None:
        try:
            ask()
        except Exception as problem:  # noqa: BLE001  # told where the test can see it
            failed.append(repr(problem))

    with Http(server) as http:
        http.client.post("/filters", json={"name": "watched", "capacity": 10})
        http.keys("watched", "add", "a")
    watching = threading.Thread(target=watch)
    watching.start()
    assert wait_until(lambda: answered > 0 or bool(failed))
    try:
        yield
        before = answered
        assert wait_until(lambda: answered > before or bool(failed))
    finally:
        stop.set()
        watching.join()
    assert not failed


def memory(server: BloomeryServer) -> int:
    """Bytes that the server has in memory."""
    with open(f"/proc/{server.pid}/status") as file:
        (line,) = [line for line in file if line.startswith("VmRSS:")]
    return int(line.split()[1]) << 10


@contextmanager
def many_files(number: int) -> Iterator[None]:
    """Let this process have so many files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == resource.RLIM_INFINITY or hard >= number, "ulimit -Hn is too low for this test"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, number), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def _limited() -> Iterator[BloomeryServer]:
    with open_folder() as folder, started(BloomeryServer(folder), kill=True) as server:
        yield server


class Limit(Protocol):
    """A server with settings of the test's own."""

    def __call__(self, **settings: int) -> BloomeryServer:
        """Set them; the others have their defaults."""


@pytest.fixture
def limit(_limited: BloomeryServer) -> Limit:
    """The server whose limits these tests set, one at a time."""

    def start(**settings: int) -> BloomeryServer:
        defaults = {
            "http-header-seconds": 10,
            "http-body-seconds": 30,
            "http-max-body-bytes": 16 * MIB,
            "http-maxclients": 10_000,
            "max-input-bytes": 64 * MIB,
            "slow-client-seconds": 60,
        }
        given = {name.replace("_", "-"): value for name, value in settings.items()}
        with Wire(_limited.resp_port) as wire:
            for name, value in (defaults | given).items():
                assert wire.ask("CONFIG", "SET", name, value) == b"+OK\r\n"
        return _limited

    return start


def test_a_slow_head_is_ended(limit: Limit) -> None:
    """Who drips a head, or sends none, is ended in time, whatever little comes of it."""
    server = limit(http_header_seconds=1)
    with others_served(server), ExitStack() as ends:
        silent, dripping, second, third = (
            ends.enter_context(Raw(server.http_port)) for _ in range(4)
        )
        for raw in (second, third):
            raw.request(f"{at('watched')}/contains", b'{"key":"a"}')
            assert raw.answer()[0] == 200
        second.send(b"GET /fil")  # a head that follows a good request
        third.send(b"\r\n")  # which may stand before a request
        dripping.send(b"GET /filters HTTP/1.1\r\n")
        assert dripped(dripping, b"X-Drip: drop\r\n") == (408, "invalid-request")
        assert silent.ended()
        status, headers, _ = second.answer()
        assert (status, headers["connection"]) == (408, "close")
        assert third.answer()[0] == 408
        assert all(raw.ended() for raw in (dripping, second, third))


def dripped(raw: Raw, drop: bytes) -> tuple[int, str]:
    """The answer, a status and a code, to one who sends a drop every now and then."""
    raw.socket.settimeout(0.2)
    for _ in range(100):
        try:
            raw.send(drop)
            status, _, body = raw.answer()
        except TimeoutError:
            continue
        return status, problem(body)
    raise AssertionError("no answer")


def test_a_slow_body_is_ended(limit: Limit) -> None:
    """Who drips a JSON body, or stops in it, gets a 408 in time."""
    server = limit(http_body_seconds=1)
    with others_served(server), ExitStack() as ends:
        silent, dripping = (ends.enter_context(Raw(server.http_port)) for _ in range(2))
        head = post(f"{at('watched')}/add", b"", Content_Length="1000")
        silent.send(head + b'{"keys":[')
        dripping.send(head)
        assert dripped(dripping, b" ") == (408, "invalid-request")
        status, _, body = silent.answer()
        assert (status, problem(body)) == (408, "invalid-request")


def test_a_long_head_is_refused(server: BloomeryServer) -> None:
    """16 KiB of head are enough: more is a 431, in one piece or in many; a little less is fine."""
    fits = b"X-Long: " + b"x" * 15_000 + b"\r\n"
    start = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
    with Raw(server.http_port) as raw:
        raw.send(start + fits + b"\r\n")
        assert raw.answer()[0] == 200
    for parts in (
        [start + fits + fits + b"\r\n"],
        [start, fits, fits],
        [start, *([b"A: b\r\n"] * 4000)],
        [b"GET /" + b"a" * 17_000],
        [b"GET /" + b"a" * 17_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"],
    ):
        with Raw(server.http_port) as raw:
            for part in parts:
                try:
                    raw.send(part)
                except ConnectionError:  # it has been refused meanwhile
                    break
            try:
                status, headers, body = raw.answer()
            except ConnectionError:  # what we sent on after the refusal has cost us the answer
                continue
            assert (status, headers["connection"]) == (431, "close")
            assert problem(body) == "invalid-request"


def test_trailers_without_end(server: BloomeryServer) -> None:
    """What follows the last chunk of a body is bounded too, whoever sends it: many trailers, a long
    one, a chunk's extension; a few are fine, and mean nothing."""
    start = b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with Raw(server.http_port) as raw:
        raw.send(start + b"1\r\na\r\n0\r\nA: b\r\n\r\n" + start)
        assert [raw.answer()[0], raw.answer()[0]] == [405, 405]
    before = memory(server)
    for opening, part in (
        (b"0\r\n", b"A: b\r\n" * 1000),
        (b"0\r\nA: ", b"x" * 6000),
        (b"1;", b"x" * 6000),
    ):
        with Raw(server.http_port) as raw:
            raw.send(start + opening)
            with pytest.raises(ConnectionError):
                raw.send(part * 5000)
    assert memory(server) - before < 20 * MIB


def test_ten_thousand_half_open_connections(limit: Limit) -> None:
    """Past the limit the oldest that never sent a request make room, and all are ended in time;
    meanwhile others are served, and the memory stays within bounds."""
    server = limit(http_header_seconds=6)
    before = memory(server)
    with many_files(12_000), others_served(server), ExitStack() as ends:
        opened = list[socket.socket]()
        for number in range(10_500):
            one = ends.enter_context(
                socket.create_connection(("127.0.0.1", server.http_port), timeout=30)
            )
            if number % 2:
                one.sendall(b"POST /filters/watched/contains HTTP/1.1\r\n")
            opened.append(one)
        assert memory(server) - before < 150 * MIB
        ended = 0
        for one in opened:
            try:
                while one.recv(4096):
                    pass
            except ConnectionResetError:
                pass
            ended += 1
        assert ended == len(opened)


def test_connections_past_the_limit(limit: Limit) -> None:
    """Where all connections are in use a further one is told so; those that are not make room."""
    server = limit(http_maxclients=5)
    with ExitStack() as ends:
        used = [ends.enter_context(Raw(server.http_port)) for _ in range(5)]
        for raw in used:
            # Its 100 says that the server has read this head: one that has not is a stranger yet,
            # and would make room for the next.
            head = {"Content_Length": "2", "Expect": "100-continue"}
            raw.send(post("/filters/watched/contains", b"", **head))
            assert raw.answer()[0] == 100
        with Raw(server.http_port) as one_more:
            status, headers, body = one_more.answer()
            assert (status, problem(body)) == (503, "server-unavailable")
            assert int(headers["retry-after"]) > 0
            assert one_more.ended()
        used[0].socket.close()
        used[1].socket.close()

        def room() -> bool:
            with Raw(server.http_port) as raw:
                raw.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                return raw.answer()[0] == 200

        assert wait_until(room)
        half_open = [ends.enter_context(Raw(server.http_port)) for _ in range(20)]
        for raw in half_open:
            raw.send(b"GET /heal")
        assert room()  # the oldest of those make way
        assert all(raw.ended() for raw in half_open[:-2])
        for _ in range(20):  # nor do those who were answered keep others out
            idle = ends.enter_context(Raw(server.http_port))
            idle.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert idle.answer()[0] == 200


def test_two_gigabytes_of_body(server: BloomeryServer, http: Http) -> None:
    """A body that is too long is refused at once where it says so, and else when it has become too
    long; what the client still sends is not kept, and not read without end."""
    http.client.post("/filters", json={"name": "huge", "capacity": 1000})
    before = memory(server)
    with Raw(server.http_port) as raw:
        raw.send(post(f"{at('huge')}/add", b"", Content_Length=str(2 << 30)))
        status, _, body = raw.answer()  # before a byte of it was sent
        assert (status, problem(body)) == (413, "request-too-large")
        assert pumped(raw, b"a" * MIB, 2048) < 256
    with Raw(server.http_port) as raw:
        head = b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        raw.send(b"POST /filters/huge/add HTTP/1.1\r\nHost: localhost\r\n" + head)
        chunk = b"%x\r\n%s\r\n" % (MIB, b" " * MIB)
        assert pumped(raw, chunk, 2048) < 256
        status, _, body = raw.answer()
        assert (status, problem(body)) == (413, "request-too-large")
    assert memory(server) - before < 64 * MIB
    assert http.keys("huge", "add", "a") == [True]


def pumped(raw: Raw, data: bytes, times: int) -> int:
    """How often the data was sent before the server hung up."""
    for sent in range(times):
        try:
            raw.send(data)
        except ConnectionError:
            return sent
    return times


def test_too_many_values_in_a_body(http: Http) -> None:
    """A body within its limit that has millions of values is refused before it is read."""
    http.create("values")
    for body in (
        b'{"keys":[' + b"[]," * 1_000_000 + b"[]]}",
        b'{"key":[' + b"1," * 300_000 + b"1]}",
        b'{"keys":[' + b"[[[1]]]," * 70_000 + b"[[[1]]]]}",
    ):
        headers = {"Content-Type": "application/json"}
        asked = http.ask(
            "POST", f"{at('values')}/contains", None, 413, content=body, headers=headers
        )
        assert asked["code"] == "request-too-large"
    assert len(http.keys("values", "contains", *range(200_000))) == 200_000
    assert len(http.keys("values", "contains", *["[[[1]]]"] * 70_000)) == 70_000


def test_many_large_bodies_at_once(limit: Limit) -> None:
    """Large bodies that are half sent take no more memory together than a few of them may; who
    comes past that is told to try again, and small requests go on."""
    server = limit(http_max_body_bytes=4 * MIB, max_input_bytes=32 * MIB)
    before = memory(server)
    with others_served(server), ExitStack() as ends:
        half = post(f"{at('watched')}/add", b"", Content_Length=str(4 * MIB)) + b" " * 3 * MIB
        raws = [ends.enter_context(Raw(server.http_port)) for _ in range(150)]
        for raw in raws:
            raw.send(half)
        # The first to be complete would make room for those that the server has not read yet.
        sockets = [raw.socket for raw in raws]
        assert wait_until(lambda: len(select.select(sockets, [], [], 0)[0]) >= 135)
        statuses = []
        for raw in raws:
            try:
                raw.send(b" " * (MIB - 12) + b'{"key":"a"} ')
                statuses.append(raw.answer()[0])
            except ConnectionError:
                statuses.append(503)
        assert statuses.count(503) >= 135
        assert statuses.count(200) >= 5
        assert set(statuses) == {200, 503}
        # Of 450. All were read by now, and what a process once had it mostly keeps: one that has
        # served nobody before grows by 130.
        assert memory(server) - before < 256 * MIB


def test_who_does_not_read_is_ended(limit: Limit) -> None:
    """Answers that nobody takes are held for a while, and not without end."""
    server = limit(slow_client_seconds=1)
    with Http(server) as http:
        http.create("unread", 10)
    body = json.dumps({"keys": list(range(100_000))}).encode()
    before = memory(server)
    with others_served(server), Raw(server.http_port) as raw:
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        assert pumped(raw, post(f"{at('unread')}/contains", body), 1000) < 1000
    assert memory(server) - before < 64 * MIB


def test_requests_without_end_sent_ahead(limit: Limit) -> None:
    """A client that sends requests and never reads is held back or ended; the memory stays."""
    server = limit(slow_client_seconds=1)
    before = memory(server)
    request = b"GET /filters HTTP/1.1\r\nHost: localhost\r\n\r\n" * 10_000
    with others_served(server), Raw(server.http_port, timeout=5) as raw:
        try:
            sent = pumped(raw, request, 300)
        except TimeoutError:
            sent = 0
        assert sent < 300
    assert memory(server) - before < 64 * MIB


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,  # a TLS client
        b"*1\r\n$4\r\nPING\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET nowhere HTTP/1.1\r\n\r\n",
        b"\x00" * 1000,
        b"POST /filters HTTP/9.9\r\n\r\n",
    ],
)
def test_what_is_no_request(server: BloomeryServer, data: bytes) -> None:
    """Bytes that are no request of HTTP get a 400, and the connection ends."""
    with Raw(server.http_port) as raw:
        raw.send(data)
        status, headers, body = raw.answer()
        assert (status, headers["connection"], problem(body)) == (400, "close", "invalid-request")
        assert raw.ended()
