"""Logging in over RESP, as clients do it, and what becomes of it when the users are changed."""

import contextlib
import itertools
import resource
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import redis

import nursery
from bloomery.service.access.permissions import Role
from bloomery.service.access.users import Account, changing, hash_password, users_file
from conftest import missing
from integration.access.conftest import PASSWORD, Guarded, add_users
from integration.resp.wire import Wire, request, shown
from integration.servers import BloomeryServer, RedisServer, Serve, wait_until

HALF_OPEN = 10_200  # connections: more than the 10,000 of maxclients
WRONG = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"


def bloomery_user(data: Path, *words: str, stdin: bytes = b"") -> str:
    """`bloomery user …`, which must end well; what it prints."""
    done = nursery.run(["user", *words, "--data", str(data)], stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().strip()


def becomes(wire: Wire, words: list[str], start: bytes) -> bool:
    """Whether the reply to a request comes to begin so within some seconds."""
    return wait_until(lambda: wire.ask(*words).startswith(start))


def test_redis_py(guarded: Guarded) -> None:
    """redis-py logs in by name and password or by a token, and says who is wrong."""
    port = guarded.server.resp_port
    with redis.Redis(port=port, username="write-all", password=PASSWORD) as client:
        assert client.acl_whoami() == "write-all"
        assert client.bf().add("mine:redis-py", "k") == 1
        assert client.client_info()["user"] == "write-all"
    with redis.Redis(port=port, password=guarded.token("read-some"), protocol=3) as client:
        assert client.acl_whoami() == b"read-some"
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.bf().add("mine:redis-py", "l")
    name, token = "read-some", guarded.token("read-some")
    with redis.Redis(port=port, username=name, password=token) as client:
        assert client.acl_whoami() == name
    with redis.Redis(port=port) as client, pytest.raises(redis.exceptions.AuthenticationError):
        client.ping()


def test_redis_cli(guarded: Guarded) -> None:
    """redis-cli --user logs in."""
    cli = ["redis-cli", "-p", str(guarded.server.resp_port), "--no-auth-warning"]
    login = ["--user", "read-all", "--pass", PASSWORD]
    done = subprocess.run(
        [*cli, *login, "ACL", "WHOAMI"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() in ('"read-all"', "read-all")


def test_codes_are_those_of_redis(guarded: Guarded, redis_server: RedisServer) -> None:
    """What is refused before and after logging in has the codes that Redis gives it."""
    rules = ("reader", "on", f">{PASSWORD}", "~mine:*", "+@read", "+@connection")
    with Wire(redis_server.port) as admin:
        assert admin.ask("ACL", "SETUSER", *rules) == b"+OK\r\n"
        assert admin.ask("ACL", "SETUSER", "default", ">other") == b"+OK\r\n"
    try:
        for words in (["PING"], ["EXISTS", "mine:1"], ["HELLO", "3"], ["nothing"], ["EXISTS"]):
            replies = []
            for port in (guarded.server.resp_port, redis_server.port):
                with Wire(port) as wire:
                    replies.append(wire.ask(*words).split()[0])
            assert replies[0] == replies[1], words
        for words in (["DEL", "mine:1"], ["EXISTS", "others:1"], ["AUTH", "reader", "no"]):
            replies = []
            servers = (guarded.server.resp_port, "read-some"), (redis_server.port, "reader")
            for port, name in servers:
                with Wire(port, source="127.0.0.2") as wire:
                    assert wire.ask("AUTH", name, PASSWORD) == b"+OK\r\n"
                    replies.append(wire.ask(*words).split()[0])
            assert replies[0] == replies[1], words
    finally:
        with Wire(redis_server.port) as admin:
            assert admin.ask("AUTH", "other") == b"+OK\r\n"
            admin.ask("ACL", "DELUSER", "reader")
            admin.ask("ACL", "SETUSER", "default", "nopass")


def test_a_wrong_login_leaves_one_as_one_was(guarded: Guarded) -> None:
    """A failed AUTH or HELLO changes neither the user nor the protocol; RESET logs out."""
    with Wire(guarded.server.resp_port, source="127.0.0.3") as wire:
        assert wire.ask("AUTH", guarded.token("read-all")) == b"+OK\r\n"
        token = guarded.token("write-all")
        for words in (
            ("AUTH", token[:-1] + "x"),
            ("HELLO", 3, "AUTH", "admin-all", "wrong"),
            ("AUTH", "read-all", token),  # somebody else's
        ):
            assert wire.ask(*words) == WRONG
        assert wire.ask("ACL", "WHOAMI") == b"$8\r\nread-all\r\n"
        assert wire.ask("AUTH", "a", "b", "c") == b"-ERR syntax error\r\n"
        assert wire.ask("RESET") == b"+RESET\r\n"
        assert wire.ask("PING").startswith(b"-NOAUTH")
        hello = shown(wire.ask("HELLO", 3, "AUTH", "write-all", token, "SETNAME", "me"))
        assert hello["$proto"] == ":3"
        assert wire.ask("ACL", "WHOAMI") == b"$9\r\nwrite-all\r\n"


def test_what_follows_a_login_waits_for_it(guarded: Guarded) -> None:
    """A pipeline that begins with AUTH is done in order, by the user that it logs in."""
    with Wire(guarded.server.resp_port) as wire:
        many = [request("BF.ADD", "mine:pipe", number) for number in range(1000)]
        login = request("AUTH", "write-some", PASSWORD)
        wire.send(request("PING") + login + b"".join(many) + request("PING"))
        assert wire.reply().startswith(b"-NOAUTH")
        assert wire.reply() == b"+OK\r\n"
        assert {wire.reply() for _ in many} <= {b":1\r\n", b":0\r\n"}
        assert wire.reply() == b"+PONG\r\n"


def test_requests_before_a_login_are_small(guarded: Guarded) -> None:
    """One who has not logged in cannot make the server keep a long request."""
    with Wire(guarded.server.resp_port, timeout=30) as wire:
        wire.send(b"*2\r\n$4\r\nAUTH\r\n$15000000\r\n" + b"x" * (1 << 20))
        assert wire.reply().startswith(b"-ERR Protocol error: unauthenticated")
        assert wire.closed()


def test_who_does_not_log_in_is_hung_up_on(serve: Serve, tmp_path: Path) -> None:
    """A connection that does not log in within login-seconds is closed, whatever else it sends; one
    that does is not."""
    users = add_users(tmp_path / "data")
    server = serve("--set", "login-seconds=2", data=tmp_path / "data")
    with Wire(server.resp_port) as quiet, Wire(server.resp_port) as known:
        assert known.ask("AUTH", users[1].token or "") == b"+OK\r\n"
        assert quiet.ask("PING").startswith(b"-NOAUTH")
        assert quiet.closed()
        assert known.ask("PING") == b"+PONG\r\n"
    with Wire(server.resp_port) as busy:

        def ended() -> bool:
            try:
                return busy.ask("RESET") == b""
            except ConnectionError:
                return True

        assert wait_until(ended, pause=0.05)


def test_those_who_only_connect_keep_nobody_out(serve: Serve, tmp_path: Path) -> None:
    """When more than all places are taken by connections that have not logged in, users still get
    in."""
    users = add_users(tmp_path / "data")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < HALF_OPEN + 1000:
        missing(f"a limit of {HALF_OPEN + 1000} open files (ulimit -n)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, HALF_OPEN + 1000), hard))
    server = serve(data=tmp_path / "data")
    address = ("127.0.0.1", server.resp_port)
    half_open = [socket.create_connection(address) for _ in range(HALF_OPEN)]
    try:
        for someone in users[1:]:
            with Wire(server.resp_port) as wire:
                assert wire.ask("AUTH", someone.token or "") == b"+OK\r\n"
                assert wire.ask("PING") == b"+PONG\r\n"
    finally:
        for one in half_open:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A server whose users tests change, each others."""
    folder = tmp_path_factory.mktemp("served")
    users = add_users(folder / "data")
    server = BloomeryServer(folder)
    server.start()
    yield Guarded(server, users)
    server.kill()


def test_a_role_and_patterns_that_change(served: Guarded) -> None:
    """A user who may less is refused from then on, also for names used before; and back."""
    data = served.server.data
    with Wire(served.server.resp_port) as wire:
        wire.ask("AUTH", "write-some", PASSWORD)
        assert wire.ask("BF.ADD", "mine:1", "k") == b":1\r\n"
        assert wire.ask("BF.EXISTS", "mine:1", "k") == b":1\r\n"
        bloomery_user(data, "allow", "write-some", "--role", "read")
        assert becomes(wire, ["BF.ADD", "mine:1", "l"], b"-NOPERM")
        assert wire.ask("BF.EXISTS", "mine:1", "k") == b":1\r\n"
        bloomery_user(data, "allow", "write-some", "--filters", "others:*")
        assert becomes(wire, ["BF.EXISTS", "mine:1", "k"], b"-NOPERM")
        assert wire.ask("BF.EXISTS", "others:1", "k") == b":0\r\n"
        bloomery_user(data, "allow", "write-some", "--filters", "mine:*", "--role", "write")
        assert becomes(wire, ["BF.ADD", "mine:1", "m"], b":1")


def test_users_who_go(served: Guarded) -> None:
    """Connections of a user who is removed, or disabled, are closed; others stay."""
    data = served.server.data
    port = served.server.resp_port
    with Wire(port) as first, Wire(port) as second, Wire(port) as third:
        first.ask("AUTH", "read-some", PASSWORD)
        second.ask("AUTH", served.token("read-all"))
        third.ask("AUTH", served.token("write-all"))
        bloomery_user(data, "remove", "read-some")
        bloomery_user(data, "allow", "read-all", "--disable")
        assert first.closed()
        assert second.closed()
        assert third.ask("PING") == b"+PONG\r\n"
    with Wire(port) as wire:
        assert wire.ask("AUTH", served.token("read-all")) == WRONG


def test_a_stream_ends_with_its_user(served: Guarded) -> None:
    """A stream of keys that a user began ends when the user goes; what was done before is told."""
    data = served.server.data
    token = bloomery_user(data, "token", "write-some")
    with Wire(served.server.resp_port) as wire:
        assert becomes(wire, ["AUTH", token], b"+OK")
        wire.ask("BF.ADD", "mine:stream", "k")
        begun = threading.Event()

        def lines() -> Iterator[bytes]:
            yield b'"a"\n'
            begun.set()
            assert wire.closed()  # as one that is told
            for number in range(3):
                yield b"%d\n" % number
                time.sleep(0.1)  # lines that come one by one

        def revoke() -> None:
            begun.wait(30)
            bloomery_user(data, "revoke", token.split("_")[1])

        revoking = threading.Thread(target=revoke)
        revoking.start()
        url = f"http://127.0.0.1:{served.server.http_port}/filters/mine%3Astream/add"
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/x-ndjson"}
        answer = httpx.post(url, headers=headers, content=lines(), timeout=60)
        revoking.join()
    assert (answer.status_code, answer.json()["done"]) == (401, 1)


def test_a_token_and_a_password_that_end(served: Guarded) -> None:
    """A token that is revoked or over, and a password that was changed, end what they began."""
    data, port = served.server.data, served.server.resp_port
    gone = bloomery_user(data, "token", "admin-some", "--label", "to go")
    with Wire(port) as a, Wire(port) as b, Wire(port) as c, Wire(port) as d:
        assert d.ask("AUTH", served.token("admin-some")) == b"+OK\r\n"
        # Not by a command: to start one takes seconds on a busy machine. Whether the server knows
        # is seen by what else may be done now: who tries to log in too early is slowed.
        with changing(data) as users:
            short = users.add_token("admin-some", expires=time.time() + 4)
            users.change("admin-some", patterns=("mine:*", "known:*"))
        assert becomes(d, ["BF.EXISTS", "known:1", "k"], b":0")
        assert a.ask("AUTH", short) == b"+OK\r\n"
        assert b.ask("AUTH", gone) == b"+OK\r\n"
        assert c.ask("AUTH", "admin-some", PASSWORD) == b"+OK\r\n"
        bloomery_user(data, "revoke", gone.split("_")[1])
        bloomery_user(data, "password", "admin-some", "--password-stdin", stdin=b"another one\n")
        assert a.closed()
        assert b.closed()
        assert c.closed()
        assert d.ask("PING") == b"+PONG\r\n"
        assert d.ask("AUTH", "admin-some", PASSWORD) == WRONG
        assert d.ask("AUTH", "admin-some", "another one") == b"+OK\r\n"


def test_a_file_that_is_damaged_meanwhile(served: Guarded) -> None:
    """Damaged or gone while the server runs, the users stay as they were, and it is told."""
    path = users_file(served.server.data)
    whole = path.read_bytes()
    try:
        with Wire(served.server.resp_port) as wire:
            assert wire.ask("AUTH", served.token("write-all")) == b"+OK\r\n"
            path.write_bytes(whole[:100])
            assert wait_until(lambda: "not a whole file" in served.server.printed())
            path.unlink()
            assert wait_until(lambda: "it is gone" in served.server.printed())
            assert wire.ask("PING") == b"+PONG\r\n"
            with Wire(served.server.resp_port) as other:
                assert other.ask("PING").startswith(b"-NOAUTH")
                assert other.ask("AUTH", served.token("write-all")) == b"+OK\r\n"
    finally:
        path.write_bytes(whole)


def test_a_damaged_file_keeps_a_server_from_starting(tmp_path: Path) -> None:
    """A server whose users cannot be read does not start, and says which file it is."""
    add_users(tmp_path / "data")
    users_file(tmp_path / "data").write_text('{"version": 1, "users": [{"name": "secretive"}]}')
    printed = BloomeryServer(tmp_path, data=tmp_path / "data").refused()
    assert "users.json" in printed
    assert "secretive" not in printed


def test_the_first_user_closes_the_door(serve: Serve) -> None:
    """A server that runs without users asks everybody to log in once there is one, and if the last
    is removed lets nobody in."""
    server = serve()
    with Wire(server.resp_port) as wire:
        assert wire.ask("BF.ADD", "a", "k") == b":1\r\n"
        with changing(server.data) as users:
            users.add(Account("ann", Role.ADMIN, password=hash_password("a long secret")))
        assert becomes(wire, ["BF.EXISTS", "a", "k"], b"-NOAUTH")
        assert wire.ask("AUTH", "ann", "a long secret") == b"+OK\r\n"
        assert wire.ask("BF.EXISTS", "a", "k") == b":1\r\n"
        bloomery_user(server.data, "remove", "ann", "--force")
        assert wire.closed()
    with Wire(server.resp_port) as wire:
        assert wire.ask("AUTH", "ann", "a long secret") == WRONG
        assert wire.ask("PING").startswith(b"-NOAUTH")


def test_a_flood_of_wrong_logins(serve: Serve, tmp_path: Path) -> None:
    """While hundreds of connections try passwords, users are served and tokens log in, and the
    server grows by little."""
    users = add_users(tmp_path / "data")
    server = serve(data=tmp_path / "data")
    token = next(one.token for one in users if one.name == "write-all") or ""
    with Wire(server.resp_port) as known:
        assert known.ask("AUTH", token) == b"+OK\r\n"
        before = _resident(server)
        flood = [socket.create_connection(("127.0.0.1", server.resp_port)) for _ in range(150)]
        try:
            for number, one in enumerate(flood):
                one.sendall(request("AUTH", "admin-all", f"guess {number}") * 5)
            until = time.monotonic() + 1
            while time.monotonic() < until:
                assert known.ask("BF.ADD", "mine:1", time.monotonic_ns()).startswith(b":")
                with Wire(server.resp_port) as wire:
                    assert wire.ask("AUTH", token) == b"+OK\r\n"
            assert _resident(server) - before < 150 << 20
            for one in flood:
                one.settimeout(60)
                assert one.recv(len(WRONG), socket.MSG_WAITALL) == WRONG
        finally:
            for one in flood:
                one.close()


def test_four_addresses_lock_nobody_out(serve: Serve, tmp_path: Path) -> None:
    """Four addresses that try a user's password as fast as they can do not keep the right one out,
    also where it never came from before."""
    add_users(tmp_path / "data")
    server = serve(data=tmp_path / "data")
    stop, refused = threading.Event(), list[int]()

    def guess(address: str, which: int) -> None:
        with contextlib.suppress(OSError), Wire(server.resp_port, source=address) as wire:
            for number in itertools.count():
                if stop.is_set():
                    return
                if wire.ask("AUTH", "admin-all", f"guess {which} {number}") == WRONG:
                    refused.append(1)

    guessing = [
        threading.Thread(target=guess, args=(f"127.0.1.{address}", which))
        for address in range(1, 5)
        for which in range(12)
    ]
    for one in guessing:
        one.start()
    try:
        assert wait_until(lambda: len(refused) >= 12)
        for number in range(1, 4):
            with Wire(server.resp_port, source=f"127.0.2.{number}") as wire:
                assert wire.ask("AUTH", "admin-all", PASSWORD) == b"+OK\r\n"
    finally:
        stop.set()
        server.kill()  # they wait for their turns
        for one in guessing:
            one.join()


def _resident(server: BloomeryServer) -> int:
    pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
    return pages * 4096
