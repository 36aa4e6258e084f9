"""What a cluster consists of: redis-server, nodes, and HAProxy in front of them, on loopback."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from bloomery import errors
from bloomery.cli.trial.process import ManagedProcess, Tell, environment

HOST = "127.0.0.1"
# The one that people are given as deploy/haproxy.cfg, as it stands.
CONFIGURATION = Path(__file__).with_name("haproxy.cfg")
_BACKLOG = 1024
_READY = re.compile(r"bloomery ready: resp=\S+:(\d+) http=\S+:(\d+) ")
_SECOND = 1.0


def program(name: str, package: str, instead: str = "") -> str:
    """Return where a program is; MissingExtra says which package of Debian's has it."""
    # Debian has HAProxy where only root looks.
    places = [os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin"]
    path = shutil.which(name, path=os.pathsep.join(places))
    if path is None:
        raise errors.MissingExtra(
            f"the cluster needs {name}, which is not installed: apt-get install {package}{instead}"
        )
    return os.path.abspath(path)


def bound(port: int, option: str) -> socket.socket:
    """Return a socket that listens at a port of loopback; with 0, at any that is free."""
    try:
        return socket.create_server((HOST, port), backlog=_BACKLOG)
    except OSError as problem:
        why = os.strerror(problem.errno) if problem.errno else str(problem)
        raise OSError(
            problem.errno, f"cannot serve at {HOST}:{port}: {why}; {option} 0 takes any free port"
        ) from None


def _answer(port: int) -> bytes:
    """What a server of the Redis protocol says to PING."""
    try:
        with socket.create_connection((HOST, port), timeout=_SECOND) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64)
    except OSError:
        return b""


class RedisProcess(ManagedProcess):
    """The store: all that was added is in its folder."""

    def __init__(self, folder: Path, tell: Tell, port: int) -> None:
        super().__init__("redis", folder, tell)
        self._program = program("redis-server", "redis-server", ", or say which to use: --store")
        self._any = port == 0
        self.port = port
        bound(port, "--redis-port").close()
        if self._any:
            self.tries = 3  # somebody else may take a port that was free

    def command(self) -> list[str]:
        if self._any and not self.been_up:
            with bound(0, "--redis-port") as free:
                self.port = free.getsockname()[1]
        settings = {
            "bind": HOST,
            "port": str(self.port),
            "dir": str(self.folder),
            "appendonly": "yes",
            "save": "",
            "loglevel": "warning",
        }
        flags = [part for name, value in settings.items() for part in (f"--{name}", value)]
        return [self._program, *flags]

    def up(self) -> bool:
        return _answer(self.port).startswith(b"+PONG")

    @property
    def url(self) -> str:
        """The URL of this Redis, as nodes are given it."""
        return f"redis://{HOST}:{self.port}"


class NodeProcess(ManagedProcess):
    """A `bloomery serve --store`: it takes any free ports at first, and then those again."""

    def __init__(self, number: int, folder: Path, tell: Tell) -> None:
        super().__init__(f"node {number}", folder, tell)
        self.store = ""  # a URL
        self.settings: Sequence[str] = ()  # NAME=VALUE
        self.configuration: Path | None = None  # a file
        self.resp_port = self.http_port = 0
        self._ready = False

    def command(self) -> list[str]:
        self._ready = False
        ports = ("--resp-port", str(self.resp_port), "--http-port", str(self.http_port))
        settings = [part for setting in self.settings for part in ("--set", setting)]
        where = ["--data", str(self.folder), "--host", HOST]
        if self.configuration is not None:
            where += ["--config", str(self.configuration)]
        return [sys.executable, "-m", "bloomery", "serve", *where, *ports, *settings]

    def environment(self) -> dict[str, str]:
        # Not as a flag: others see those, and there may be a password in it.
        return environment(BLOOMERY_STORE=self.store)

    def heard(self, line: str) -> bool:
        if ready := _READY.match(line):
            self.resp_port, self.http_port = int(ready[1]), int(ready[2])
            self._ready = True
        return True

    def up(self) -> bool:
        return self._ready


class BalancerProcess(ManagedProcess):
    """HAProxy. Its sockets are ours: if it dies, clients wait until it is there again."""

    def __init__(
        self, folder: Path, tell: Tell, nodes: Sequence[NodeProcess], resp: int, http: int
    ) -> None:
        super().__init__("haproxy", folder, tell)
        self._program = program("haproxy", "haproxy")
        self.nodes = nodes
        self.quiet = False
        self._sockets: dict[str, socket.socket] = {}
        try:
            for service, port in (("resp", resp), ("http", http), ("stats", 0)):
                self._sockets[service] = bound(port, f"--{service}-port")
        except BaseException:
            self.close()
            raise

    def port(self, service: str) -> int:
        """Where "resp", "http" and the page of "stats" are."""
        port: int = self._sockets[service].getsockname()[1]
        return port

    def close(self) -> None:
        """Let the ports go."""
        for listener in self._sockets.values():
            listener.close()

    def command(self) -> list[str]:
        return [self._program, "-db", "-f", str(CONFIGURATION)]

    def environment(self) -> dict[str, str]:
        variables = {
            f"BALANCER_{service.upper()}": f"fd@{listener.fileno()}"
            for service, listener in self._sockets.items()
        }
        for number, node in enumerate(self.nodes, 1):
            variables[f"BALANCER_NODE_{number}"] = HOST
            variables[f"BALANCER_NODE_{number}_RESP"] = str(node.resp_port)
            variables[f"BALANCER_NODE_{number}_HTTP"] = str(node.http_port)
        return environment(**variables)

    def heard(self, line: str) -> bool:
        # Once it runs, it says everything twice: to its log and, in brackets, to the terminal. At
        # the end, that all nodes are gone is no news.
        return not self.quiet and not (self.been_up and line.startswith("["))

    def files(self) -> list[int]:
        return [listener.fileno() for listener in self._sockets.values()]

    def up(self) -> bool:
        # Where nodes have users, it lives and wants a name.
        return _answer(self.port("resp")).startswith((b"+PONG", b"-NOAUTH"))
