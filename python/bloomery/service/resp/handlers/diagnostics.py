"""What health checks and dashboards ask of any Redis: TIME, ROLE, SLOWLOG, LATENCY and CLUSTER.
MONITOR is refused."""

from __future__ import annotations

import time
from itertools import islice
from typing import Any, NoReturn

from bloomery.service.resp.arguments import integer
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.replies import OK, Failure, TextReply
from bloomery.service.resp.table import command, help_command

_SHOWN_ENTRIES = 10  # of SLOWLOG GET without a count


@command("TIME", group="server", does="look")
async def time_(client: ClientState, words: list[bytes]) -> list[bytes]:
    """Return the server's time: Unix seconds, and microseconds."""
    seconds, micros = divmod(time.time_ns() // 1000, 1_000_000)
    return [b"%d" % seconds, b"%d" % micros]


@command("ROLE", group="server", does="look")
async def role(client: ClientState, words: list[bytes]) -> list[Any]:
    """Return `master`, offset 0 and no replicas: each server and each node accepts writes."""
    return [b"master", 0, []]


@command("MONITOR", group="server", does="server")
async def monitor(client: ClientState, words: list[bytes]) -> NoReturn:
    """Refused: it would show the keys of all clients. SLOWLOG and INFO show none."""
    raise Failure(
        "ERR MONITOR is not supported: it would show the keys of all clients; use SLOWLOG GET, "
        "INFO or GET /metrics"
    )


# SLOWLOG


@command("SLOWLOG GET", "[count]", group="server", does="server")
async def slowlog_get(client: ClientState, words: list[bytes]) -> list[Any]:
    """Return the last commands that took at least `slowlog-log-slower-than` microseconds."""
    count = integer(words[0]) if words else _SHOWN_ENTRIES
    if count is None or count < -1:
        raise Failure("ERR count should be greater than or equal to -1")
    entries = client.clients.slow_log.entries
    return list(islice(entries, None if count == -1 else count))


@command("SLOWLOG LEN", group="server", does="server")
async def slowlog_len(client: ClientState, words: list[bytes]) -> int:
    """Return the number of entries in the slow log."""
    return len(client.clients.slow_log.entries)


@command("SLOWLOG RESET", group="server", does="server")
async def slowlog_reset(client: ClientState, words: list[bytes]) -> str:
    """Delete the entries of the slow log."""
    client.clients.slow_log.entries.clear()
    return OK


help_command("SLOWLOG", "server")


# LATENCY: as of a Redis whose latency monitor is off, which is Redis's default.


@command("LATENCY LATEST", group="server", does="server")
async def latency_latest(client: ClientState, words: list[bytes]) -> list[Any]:
    """Return nothing: there is no latency monitor. GET /metrics has the latency of commands."""
    return []


@command("LATENCY HISTORY", "event", group="server", does="server")
async def latency_history(client: ClientState, words: list[bytes]) -> list[Any]:
    """Return nothing: there is no latency monitor."""
    return []


@command("LATENCY RESET", "[event [event ...]]", group="server", does="server")
async def latency_reset(client: ClientState, words: list[bytes]) -> int:
    """Return 0, the number of events that were deleted."""
    return 0


@command("LATENCY GRAPH", "event", group="server", does="server")
async def latency_graph(client: ClientState, words: list[bytes]) -> NoReturn:
    """Refused: there is no latency monitor, so no event has samples."""
    shown = words[0][:128].decode("utf-8", "replace")
    raise Failure(f"ERR No samples available for event '{shown}'")


@command("LATENCY HISTOGRAM", "[command [command ...]]", group="server", does="server")
async def latency_histogram(client: ClientState, words: list[bytes]) -> dict[bytes, Any]:
    """Return nothing: latency is not measured per command. GET /metrics has it for all."""
    return {}


@command("LATENCY DOCTOR", group="server", does="server")
async def latency_doctor(client: ClientState, words: list[bytes]) -> TextReply:
    """Return where to find the latency of commands."""
    return TextReply(
        "There is no latency monitor in this server. SLOWLOG GET shows slow commands, and GET "
        "/metrics has a histogram of the latency of all commands."
    )


help_command("LATENCY", "server")


# CLUSTER: nodes of bloomery share a log and hold every filter, so there are no slots.

_NO_CLUSTER = Failure("ERR This instance has cluster support disabled")


@command("CLUSTER INFO", group="cluster", does="session")
@command("CLUSTER MYID", group="cluster", does="session")
@command("CLUSTER NODES", group="cluster", does="session")
@command("CLUSTER SHARDS", group="cluster", does="session")
@command("CLUSTER SLOTS", group="cluster", does="session")
async def cluster(client: ClientState, words: list[bytes]) -> NoReturn:
    """Refused as in a Redis without cluster mode: each node has all filters."""
    raise _NO_CLUSTER


help_command("CLUSTER", "cluster")
