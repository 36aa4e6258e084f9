"""A Redis Cluster for the tests: three masters, a replica of each, and what can happen to them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from redis.cluster import ClusterNode
from redis.cluster import RedisCluster as ClusterClient
from redis.crc import key_slot

from integration.servers.cluster_member import ClusterMember, Key
from integration.servers.process import free_ports
from waiting import wait_until

SLOTS = 16_384
MASTERS = 3


class RedisCluster:
    """Six nodes on loopback. They begin from `nodes.conf` files that name all of them, so that no
    time goes into their meeting: up in two seconds."""

    def __init__(self, folder: Path) -> None:
        ports = free_ports(4 * MASTERS)
        self.nodes: list[ClusterMember] = []
        for number in range(2 * MASTERS):
            own = folder / f"node-{number}"
            own.mkdir()
            self.nodes.append(ClusterMember(own, *ports[2 * number : 2 * number + 2]))
        for node in self.nodes:
            (node.folder / "nodes.conf").write_text(self._known_to(node))

    def _known_to(self, one: ClusterMember) -> str:
        """What Redis itself writes of a settled cluster; the first three are the masters."""
        lines = []
        for number, node in enumerate(self.nodes):
            place = number % MASTERS
            myself = "myself," if node is one else ""
            flags, of, slots = "slave", self.nodes[place].id, ""
            if number < MASTERS:
                flags, of = "master", "-"
                slots = f" {SLOTS * place // MASTERS}-{SLOTS * (place + 1) // MASTERS - 1}"
            at = f"127.0.0.1:{node.port}@{node.bus}"
            lines.append(f"{node.id} {at} {myself}{flags} {of} 0 0 {place + 1} connected{slots}")
        return "\n".join([*lines, f"vars currentEpoch {MASTERS} lastVoteEpoch 0", ""])

    # ---- its life

    def start(self) -> None:
        """Start those nodes that do not run, and return when all is well."""
        down = [node for node in self.nodes if not node.running]
        for node in down[1:]:
            node.spawn()
        for node in down[:1]:
            node.start()
        for node in down[1:]:
            if not wait_until(node.ready):
                node.kill()
                node.start()
        self.wait()

    def wait(self) -> None:
        """Return when every node that runs finds every slot served and those that run well, and
        every replica has all that its master had."""
        running = [node for node in self.nodes if node.running]
        assert wait_until(
            lambda: all(node.settled(len(self.nodes)) for node in running) and self._followed()
        ), [node.known() for node in running]

    def _followed(self) -> bool:
        masters = self.masters()
        replicas = [node for node in self.nodes if node.running and node not in masters]
        return len(masters) == MASTERS and all(
            any(node.follows(master) for master in masters) for node in replicas
        )

    def close(self) -> None:
        """End all of them."""
        for node in self.nodes:
            node.kill()

    def restore(self) -> None:
        """As it was at first, but for who is a master: all run, nobody has a key."""
        for node in self.nodes:
            node.thaw()
        self.start()
        for master in self.masters():
            master.run("FLUSHALL")
            for slot in master.moving():
                master.run("CLUSTER", "SETSLOT", slot, "STABLE")

    # ---- who is who

    def masters(self) -> list[ClusterMember]:
        """Those that run and have slots, by what the others say of them."""
        return [node for node in self.nodes if node.running and node.is_master()]

    def master_of(self, key: Key) -> ClusterMember:
        """Who answers for a key."""
        return self._owner(key_slot(_bytes(key)))

    def _owner(self, slot: int) -> ClusterMember:
        known = self._anyone().known()
        # One that is down keeps its slots in its name until another has taken them.
        return self.at(next(port for port, one in known.items() if one.has(slot)))

    def at(self, port: int) -> ClusterMember:
        """The node that has this port."""
        return next(node for node in self.nodes if node.port == port)

    def _anyone(self) -> ClusterMember:
        return next(node for node in self.nodes if node.running)

    def replicas_of(self, master: ClusterMember) -> list[ClusterMember]:
        """Those that run and follow it."""
        return [node for node in self.nodes if node.running and node.follows(master)]

    def client(self, **options: Any) -> ClusterClient:
        """A client that knows one half of the nodes; to be closed."""
        node_at: Any = ClusterNode  # which has no types
        known = [node_at(*node.address) for node in self.nodes if node.running][:MASTERS]
        return ClusterClient(startup_nodes=known, **options)

    @property
    def url(self) -> str:
        """Of one of its nodes that runs."""
        return self._anyone().url

    # ---- what can happen

    def fail(self, master: ClusterMember) -> ClusterMember:
        """`kill -9` a master; return the replica that took over, when all know it: in about two
        seconds."""
        heirs = self.replicas_of(master)
        assert heirs, "it has no replica"
        master.kill()
        assert wait_until(lambda: any(heir.is_master() for heir in heirs)), "nobody took over"
        heir = next(heir for heir in heirs if heir.is_master())
        running = [node for node in self.nodes if node.running]
        assert wait_until(lambda: all(_knows(node, heir) for node in running))
        return heir

    def restart(self, node: ClusterMember) -> None:
        """Start one that was killed, and return when it is whole and all know it."""
        node.start()
        self.wait()

    def begin_move(
        self, key: Key, to: ClusterMember, keys: Iterable[Key] | None = None
    ) -> ClusterMember:
        """Half of moving a key's slot: its keys (or only those given) are there, and the slot is
        not. Who asks for one of them is told ASK, for two that are apart TRYAGAIN. Whose it was."""
        slot = key_slot(_bytes(key))
        source = self._owner(slot)
        assert source is not to, "it is there already"
        to.run("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.run("CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)
        source.send(slot if keys is None else keys, to)
        return source

    def finish_move(self, key: Key, to: ClusterMember) -> None:
        """The other half: the slot is there too. Who asks elsewhere is told MOVED."""
        slot = key_slot(_bytes(key))
        source = self._owner(slot)
        source.send(slot, to)
        # The new owner first: who asks in between is sent there, and not in a circle.
        for node in (to, *(one for one in self.masters() if one is not to)):
            node.run("CLUSTER", "SETSLOT", slot, "NODE", to.id)
        assert wait_until(lambda: self._owner(slot) is to)

    def move_slot(self, key: Key, to: ClusterMember) -> None:
        """All of it."""
        self.begin_move(key, to)
        self.finish_move(key, to)


def _bytes(key: Key) -> bytes:
    return key if isinstance(key, bytes) else key.encode()


def _knows(node: ClusterMember, master: ClusterMember) -> bool:
    """Whether a node finds all slots served, and this one a master."""
    found = node.known().get(master.port)
    return found is not None and bool(found.slots) and node.serves()
