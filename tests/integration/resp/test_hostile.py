"""What is no request, too long, cut off or made up: an error or an end, never a crash, a hang or
memory without bound."""

import random

import pytest

from conftest import effort, require
from integration.resp.wire import Wire, request, told
from integration.servers import BloomeryServer, Serve

psutil = require("psutil")
MIB = 1 << 20


def resident(server: BloomeryServer) -> int:
    """Memory of the server's process."""
    nbytes: int = psutil.Process(server.pid).memory_info().rss
    return nbytes


INLINE = [
    (b"PING\r\n", "+PONG"),
    (b"PING\n", "+PONG"),
    (b"  PING   \r\n", "+PONG"),
    (b"\r\n\r\nPING\r\n", "+PONG"),
    (b"ping hi\r\n", '"hi"'),
    (b'ECHO "a b"\r\n', '"a b"'),
    (b"ECHO 'a b'\r\n", '"a b"'),
    (b'ECHO "\\x41\\x0a\\n\\t\\"\\\\"\r\n', '"A\n\n\t"\\"'),
    (b"ECHO 'it\\'s \\n'\r\n", '"it\'s \\n"'),
    (b'ECHO ""\r\n', '""'),
    (b"BF.ADD inline a\r\n", ":1"),
    (b"BF.EXISTS inline a\r\n", ":1"),
    (b"*0\r\nPING\r\n", "+PONG"),
    (b"*-1\r\nPING\r\n", "+PONG"),
]


def test_commands_can_be_typed(empty: BloomeryServer) -> None:
    """A line of words is a command, with quotes and escapes as in Redis."""
    with Wire(empty.resp_port) as wire:
        for line, right in INLINE:
            wire.send(line)
            assert told(wire.reply()) == right, line


NO_REQUEST = [
    (b'PING "open\r\n', "unbalanced quotes in request"),
    (b'PING "a"b\r\n', "unbalanced quotes in request"),
    (b"a" * 70_000, "too big inline request"),
    (b"*x\r\n", "invalid multibulk length"),
    (b"*2147483648\r\n", "invalid multibulk length"),
    (b"*99999999999999999999\r\n", "invalid multibulk length"),
    (b"*" + b"1" * 100, "too big mbulk count string"),
    (b"*1\r\n:1\r\n", "expected '$', got ':'"),
    (b"*1\r\n*1\r\n$4\r\nPING\r\n", "expected '$', got '*'"),
    (b"*1\r\n$-1\r\n", "invalid bulk length"),
    (b"*1\r\n$x\r\n", "invalid bulk length"),
    (b"*1\r\n$" + b"1" * 100, "too big bulk count string"),
    (b"*1\r\n$536870913\r\n", "invalid bulk length: 536870913 bytes, at most 536870912"),
    (b"*1\r\n$9223372036854775807\r\n", "invalid bulk length"),
    (b"POST / HTTP/1.1\r\n\r\nFLUSHALL\r\n", "this is HTTP"),
    (b"host: 127.0.0.1\r\n\r\nFLUSHALL\r\n", "this is HTTP"),
    (b"*1\r\n$4\r\nPINGxx", "expected CRLF after the bulk's bytes"),
]


@pytest.mark.parametrize(("sent", "message"), NO_REQUEST)
def test_what_is_no_request_ends_the_connection(
    empty: BloomeryServer, sent: bytes, message: str
) -> None:
    """One error says what is wrong; commands before it are answered, nothing after it is done."""
    with Wire(empty.resp_port) as wire:
        wire.send(request("BF.ADD", "before", "x") + sent)
        assert told(wire.reply()) == ":1"
        error = told(wire.reply())
        assert error.startswith(f"-ERR Protocol error: {message}"), error
        assert wire.reply() == b""


def test_a_request_beyond_the_limits_is_refused_before_it_is_there(serve: Serve) -> None:
    """Arguments, their bytes and a whole request have limits. A request that exceeds one is passed
    over: it gets one error, in order, and the commands after it are done. A longer argument than
    `proto-max-bulk-len` ends the connection, as in Redis, and so does an exceeded limit in
    MULTI."""
    limits = {"proto-max-bulk-len": 4096, "max-request-bytes": 65_536, "max-arguments": 100}
    server = serve(
        *(word for name, value in limits.items() for word in ("--set", f"{name}={value}"))
    )
    with Wire(server.resp_port) as wire:
        assert told(wire.ask("BF.ADD", "a", b"x" * 4096)) == ":1"
        assert told(wire.ask("BF.MADD", "a", *range(98))).count(":") == 98
        assert wire.ask("BF.MADD", "a", *(b"%04000d" % n for n in range(15))).count(b":") == 15
    with Wire(server.resp_port) as wire:
        wire.send(b"*2\r\n$4\r\nECHO\r\n$4097\r\n")
        assert "invalid bulk length: 4097 bytes, at most 4096" in told(wire.reply())
        assert wire.closed()
    long = request("BF.MADD", "a", *(b"%04000d" % n for n in range(17)))
    many = request("BF.MADD", "a", *range(99))
    with Wire(server.resp_port) as wire:
        wire.send(many + long + request("BF.ADD", "b", "x") + long + request("PING") + many)
        for right in (
            (few := "-ERR 101 arguments, at most 100 (max-arguments)"),
            (bytes_ := "-ERR a request of more than 65536 bytes (max-request-bytes)"),
            ":1",
            bytes_,
            "+PONG",
            few,
        ):
            assert told(wire.reply()) == right
        for byte in long[:200]:
            wire.send(bytes([byte]))
        wire.send(long[200:] + request("BF.ADD", "b", "x"))
        assert told(wire.reply()) == bytes_
        assert told(wire.reply()) == ":0"
        assert told(wire.ask("BF.EXISTS", "a", b"%04000d" % 16)) == ":0"
        wire.ask("MULTI")
        wire.send(long)
        assert told(wire.reply()).startswith("-ERR Protocol error: a request of more than 65536")
        assert wire.closed()
    with Wire(server.resp_port) as wire:
        assert wire.ask("CONFIG", "SET", "max-arguments", 8).startswith(b"-ERR CONFIG SET failed")


@pytest.mark.parametrize(
    "before", [[("MULTI",)], [("MULTI",), ("BF.ADD", "a", "x")], [("CLIENT", "REPLY", "OFF")]]
)
def test_exceeded_limit_in_a_pipeline_with_multi_ends_the_connection(
    serve: Serve, before: list[tuple[str, ...]]
) -> None:
    """A transaction never runs without one of its commands, also if all of it arrives at once. A
    client that gets no replies could not read the error either."""
    server = serve("--set", "max-arguments=100")
    long = request("BF.MADD", "a", *range(200))
    sent = [request(*words) for words in before]
    with Wire(server.resp_port) as wire:
        wire.send(b"".join([*sent, long, request("BF.ADD", "a", "y"), request("EXEC")]))
        error = b"-ERR Protocol error: 202 arguments, at most 100 (max-arguments)"
        assert any(error in line for line in iter(wire.reply, b""))
    with Wire(server.resp_port) as wire:
        assert told(wire.ask("EXISTS", "a")) == ":0"


def test_promises_cost_no_memory(empty: BloomeryServer) -> None:
    """A hundred clients that announce 64 MiB each and send nothing take next to nothing."""
    before = resident(empty)
    wires = [Wire(empty.resp_port) for _ in range(100)]
    try:
        for wire in wires:
            wire.send(b"*3\r\n$6\r\nBF.ADD\r\n$1\r\na\r\n$16777216\r\n" + b"x" * 1000)
        for wire in wires:
            wire.send(b"x" * 1000)
        with Wire(empty.resp_port) as wire:
            assert told(wire.ask("PING")) == "+PONG"
        assert resident(empty) - before < 64 * MIB
    finally:
        for wire in wires:
            wire.close()


def test_large_requests_of_redis_clients(empty: BloomeryServer, protocol: int) -> None:
    """BF.MADD of 300,000 items and BF.ADD of an item of 20 MB work; an item beyond the limit of a
    request gets one error, and holds no memory."""
    one = b":1\r\n" if protocol == 2 else b"#t\r\n"
    with Wire(empty.resp_port, protocol) as wire:
        for number in range(2):  # the second is of a filter that exists
            start = number * 300_000
            reply = wire.ask("BF.MADD", "many", *range(start, start + 300_000))
            assert reply.startswith(b"*300000\r\n")
            assert reply.count(one) > 295_000
        assert wire.ask("BF.MEXISTS", "many", *range(600_000)).count(one) == 600_000
        for byte in (b"x", b"y"):
            assert wire.ask("BF.ADD", "large", byte * 20_000_000) == one
            assert wire.ask("BF.EXISTS", "large", byte * 20_000_000) == one
        before = resident(empty)
        large = b"z" * (100 * MIB)
        error = b"-ERR a request of more than 33554432 bytes (max-request-bytes)\r\n"
        assert wire.ask("BF.ADD", "large", large) == error
        assert resident(empty) - before < 64 * MIB
        assert wire.ask("BF.EXISTS", "large", b"x" * 20_000_000) == one


def test_short_words_cost_no_memory(empty: BloomeryServer) -> None:
    """A pattern of megabytes, or thousands of commands to be described, are refused at once."""
    before = resident(empty)
    with Wire(empty.resp_port) as wire:
        for words in (
            ("KEYS", b"[\0-\xff]" * 100_000),
            ("SCAN", 0, "MATCH", b"a" * 1_000_000),
            ("COMMAND", "LIST", "FILTERBY", "PATTERN", b"a" * 1_000_000),
            ("COMMAND", "INFO", *["CLIENT"] * 2000),
            ("COMMAND", "DOCS", *["CLIENT"] * 2000),
        ):
            assert told(wire.ask(*words)).startswith("-ERR "), words[:3]
        assert told(wire.ask("KEYS", "a" * 4096)) == "[]"
        assert resident(empty) - before < 64 * MIB


def test_a_client_that_has_sent_all_is_answered(empty: BloomeryServer) -> None:
    """Who sends commands and then closes its side still gets every reply: `nc` does that."""
    with Wire(empty.resp_port) as wire:
        wire.send(request("ECHO", "a") * 1000 + request("BF.ADD", "a", "x") * 1000)
        wire.end()
        replies = wire.file.read()
    assert replies.count(b"$1\r\na\r\n") == 1000
    assert replies.count(b":") == 1000
    with Wire(empty.resp_port) as wire:
        wire.send(request("SAVE") + request("ECHO", "behind it"))  # which takes a while
        wire.end()
        assert wire.file.read() == b"+OK\r\n$9\r\nbehind it\r\n"


def test_a_client_can_end_anywhere(empty: BloomeryServer) -> None:
    """A request that is cut off at any byte does nothing and harms nobody."""
    whole = request("BF.MADD", "cut", "x", "y")
    for length in range(len(whole)):
        with Wire(empty.resp_port) as wire:
            wire.send(whole[:length])
            wire.end()
            assert wire.file.read() == b""
    with Wire(empty.resp_port) as wire:
        assert told(wire.ask("EXISTS", "cut")) == ":0"


def test_a_request_can_come_byte_by_byte(empty: BloomeryServer, protocol: int) -> None:
    """Pieces of any size make the same commands."""
    with Wire(empty.resp_port, protocol) as wire:
        for byte in request("BF.MADD", "slow", "x", "y") + b"PING\r\n":
            wire.send(bytes([byte]))
        assert told(wire.reply()) == ("[:1, :1]" if protocol == 2 else "[#t, #t]")
        assert told(wire.reply()) == "+PONG"


NAMES = ["a", "b", "c", "\0", "x" * 2000]
WORDS: list[bytes] = [
    *b"BF.ADD BF.MADD BF.RESERVE BF.INSERT BF.EXISTS BF.MEXISTS BF.INFO BF.CARD BF.DEBUG".split(),
    *b"BF.SCANDUMP BF.LOADCHUNK BF.MERGE BF.CLEAR BF.ROTATE BF.DEL CF.RESERVE CF.ADD".split(),
    *b"CF.ADDNX CF.INSERT CF.INSERTNX CF.EXISTS CF.MEXISTS CF.DEL CF.COUNT CF.INFO".split(),
    *b"CF.SCANDUMP CF.LOADCHUNK CF.COMPACT CF.DEBUG HELLO AUTH PING ECHO SELECT CLIENT".split(),
    *b"RESET COMMAND INFO LASTSAVE DBSIZE MEMORY DEL EXISTS TYPE KEYS SCAN".split(),
    *b"EXPIRE PEXPIRE EXPIREAT TTL PTTL PERSIST RENAME RENAMENX COPY RANDOMKEY TOUCH".split(),
    *b"OBJECT MULTI EXEC DISCARD WATCH UNWATCH".split(),
]
VALUES: list[bytes] = [
    *b"0 1 -1 2 3 4 100 1000 65535 1073741824 9223372036854775807 -9223372036854775808".split(),
    *b"0.01 0.5 1e-300 nan inf 1e999 ITEMS CAPACITY ERROR EXPANSION NONSCALING NOCREATE".split(),
    *b"KIND bloom scalable counting deletable cuckoo rotating WINDOW 7d GENERATIONS".split(),
    *b"HASHER siphash COUNTERBITS REGIONS BUCKETSIZE MAXITERATIONS ID LIST INFO HELP".split(),
    *b"USAGE ENCODING MATCH COUNT TYPE NX XX GT LT REPLACE DB DOCS SETNAME GETNAME".split(),
    *(b"", b"\r\n", b"\xff\xfe", b"*" * 50, b"[a-", b"\\", b"x" * 5000),
]


def made_up(rng: random.Random) -> bytes:
    """Something between a command and noise."""
    words = [
        rng.choice(WORDS),
        *(rng.choice([*VALUES, b"a", b"b"]) for _ in range(rng.randrange(7))),
    ]
    kind = rng.randrange(8)
    if kind == 0:
        return rng.randbytes(rng.randrange(200))
    if kind == 1:
        length = rng.choice([-1, -(1 << 63), 0, 1, 5, 1 << 20, 1 << 31, (1 << 63) - 1, 10**30])
        return b"*%d\r\n$%d\r\n" % (rng.choice([1, 2, length]), length) + rng.randbytes(20)
    if kind == 2:
        return b"*2\r\n" * rng.randrange(1, 500) + b"$4\r\nPING\r\n"
    if kind == 3:
        return b" ".join(words).replace(b"\0", b"") + b"\r\n"
    sent = bytearray(request(*words))
    if kind == 4 and len(sent) > 4:
        for _ in range(rng.randrange(1, 4)):
            sent[rng.randrange(len(sent))] = rng.randrange(256)
    if kind == 5:
        del sent[rng.randrange(len(sent)) :]
    return bytes(sent)


@pytest.mark.slow
def test_made_up_requests(serve: Serve) -> None:
    """After any number of requests that are half right, the server answers, within its memory."""
    server = serve(
        "--maxmemory", "64mb", "--set", "max-capacity=1000000", "--set", "max-filters=50"
    )
    rng = random.Random(20_261_116)
    with Wire(server.resp_port) as first:
        assert told(first.ask("BF.ADD", "kept", "x")) == ":1"
    most = resident(server) + 256 * MIB
    for number in range(effort(300, 1000, 100_000)):
        sent = b"".join(made_up(rng) for _ in range(rng.randrange(1, 30)))
        if b"kept" in sent:
            continue
        with Wire(server.resp_port) as wire:
            try:
                wire.send(sent)
                wire.end()
                wire.file.read()  # to the end: it does not hang
            except ConnectionError:
                pass  # it has closed while we were still talking
        if number % 100 == 0:
            with Wire(server.resp_port) as wire:
                assert told(wire.ask("PING")) == "+PONG", server.printed()
                assert told(wire.ask("BF.EXISTS", "kept", "x")) == ":1"
            assert resident(server) < most
    assert "Traceback" not in server.printed(), server.printed()[-4000:]
    data = server.data
    server.kill()
    again = serve(data=data)
    with Wire(again.resp_port) as wire:
        assert told(wire.ask("BF.EXISTS", "kept", "x")) == ":1"
