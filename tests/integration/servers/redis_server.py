"""Debian's redis-server for the tests: alone, with a password, with TLS, full, or a replica."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from conftest import missing
from integration.servers.process import Server, free_port
from unit.service.certificates import Pairs
from waiting import PATIENCE, wait_until

# In memory only. Replication begins at once, and a server that is stopped waits for no replica:
# Redis's own figures are 5 and 10 seconds.
_SETTINGS = {
    "save": "",
    "appendonly": "no",
    "repl-diskless-sync-delay": "0",
    "repl-ping-replica-period": "1",
    "shutdown-timeout": "0",
}


class RedisServer(Server):
    """A redis-server, with its data in memory only unless the settings say otherwise.

    Settings are those of redis.conf, with `_` for `-`:

        RedisServer(folder, appendonly="yes", appendfsync="always")
        RedisServer(folder, maxmemory="3mb", maxmemory_policy="noeviction")
        RedisServer(folder, password="secret", tls=pairs)
        RedisServer(folder, replica_of=another)

    It has the same port and folder for all of its life: `kill()` and `start()` bring it back.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        password: str = "",
        tls: Pairs | None = None,
        replica_of: RedisServer | None = None,
        **settings: str,
    ) -> None:
        super().__init__(folder)
        if shutil.which("redis-server") is None:
            missing("redis-server (scripts/servers installs it)")
        self.port = port or free_port()
        self.password = password
        self.tls = tls
        self.replica_of = replica_of
        self.settings = {name.replace("_", "-"): value for name, value in settings.items()}
        self._pair = tls.make(f"redis-{self.port}") if tls else None

    def options(self) -> Mapping[str, str]:
        """The settings that it is started with."""
        found = {"bind": "127.0.0.1", "dir": str(self.folder), "port": str(self.port), **_SETTINGS}
        if self._pair:
            found |= {"port": "0", "tls-port": str(self.port), "tls-auth-clients": "no"}
            found |= {"tls-cert-file": self._pair[0], "tls-key-file": self._pair[1]}
        if self.password:
            found |= {"requirepass": self.password, "masterauth": self.password}
        if self.replica_of:
            found["replicaof"] = f"127.0.0.1 {self.replica_of.port}"
        return found | self.settings

    def command(self) -> list[str]:
        flags = [
            part
            for name, value in self.options().items()
            for part in (f"--{name}", *(value.split() or [""]))
        ]
        return ["redis-server", *flags]

    def ready(self) -> bool:
        """Whether it answers, with all that it had on disk."""
        with self.client() as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False

    def client(self, **options: Any) -> redis.Redis:
        """A client that may use it, and tries once; to be closed."""
        plain: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": self.port,
            "password": self.password or None,
            "socket_timeout": 30,
            "retry": Retry(NoBackoff(), 0),
        }
        if self.tls:
            plain |= {"ssl": True, "ssl_ca_certs": self.tls.trust()}
        return redis.Redis(**plain | options)

    def run(self, *command: Any) -> Any:
        """The reply to one command, by a connection of its own."""
        with self.client() as client:
            return client.execute_command(*command)

    def ask(self, command: bytes) -> bytes:
        """The start of the reply to one command in plain bytes; b"" if there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(command)
                return connection.recv(65_536)
        except OSError:
            return b""

    @property
    def url(self) -> str:
        """As people write it; of a server with TLS, the client also needs the root."""
        user = f":{self.password}@" if self.password else ""
        return f"redis{'s' if self.tls else ''}://{user}127.0.0.1:{self.port}/0"

    @property
    def address(self) -> tuple[str, int]:
        """Its host and port."""
        return "127.0.0.1", self.port

    @property
    def running(self) -> bool:
        """Whether it was started, and neither stopped, killed nor frozen since."""
        return self.process is not None and not self.frozen

    def info(self, section: str) -> dict[str, Any]:
        """What INFO says of a section; nothing while it does not answer."""
        with self.client() as client:
            try:
                found: dict[str, Any] = client.info(section)
            except redis.RedisError:
                return {}
            return found

    def is_master(self) -> bool:
        """Whether it takes writes itself."""
        return self.info("replication").get("role") == "master"

    def follows(self, master: RedisServer) -> bool:
        """Whether it is a replica of that one, and has all that was there when it began."""
        found = self.info("replication")
        return (found.get("master_port"), found.get("master_link_status")) == (master.port, "up")

    def wait_for_replicas(self, count: int) -> None:
        """Return when so many have all that this one has."""
        with self.client() as client:
            assert wait_until(lambda: int(client.wait(count, 1000)) >= count, PATIENCE)


# What the fixture `start_redis` gives: options of RedisServer.
StartRedis = Callable[..., RedisServer]
