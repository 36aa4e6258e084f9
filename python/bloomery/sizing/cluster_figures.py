"""What nodes, Redis and HAProxy can do: the figures that `cluster` computes with.

Measured on one machine (AMD EPYC, 2 virtual cores, 25 GB, Linux 6.18, Python 3.11, Redis 7.0,
HAProxy 2.6) by the benchmark that is named; `make figures` writes them here from its results.
Another machine has others. docs/scaling.md has all as a table.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Figures:
    """Times are of a processor, in microseconds; `request`: of each, `key`: of each key in it."""

    request_us: float = 10.5
    key_us: float = 0.0744
    follow_request_us: float = 22.8
    follow_key_us: float = 0.14
    write_key_us: float = 1.94
    redis_request_us: float = 7.36
    redis_key_us: float = 3.14
    redis_ask_us: float = 7.37
    redis_check_us: float = 1.3
    balancer_request_us: float = 23.7
    sent_key_bytes: float = 238.0
    stream_entry_bytes: float = 100.0
    stream_key_bytes: float = 8.0
    kept_entry_bytes: float = 41.0
    node_bytes: float = 104e6
    redis_factor: float = 1.25
    load_bytes_a_second: float = 297e6
    lag_seconds: float = 0.00888
    busy: float = 0.7

    def check_us(self, batch: int) -> float:
        """Of a node, for one key of a request of so many."""
        return self.request_us / batch + self.key_us

    def follow_us(self, batch: int) -> float:
        """Of every node, for one key that any of them was given."""
        return self.follow_request_us / batch + self.follow_key_us

    def redis_us(self, batch: int) -> float:
        """Of the master of its bits, for one key that is added."""
        return self.redis_request_us / batch + self.redis_key_us

    def shared_us(self, batch: int) -> float:
        """Of the master of its bits, for one key that is checked there."""
        return self.redis_ask_us / batch + self.redis_check_us

    def stream_bytes(self, batch: int) -> float:
        """On the way to each node, for one key that is added."""
        return self.stream_entry_bytes / batch + self.stream_key_bytes

    def kept_bytes(self, batch: int) -> float:
        """Of an entry of so many keys, in the stream."""
        return self.kept_entry_bytes + self.stream_key_bytes * batch


FIGURES = Figures()

# What each is, and what measured it.
SOURCES = {
    "request_us": ("a node: a request to check, without a pipeline", "bench-service, BF.EXISTS"),
    "key_us": ("and each key in it", "bench-service, BF.MEXISTS of 100"),
    "follow_request_us": ("each node: a write, anywhere", "bench-cluster, lag, one at once"),
    "follow_key_us": ("and each key in it", "bench-cluster, costs, BF.MADD"),
    "write_key_us": (
        "the node that is given the key, in addition",
        "bench-cluster, costs, BF.MADD",
    ),
    "redis_request_us": ("Redis: a write", "bench-cluster, lag, one at once"),
    "redis_key_us": ("and each key in it", "bench-cluster, costs, BF.MADD"),
    "redis_ask_us": ("Redis: a request to check there", "bench-service, PING"),
    "redis_check_us": (
        "and each key in it",
        "redis-benchmark, GETRANGE of 64 bytes: 788,000/s a core",
    ),
    "balancer_request_us": ("HAProxy: a request", "bench-cluster, checks, redis-benchmark"),
    "sent_key_bytes": ("a key on its way to Redis", "bench-cluster, costs"),
    "stream_entry_bytes": (
        "an entry of the stream on its way to a node",
        "by the protocol, at most",
    ),
    "stream_key_bytes": ("and each key in it: its hash", "by the format"),
    "kept_entry_bytes": ("an entry in Redis's memory, without its keys", "bench-cluster, costs"),
    "node_bytes": ("a node, beside its filters", "bench-service, memory"),
    "redis_factor": ("Redis's memory to the bits, at most", "size classes of its allocator"),
    "load_bytes_a_second": ("bits from Redis into a node that starts", "bench-cluster, loading"),
    "lag_seconds": ("a write, until the others know: p99", "bench-cluster, lag"),
    "busy": ("how busy a core may be", "chosen: beyond it queues grow"),
}

assert set(SOURCES) == {one.name for one in fields(Figures)}
