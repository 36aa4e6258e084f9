"""How many nodes, masters and bytes so many keys and requests take, and where that ends.

Pure maths, from the figures of `cluster_figures`; docs/scaling.md works it through. The parts:

    keys  -> bits: every node has all of its group's, Redis has snapshots of them
    checks -> nodes: each answers its share from its copy, on one core
    writes -> every node follows all of them; one master of Redis has the log
    groups: where a node or that master cannot hold or follow all, keys are split by hash, each
        group with nodes and a master of its own
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from bloomery.errors import InvalidParameter
from bloomery.sizing.blocked import LINE_BYTES
from bloomery.sizing.bloom import plan
from bloomery.sizing.cluster_figures import FIGURES, Figures
from bloomery.sizing.limits import number, show

STREAM_BYTES = 64 << 20  # a node's setting store-stream-bytes, unless it is given
UNIT = 512  # bytes: each entry of the log counts as a multiple of that
SNAPSHOTS = 3  # in Redis: two, and one that is being written
REPLAYED_SECONDS = 60  # a node's setting store-replay-seconds
REPLAYED_BYTES = 400  # of an entry that is kept so long, beside its keys
FOLLOWING = 0.5  # of what a core may do: the most that goes to following writes
MOST_GROUPS = 100_000


@dataclass(frozen=True, slots=True)
class Limit:
    """Something that runs out: how much of it is used, and what to do then."""

    what: str
    used: float
    most: float
    then: str

    @property
    def share(self) -> float:
        """1 is where it breaks."""
        return self.used / self.most if self.most > 0 else math.inf


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What it takes. Figures without `all_` are of one group; there is mostly but one."""

    capacity: int
    error_rate: float
    checks: float
    writes: float
    batch: int
    nbytes: int  # of bits, in all
    groups: int
    group_nbytes: int
    nodes: int  # one of them to spare
    node_nbytes: int
    redis_nbytes: int
    stream_bytes: int  # what store-stream-bytes should be
    stream_bytes_a_second: float  # to each node
    stream_bytes_out: float  # of Redis, in all
    load_seconds: float  # of one node
    load_all_seconds: float  # if all come at once
    all_nodes: int
    balancer_cores: float
    shared_masters: int  # of a RedisFilter: nobody has a copy, and all checks go to Redis
    limits: tuple[Limit, ...]

    def as_dict(self) -> dict[str, Any]:
        """Every figure by name, ready for JSON."""
        limits = [{**asdict(limit), "share": limit.share} for limit in self.limits]
        return {**asdict(self), "limits": limits}


def plan_cluster(
    capacity: int | float,
    error_rate: float = 0.01,
    *,
    checks: float = 0,
    writes: float = 0,
    batch: int = 1,
    layout: str = "blocked",
    memory_per_node: float = 64e9,
    memory_per_master: float = 64e9,
    network: float = 1.25e9,
    figures: Figures = FIGURES,
) -> ClusterPlan:
    """Plan nodes for so many keys, and so many keys checked and added a second.

    `batch`: keys of a request, or of requests that come at the same moment. `network`: bytes a
    second that a machine can send.
    """
    rates = {"checks": checks, "writes": writes}
    sizes = {"batch": batch, "memory_per_node": memory_per_node}
    sizes |= {"memory_per_master": memory_per_master, "network": network}
    for name, value in {**rates, **sizes}.items():
        _require(name, value, 0 if name in rates else 1)
    nbytes = plan(capacity, error_rate, layout=layout).nbytes
    room = memory_per_node - figures.node_bytes
    if room < LINE_BYTES:
        raise InvalidParameter(
            f"memory_per_node is {memory_per_node:,.0f} bytes, of which a node takes "
            f"{figures.node_bytes:,.0f} without any filter: give it more"
        )
    task = _Task(
        *(capacity, error_rate, nbytes, checks, writes, int(batch)),
        *(memory_per_node, memory_per_master, network),
    )
    groups = max(1, math.ceil(nbytes / room))
    while True:
        cluster = _planned(task, groups, figures)
        if groups >= MOST_GROUPS or all(limit.share <= 1 for limit in cluster.limits):
            return cluster
        groups += max(1, groups // 20)


def _require(name: str, value: object, least: float) -> None:
    given = number(value)
    if given is None or not least <= given < math.inf:
        raise InvalidParameter(f"{name} must be a number from {least:g} up, not {show(value)}")


@dataclass(frozen=True, slots=True)
class _Task:
    capacity: int | float
    error_rate: float
    nbytes: int
    checks: float
    writes: float
    batch: int
    memory_per_node: float
    memory_per_master: float
    network: float


def _planned(task: _Task, groups: int, figures: Figures) -> ClusterPlan:
    batch, nbytes = task.batch, math.ceil(task.nbytes / groups)
    checks, writes = task.checks / groups, task.writes / groups
    core = figures.busy * 1e6  # microseconds a second
    following = writes * figures.follow_us(batch)
    asked = checks * figures.check_us(batch) + writes * figures.write_us(batch)
    nodes = math.ceil(asked / max(core - following, core * (1 - FOLLOWING))) + 1

    rate = min(figures.load_bytes_a_second, task.network)
    load = nbytes / rate
    load_all = nodes * load  # one Redis sends to all
    # Two snapshots later the log begins behind the first: a node that still loads it begins again.
    entry_nbytes = UNIT * (1 + figures.stream_key_bytes * batch // UNIT)
    stream = max(STREAM_BYTES, nbytes // 2, math.ceil(writes / batch * entry_nbytes * load_all))
    redis_nbytes = math.ceil(SNAPSHOTS * nbytes * figures.redis_factor + 2 * stream)
    to_each = writes * figures.stream_bytes(batch)
    kept = REPLAYED_BYTES / batch + figures.stream_key_bytes
    replayed = writes / nodes * REPLAYED_SECONDS * kept
    # A node that has to load again keeps its copy until it has the new one. While a snapshot is
    # written it needs less: the pages that change.
    node_nbytes = math.ceil(2 * nbytes + figures.node_bytes + replayed)
    limits = (
        Limit("memory of a node", node_nbytes, task.memory_per_node, "larger nodes, more groups"),
        Limit("memory of Redis", redis_nbytes, task.memory_per_master, "larger ones, more groups"),
        Limit(
            "a node's core, following",
            following,
            core * FOLLOWING,
            "larger batches, more groups",
        ),
        Limit(
            "Redis's core, writes",
            writes * figures.redis_us(batch),
            core,
            "larger batches, more groups",
        ),
        Limit(
            "network of Redis",
            to_each * nodes,
            task.network * figures.busy,
            "larger batches, more groups",
        ),
    )
    return ClusterPlan(
        capacity=int(task.capacity),
        error_rate=task.error_rate,
        checks=task.checks,
        writes=task.writes,
        batch=batch,
        nbytes=task.nbytes,
        groups=groups,
        group_nbytes=nbytes,
        nodes=nodes,
        node_nbytes=node_nbytes,
        redis_nbytes=redis_nbytes,
        stream_bytes=stream,
        stream_bytes_a_second=to_each,
        stream_bytes_out=to_each * nodes,
        load_seconds=load,
        load_all_seconds=load_all,
        all_nodes=nodes * groups,
        balancer_cores=task.checks / batch * figures.balancer_request_us / core,
        shared_masters=_shared(task, figures),
        limits=limits,
    )


def _shared(task: _Task, figures: Figures) -> int:
    """How many masters a `RedisFilter` takes, which has all bits there and no copies."""
    used = task.checks * figures.asked_us(task.batch) + task.writes * figures.set_us(task.batch)
    by_memory = task.nbytes * figures.redis_factor / task.memory_per_master
    return max(1, math.ceil(used / (figures.busy * 1e6)), math.ceil(by_memory))
