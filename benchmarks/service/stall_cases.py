"""The largest request of each command and of each route, for `stalls`."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.service.stalls import MIB, Stage
from benchmarks.service.wire import Word, packed, packed_many
from bloomery.service.http.limits import MAX_JSON_KEYS

ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"
BINARY = "application/octet-stream"

Request = Callable[[], bytes]


@dataclass(frozen=True)
class Case:
    """A request: what it is one of, what is large about it, and how it is made."""

    of: str  # a command, or a method and a route
    what: str
    make: Callable[[Stage], Request]


CASES: list[Case] = []


def case(of: str, what: str) -> Callable[[Callable[[Stage], Request]], Callable[[Stage], Request]]:
    """Enter a case."""

    def enter(make: Callable[[Stage], Request]) -> Callable[[Stage], Request]:
        CASES.append(Case(of, what, make))
        return make

    return enter


def sent(of: str, what: str, data: Callable[[Stage], bytes]) -> None:
    """Enter one that is bytes for the Redis protocol."""

    def make(stage: Stage) -> Request:
        request = data(stage)
        return lambda: stage.resp(request)

    case(of, what)(make)


def asked(
    of: str,
    what: str,
    path: str,
    body: Callable[[Stage], bytes] = lambda stage: b"",
    media: str = "application/json",
) -> None:
    """Enter one that is a request of HTTP."""

    def make(stage: Stage) -> Request:
        request = body(stage)
        return lambda: stage.http(of.partition(" ")[0], path, request, media)

    case(of, what)(make)


# What they ask about.

_FLOOD = 250_000  # bytes: as much as is read from a socket at once


def prepare(stage: Stage) -> None:
    """Make the filters that the cases ask about."""
    size = stage.size
    small: list[list[Word]] = [
        ["BF.RESERVE", f"small:{at}", 0.01, 10] for at in range(size.filters)
    ]
    long: list[list[Word]] = [
        ["BF.RESERVE", b"%04d%b" % (at, b"a" * 996), 0.01, 10] for at in range(size.long_names)
    ]
    stage.call(*small, *long)
    large = size.large_bytes * 8 // 10  # keys: about ten bits each
    stage.call(
        ["BF.RESERVE", "large", 0.01, large, "KIND", "bloom"],
        ["BF.RESERVE", "large:2", 0.01, large, "KIND", "bloom"],
        ["BF.RESERVE", "scalable", 0.01, 1000],
        ["BF.RESERVE", "rotating", 0.01, large, "KIND", "rotating", "WINDOW", "1h"],
        ["BF.RESERVE", "counting", 0.01, large // 4, "KIND", "counting"],
        ["BF.RESERVE", "kinds:cuckoo", 0.01, large, "KIND", "cuckoo"],
        ["BF.RESERVE", "kinds:bank", 0.01, 1000, "KIND", "bank"],
        ["CF.RESERVE", "cuckoo", large // 2],
        ["CF.RESERVE", "full", 1000, "MAXITERATIONS", 65535, "EXPANSION", 0],
    )
    keys = range(300_000)  # in every page of the memory
    for name in ("large", "large:2", "rotating", "counting", "kinds:cuckoo"):
        for start in range(0, len(keys), 10_000):
            stage.resp(packed_many(["BF.MADD", name], keys[start : start + 10_000]))
    for name in ("cuckoo", "full"):
        for start in range(0, 2000 if name == "full" else len(keys), 1000):
            some = keys[start : start + 1000]
            stage.resp(packed_many(["CF.INSERT", name, "NOCREATE", "ITEMS"], some))


def _many(*words: str) -> Callable[[Stage], bytes]:
    """As many arguments as a command takes, after these words."""
    return lambda stage: packed_many(words, range(stage.size.arguments - len(words)))


def _once(words: str) -> Callable[[Stage], bytes]:
    one = packed(words.split())
    return lambda stage: one


def _flood(*words: str) -> Callable[[Stage], bytes]:
    """So many of one command that they fill what is read at once."""
    one = packed(words)
    return lambda stage: one * min(_FLOOD // len(one), stage.size.flood)


for _of, *_words in (
    ("BF.MADD", "scalable"),
    ("BF.MADD", "large"),
    ("BF.MADD", "counting"),
    ("BF.MADD", "kinds:cuckoo"),
    ("BF.MADD", "new"),
    ("BF.MEXISTS", "large"),
    ("BF.MEXISTS", "no-such"),
    ("BF.INSERT", "scalable", "ITEMS"),
    ("CF.INSERT", "cuckoo", "ITEMS"),
    ("CF.INSERTNX", "cuckoo", "ITEMS"),
    ("CF.MEXISTS", "cuckoo"),
    ("DEL",),
    ("UNLINK",),
    ("EXISTS",),
    ("TOUCH",),
    ("WATCH",),
    ("BF.MERGE", "large"),
    ("BF.LOOKUP", "large"),
    ("BF.FORGET", "large"),
    ("INFO",),
    ("COMMAND INFO",),
    ("COMMAND DOCS",),
    ("CONFIG GET",),
    ("CLIENT LIST",),
):
    sent(
        _of,
        f"{' '.join(_words) or 'its'} and as many arguments as it may have",
        _many(*_of.split(), *_words),
    )

# A name of two words, or one with few arguments, as often as fits what is read at once.
for _of, _arguments in {
    "ACL CAT": "",
    "ACL GETUSER": "default",
    "ACL HELP": "",
    "ACL LIST": "",
    "ACL USERS": "",
    "ACL WHOAMI": "",
    "AUTH": "a b",
    "BF.ADD": "scalable a",
    "BF.BIND": "large none",
    "BF.CARD": "large",
    "BF.CONSISTENCY": "local",
    "BF.DEL": "counting 000000000001",
    "BF.EXISTS": "large a",
    "BF.INFO": "large",
    "BF.LOAD": "no-such x",
    "BF.NODES": "",
    "BF.POLICY": "large",
    "BF.REBUILD": "large",
    "BF.UNBIND": "large",
    "CF.ADD": "full no-such",
    "CF.ADDNX": "full no-such",
    "CF.COUNT": "cuckoo a",
    "CF.DEBUG": "cuckoo",
    "CF.DEL": "cuckoo 000000000001",
    "CF.EXISTS": "cuckoo a",
    "CF.INFO": "cuckoo",
    "CLIENT CACHING": "yes",
    "CLIENT GETNAME": "",
    "CLIENT GETREDIR": "",
    "CLIENT HELP": "",
    "CLIENT ID": "",
    "CLIENT INFO": "",
    "CLIENT KILL": "ID 0",
    "CLIENT LIST": "",
    "CLIENT NO-EVICT": "on",
    "CLIENT NO-TOUCH": "on",
    "CLIENT PAUSE": "1",
    "CLIENT REPLY": "on",
    "CLIENT SETINFO": "lib-name a",
    "CLIENT SETNAME": "a",
    "CLIENT TRACKING": "off",
    "CLIENT TRACKINGINFO": "",
    "CLIENT UNBLOCK": "0",
    "CLIENT UNPAUSE": "",
    "CLUSTER HELP": "",
    "CLUSTER INFO": "",
    "CLUSTER MYID": "",
    "CLUSTER NODES": "",
    "CLUSTER SHARDS": "",
    "CLUSTER SLOTS": "",
    "COMMAND": "",
    "COMMAND COUNT": "",
    "COMMAND DOCS": "",
    "COMMAND GETKEYS": "BF.ADD a b",
    "COMMAND HELP": "",
    "COMMAND INFO": "",
    "COMMAND LIST": "",
    "CONFIG GET": "*",
    "CONFIG HELP": "",
    "CONFIG RESETSTAT": "",
    "CONFIG REWRITE": "",
    "CONFIG SET": "timeout 0",
    "DBSIZE": "",
    "DISCARD": "",
    "DUMP": "small:1",
    "ECHO": "a",
    "EXPIRE": "large 100000",
    "EXPIREAT": "large 9999999999",
    "EXPIRETIME": "large",
    "HELLO": "2",
    "INFO": "",
    "KEYS": "*",
    "LASTSAVE": "",
    "LATENCY DOCTOR": "",
    "LATENCY GRAPH": "a",
    "LATENCY HELP": "",
    "LATENCY HISTOGRAM": "",
    "LATENCY HISTORY": "a",
    "LATENCY LATEST": "",
    "LATENCY RESET": "",
    "MEMORY HELP": "",
    "MEMORY USAGE": "large",
    "MODULE HELP": "",
    "MODULE LIST": "",
    "MONITOR": "",
    "OBJECT ENCODING": "large",
    "OBJECT FREQ": "large",
    "OBJECT HELP": "",
    "OBJECT IDLETIME": "large",
    "OBJECT REFCOUNT": "large",
    "PERSIST": "large",
    "PEXPIRE": "large 100000000",
    "PEXPIREAT": "large 9999999999999",
    "PEXPIRETIME": "large",
    "PING": "a",
    "PTTL": "large",
    "RANDOMKEY": "",
    "RENAME": "no-such large",
    "RENAMENX": "large small:1",
    "RESET": "",
    "RESTORE": "no-such 0 x",
    "ROLE": "",
    "SCAN": "0",
    "SELECT": "0",
    "SLOWLOG GET": "",
    "SLOWLOG HELP": "",
    "SLOWLOG LEN": "",
    "SLOWLOG RESET": "",
    "TIME": "",
    "TTL": "large",
    "TYPE": "large",
    "UNWATCH": "",
    "WAIT": "0 0",
}.items():
    sent(_of, "a flood of it", _flood(*_of.split(), *_arguments.split()))

# Each of these keys takes a millisecond: one that looks for a place and finds none.
sent(
    "CF.INSERT",
    "keys for which there is no place",
    lambda stage: packed_many(["CF.INSERT", "full", "ITEMS"], range(1000)),
)
sent("MULTI", "again and again", lambda stage: packed(["MULTI"]) * 1000 + packed(["DISCARD"]))
sent("QUIT", "one", lambda stage: packed(["QUIT"]))
sent("SAVE", "of all filters", lambda stage: packed(["SAVE"]))
sent("BGSAVE", "of all filters", lambda stage: packed(["BGSAVE"]))

# Names by pattern.

PATTERN = "*" + "a" * 900 + "b"
sent("KEYS", "a pattern that almost matches", lambda stage: packed(["KEYS", PATTERN]))
sent("KEYS", "all names", lambda stage: packed(["KEYS", "*"]))
sent(
    "SCAN",
    "a pattern that almost matches",
    lambda stage: packed(["SCAN", 0, "MATCH", PATTERN, "COUNT", 1 << 30]),
)
sent("SCAN", "all names", lambda stage: packed(["SCAN", 0, "COUNT", 1 << 30]))

# Large filters.

for _request in (
    "BF.DEBUG large",
    "BF.DEBUG kinds:cuckoo",
    "BF.INFO large",
    "MEMORY USAGE cuckoo",
    "CF.COMPACT cuckoo",
    "BF.ROTATE rotating",
    "BF.MERGE large large:2",
    "BF.SCANDUMP large 0",
    "BF.SCANDUMP large 1",
    "CF.SCANDUMP cuckoo 1",
):
    _name, _, _rest = _request.partition(" ")
    if _name == "MEMORY":
        _name, _rest = "MEMORY USAGE", _rest.removeprefix("USAGE ")
    sent(_name, f"{_rest}, large", _once(_request))


@case("COPY", "large")
def _copy(stage: Stage) -> Request:
    return lambda: stage.call(["COPY", "large", "copied", "REPLACE"])


@case("BF.CLEAR", "large")
def _clear(stage: Stage) -> Request:
    stage.call(["COPY", "large", "cleared", "REPLACE"])
    return lambda: stage.call(["BF.CLEAR", "cleared"])


@case("DEL", "large")
def _drop(stage: Stage) -> Request:
    stage.call(["COPY", "large", "dropped", "REPLACE"])
    return lambda: stage.call(["DEL", "dropped"])


@case("RENAME", "onto a large one")
def _rename(stage: Stage) -> Request:
    stage.call(["COPY", "large", "renamed", "REPLACE"])
    return lambda: stage.call(["BF.RESERVE", "other", 0.01, 10], ["RENAME", "other", "renamed"])


@case("BF.RESERVE", "large")
def _reserve(stage: Stage) -> Request:
    large = stage.size.large_bytes * 8 // 10
    stage.call(["DEL", *(f"made:{kind}" for kind in ("bloom", "scalable", "counting", "cuckoo"))])
    return lambda: stage.call(
        *(
            ["BF.RESERVE", f"made:{kind}", 0.01, large, "KIND", kind]
            for kind in ("bloom", "scalable", "counting", "cuckoo")
        )
    )


@case("CF.RESERVE", "large")
def _reserve_cuckoo(stage: Stage) -> Request:
    stage.call(["DEL", "made:cf"])
    return lambda: stage.call(["CF.RESERVE", "made:cf", stage.size.large_bytes // 2])


def _loading(stage: Stage, scan: str, load: str, name: str) -> Request:
    parts: list[tuple[int, bytes]] = []
    iterator = 0
    while True:
        reply = stage.call([scan, name, iterator])
        _, number, length, rest = reply.split(b"\r\n", 3)
        iterator = int(number[1:])
        if iterator == 0:
            break
        parts.append((iterator, rest[: int(length[1:])]))
    stage.call(["DEL", "loaded"])
    data = b"".join(packed([load, "loaded", *part]) for part in parts)
    return lambda: stage.resp(data)


@case("BF.LOADCHUNK", "a large filter")
def _load(stage: Stage) -> Request:
    return _loading(stage, "BF.SCANDUMP", "BF.LOADCHUNK", "large")


@case("CF.LOADCHUNK", "a large filter")
def _load_cuckoo(stage: Stage) -> Request:
    return _loading(stage, "CF.SCANDUMP", "CF.LOADCHUNK", "cuckoo")


def _to_dump(stage: Stage) -> None:
    stage.call(["DEL", "dumped"], ["BF.RESERVE", "dumped", 0.01, 3_000_000, "KIND", "bloom"])


@case("DUMP", "as large as may be")
def _dump(stage: Stage) -> Request:
    _to_dump(stage)
    return lambda: stage.call(["DUMP", "dumped"])


@case("RESTORE", "as large as may be")
def _restore(stage: Stage) -> Request:
    _to_dump(stage)
    reply = stage.call(["DUMP", "dumped"])
    length, _, rest = reply.partition(b"\r\n")
    data = packed(["RESTORE", "restored", 0, rest[: int(length[1:])], "REPLACE"])
    return lambda: stage.resp(data)


sent("ECHO", "16 MiB", lambda stage: packed(["ECHO", b"x" * (16 * MIB)]))
sent(
    "EXEC",
    "many commands",
    lambda stage: packed(["MULTI"]) + packed(["BF.INFO", "large"]) * 20_000 + packed(["EXEC"]),
)
sent(
    "EXEC",
    "many keys",
    lambda stage: (
        packed(["MULTI"])
        + packed_many(["BF.MADD", "scalable"], range(50_000)) * 10
        + packed(["EXEC"])
    ),
)
sent(
    "EXEC",
    "large filters",
    lambda stage: (
        packed(["MULTI"]) + packed(["COPY", "large", "copied", "REPLACE"]) * 5 + packed(["EXEC"])
    ),
)


def _flush(stage: Stage, command: str) -> Request:
    def request() -> bytes:
        return stage.call([command])

    return request


# Growth.


@case("BF.ADD", "a large table that grows")
def _grow(stage: Stage) -> Request:
    return _overfill(stage, "grow")


@case("BF.MADD", "a chain that needs a large layer")
def _layer(stage: Stage) -> Request:
    growth = stage.size.large_bytes // 20_000
    stage.call(
        ["DEL", "layers"],
        ["CONFIG", "SET", "bf-layout", "redisbloom"],
        ["BF.RESERVE", "layers", 0.01, 10_000, "EXPANSION", growth],
        ["CONFIG", "SET", "bf-layout", "bloomery"],
    )
    stage.resp(packed_many(["BF.MADD", "layers"], range(9_500)))
    return lambda: stage.resp(packed_many(["BF.MADD", "layers"], range(10_000, 13_000)))


@case("CF.INSERT", "a filter that needs a large layer")
def _cuckoo_layer(stage: Stage) -> Request:
    stage.call(["DEL", "layers"], ["CF.RESERVE", "layers", 1 << 17, "EXPANSION", 256])
    stage.resp(packed_many(["CF.INSERT", "layers", "ITEMS"], range(60_000)))
    more = (range(start, start + 1000) for start in range(60_000, 140_000, 1000))
    data = b"".join(packed_many(["CF.INSERT", "layers", "ITEMS"], some) for some in more)
    return lambda: stage.resp(data)


@case("BF.ADD", "a large table that refuses")
def _refuse(stage: Stage) -> Request:
    return _overfill(stage, "reject")


def _overfill(stage: Stage, on_full: str) -> Request:
    capacity = stage.size.large_bytes // 16
    kind = ("KIND", "cuckoo", "ONFULL", on_full)
    stage.call(["DEL", "grown"], ["BF.RESERVE", "grown", 0.01, capacity, *kind])
    for start in range(0, capacity, 50_000):
        count = min(50_000, capacity - start)
        stage.resp(packed_many(["BF.MADD", "grown"], range(start, start + count)))
    more = range(capacity, capacity + capacity // 4)
    data = b"".join(packed(["BF.ADD", "grown", b"%012d" % at]) for at in more)
    return lambda: stage.resp(data)


# HTTP: keys.


def _body(kind: str) -> Callable[[Stage], bytes]:
    """A body of JSON with as many keys of a kind as it may have."""
    forms: dict[str, Callable[[int], str]] = {
        "strings": lambda at: f'"{at:012d}"',
        "integers": str,
        "uuids": lambda at: f'{{"uuid":"{uuid.UUID(int=at)}"}}',
        "datetimes": lambda at: (
            f'{{"datetime":"2026-01-31T12:00:{at % 60:02d}.{at % 1000000:06d}"}}'
        ),
        "base64": lambda at: '{"base64":"AP8="}',
        "tuples": lambda at: f'["a",{at}]',
        "nested arrays": lambda at: "[" * 100 + "]" * 100,
        "empty arrays": lambda at: "[]",
        "one nested key": lambda at: "[[]]",
        "one long key": lambda at: "x" * 1000,
    }
    one = forms[kind]

    def make(stage: Stage) -> bytes:
        # As many as there is room for, but no more than are taken: a refusal costs less.
        count = min((stage.size.body - 64) // (len(one(10**6)) + 1), MAX_JSON_KEYS)
        if kind == "one long key":
            return b'{"key":"%b"}' % (b"x" * (stage.size.body - 64))
        keys = ",".join(map(one, range(count)))
        return (
            f'{{"key":[{keys}]}}' if kind == "one nested key" else f'{{"keys":[{keys}]}}'
        ).encode()

    return make


_KEYS = ("strings", "integers", "uuids", "datetimes", "base64", "tuples", "nested arrays")
for _kind in (*_KEYS, "empty arrays", "one nested key", "one long key"):
    asked("POST /filters/{name}/add", f"JSON: {_kind}", "/filters/scalable/add", _body(_kind))
asked("POST /filters/{name}/contains", "JSON: strings", "/filters/large/contains", _body("strings"))
asked("POST /filters/{name}/contains", "JSON: uuids", "/filters/large/contains", _body("uuids"))
asked(
    "POST /filters/{name}/contains",
    "JSON, of a bank",
    "/filters/kinds:bank/contains",
    _body("strings"),
)
asked("POST /filters/{name}/remove", "JSON: strings", "/filters/counting/remove", _body("strings"))
asked("POST /filters/{name}/lookup", "JSON: strings", "/filters/large/lookup", _body("strings"))


def _lines(line: Callable[[int], bytes]) -> Callable[[Stage], bytes]:
    def make(stage: Stage) -> bytes:
        count = stage.size.stream // len(line(10**6))
        return line(0) * count if line(0) == line(1) else b"".join(map(line, range(count)))

    return make


for _kind, _line in {
    "strings": lambda at: b'"%012d"\n' % at,
    "uuids": lambda at: b'{"uuid":"%b"}\n' % str(uuid.UUID(int=at)).encode(),
    "nested arrays": lambda at: b"[" * 100 + b"]" * 100 + b"\n",
    "empty arrays": lambda at: b"[]\n",
    "empty lines": lambda at: b"\n",
    "one line": lambda at: b"[[]],",
    "one string": lambda at: b"x" * 1000,
}.items():
    asked(
        "POST /filters/{name}/add",
        f"lines: {_kind}",
        "/filters/scalable/add",
        _lines(_line),
        NDJSON,
    )
asked(
    "POST /filters/{name}/contains",
    "lines",
    "/filters/large/contains",
    _lines(lambda at: b'"%012d"\n' % at),
    NDJSON,
)


def _arrow(kind: str) -> Callable[[Stage], bytes]:
    def make(stage: Stage) -> bytes:
        import pyarrow

        most = min(stage.size.stream, 15 * MIB)  # one message, about as large as it may be
        rows = most // {"int64": 8, "short": 16, "long": 4000}[kind]
        column = {
            "int64": lambda: pyarrow.array(range(rows)),
            "short": lambda: pyarrow.array([f"{at:012d}" for at in range(rows)]),
            "long": lambda: pyarrow.array([f"{at:04000d}" for at in range(rows)]),
        }[kind]()
        batch = pyarrow.record_batch([column], ["key"])
        out = io.BytesIO()
        with pyarrow.ipc.new_stream(out, batch.schema) as writer:
            writer.write_batch(batch)
        return out.getvalue()

    return make


for _kind in ("int64", "short", "long"):
    asked(
        "POST /filters/{name}/add", f"Arrow: {_kind}", "/filters/scalable/add", _arrow(_kind), ARROW
    )
asked(
    "POST /filters/{name}/add",
    "Arrow, into a bank",
    "/filters/kinds:bank/add",
    _arrow("short"),
    ARROW,
)
asked("POST /filters/{name}/contains", "Arrow", "/filters/large/contains", _arrow("short"), ARROW)

# HTTP: filters.

asked("GET /filters", "a pattern that almost matches", f"/filters?pattern={PATTERN}&limit=1000")
asked("GET /filters", "all of them", "/filters?limit=1000")
asked("GET /filters/{name}", "large", "/filters/large")
asked("GET /filters/{name}", "large, cuckoo", "/filters/kinds:cuckoo")
asked("GET /filters/{name}/samples", "all", "/filters/large/samples?limit=10000")
asked("POST /filters/{name}/rotate", "large", "/filters/rotating/rotate")
asked(
    "POST /filters/{name}/merge",
    "large",
    "/filters/large/merge",
    lambda stage: b'{"sources":["large:2"]}',
)
asked(
    "POST /filters/{name}/merge",
    "many names",
    "/filters/large/merge",
    lambda stage: json.dumps({"sources": ["large:2"] * (stage.size.body // 12)}).encode(),
)
asked(
    "PATCH /filters/{name}",
    "a large body",
    "/filters/large",
    lambda stage: b'{"name":[%b[]]}' % (b"[]," * (stage.size.body // 4)),
)
asked("POST /filters/{name}/rebuild", "one", "/filters/large/rebuild", lambda stage: b"{}")
asked("POST /snapshot", "of all filters", "/snapshot")
asked("POST /nodes/recover", "one", "/nodes/recover", lambda stage: b'{"keep":true}')
asked("GET /backup", "of all filters", "/backup?rate=1000000000000")
asked("GET /metrics", "all", "/metrics")
asked("GET /healthz", "one", "/healthz")
asked("GET /readyz", "one", "/readyz")
asked("GET /alerts", "all", "/alerts")
asked("GET /openapi.json", "one", "/openapi.json")
asked("GET /nodes", "all", "/nodes")
asked("GET /bloomery.js", "one", "/bloomery.js")
asked("POST /filters/{name}/forget", "many keys", "/filters/large/forget", _body("strings"))


def _key_body(stage: Stage) -> bytes:
    return b'{"key":"alice"}'


# The pages of the server, and what they ask for.
_PAGES = ("/", "/docs", "/ui/filters", "/ui/login", "/ui/nodes", "/ui/planner", "/ui/playground")
for _path in _PAGES:
    asked(f"GET {_path}", "one", _path)
for _path in ("session", "data/audit", "data/filters", "data/health", "data/planner"):
    asked(f"GET /ui/{_path}", "one", f"/ui/{_path}")
asked("GET /ui/data/planner/kind", "one", "/ui/data/planner/kind?kind=bloom")
asked("GET /ui/static/{digest}/{file}", "one that is not there", "/ui/static/0/none.js")
asked("GET /ui/filters/{name}", "large", "/ui/filters/large")
asked("GET /ui/data/filters/{name}", "large", "/ui/data/filters/large")
for _path in ("anatomy", "series"):
    asked(f"GET /ui/data/filters/{{name}}/{_path}", "large", f"/ui/data/filters/large/{_path}")
asked("POST /ui/data/filters/{name}/test", "one key", "/ui/data/filters/large/test", _key_body)
for _path in ("data/playground", "data/playground/read", "login", "logout"):
    asked(f"POST /ui/{_path}", "a body of another kind", f"/ui/{_path}", _key_body)


@case("POST /filters/{name}/clear", "large")
def _http_clear(stage: Stage) -> Request:
    stage.call(["COPY", "large", "cleared", "REPLACE"])
    return lambda: stage.http("POST", "/filters/cleared/clear")


@case("DELETE /filters/{name}", "large")
def _http_drop(stage: Stage) -> Request:
    stage.call(["COPY", "large", "dropped", "REPLACE"])
    return lambda: stage.http("DELETE", "/filters/dropped")


@case("POST /filters", "large")
def _http_create(stage: Stage) -> Request:
    stage.call(["DEL", "made"])
    new = {"name": "made", "capacity": stage.size.large_bytes * 8 // 10, "kind": "cuckoo"}
    return lambda: stage.http("POST", "/filters", json.dumps(new).encode())


@case("GET /filters/{name}/file", "large")
def _export(stage: Stage) -> Request:
    return lambda: stage.http("GET", "/filters/large/file")


@case("PUT /filters/{name}/file", "large")
def _import(stage: Stage) -> Request:
    file = stage.http("GET", "/filters/large/file").partition(b"\r\n\r\n")[2]
    return lambda: stage.http("PUT", "/filters/imported/file?replace=true", file, BINARY)


# Last: they leave nothing.


@case("FLUSHDB", "all filters")
def _flushdb(stage: Stage) -> Request:
    return _flush(stage, "FLUSHDB")


@case("FLUSHALL", "all filters")
def _flushall(stage: Stage) -> Request:
    prepare(stage)
    return _flush(stage, "FLUSHALL")
