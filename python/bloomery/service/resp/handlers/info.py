"""INFO and what else a person or a monitor asks a server about itself; snapshots when asked; WAIT,
though there are no replicas."""

from __future__ import annotations

import asyncio
import math
import os
import platform
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bloomery import __version__, _native
from bloomery.service.access.permissions import User
from bloomery.service.resp.arguments import integer, option, parse_integer
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.replies import OK, Failure, TextReply
from bloomery.service.resp.table import command, help_command

# Client libraries look for the module's name before they use BF.* and CF.*.
MODULES: list[dict[bytes, Any]] = [{b"name": b"bf", b"ver": 80200, b"path": b"", b"args": []}]

REDIS_VERSION = "7.4.0"  # whose replies these are; clients choose their commands by it
_RUN_ID = secrets.token_hex(20)
_SAVING = Failure("ERR Background save already in progress")
# What Redis adds to a module's own figure, beside the name (REDISBLOOM: 240 bytes show as 272).
_KEY_OVERHEAD = 31
_LOOK_SECONDS = 1.0  # between two looks whether a client that waits has gone

Facts = dict[str, Any]


def _human(nbytes: int) -> str:
    amount, unit = float(nbytes), "B"
    for unit in ("B", "K", "M", "G", "T"):
        if amount < 1024 or unit == "T":
            break
        amount /= 1024
    return f"{nbytes}B" if unit == "B" else f"{amount:.2f}{unit}"


def _server(client: ClientState, user: User) -> Facts:
    uptime = int(time.time() - client.context.started)
    return {
        "redis_version": REDIS_VERSION,
        "redis_mode": "standalone",
        "bloomery_version": __version__,
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "arch_bits": 64,
        "process_id": os.getpid(),
        "run_id": _RUN_ID,
        "tcp_port": client.context.resp_address.rpartition(":")[2],
        "server_time_usec": int(time.time() * 1e6),
        "uptime_in_seconds": uptime,
        "uptime_in_days": uptime // 86400,
    }


def _clients(client: ClientState, user: User) -> Facts:
    connections = client.clients.connections
    return {
        "connected_clients": len(connections),
        "maxclients": client.context.settings.maxclients,
        "blocked_clients": sum(other.busy for other in connections.values()),
    }


def _memory(client: ClientState, user: User) -> Facts:
    used, most = _native.memory_used(), client.context.settings.maxmemory
    return {
        "used_memory": used,
        "used_memory_human": _human(used),
        "used_memory_rss": (rss := _resident()),
        "used_memory_rss_human": _human(rss),
        "maxmemory": most,
        "maxmemory_human": _human(most),
        "maxmemory_policy": "noeviction",
    }


def _resident() -> int:
    """Memory of the process; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _persistence(client: ClientState, user: User) -> Facts:
    snapshots, engine = client.context.snapshots, client.context.engine
    return {
        "loading": 0,
        "rdb_bgsave_in_progress": int(snapshots.running),
        "rdb_last_save_time": int(snapshots.last_save),
        "rdb_last_bgsave_status": "err" if snapshots.problem else "ok",
        "rdb_last_bgsave_time_sec": -1 if snapshots.seconds is None else round(snapshots.seconds),
        "aof_enabled": 1,
        "aof_last_write_status": "err" if engine.problem else "ok",
        "aof_pending_bio_fsync": int(engine.log.flushing),
        "aof_delayed_fsync": client.context.sequencer.delayed,
    }


def _stats(client: ClientState, user: User) -> Facts:
    received, refused, native, rare = client.clients.figures()
    return {
        "total_connections_received": received,
        "total_commands_processed": native + rare,
        "rejected_connections": refused,
    }


def _cluster(client: ClientState, user: User) -> Facts:
    return {"cluster_enabled": 0}


def _modules(client: ClientState, user: User) -> Facts:
    [bf] = MODULES
    more = "api=1,filters=0,usedby=[],using=[],options=[]"
    return {"module": f"name={bf[b'name'].decode()},ver={bf[b'ver']},{more}"}


def _keyspace(client: ClientState, user: User) -> Facts:
    names, visible = (
        client.context.engine.state.names,
        client.context.commands.listing.visible(user),
    )
    if not visible:
        return {}
    expires = sum(names[name].expires_at is not None for name in visible)
    return {"db0": f"keys={len(visible)},expires={expires},avg_ttl=0"}


def _own(client: ClientState, user: User) -> Facts:
    engine, snapshots, registry = (
        client.context.engine,
        client.context.snapshots,
        client.context.publisher.writer,
    )
    _, _, native, rare = client.clients.figures()
    return {
        "filters": client.context.commands.listing.number(user),
        "filters_memory": _native.memory_used(),
        "filters_memory_budget": client.context.settings.maxmemory,
        "log_segment": engine.log.segment,
        "log_bytes": _log_bytes(engine.log.path),
        "log_unsynced_seconds": f"{engine.log.unsynced(time.monotonic()):.1f}",
        "log_late": int(client.context.sequencer.late_since is not None),
        "refusing_writes": int(engine.problem is not None),
        "refusing_writes_reason": engine.problem or "",
        "last_snapshot": snapshots.snapshot_number,
        "last_snapshot_time": int(snapshots.last_save),
        "last_snapshot_problem": snapshots.problem or "",
        "recovered_rows": client.context.recovered_rows,
        "recovery_problems": len(client.context.problems),
        **{f"recovery_problem_{at}": text for at, text in enumerate(client.context.problems, 1)},
        "native_commands": native,
        "python_commands": rare,
        "registry": "ok" if registry.healthy else "err",
        "registry_problem": registry.last_error or "",
        "registry_seconds_behind": round(registry.behind, 1),
    }


def _log_bytes(path: Path) -> int:
    """Return the size of the segment that is written to."""
    try:
        return path.stat().st_size
    except OSError:  # a snapshot has removed it
        return 0


def _store(client: ClientState, user: User) -> Facts:
    if client.context.node is None:
        return {}
    figures = client.context.node.figures().items()
    return {name: round(value, 3) for name, value in figures if value is not None}


_SECTIONS: dict[str, Callable[[ClientState, User], Facts]] = {
    "Server": _server,
    "Clients": _clients,
    "Memory": _memory,
    "Persistence": _persistence,
    "Stats": _stats,
    "Modules": _modules,
    "Cluster": _cluster,
    "Keyspace": _keyspace,
    "Bloomery": _own,
    "Store": _store,
}


_NAMING = ("recovery_problem_",)  # what may name filters


@command("INFO", "[section [section ...]]", group="server", does="look")
async def info(client: ClientState, words: list[bytes]) -> TextReply:
    """Tell about the server."""
    client.context.engine.begin()
    wanted = {option(word) for word in words}
    everything = not wanted or wanted & {"ALL", "DEFAULT", "EVERYTHING"}
    assert client.user is not None  # or `authorize` would have refused
    all_names = client.user.everything
    parts = []
    for name, tell in _SECTIONS.items():
        if everything or name.upper() in wanted:
            facts = tell(client, client.user).items()
            if not facts and name == "Store":
                continue
            lines = [
                f"{key}:{_line(value)}\r\n"
                for key, value in facts
                if all_names or not key.startswith(_NAMING)
            ]
            parts.append(f"# {name}\r\n" + "".join(lines))
    return TextReply("\r\n".join(parts))


def _line(value: Any) -> str:
    return " ".join(str(value).split())


# Snapshots.


@command("SAVE", group="server", does="server")
async def save(client: ClientState, words: list[bytes]) -> str:
    """Make a snapshot and wait for it; others are served meanwhile."""
    snapshots = client.context.snapshots
    if snapshots.running:
        raise _SAVING
    await snapshots.save()
    return OK


@command("BGSAVE", "[SCHEDULE]", group="server", does="server")
async def bgsave(client: ClientState, words: list[bytes]) -> str:
    """Begin a snapshot; LASTSAVE tells when it is made."""
    if words and option(words[0]) != "SCHEDULE":
        raise Failure("ERR syntax error")
    if client.context.snapshots.running:
        raise _SAVING
    client.context.snapshots.start()
    return "Background saving started"


@command("LASTSAVE", group="server", does="look")
async def lastsave(client: ClientState, words: list[bytes]) -> int:
    """Tell the Unix time of the last snapshot."""
    return int(client.context.snapshots.last_save)


@command("MEMORY USAGE", "key [SAMPLES count]", group="server", does="info")
async def memory_usage(client: ClientState, words: list[bytes]) -> int | None:
    """Tell how many bytes a filter takes."""
    if len(words) > 1:
        if len(words) != 3 or option(words[1]) != "SAMPLES":
            raise Failure("ERR syntax error")
        if parse_integer(words[2]) < 0:
            raise Failure("ERR syntax error")
    entry = client.context.engine.find(words[0])
    if entry is None:
        return None
    size = 0
    if entry.filter is not None:
        own: int = entry.filter.nbytes
        theirs = entry.filter.kind in ("redisbloom", "rediscuckoo")
        size = entry.filter.redis_size if theirs else own
    return size + _KEY_OVERHEAD + len(words[0])


help_command("MEMORY", "server")


@command("WAIT", "numreplicas timeout", group="connection", does="session")
async def wait(client: ClientState, words: list[bytes]) -> int:
    """Tell how many replicas have what this client wrote: 0, once the milliseconds are over."""
    replicas, timeout = parse_integer(words[0]), integer(words[1])
    if timeout is None:
        raise Failure("ERR timeout is not an integer or out of range")
    if timeout < 0:
        raise Failure("ERR timeout is negative")
    return 0 if replicas <= 0 else await _none_in(client, timeout / 1000 or math.inf)


async def _none_in(client: ClientState, seconds: float) -> int:
    """Wait as Redis does, for ever if so told: until the client goes."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not client.session.left:
        await asyncio.sleep(min(left, _LOOK_SECONDS))
    return 0
