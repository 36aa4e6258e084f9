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

    request_us: float = 7.72
    key_us: float = 0.0275
    follow_request_us: float = 7.07
    follow_key_us: float = 0.158
    write_request_us: float = 28.5
    write_key_us: float = 0.104
    redis_request_us: float = 7.62
    redis_key_us: float = 0.117
    redis_ask_us: float = 7.74
    redis_check_us: float = 1.3
    redis_set_us: float = 3.14
    balancer_request_us: float = 11.5
    stream_entry_bytes: float = 130.0
    stream_key_bytes: float = 8.0
    kept_entry_bytes: float = 88.2
    node_bytes: float = 98.8e6
    redis_factor: float = 1.25
    load_bytes_a_second: float = 590e6
    lag_seconds: float = 0.00875
    busy: float = 0.7

    def check_us(self, batch: int) -> float:
        """Of a node, for one key of a request of so many."""
        return self.request_us / batch + self.key_us

    def follow_us(self, batch: int) -> float:
        """Of every node, for one key that any of them was given."""
        return self.follow_request_us / batch + self.follow_key_us

    def write_us(self, batch: int) -> float:
        """Of the node that is given one key of a request of so many to add, in addition."""
        return self.write_request_us / batch + self.write_key_us

    def redis_us(self, batch: int) -> float:
        """Of Redis, for one key that is added: its part of an entry of the log."""
        return self.redis_request_us / batch + self.redis_key_us

    def asked_us(self, batch: int) -> float:
        """Of the master of its bits, for one key that a `RedisFilter` checks."""
        return self.redis_ask_us / batch + self.redis_check_us

    def set_us(self, batch: int) -> float:
        """Of the master of its bits, for one key that a `RedisFilter` adds."""
        return self.redis_ask_us / batch + self.redis_set_us

    def stream_bytes(self, batch: int) -> float:
        """On the way to each node, for one key that is added."""
        return self.stream_entry_bytes / batch + self.stream_key_bytes


FIGURES = Figures()

# What each is, and what measured it.
SOURCES = {
    "request_us": ("a node: a request to check, without a pipeline", "bench-service, BF.EXISTS"),
    "key_us": ("and each key in it", "bench-service, BF.MEXISTS of 100"),
    "follow_request_us": ("each node: an entry of the log", "bench-cluster, costs, BF.ADD"),
    "follow_key_us": ("and each key in it, at most", "bench-cluster, costs, BF.MADD"),
    "write_request_us": (
        "the node that is given a write, in addition",
        "bench-cluster, costs, BF.ADD, 50 connections",
    ),
    "write_key_us": ("and each key in it", "bench-cluster, costs, BF.MADD"),
    "redis_request_us": ("Redis: an entry of the log", "bench-cluster, costs, BF.ADD"),
    "redis_key_us": ("and each key in it", "bench-cluster, costs, BF.MADD"),
    "redis_ask_us": ("Redis: a request of a RedisFilter", "bench-service, PING"),
    "redis_check_us": (
        "and each key that is checked",
        "redis-benchmark, GETRANGE of 64 bytes: 788,000/s a core",
    ),
    "redis_set_us": ("and each key that is added", "bench-cluster of 2026-11-16, costs, BF.MADD"),
    "balancer_request_us": ("HAProxy: a request", "bench-cluster, checks, redis-benchmark"),
    "stream_entry_bytes": (
        "an entry of the log on its way to a node",
        "by the protocol and the format, at most",
    ),
    "stream_key_bytes": ("and each key in it: its hash", "by the format"),
    "kept_entry_bytes": ("an entry in Redis's memory, without its keys", "MEMORY USAGE"),
    "node_bytes": ("a node, beside its filters", "bench-service, memory"),
    "redis_factor": ("Redis's memory to a snapshot, at most", "MEMORY USAGE of a chunk"),
    "load_bytes_a_second": (
        "a snapshot from Redis into a node that starts",
        "bench-cluster, loading",
    ),
    "lag_seconds": ("a write, until the others know: p99", "bench-cluster, lag"),
    "busy": ("how busy a core may be", "chosen: beyond it queues grow"),
}

assert set(SOURCES) == {field.name for field in fields(Figures)}
