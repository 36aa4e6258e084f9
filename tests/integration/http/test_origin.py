"""Web pages of others, in a browser that can reach the server: CSRF and DNS rebinding, on every
route, with and without users; and the security headers of every answer."""

from collections.abc import Iterator
from functools import cache

import httpx
import pytest

from bloomery import Client
from bloomery.service.http.app import make
from integration.access.conftest import add_users
from integration.conftest import open_folder, started
from integration.http.asking import Http, Raw, at
from integration.resp.wire import Wire
from integration.servers import BloomeryServer, Serve
from unit.service.certificates import Pairs

NAME = "not a page's"
CROSS = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
# What a browser says when somebody follows a link, or loads a frame.
LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
FRAME = LINK | {"Sec-Fetch-Dest": "iframe"}


def foreign(port: int) -> list[dict[str, str]]:
    """Headers of requests that a page of somebody else's has a browser send."""
    own = f"127.0.0.1:{port}"
    return [
        {"Origin": "https://example.com"},
        {"Origin": "null"},
        {"Origin": f"http://127.0.0.1:{port + 1}"},
        {"Origin": f"https://{own}"},  # of this machine and port, and not of this server
        {"Origin": own},
        {"Origin": ""},
        CROSS,
        FRAME,
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": f"http://{own}"},
        *(
            {"Host": host, "Origin": f"http://{host}"} | site
            for site in ({}, {"Sec-Fetch-Site": "same-origin"})
            for host in (f"example.com:{port}", "127.0.0.1.example.com", "bloomery", "router:80")
        ),
        {"Host": "example.com"},
        {"Host": "intranet"},
        {"Host": ""},
        {"Host": "localhost.example.com"},
        {"Host": "notlocalhost"},
        {"Host": "user@localhost"},
        {"Host": "localhost/"},
        {"Host": "[::1"},
        {"Host": "[example.com]"},
    ]


@cache
def routes() -> list[tuple[str, str]]:
    """Every method and path there is, of a filter, and one that there is not."""
    paths = make().openapi()["paths"]
    every = [(method.upper(), path) for path, one in paths.items() for method in one]
    named = [(method, path.replace("{name}", "not%20a%20page%27s")) for method, path in every]
    return [*named, ("GET", "/openapi.json"), ("GET", "/nowhere"), ("OPTIONS", "/filters")]


@pytest.fixture(scope="module")
def with_users() -> Iterator[tuple[BloomeryServer, str]]:
    """A server that has users, and an admin's token."""
    with open_folder() as folder:
        users = add_users(folder / "data")
        with started(BloomeryServer(folder), kill=True) as server:
            token = next(one.token for one in users if one.name == "admin-all")
            assert token is not None
            yield server, token


def refused_everywhere(server: BloomeryServer, own: dict[str, str]) -> None:
    """Assert that no page of somebody else's can do anything; `own` logs in."""
    with httpx.Client(base_url=server.url, headers=own, timeout=30) as client:
        client.post("/filters", json={"name": NAME, "capacity": 100}).raise_for_status()
        client.post(f"{at(NAME)}/add", json={"key": "a"}).raise_for_status()
        for number, headers in enumerate(foreign(server.http_port)):
            # All routes with some of them, and some routes with all of them.
            tried = routes() if number in (0, 6, 10) else [("POST", f"{at(NAME)}/clear")]
            for method, path in [*tried, ("GET", "/healthz"), ("POST", f"{at(NAME)}/contains")]:
                answer = client.request(method, path, headers=headers)
                assert answer.status_code == 403, (method, path, headers, answer.text)
        told = client.post(f"{at(NAME)}/contains", json={"key": "a"})
        assert told.json() == {"maybe": True}


def test_pages_of_others_are_kept_out(server: BloomeryServer) -> None:
    """A web page can use the server neither by its own origin nor by a name of its own for this
    machine, on any route; and nothing is done that it asked for."""
    refused_everywhere(server, {})


def test_with_users_too(with_users: tuple[BloomeryServer, str]) -> None:
    """Where there are users it is the same: a browser may know a password."""
    server, token = with_users
    refused_everywhere(server, {"Authorization": f"Bearer {token}"})


def test_others_are_let_in(server: BloomeryServer, http: Http) -> None:
    """Programs, this server's own pages, somebody who follows a link, checks of load balancers."""
    port = server.http_port
    for host in (
        *(f"localhost:{port}", "localhost", "LocalHost.", "a.localhost"),
        *("127.0.0.1", "10.1.2.3:8100", f"[::1]:{port}", "[::1]"),
    ):
        own = {"Host": host, "Origin": f"http://{host.lower()}"}
        for headers in ({"Host": host}, own, own | {"Sec-Fetch-Site": "same-origin"}):
            http.ask("GET", "/filters", None, headers=headers)
    http.ask("GET", "/filters", None, headers={"Sec-Fetch-Site": "none"})
    for page in ("/ui/filters", "/docs"):
        assert http.client.get(page, headers=LINK).status_code == 200
    # A link of theirs leads to a page, and makes nobody download a filter.
    for path in ("/filters", "/backup", f"{at('a page of theirs')}/file", "/metrics"):
        http.ask("GET", path, None, 403, headers=LINK)
    http.ask("POST", "/snapshot", None, 403, headers=LINK)
    with Raw(port) as raw:
        raw.send(b"GET /readyz HTTP/1.0\r\n\r\n")
        assert raw.answer()[::2] == (200, b"ok\n")
    with Client(server.url) as client:
        assert client.create("a program's", 10).add("a")


def test_names_of_the_server(serve: Serve) -> None:
    """http-hosts says by which names it is asked besides, and by which URL, where a proxy speaks
    TLS; also while it runs."""
    server = serve("--set", "http-hosts=filters.example.org, *.example.net")
    with Http(server) as http:

        def asked(host: str, origin: str | None = None, status: int = 200) -> None:
            headers = {"Host": host} | ({} if origin is None else {"Origin": origin})
            http.ask("GET", "/filters", None, status, headers=headers)

        asked("filters.example.org:8100")
        asked("FILTERS.example.org.")
        asked("a.example.net", "http://a.example.net")
        asked("a.example.net", "https://a.example.net", 403)
        for host in ("example.org", "example.net", "a.filters.example.org", "aexample.net"):
            asked(host, None, 403)
        with Wire(server.resp_port) as wire:
            for value in ("https://filters.example.org", "https://filters.example.org/"):
                assert wire.ask("CONFIG", "SET", "http-hosts", value) == b"+OK\r\n"
            assert wire.ask("CONFIG", "SET", "http-hosts", "a b").startswith(b"-ERR")
        asked("a.example.net", None, 403)
        asked("filters.example.org", "https://filters.example.org")
        asked("filters.example.org", "https://filters.example.com", 403)
        with Wire(server.resp_port) as wire:
            assert wire.ask("CONFIG", "SET", "http-hosts", "*") == b"+OK\r\n"
        asked("anything")
        asked("anything", "http://other", 403)


HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "deny",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


def test_every_answer_has_its_headers(server: BloomeryServer, http: Http) -> None:
    """Whatever is answered, by whom ever: routes, keys, problems, and what is no request."""
    http.create("headed")
    stream = {"Content-Type": "application/x-ndjson", "Accept": "application/x-ndjson"}
    answers = [
        *(http.client.request(method, path) for method, path in routes()),
        http.client.post(f"{at('headed')}/add", json={"key": "a"}),
        http.client.post(f"{at('headed')}/add", content=b"{"),
        http.client.post(f"{at('headed')}/contains", content=b'"a"\n', headers=stream),
        http.client.get("/filters", headers={"Host": "example.com"}),
        http.client.get(f"{at('headed')}/file"),
    ]
    found = [dict(one.headers) for one in answers]
    for wrong in (b"\x00", b"GET /" + b"a" * 20_000, b"GET / HTTP/1.1\r\n\r\n"):
        with Raw(server.http_port) as raw:
            raw.send(wrong)
            found.append(raw.answer()[1])
    for headers in found:
        shown = {name: headers.get(name, "").lower() for name in HEADERS}
        assert shown == HEADERS
        assert "strict-transport-security" not in headers


def test_over_tls(serve: Serve) -> None:
    """With TLS the certificate's names are the server's, and browsers are told to stay with it."""
    with open_folder() as folder:
        pairs = Pairs(folder)
        cert, key = pairs.make("named", "filters.example.org", "*.example.net")
        server = serve("--tls-cert", cert, "--tls-key", key)
        url = f"https://localhost:{server.http_port}"
        with httpx.Client(base_url=url, verify=pairs.client(), timeout=30) as client:
            for host, status in (
                ("filters.example.org", 200),
                ("a.example.net", 200),
                ("localhost", 200),
                ("example.com", 403),
                ("example.net", 403),
            ):
                answer = client.get("/filters", headers={"Host": host, "Origin": f"https://{host}"})
                assert answer.status_code == status, host
                assert answer.headers["strict-transport-security"] == "max-age=31536000"
            plain = client.get(
                "/filters", headers={"Origin": f"http://localhost:{server.http_port}"}
            )
            assert plain.status_code == 403
