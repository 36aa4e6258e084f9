"""No request of any client holds up the others: the largest of each command and of each route."""

import json
import random
import resource
import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest
from starlette.routing import Route

from benchmarks.service import stall_cases
from benchmarks.service.stall_cases import CASES, Case
from benchmarks.service.stalls import LIMIT, MIB, Size, Stage, measure
from benchmarks.service.wire import Wire, Word, packed, packed_many
from bloomery.service.http import app
from bloomery.service.resp import dispatch, table
from conftest import effort, missing
from integration.conftest import open_folder, started
from integration.servers import BloomeryServer, wait_until

pytestmark = pytest.mark.long

_TRIES = 5
_PAUSE = 0.004  # between PINGs: without one they take a core, which the server would not have
# What other threads of the server work meanwhile, without the interpreter lock, is no stall; with
# it, it would be. On a machine that others use too, the two cannot be told apart more finely.
_WITH_THREADS = 5 * LIMIT


@pytest.fixture(scope="module")
def _stage() -> Iterator[Stage]:
    with open_folder() as folder, started(BloomeryServer(folder), kill=True) as server:
        size = Size(filters=300, long_names=100, large_bytes=32 * MIB, flood=50, stream=4 * MIB)
        yield Stage(server.pid, server.resp_port, server.http_port, size)


@pytest.fixture
def stage(_stage: Stage) -> Stage:
    """A server, and what is asked of it, which FLUSHALL may have dropped."""
    if not _stage.call(["EXISTS", "large"]).startswith(b":1"):
        stall_cases.prepare(_stage)
    return _stage


def held(
    stage: Stage, case: Case, *, limit: float = LIMIT, http: bool = False, tries: int = _TRIES
) -> str | None:
    """Why a case fails, after several tries: the machine may be busy with others'."""
    told = None
    for _ in range(tries):
        found = measure(stage, case.make(stage), _PAUSE, http=http)
        if found.loop <= limit - _PAUSE and found.seconds <= _WITH_THREADS - _PAUSE:
            return None
        told = f"{case.of}: {case.what}: {1e3 * found.loop:.0f} ms, {1e3 * found.seconds:.0f} ms"
    return told


def test_every_command_and_route_is_tried() -> None:
    """A command or a route that is new has a largest request too."""
    assert dispatch.HANDLERS
    commands = {command.name for command in table.every()}
    routes = {
        f"{method} {route.path}"
        for route in app.make().routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert {case.of for case in CASES} == commands | routes


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_request_holds_up_others(stage: Stage) -> None:
    """While it is done a PING of another client is answered within 50 ms: all of them in a soak,
    a fixed sample of them in a test."""
    last = [case for case in CASES if case.of.startswith("FLUSH")]
    floods = [case for case in CASES if case.what == "a flood of it"]
    rest = [case for case in CASES if case not in last and case not in floods]
    some = random.Random(20261116)
    chosen = [
        *some.sample(floods, effort(5, 8, len(floods))),
        *some.sample(rest, effort(10, 20, len(rest))),
    ]
    failed = [why for case in [*chosen, *last] if (why := held(stage, case)) is not None]
    assert not failed, "\n".join(failed)


def _pattern(stage: Stage) -> Case:
    name = "a pattern that almost matches"
    return next(case for case in CASES if case.of == "KEYS" and case.what == name)


def test_a_pattern_holds_up_nobody(stage: Stage) -> None:
    """A pattern of many bytes over many long names: 8 s of the loop, once."""
    assert held(stage, _pattern(stage)) is None


def test_a_backup_holds_up_nobody(stage: Stage) -> None:
    """A backup that is sent as fast as it is taken is read by a thread, block by block."""
    (case,) = (case for case in CASES if case.of == "GET /backup")
    assert held(stage, case) is None


def test_nested_arrays_hold_up_nobody(stage: Stage) -> None:
    """16 MiB of JSON that is nothing but arrays: 15 s of the loop, once. Half a million arrays in
    arrays were 60 ms of the garbage collector."""
    nested = b"[" * 50 + b"]" * 50
    assert b"200 OK" in stage.http("POST", "/filters/scalable/add", b'{"key":%b}' % nested)
    many = b'{"keys":[%b]}' % b",".join([nested] * 150_000)
    assert b"413" in stage.http("POST", "/filters/scalable/add", many)[:20]
    fewer = b'{"keys":[%b]}' % b",".join([nested] * 10_000)
    assert b"413" in stage.http("POST", "/filters/scalable/add", fewer)[:20]
    fewest = b'{"keys":[%b]}' % b",".join([nested] * 2600)
    assert b"200 OK" in stage.http("POST", "/filters/scalable/add", fewest)

    for body in (many, fewer, fewest):
        case = Case("POST", "nested arrays", _adding(body))
        assert held(stage, case) is None


def _adding(body: bytes) -> Callable[[Stage], stall_cases.Request]:
    return lambda stage: lambda: stage.http("POST", "/filters/scalable/add", body)


def test_many_uuids_hold_up_nobody_and_are_added(stage: Stage) -> None:
    """260,000 keys that Python makes one by one are all added, in slices."""
    keys = [{"uuid": str(uuid.UUID(int=at))} for at in range(200_000)]
    body = json.dumps({"keys": keys}).encode()
    answers: list[bytes] = []

    def request(stage: Stage) -> stall_cases.Request:
        def add() -> bytes:
            answers.append(stage.http("POST", "/filters/large/add", body))
            return answers[-1]

        return add

    assert held(stage, Case("POST", "uuids", request)) is None
    assert answers[0].count(b"true") + answers[0].count(b"false") == len(keys)
    again = stage.http("POST", "/filters/large/contains", body)
    assert again.count(b"true") == len(keys)


def test_many_keys_are_answered_in_order(stage: Stage) -> None:
    """A command that is done in slices answers as one that is not: natively, and by Python."""
    stage.call(["DEL", "sliced"], ["BF.RESERVE", "sliced", 0.0001, 100_000])
    stage.resp(packed_many(["BF.MADD", "sliced"], range(0, 20_000, 2)))
    for command in (["BF.MEXISTS", "sliced"], ["BF.INSERT", "sliced", "ITEMS"]):
        reply = stage.resp(packed_many(command, range(20_000)))
        numbers = reply.split(b"\r\n")[1:20_001]
        odd = b":0" if command[0] == "BF.MEXISTS" else b":1"
        even = b":1" if command[0] == "BF.MEXISTS" else b":0"
        assert numbers[::2] == [even] * 10_000
        assert numbers[1::2].count(odd) > 9_950


def test_a_large_filter_is_copied_while_others_wait_for_it(stage: Stage) -> None:
    """What is asked of a filter that a thread works on is answered, after it."""
    replies = stage.call(
        ["COPY", "large", "waited", "REPLACE"],
        ["BF.EXISTS", "waited", b"%012d" % 1],
        ["BF.ADD", "waited", "one more"],
        ["BF.CLEAR", "waited"],
        ["BF.EXISTS", "waited", "one more"],
        ["DEL", "waited"],
    )
    assert replies.split(b"\r\n")[:6] == [b":1", b":1", b":1", b"+OK", b":0", b":1"]


def test_a_long_transaction_is_done_as_one(stage: Stage) -> None:
    """Thousands of commands in MULTI are done, and nobody else comes between."""
    count = 5000
    adds = b"".join(packed(["BF.ADD", "together", at]) for at in range(count))
    stage.call(["DEL", "together"], ["BF.RESERVE", "together", 0.0001, count])
    transaction = packed(["MULTI"]) + adds + packed(["BF.CARD", "together"]) + packed(["EXEC"])
    seen: list[int] = []

    def request(stage: Stage) -> stall_cases.Request:
        def both() -> bytes:
            reply = stage.resp(transaction)
            seen.append(int(stage.call(["BF.CARD", "together"]).split(b"\r\n")[0][1:]))
            return reply

        return both

    assert held(stage, Case("EXEC", "many adds", request)) is None
    assert seen[0] > 0.99 * count


# Many names, keys or clients: in one command, and in a transaction.


def _transaction(*commands: bytes) -> bytes:
    return b"".join([packed(["MULTI"]), *commands, packed(["EXEC"])])


def _sent(data: bytes) -> Callable[[Stage], stall_cases.Request]:
    return lambda stage: lambda: stage.resp(data)


@pytest.mark.parametrize(
    "command", [["BF.MADD", "scalable"], ["BF.INSERT", "scalable", "ITEMS"]], ids=lambda c: c[0]
)
def test_transaction_of_many_batches_does_not_block_others(
    stage: Stage, command: list[Word]
) -> None:
    """Each is short enough for one batch of the log, and all of them are not."""
    batch = packed_many(command, range(4000))
    case = Case("EXEC", "many batches of keys", _sent(_transaction(*[batch] * 100)))
    assert held(stage, case) is None


def test_transaction_into_a_full_cuckoo_filter_does_not_block_others(stage: Stage) -> None:
    """Each of 4,096 keys is moved around for a long time, and then refused."""
    insert = packed_many(["CF.INSERT", "full", "ITEMS"], range(5000, 5064))
    case = Case("EXEC", "keys for which there is no room", _sent(_transaction(*[insert] * 64)))
    assert held(stage, case) is None


NAMES = 9000


@pytest.mark.parametrize("command", ["EXISTS", "TOUCH"])
@pytest.mark.parametrize("executed", [False, True], ids=["alone", "in EXEC"])
def test_counting_many_names_does_not_block_others(
    stage: Stage, command: str, executed: bool
) -> None:
    """20 commands of 9,000 names count every name."""
    names = [f"small:{at % stage.size.filters}" for at in range(NAMES)]
    commands = [packed([command, *names])] * 20
    data = _transaction(*commands) if executed else b"".join(commands)
    assert stage.resp(data).count(b":%d\r\n" % NAMES) == 20
    assert held(stage, Case(command, "many names", _sent(data))) is None


MANY_NAMES = 9999  # as many as a command accepts


def _make_many(stage: Stage) -> None:
    reserve = (packed(["BF.RESERVE", b"%012d" % at, 0.01, 10]) for at in range(MANY_NAMES))
    stage.resp(b"".join(reserve))


@pytest.mark.parametrize("command", ["DEL", "UNLINK"])
@pytest.mark.parametrize("executed", [False, True], ids=["alone", "in EXEC"])
def test_dropping_many_filters_does_not_block_others(
    stage: Stage, command: str, executed: bool
) -> None:
    """9,999 filters are dropped by one command."""
    drop = packed_many([command], range(MANY_NAMES))
    data = _transaction(drop) if executed else drop
    answers: list[bytes] = []

    def request(stage: Stage) -> stall_cases.Request:
        _make_many(stage)

        def ask() -> bytes:
            answers.append(stage.resp(data))
            return answers[-1]

        return ask

    assert held(stage, Case(command, "many filters", request)) is None
    assert all(b":%d\r\n" % MANY_NAMES in answer for answer in answers)


@pytest.mark.parametrize(
    "commands",
    [
        [packed_many(["WATCH"], range(MANY_NAMES)), packed(["UNWATCH"])] * 20,
        [packed_many(["WATCH"], range(MANY_NAMES)), _transaction(packed(["DBSIZE"]))] * 20,
        [packed(["BF.MERGE", *["scalable"] * MANY_NAMES])],
        [_transaction(*[packed(["BF.MERGE", *["scalable"] * MANY_NAMES])] * 20)],
    ],
    ids=["WATCH", "WATCH and EXEC", "BF.MERGE", "BF.MERGE in EXEC"],
)
def test_other_commands_of_many_names_do_not_block_others(
    stage: Stage, commands: Sequence[bytes]
) -> None:
    """WATCH notes the state of each name, and BF.MERGE finds each filter."""
    assert held(stage, Case("WATCH or BF.MERGE", "many names", _sent(b"".join(commands)))) is None


CROWD = 4000  # clients
_CROWD_LIMIT = LIMIT / 4  # a server takes 10,000 clients, and not every machine is as fast


@contextmanager
def crowd(stage: Stage) -> Iterator[list[socket.socket]]:
    """Connect many clients, each of which has sent a command."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = CROWD + 500
    if hard < needed:
        missing(f"a limit of {needed} open files (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    try:
        with ExitStack() as ends:
            place = ("127.0.0.1", stage.port)
            clients = [ends.enter_context(socket.create_connection(place)) for _ in range(CROWD)]
            for client in clients:
                client.sendall(packed(["PING"]))
            for client in clients:
                assert client.recv(64) == b"+PONG\r\n"
            yield clients
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def _crowd(stage: Stage) -> Iterator[None]:
    with crowd(stage):
        yield


@pytest.mark.usefixtures("_crowd")
def test_list_of_many_clients_does_not_block_others(stage: Stage) -> None:
    """CLIENT LIST has a line for each of 4,000 clients."""
    listed = stage.call(["CLIENT", "LIST"])
    assert listed.count(b" laddr=127.0.0.1:%d " % stage.port) >= CROWD
    data = packed(["CLIENT", "LIST"])
    case = Case("CLIENT LIST", "many clients", _sent(data))
    assert held(stage, case, limit=_CROWD_LIMIT) is None


@pytest.mark.usefixtures("_crowd")
def test_lists_of_many_clients_in_a_transaction_do_not_block_others(stage: Stage) -> None:
    """CLIENT LIST 16 times in EXEC."""
    data = _transaction(*[packed(["CLIENT", "LIST"])] * 16)
    assert held(stage, Case("CLIENT LIST", "many clients, in EXEC", _sent(data))) is None


@pytest.mark.usefixtures("_crowd")
def test_search_for_clients_to_close_does_not_block_others(stage: Stage) -> None:
    """CLIENT KILL compares the address of each client, and closes none."""
    data = packed(["CLIENT", "KILL", "ADDR", "127.0.0.1:0"])
    case = Case("CLIENT KILL", "many clients", _sent(data))
    assert held(stage, case, limit=_CROWD_LIMIT) is None


def test_closing_many_clients_does_not_block_others() -> None:
    """CLIENT KILL closes 4,000 connections."""
    with open_folder() as folder, started(BloomeryServer(folder), kill=True) as server:
        stage = Stage(server.pid, server.resp_port, server.http_port)
        kill: list[Word] = ["CLIENT", "KILL", "LADDR", f"127.0.0.1:{stage.port}"]

        def close() -> bytes:
            reply = stage.call(kill)
            assert reply.startswith(b":%d\r\n" % CROWD), reply
            return reply

        case = Case("CLIENT KILL", "all of many clients", lambda stage: close)
        for _ in range(_TRIES):
            with crowd(stage) as clients:
                found = held(stage, case, limit=_CROWD_LIMIT, http=True, tries=1)
                assert [client.recv(64) for client in clients] == [b""] * CROWD
            if found is None:
                return
        pytest.fail(str(found))


# Two clients that add to one filter.

_BATCH = 100_000  # keys of one command
_GROWING = 3_700_000  # keys; some steps after that the table is built again, twice as long


def _near_growth(stage: Stage) -> None:
    """Make a filter that has room for one batch of keys, and not for two."""
    stage.call(["DEL", "near"], ["BF.RESERVE", "near", 0.01, 1000])
    keys = 0
    while keys < _GROWING or not 1.4 * _BATCH < _room(stage, keys) < 1.9 * _BATCH:
        assert keys < 2 * _GROWING, "the filter grows at other steps by now"
        step = _BATCH if keys < _GROWING else _BATCH // 4
        stage.resp(packed_many(["BF.MADD", "near"], range(keys, keys + step)))
        keys += step


def _room(stage: Stage, keys: int) -> int:
    """Return about how many keys a copy of the filter takes before it grows."""
    stage.call(["COPY", "near", "probe", "REPLACE"])
    size, step = _size(stage, "probe"), _BATCH // 10
    for added in range(0, 2 * _BATCH, step):
        more = range(keys + added, keys + added + step)
        stage.resp(packed_many(["BF.MADD", "probe"], more))
        if _size(stage, "probe") != size:
            return added
    return 2 * _BATCH


def _size(stage: Stage, name: str) -> bytes:
    return stage.call(["BF.INFO", name, "SIZE"])


def _unread(stage: Stage, number: int) -> int:
    """Return how many bytes of an incomplete command the server has from a client."""
    line = stage.call(["CLIENT", "LIST", "ID", number])
    return int(line.partition(b" qbuf=")[2].split()[0])


def test_two_clients_that_have_a_filter_grow_do_not_block_others(stage: Stage) -> None:
    """There is room for the keys of either client, and not for those of both."""
    _near_growth(stage)
    filters = ["both:1", "both:2", "both:3"]  # a PING may come too early, or too late
    some, others = (range(start, start + _BATCH) for start in (10**9, 2 * 10**9))

    def request(stage: Stage) -> stall_cases.Request:
        stage.call(*(["COPY", "near", name, "REPLACE"] for name in filters))

        def add() -> bytes:
            for name in filters:
                with Wire(stage.port) as one, Wire(stage.port) as other:
                    for wire, keys in ((one, some), (other, others)):
                        data = packed_many(["BF.MADD", name], keys)
                        number = wire.call("CLIENT", "ID")
                        wire.socket.sendall(data[:-1])
                        assert wait_until(lambda: _unread(stage, number) == len(data) - 1)  # noqa: B023
                    for wire in (one, other):  # both commands are complete at the same time
                        wire.socket.sendall(data[-1:])
                    assert len(one.reply()) == len(other.reply()) == _BATCH
            return b""

        return add

    assert held(stage, Case("BF.MADD", "two clients at once", request)) is None
    stage.call(["DEL", "near", "probe", *filters])


# Last: it leaves no filter.


def test_flushing_many_filters_does_not_block_others(stage: Stage) -> None:
    """FLUSHALL drops as many, and the filters of the other tests."""

    def request(stage: Stage) -> stall_cases.Request:
        _make_many(stage)
        return lambda: stage.call(["FLUSHALL"])

    assert held(stage, Case("FLUSHALL", "many filters", request)) is None
    assert stage.call(["DBSIZE"]).startswith(b":0\r\n")
