"""INFO and what else a person or a monitor asks a server about itself; snapshots when asked; WAIT,
though there are no replicas."""

from __future__ import annotations

import asyncio
import math
import os
import platform
import resource
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bloomery import __version__, _native
from bloomery.service.access.permissions import User
from bloomery.service.config import machine
from bloomery.service.resp.arguments import integer, option, parse_integer
from bloomery.service.resp.client import ClientState
from bloomery.service.resp.handlers.bf_maintenance import facts_of
from bloomery.service.resp.replies import OK, Failure, TextReply
from bloomery.service.resp.table import command, help_command
from bloomery.service.slices import batches

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
        "process_supervised": "no",
        "run_id": _RUN_ID,
        "tcp_port": client.context.resp_address.rpartition(":")[2],
        "server_time_usec": int(time.time() * 1e6),
        "uptime_in_seconds": uptime,
        "uptime_in_days": uptime // 86400,
        "io_threads_active": 1,
    }


def _clients(client: ClientState, user: User) -> Facts:
    connections = client.clients.connections
    return {
        "connected_clients": len(connections),
        "cluster_connections": 0,
        "maxclients": client.context.settings.maxclients,
        "blocked_clients": sum(other.busy for other in connections.values()),
        "tracking_clients": 0,
    }


def _memory(client: ClientState, user: User) -> Facts:
    used, most = _native.memory_used(), client.context.settings.maxmemory
    rss, total, peak = _resident(), machine.memory(), client.clients.note_memory()
    return {
        "used_memory": used,
        "used_memory_human": _human(used),
        "used_memory_rss": rss,
        "used_memory_rss_human": _human(rss),
        "used_memory_peak": peak,
        "used_memory_peak_human": _human(peak),
        "total_system_memory": total,
        "total_system_memory_human": _human(total),
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
    received, refused, native, rare, hits, misses, expired = client.clients.figures()
    return {
        "total_connections_received": received,
        "total_commands_processed": native + rare,
        "instantaneous_ops_per_sec": client.clients.commands_per_second,
        "rejected_connections": refused,
        "expired_keys": expired,
        "evicted_keys": 0,
        "keyspace_hits": hits,
        "keyspace_misses": misses,
        "pubsub_channels": 0,
        "pubsub_patterns": 0,
        "tracking_total_keys": 0,
    }


def _replication(client: ClientState, user: User) -> Facts:
    """As of a master without replicas: each server and each node accepts writes."""
    return {
        "role": "master",
        "connected_slaves": 0,
        "master_failover_state": "no-failover",
        "master_replid": _RUN_ID,
        "master_replid2": "0" * 40,
        "master_repl_offset": 0,
        "second_repl_offset": -1,
        "repl_backlog_active": 0,
        "repl_backlog_size": 0,
        "repl_backlog_first_byte_offset": 0,
        "repl_backlog_histlen": 0,
    }


def _cpu(client: ClientState, user: User) -> Facts:
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)  # that wrote snapshots
    return {
        "used_cpu_sys": f"{own.ru_stime:.6f}",
        "used_cpu_user": f"{own.ru_utime:.6f}",
        "used_cpu_sys_children": f"{children.ru_stime:.6f}",
        "used_cpu_user_children": f"{children.ru_utime:.6f}",
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
    _, _, native, rare, *_ = client.clients.figures()
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
    "Replication": _replication,
    "CPU": _cpu,
    "Modules": _modules,
    "Cluster": _cluster,
    "Keyspace": _keyspace,
    "Bloomery": _own,
    "Store": _store,
}


# Of modules: these go through all filters, so only INFO with their names has them.
_BLOOM_CORE, _BLOOM_DEFRAG = "bf_bloom_core_metrics", "bf_bloom_defrag_metrics"
_OF_MODULE = {"BF", "MODULES", "EVERYTHING"}


async def _bloom_sections(client: ClientState, user: User, wanted: set[str]) -> dict[str, Facts]:
    """Return the sections of valkey-bloom, about the filters of BF commands that the user may know
    of."""
    sections: dict[str, Facts] = {}
    if wanted & {*_OF_MODULE, _BLOOM_CORE.upper()}:
        sections[_BLOOM_CORE] = await _bloom_totals(client, user)
    if wanted & {*_OF_MODULE, _BLOOM_DEFRAG.upper()}:
        sections[_BLOOM_DEFRAG] = {"bf_bloom_defrag_hits": 0, "bf_bloom_defrag_misses": 0}
    return sections


async def _bloom_totals(client: ClientState, user: User) -> Facts:
    names, state = client.context.commands.listing.visible(user), client.context.engine.state
    memory = filters = objects = items = capacity = 0
    async for some in batches(names):
        for name in some:
            entry = state.names.get(name)
            if entry is None or entry.settings.get("door", "bf") != "bf":
                continue
            state.count(entry)
            facts = facts_of(entry)
            objects += 1
            memory += facts["Size"]
            filters += facts["Number of filters"]
            items += facts["Number of items inserted"]
            capacity += facts["Capacity"]
    return {
        "bf_bloom_total_memory_bytes": memory,
        "bf_bloom_num_objects": objects,
        "bf_bloom_num_filters_across_objects": filters,
        "bf_bloom_num_items_across_objects": items,
        "bf_bloom_capacity_across_objects": capacity,
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
    sections = {
        name: tell(client, client.user)
        for name, tell in _SECTIONS.items()
        if everything or name.upper() in wanted
    }
    if not sections.get("Store", True):
        del sections["Store"]
    sections |= await _bloom_sections(client, client.user, wanted)
    parts = []
    for name, facts in sections.items():
        lines = [
            f"{key}:{_line(value)}\r\n"
            for key, value in facts.items()
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


@command("WAIT", "numreplicas timeout", group="generic", does="session")
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
