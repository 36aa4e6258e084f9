"""TLS at both ports, with the clients that people use; and whoever does not speak it."""

from __future__ import annotations

import resource
import shutil
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone

import httpx
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

import bloomery
from bloomery import errors
from conftest import missing
from integration.conftest import open_folder
from integration.servers import BloomeryServer, Serve, wait_until
from unit.service.certificates import Pairs

NOW = datetime.now(timezone.utc)
DAY = timedelta(days=1)
HALF_OPEN = 1200  # more than may wait at a port


@pytest.fixture(scope="module")
def steady(chain: Pairs) -> Iterator[BloomeryServer]:
    """A server with a certificate that stays as it is."""
    with open_folder() as folder:
        server = BloomeryServer(folder, *options(chain.make("steady")))
        server.start()
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture
def secured(serve: Serve, pairs: Pairs) -> BloomeryServer:
    """A server of the test's own, with a certificate that it may replace."""
    return serve(*options(pairs.make("server")))


def options(paths: tuple[str, str]) -> list[str]:
    """Flags for these files."""
    return ["--tls-cert", paths[0], "--tls-key", paths[1]]


def resp(port: int, pairs: Pairs) -> redis.Redis:
    """A client that tries once."""
    once = Retry(NoBackoff(), 0)
    return redis.Redis("localhost", port, ssl=True, ssl_ca_certs=pairs.trust(), retry=once)


def shown(port: int, client: ssl.SSLContext) -> str:
    """The number of the certificate that a new client is shown."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as plain,
        client.wrap_socket(plain, server_hostname="localhost") as safe,
    ):
        found = safe.getpeercert()
        assert found
        return str(found["serialNumber"])


def alive(server: BloomeryServer, pairs: Pairs) -> bool:
    """Does it answer at both ports, and has nothing happened that nobody expected?"""
    assert "Traceback" not in server.printed(), server.printed()
    with resp(server.resp_port, pairs) as client:
        answered = client.ping()
    url = f"https://127.0.0.1:{server.http_port}/healthz"
    return bool(answered) and httpx.get(url, verify=pairs.client()).status_code == 200


def test_a_real_chain(steady: BloomeryServer, chain: Pairs) -> None:
    """Clients that trust only the root verify root, intermediate and name, at both ports, and
    pipelines, large replies and large requests go through."""
    with resp(steady.resp_port, chain) as client:
        client.execute_command("BF.RESERVE", "seen", 0.001, 100_000)
        keys = [f"key-{n}" for n in range(50_000)]
        client.execute_command("BF.MADD", "seen", *keys)
        assert client.execute_command("BF.MEXISTS", "seen", *keys) == [1] * len(keys)
        pipeline = client.pipeline(transaction=False)
        for key in keys[:2000]:
            pipeline.execute_command("BF.EXISTS", "seen", key)
        assert pipeline.execute() == [1] * 2000
    assert alive(steady, chain)
    stranger = ssl.create_default_context()
    with pytest.raises(ssl.SSLCertVerificationError):
        shown(steady.resp_port, stranger)


def test_our_own_client(steady: BloomeryServer, serve: Serve, chain: Pairs) -> None:
    """It verifies by a file of ours; what else it is given, and why that fails, it says: no such
    file, a signer it does not know, plain text to TLS, TLS to plain text."""
    port = steady.http_port
    with bloomery.Client(f"https://127.0.0.1:{port}", verify=chain.trust()) as client:
        assert "nobody" not in client
    with pytest.raises(errors.InvalidParameter, match=r"verify is 'none\.pem', must be a file"):
        bloomery.Client(f"https://127.0.0.1:{port}", verify="none.pem")
    for url, right in (
        (f"https://127.0.0.1:{port}", r"verify='ca\.pem'"),
        (f"http://127.0.0.1:{port}", "has TLS is at https://"),
        (f"https://127.0.0.1:{serve().http_port}", "is the URL http://"),
    ):
        with bloomery.Client(url) as client, pytest.raises(errors.ServerUnavailable, match=right):
            list(client)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions(steady: BloomeryServer, chain: Pairs, version: ssl.TLSVersion) -> None:
    """TLS 1.2 and 1.3 are spoken at both ports."""
    client = chain.client()
    client.minimum_version = client.maximum_version = version
    for port in (steady.resp_port, steady.http_port):
        assert shown(port, client)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_an_old_version_is_refused(steady: BloomeryServer, chain: Pairs) -> None:
    """TLS 1.1 is not."""
    client = chain.client()
    client.set_ciphers("ALL:@SECLEVEL=0")
    client.minimum_version = client.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        shown(steady.resp_port, client)
    assert alive(steady, chain)


def test_tools(steady: BloomeryServer, chain: Pairs) -> None:
    """redis-cli, openssl and curl get through."""
    port, http, root = str(steady.resp_port), steady.http_port, chain.trust()
    at = f"127.0.0.1:{port}"
    for tool, command, given, expected in (
        ("redis-cli", ["--tls", "--cacert", root, "-p", port, "PING"], "", "PONG"),
        (
            "openssl",
            ["s_client", "-quiet", "-verify_return_error", "-CAfile", root, "-connect", at],
            "PING\r\nQUIT\r\n",
            "+PONG",
        ),
        ("curl", ["-sS", "--cacert", root, f"https://127.0.0.1:{http}/healthz"], "", "ok"),
    ):
        if shutil.which(tool) is None:
            missing(f"{tool} (scripts/servers installs it)")
        done = subprocess.run(
            [tool, *command], input=given, capture_output=True, text=True, timeout=60, check=False
        )
        assert expected in done.stdout, (tool, done)


def test_an_expired_certificate(serve: Serve, pairs: Pairs) -> None:
    """The server says that it has expired, and clients that verify refuse it."""
    paths = pairs.make("server", not_before=NOW - 9 * DAY, not_after=NOW - DAY)
    server = serve(*options(paths))
    assert "the certificate has expired" in server.printed()
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shown(server.resp_port, pairs.client())
    with pytest.raises(httpx.ConnectError, match="expired"):
        httpx.get(f"https://localhost:{server.http_port}/healthz", verify=pairs.client())
    with (
        resp(server.resp_port, pairs) as client,
        pytest.raises(redis.ConnectionError, match="expired"),
    ):
        client.ping()
    # It is taken out of use by a good one.
    pairs.make("server")
    assert server.process is not None
    server.process.send_signal(signal.SIGHUP)
    assert wait_until(lambda: "a new certificate" in server.printed())
    assert alive(server, pairs)


@pytest.mark.parametrize(
    "data",
    [
        b"PING\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        bytes(range(256)) * 64,
    ],
    ids=["inline", "resp", "http", "bytes"],
)
def test_plain_text_to_the_tls_ports(steady: BloomeryServer, chain: Pairs, data: bytes) -> None:
    """It gets nothing but perhaps TLS's own alert, the connection ends, others are served, and
    nothing is told of it."""
    for port in (steady.resp_port, steady.http_port):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as plain:
            plain.sendall(data)
            assert len(ended(plain)) < 100
    assert alive(steady, chain)
    assert steady.printed().count("\n") == 1  # that it is ready


def ended(connection: socket.socket) -> bytes:
    """What still comes until the other side hangs up."""
    got = b""
    try:
        while some := connection.recv(4096):
            got += some
    except ConnectionResetError:
        pass
    return got


def test_a_tls_client_at_a_plain_port(serve: Serve, pairs: Pairs) -> None:
    """It is told at once that this is no TLS, and does not wait for ever."""
    server = serve()
    for port in (server.resp_port, server.http_port):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            shown(port, pairs.client())
    with redis.Redis(port=server.resp_port) as client:
        assert client.ping()
    assert "Traceback" not in server.printed()


@contextmanager
def connecting(port: int, client: ssl.SSLContext, seen: set[str]) -> Iterator[list[Exception]]:
    """Two threads that connect again and again; what went wrong, at the end."""
    problems: list[Exception] = []
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            try:
                seen.add(shown(port, client))
            except Exception as problem:  # noqa: BLE001  # the test looks at it
                problems.append(problem)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield problems
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_renewal_under_load(secured: BloomeryServer, pairs: Pairs) -> None:
    """While clients connect without a pause the certificate is replaced several times, cert before
    key: none of them fails, each new one is shown, and open connections stay."""
    seen = set[str]()
    client = resp(secured.resp_port, pairs)
    with client, connecting(secured.resp_port, pairs.client(), seen) as problems:
        first = client.client_id()
        for count in range(2, 5):
            pairs.make("server")
            assert secured.process is not None
            secured.process.send_signal(signal.SIGHUP)
            assert wait_until(lambda: len(seen) >= count), secured.printed()  # noqa: B023
        assert client.client_id() == first
    assert problems == []
    with connecting(secured.http_port, pairs.client(), seen) as problems:
        pairs.make("server")  # found without being told
        assert wait_until(lambda: len(seen) >= 5), secured.printed()
    assert problems == []
    assert alive(secured, pairs)


def test_a_pair_that_does_not_fit_keeps_the_old(secured: BloomeryServer, pairs: Pairs) -> None:
    """A new certificate whose key is missing is told of, and the old one goes on."""
    before = shown(secured.resp_port, pairs.client())
    other, _ = pairs.make("other")
    shutil.copy(other, pairs.folder / "server.pem")
    assert secured.process is not None
    secured.process.send_signal(signal.SIGHUP)
    assert wait_until(lambda: "the certificate stays as it is" in secured.printed())
    assert shown(secured.resp_port, pairs.client()) == before
    assert shown(secured.http_port, pairs.client()) == before


def test_handshakes_that_are_never_done(serve: Serve, pairs: Pairs) -> None:
    """Who connects and says nothing, or half of what it should, is closed in time; of a flood of
    them the oldest goes first, and others are served meanwhile."""
    seconds = 4
    server = serve(*options(pairs.make("server")), "--set", f"tls-handshake-seconds={seconds}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < HALF_OPEN + 200:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(HALF_OPEN + 200, hard), hard))
    with ExitStack() as ends:

        def half(port: int, sent: bytes) -> socket.socket:
            one = socket.create_connection(("127.0.0.1", port), timeout=60)
            one.sendall(sent)
            return ends.enter_context(one)

        late = [half(port, b"\x16\x03") for port in (server.resp_port, server.http_port)]
        flood = [
            half(server.resp_port, b"\x16\x03\x01\x02\x00" * (n % 2)) for n in range(HALF_OPEN)
        ]
        assert alive(server, pairs)
        assert files(server) < HALF_OPEN
        for one in (*late, flood[0], flood[1], flood[-1]):
            assert len(ended(one)) < 100
        assert wait_until(lambda: files(server) < 100), files(server)
    with resp(server.resp_port, pairs) as silent:
        silent.ping()  # and does not hear that it is over
        assert server.stop() == 0
    assert "Traceback" not in server.printed()


def files(server: BloomeryServer) -> int:
    """How many files and sockets it has open."""
    done = subprocess.run(
        ["ls", f"/proc/{server.pid}/fd"], capture_output=True, text=True, check=True
    )
    return len(done.stdout.split())
