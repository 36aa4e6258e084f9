"""No request of any client holds up the others: the largest of each command and of each route."""

import json
import random
import uuid
from collections.abc import Callable, Iterator

import pytest
from starlette.routing import Route

from benchmarks.service import stall_cases
from benchmarks.service.stall_cases import CASES, Case
from benchmarks.service.stalls import LIMIT, MIB, Size, Stage, measure
from benchmarks.service.wire import packed, packed_many
from bloomery.service.http import app
from bloomery.service.resp import dispatch, table
from conftest import effort
from integration.conftest import open_folder, started
from integration.servers import BloomeryServer

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


def held(stage: Stage, case: Case) -> str | None:
    """Why a case fails, after several tries: the machine may be busy with others'."""
    told = None
    for _ in range(_TRIES):
        found = measure(stage, case.make(stage), _PAUSE)
        if found.loop <= LIMIT - _PAUSE and found.seconds <= _WITH_THREADS - _PAUSE:
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
    """16 MiB of JSON that is nothing but arrays: 15 s of the loop, once."""
    nested = b"[" * 50 + b"]" * 50
    assert b"200 OK" in stage.http("POST", "/filters/scalable/add", b'{"key":%b}' % nested)
    many = b'{"keys":[%b]}' % b",".join([nested] * 150_000)
    assert b"413" in stage.http("POST", "/filters/scalable/add", many)[:20]
    fewer = b'{"keys":[%b]}' % b",".join([nested] * 10_000)
    assert b"200 OK" in stage.http("POST", "/filters/scalable/add", fewer)

    for body in (many, fewer):
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
