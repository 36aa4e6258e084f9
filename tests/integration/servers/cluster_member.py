"""One node of a Redis Cluster for the tests, and what it knows of the others."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import redis

from integration.servers.redis_server import RedisServer

# Milliseconds without an answer after which a node is held to be down: Redis's own is 15 seconds.
NODE_TIMEOUT = 1000
ALL = 1_000_000  # keys of a slot

Key = str | bytes


@dataclass(frozen=True)
class Known:
    """What a node knows of one of them."""

    flags: frozenset[str]
    slots: list[str]

    def has(self, slot: int) -> bool:
        """Whether it has a slot."""
        ranges = [one.partition("-") for one in self.slots]
        return any(int(first) <= slot <= int(last or first) for first, _, last in ranges)


class ClusterMember(RedisServer):
    """One node; what it knows of the others is in `nodes.conf` in its folder."""

    def __init__(self, folder: Path, port: int, bus: int) -> None:
        super().__init__(
            folder,
            port=port,
            cluster_enabled="yes",
            # Its own and not port + 10000, which may be somebody's or past 65535.
            cluster_port=str(bus),
            cluster_config_file="nodes.conf",
            cluster_node_timeout=str(NODE_TIMEOUT),
            # A replica takes over whenever it can, and stays with its master's part.
            cluster_replica_validity_factor="0",
            cluster_allow_replica_migration="no",
        )
        self.id = secrets.token_hex(20)
        self.bus = bus

    def known(self) -> dict[int, Known]:
        """All nodes as this one sees them, by port; none while it does not answer."""
        try:
            text = self.run("CLUSTER", "NODES").decode()
        except redis.RedisError:
            return {}
        # id host:port@bus flags of ping pong epoch link slots…; [slot->-id] is one on its way.
        rows = [line.split() for line in text.splitlines()]
        return {
            int(row[1].partition("@")[0].rpartition(":")[2]): Known(
                frozenset(row[2].split(",")), [one for one in row[8:] if one[0] != "["]
            )
            for row in rows
        }

    def moving(self) -> list[int]:
        """The slots that are on their way from or to this one."""
        text = self.run("CLUSTER", "NODES").decode()
        return [int(slot) for slot in re.findall(r"\[(\d+)-", text)]

    def settled(self, size: int) -> bool:
        """Whether it finds all slots served, and nobody of so many failing."""
        known = self.known()
        failing = any("fail" in flag for one in known.values() for flag in one.flags)
        return len(known) == size and not failing and self.serves()

    def serves(self) -> bool:
        """Whether it finds every slot served."""
        return b"cluster_state:ok" in self.ask(b"CLUSTER INFO\r\n")

    def send(self, keys: int | Iterable[Key], to: ClusterMember) -> None:
        """Keys, or all those of a slot, to another node, whose they are from then on."""
        found = self.run("CLUSTER", "GETKEYSINSLOT", keys, ALL) if isinstance(keys, int) else keys
        if moved := list(found):
            self.run("MIGRATE", *to.address, "", 0, 30_000, "KEYS", *moved)
