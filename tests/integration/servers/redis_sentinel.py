"""Redis with Sentinel for the tests: a master, two replicas, three who watch them."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import redis
import redis.sentinel

from integration.servers.process import free_ports
from integration.servers.redis_server import RedisServer
from waiting import wait_until

NAME = "bloomery"
# Milliseconds of silence after which a server is held to be down: Sentinel's own is 30 seconds.
DOWN_AFTER = 500
FAILOVER_TIMEOUT = 3000


class Watcher(RedisServer):
    """One Sentinel: a redis-server in that mode, which writes what it learns to its own file."""

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__(folder, port=port)
        self.id = secrets.token_hex(20)

    def command(self) -> list[str]:
        return ["redis-server", str(self.folder / "sentinel.conf"), "--sentinel"]

    def master_port(self) -> int:
        """Whom it tells clients to ask; 0 for nobody."""
        try:
            found = self.run("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
        except redis.RedisError:
            return 0
        return int(found[1]) if found else 0


class Sentinel:
    """Six processes on loopback. The watchers begin from files that name all of them: to find each
    other by the master's channel takes them several seconds."""

    name = NAME

    def __init__(self, folder: Path) -> None:
        for number in range(6):
            (folder / f"node-{number}").mkdir()
        ports = free_ports(6)
        master = RedisServer(folder / "node-0", port=ports[0])
        replicas = [
            RedisServer(folder / f"node-{number}", port=ports[number], replica_of=master)
            for number in (1, 2)
        ]
        self.servers = [master, *replicas]
        self.watchers = [Watcher(folder / f"node-{number}", ports[number]) for number in (3, 4, 5)]
        for watcher in self.watchers:
            (watcher.folder / "sentinel.conf").write_text(self._known_to(watcher))

    def _known_to(self, one: Watcher) -> str:
        master, *replicas = self.servers
        others = [watcher for watcher in self.watchers if watcher is not one]
        lines = [
            f"port {one.port}",
            "bind 127.0.0.1",
            f"dir {one.folder}",
            f"sentinel myid {one.id}",
            f"sentinel monitor {NAME} 127.0.0.1 {master.port} 2",
            f"sentinel down-after-milliseconds {NAME} {DOWN_AFTER}",
            f"sentinel failover-timeout {NAME} {FAILOVER_TIMEOUT}",
            *(f"sentinel known-replica {NAME} 127.0.0.1 {server.port}" for server in replicas),
            *(f"sentinel known-sentinel {NAME} 127.0.0.1 {two.port} {two.id}" for two in others),
        ]
        return "\n".join([*lines, ""])

    # ---- its life

    def start(self) -> None:
        """Start those that do not run, and return when all is well.

        After a failover the old master comes back as a replica: told so at once, and not by the
        watchers, who take ten seconds.
        """
        master = self.master
        for one in (*self.servers, *self.watchers):
            if not one.running:
                if master is not None and one in self.servers:
                    one.replica_of = master
                one.start()
        self.wait()

    def wait(self) -> None:
        """Return when the replicas follow the master, and the watchers agree on all of it."""
        assert wait_until(self._well), [one.printed()[-2000:] for one in self.watchers]

    def _well(self) -> bool:
        master = self.master
        if master is None:
            return False
        replicas = [one for one in self.servers if one.running and one is not master]
        return all(one.follows(master) for one in replicas) and all(
            self._seen_by(watcher, len(replicas)) for watcher in self.watchers
        )

    def _seen_by(self, watcher: Watcher, replicas: int) -> bool:
        try:
            watcher.run("SENTINEL", "CKQUORUM", NAME)
            told = watcher.run("SENTINEL", "REPLICAS", NAME)
        except redis.RedisError:
            return False
        well = [one for one in told if one[b"flags"] == b"slave"]  # and not also s_down
        return len(well) >= replicas

    def close(self) -> None:
        """End all of them."""
        for one in (*self.watchers, *self.servers):
            one.kill()

    def restore(self) -> None:
        """As it was at first, but for who is the master: all run, and there is no key."""
        for one in (*self.servers, *self.watchers):
            one.thaw()
        self.start()
        assert self.master is not None
        self.master.run("FLUSHALL")

    # ---- who is who

    @property
    def master(self) -> RedisServer | None:
        """Whom all watchers name, if it runs and is one."""
        ports = {watcher.master_port() for watcher in self.watchers if watcher.running}
        if len(ports) != 1:
            return None
        found = [one for one in self.servers if one.port in ports and one.running]
        return found[0] if found and found[0].is_master() else None

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Of the watchers, as clients are given them."""
        return [watcher.address for watcher in self.watchers]

    def client(self, **options: Any) -> Any:
        """redis-py's Sentinel, which has no types: `client().master_for(name)` is the master."""
        made: Any = redis.sentinel.Sentinel
        return made(self.addresses, socket_timeout=30, **options)

    # ---- what can happen

    def fail_over(self) -> RedisServer:
        """`kill -9` the master; return the replica that all watchers name instead, once it takes
        writes: in two to five seconds. The old one stays down until `start`."""
        old = self.master
        assert old is not None, "there is no master"
        old.kill()
        assert wait_until(lambda: self.master is not None), [
            one.printed()[-2000:] for one in self.watchers
        ]
        new = self.master
        assert new is not None
        return new
