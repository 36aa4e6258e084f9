"""Where one request ends and the next begins: every request is answered once, in order, and what is
in a body is never done."""

import json
import threading

import pytest

from integration.http.asking import Http, Raw, at, post, problem
from integration.servers import BloomeryServer

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def request(method: str, path: str, *headers: str, body: bytes = b"") -> bytes:
    """The bytes of a request to localhost, with these headers as they are."""
    lines = "".join(f"{line}\r\n" for line in ("Host: localhost", *headers))
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def test_thousands_of_requests_ahead_of_their_answers(server: BloomeryServer, http: Http) -> None:
    """However many requests are sent before an answer is read, each is answered, in order."""
    http.create("pipelined", 20_000)
    number = 6000
    sent = [post(f"{at('pipelined')}/add", b'{"key":"%d"}' % (n // 2)) for n in range(number)]
    with Raw(server.http_port, timeout=60) as raw:
        sending = threading.Thread(target=raw.send, args=(b"".join(sent),))
        sending.start()
        told = [json.loads(raw.answer()[2])["new"] for _ in range(number)]
        sending.join()
        raw.send(HEALTH)
        assert raw.answer()[0] == 200
    assert told[::2].count(True) > number // 2 - 50  # a maybe is wrong now and then
    assert not any(told[1::2])  # that key was added by the request before


def test_small_requests_in_one_packet(server: BloomeryServer) -> None:
    """The smallest requests there are, thousands in one packet: all are answered."""
    with Raw(server.http_port) as raw:
        raw.send(b"GET /healthz HTTP/1.1\r\nHost: [::1]\r\n\r\n" * 3000)
        assert {raw.answer()[0] for _ in range(3000)} == {200}


def test_what_is_no_request_behind_requests(server: BloomeryServer, http: Http) -> None:
    """Requests before one that cannot be read have their answers first, and then it has its own."""
    http.create("before")
    add = post(f"{at('before')}/add", b'{"key":"a"}')
    chunked = ("Content-Type: application/json", "Transfer-Encoding: chunked")
    for wrong in (
        b"\x00nothing\r\n\r\n",
        request("POST", f"{at('before')}/add", *chunked, body=b"zz\r\n"),
        request("GET", "nowhere"),
    ):
        with Raw(server.http_port) as raw:
            raw.send(add * 50 + wrong + HEALTH)
            assert [raw.answer()[0] for _ in range(51)] == [200] * 50 + [400], wrong
            assert raw.ended()


def test_the_last_of_a_connection(server: BloomeryServer, http: Http) -> None:
    """What comes behind a request that closes the connection is not done."""
    http.create("closed before")
    drop = request("DELETE", at("closed before"))
    offer = ("Connection: close, Upgrade", "Upgrade: h2c")
    for closing in (("Connection: close",), offer):
        with Raw(server.http_port) as raw:
            raw.send(HEALTH * 3 + request("GET", "/healthz", *closing) + drop * 500)
            answers = [raw.answer() for _ in range(4)]
            assert [status for status, _, _ in answers] == [200] * 4
            assert answers[3][1]["connection"] == "close"
            assert raw.ended()
    http.ask("GET", at("closed before"))


@pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS", "POST", "TRACE"])
def test_a_body_that_nobody_reads(server: BloomeryServer, http: Http, method: str) -> None:
    """Whatever has a body that its route does not read, the next request is the one behind it."""
    name = f"unread {method}"
    http.create(name)
    drop = request("DELETE", at(name))
    whole = f"Content-Length: {len(drop)}"
    chunks = b"%x\r\n%b\r\n0\r\nX-Trailer: a\r\n\r\n" % (len(drop), drop)
    for line, body in ((whole, drop), ("Transfer-Encoding: chunked", chunks)):
        for path in ("/healthz", "/nowhere", "/filters/nobody/add"):
            with Raw(server.http_port) as raw:
                raw.send(request(method, path, line, body=body) + HEALTH)
                raw.answer()
                assert raw.answer()[::2] == (200, b"ok\n"), (line, path)
    http.ask("GET", at(name))


def test_two_lengths_are_one_too_many(server: BloomeryServer, http: Http) -> None:
    """A body of two lengths, or with codings that are not undone here, is not read at all; nor is
    anything of its request done."""
    http.create("ambiguous")
    http.keys("ambiguous", "add", "a")
    for lines, expected in (
        (("Content-Length: 1", "Content-Length: 1"), 400),
        (("Content-Length: 1, 1",), 400),
        (("Content-Length: +1",), 400),
        (("Content-Length: 1", "Transfer-Encoding: chunked"), 400),
        (("Transfer-Encoding: chunked", "Content-Length: 1"), 400),
        (("Transfer-Encoding: gzip, chunked",), 501),
        (("Transfer-Encoding: gzip", "Transfer-Encoding: chunked"), 501),
        (("Transfer-Encoding: identity, chunked",), 501),
        (("Transfer-Encoding: chunked, gzip",), 400),
        (("Transfer-Encoding: chunked, chunked",), 400),
        (("Transfer-Encoding: xchunked",), 501),
        (("Transfer-Encoding: gzip",), 501),
    ):
        for path in ("add", "clear"):
            with Raw(server.http_port) as raw:
                body = b'{"key":"b"}'
                chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
                json_ = "Content-Type: application/json"
                raw.send(request("POST", f"{at('ambiguous')}/{path}", json_, *lines, body=chunks))
                status, headers, told = raw.answer()
                assert (status, problem(told)) == (expected, "invalid-request"), lines
                assert headers["connection"] == "close"
                assert raw.ended()
    assert http.keys("ambiguous", "contains", "a", "b") == [True, False]


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("Host: localhost", "Host: localhost"),
        ("Host: localhost", "Authorization: Bearer a", "Authorization: Bearer b"),
        ("Host: localhost", "Origin: http://localhost", "Origin: http://localhost"),
    ],
)
def test_headers_that_come_once(server: BloomeryServer, lines: tuple[str, ...]) -> None:
    """No Host, or two of what there can be one of, is a 400."""
    head = "".join(f"{line}\r\n" for line in lines)
    with Raw(server.http_port) as raw:
        raw.send(f"GET /healthz HTTP/1.1\r\n{head}\r\n".encode())
        status, _, told = raw.answer()
        assert (status, problem(told)) == (400, "invalid-request")


def test_who_asks_whether_to_send(server: BloomeryServer, http: Http) -> None:
    """Expect: 100-continue is answered when the body is wanted, also behind other requests."""
    http.create("expected")
    head = ("Content-Type: application/json", "Content-Length: 11", "Expect: 100-continue")
    with Raw(server.http_port) as raw:
        raw.send(HEALTH + request("POST", f"{at('expected')}/add", *head))
        assert [raw.answer()[0], raw.answer()[0]] == [200, 100]
        raw.send(b'{"key":"a"}' + HEALTH)
        assert json.loads(raw.answer()[2]) == {"new": True}
        assert raw.answer()[0] == 200


def test_who_breaks_off_in_a_body_that_was_refused(server: BloomeryServer, http: Http) -> None:
    """After its answer a connection gets no second one for the same request."""
    http.create("refused early")
    with Raw(server.http_port) as raw:
        raw.send(post(f"{at('refused early')}/add", b"", Content_Length=str(1 << 30)))
        assert raw.answer()[0] == 413
    chunked = ("Content-Type: application/json", "Transfer-Encoding: chunked")
    with Raw(server.http_port) as raw:
        raw.send(request("POST", "/filters/nobody/add", *chunked))
        # Answered when its body is there, or is wrong: one answer in either case.
        raw.send(b"zz\r\n")
        assert raw.answer()[0] in (400, 404)
        assert raw.ended()
