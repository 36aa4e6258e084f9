"""An offer to upgrade (to HTTP/2, say) is ignored: the request's body is read as a body, and what
is behind it as the next request."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from integration.http.asking import Http, Raw, at
from integration.servers import BloomeryServer

# What the HttpClient of Java 17 sends where nobody told it which version to speak.
JAVA = (
    "POST {path} HTTP/1.1\r\n"
    "Connection: Upgrade, HTTP2-Settings\r\n"
    "{framing}\r\n"
    "Host: 127.0.0.1:{port}\r\n"
    "HTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA\r\n"
    "Upgrade: h2c\r\n"
    "User-Agent: Java-http-client/17.0.15\r\n"
    "Content-Type: application/x-ndjson\r\n"
    "\r\n"
)
OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def java(port: int, name: str, body: bytes, *, chunked: bool = False) -> bytes:
    """That client's request to add a stream of keys to a filter."""
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}"
    if chunked:
        parts = (b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:2], body[2:]))
        body = b"".join(parts) + b"0\r\n\r\n"
    return JAVA.format(path=f"{at(name)}/add", framing=framing, port=port).encode() + body


def splits(data: bytes, edges: range) -> list[list[bytes]]:
    """The data whole, byte by byte, and in two packets at each of some places."""
    singly = [bytes([byte]) for byte in data]
    return [[data], singly, *([data[:at], data[at:]] for at in edges)]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_with_an_offer_is_a_body(server: BloomeryServer, http: Http, chunked: bool) -> None:
    """However the bytes come in packets: all keys are added, and the next request is answered."""
    name = f"java {chunked}"
    http.create(name)
    request = java(server.http_port, name, b'"a"\n"b"\n"c"\n', chunked=chunked)
    end = len(request)
    body = request.index(b"\r\n\r\n")
    for number, parts in enumerate(splits(request, range(body - 2, end))):
        with Raw(server.http_port) as raw:
            send_apart(raw, parts, http)
            raw.send(HEALTH)
            status, _, told = raw.answer()
            assert (status, json.loads(told)) == (200, {"keys": 3, "new": 0 if number else 3})
            assert raw.answer()[0::2] == (200, b"ok\n")
    assert http.keys(name, "contains", "a", "b", "c") == [True, True, True]


def send_apart(raw: Raw, parts: list[bytes], http: Http) -> None:
    """Send each part when the server has read the one before: its loop has then answered us."""
    for part in parts[:-1]:
        raw.send(part)
        http.client.get("/healthz")
    raw.send(parts[-1])


def test_a_body_is_never_a_request(server: BloomeryServer, http: Http) -> None:
    """A request in the body of one that offers an upgrade is not done, whenever it comes."""
    http.create("smuggled at")
    drop = f"DELETE {at('smuggled at')} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    for method, lines in (
        (b"GET", OFFER),
        (b"GET", b"Connection: Upgrade\r\nUpgrade: websocket\r\n"),
        (b"GET", b"Expect: 100-continue\r\n" + OFFER),
        (b"HEAD", OFFER),
    ):
        head = b"%b /healthz HTTP/1.1\r\nHost: localhost\r\n%b" % (method, lines)
        head += b"Content-Length: %d\r\n\r\n" % len(drop)
        for parts in (
            [head + drop + HEALTH],
            [head, drop + HEALTH],
            [head, drop[:9], drop[9:] + HEALTH],
        ):
            with Raw(server.http_port) as raw:
                send_apart(raw, parts, http)
                first = raw.answer()[0] if not head.startswith(b"HEAD") else bare(raw)
                assert first == 200
                assert raw.answer()[0] == 200
    http.ask("GET", at("smuggled at"))


def bare(raw: Raw) -> int:
    """The status of an answer without a body, whatever its Content-Length says."""
    while b"\r\n\r\n" not in raw.rest:
        raw.more()
    head, _, raw.rest = raw.rest.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1])


def test_many_offers_on_one_connection(server: BloomeryServer, http: Http) -> None:
    """Requests that all offer an upgrade, sent ahead of their answers, are answered in order."""
    http.create("offers")
    with Raw(server.http_port) as raw:
        raw.send(b"".join(java(server.http_port, "offers", b'"%d"\n' % n) for n in range(300)))
        told = [json.loads(raw.answer()[2]) for _ in range(300)]
    assert {one["keys"] for one in told} == {1}
    assert http.keys("offers", "contains", *map(str, range(300))) == [True] * 300


@pytest.mark.parametrize(
    "request_",
    [
        b"CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"CONNECT /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_asks_for_another_protocol(
    server: BloomeryServer, http: Http, request_: bytes
) -> None:
    """CONNECT, and HTTP/2 without an offer, are 400; what follows is not looked at."""
    if not http.client.get(at("tunnelled")).is_success:
        http.create("tunnelled")
    drop = f"DELETE {at('tunnelled')} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with Raw(server.http_port) as raw:
        raw.send(request_ + drop)
        status, headers, _ = raw.answer()
        assert (status, headers["connection"]) == (400, "close")
        assert raw.ended()
    http.ask("GET", at("tunnelled"))


def test_curl(server: BloomeryServer, http: Http) -> None:
    """curl --http2 offers it too."""
    http.create("curl")
    url = f"{server.url}{at('curl')}/add"
    sends = ("-H", "Content-Type: application/x-ndjson", "--data-binary", '"a"\n"b"\n')
    done = subprocess.run(
        ["curl", "-s", "--http2", url, *sends], capture_output=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == {"keys": 2, "new": 2}


ASK = """
import java.net.URI;
import java.net.http.*;
public class Ask {
  public static void main(String[] words) throws Exception {
    var client = HttpClient.newHttpClient();
    for (int at = 1; at < words.length; at++) {
      var request = HttpRequest.newBuilder(URI.create(words[0]))
        .header("Content-Type", "application/x-ndjson")
        .POST(HttpRequest.BodyPublishers.ofString(words[at])).build();
      System.out.println(client.send(request, HttpResponse.BodyHandlers.ofString()).body());
    }
  }
}
"""


@pytest.mark.skipif(shutil.which("java") is None, reason="Java is not here; its bytes are, above")
def test_java(server: BloomeryServer, http: Http, tmp_path: Path) -> None:
    """Java's own client, as it is by default."""
    http.create("java")
    source = tmp_path / "Ask.java"
    source.write_text(ASK)
    done = subprocess.run(
        [
            "java",
            "-Xint",
            "-XX:+UseSerialGC",
            str(source),
            f"{server.url}{at('java')}/add",
            '"a"',
            '"a"\n"b"',
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"keys": 1, "new": 1},
        {"keys": 2, "new": 1},
    ]
