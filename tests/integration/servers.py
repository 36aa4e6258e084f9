"""Real servers for tests, each a process of its own in a folder of its own, on a free port.

Every one can be stopped, killed (`kill -9`) and started again on the same data. What a server
prints goes to `log` in its folder, and into the message when it does not come up.
"""

import contextlib
import glob
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from conftest import missing
from integration.nursery import Forked

# On two cores shared with a build, a server that is ready in one second alone may take ten.
PATIENCE = 60.0


def free_port() -> int:
    """A port that nobody has at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(ready: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Whether `ready` came true within so many seconds."""
    until = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


class Server:
    """What all of them share; a subclass gives `command`, and `ready` once it can be used."""

    stop_signal = signal.SIGTERM
    tries = 5

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes] | Forked | None = None

    def command(self) -> list[str]:
        """What to run."""
        raise NotImplementedError

    def ready(self) -> bool:
        """Whether it takes connections."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """What it sees of ours."""
        return dict(os.environ)

    def start(self) -> None:
        """Start it, on the data that is there, and return when it is ready.

        A port can be taken between choosing and binding it, and PostgreSQL refuses its data while
        a child of one that was killed still ends: both have passed at the second try.
        """
        assert self.process is None, "it runs already"
        for _ in range(self.tries):
            self.spawn()
            wait_until(lambda: self._ended() or self.ready())
            if not self._ended() and self.ready():
                return
            self.kill()
            time.sleep(0.5)
        raise AssertionError(f"{self.command()} did not come up:\n{self.printed()}")

    def spawn(self) -> None:
        """Start the process and do not wait for it."""
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=self.environment(),
            )

    def _ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def printed(self) -> str:
        """What it printed since it was last started."""
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""

    def _end(self, with_signal: signal.Signals) -> int:
        running, self.process = self.process, None
        if running is None:
            return 0
        running.send_signal(with_signal)
        try:
            return running.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
            raise AssertionError(f"{with_signal.name} did not end it:\n{self.printed()}") from None

    def stop(self) -> int:
        """End it in good order; its exit code."""
        return self._end(self.stop_signal)

    def kill(self) -> None:
        """`kill -9`: it learns nothing of it."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """SIGSTOP, to its children too: it takes connections, and answers nothing."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on, if it was frozen."""
        if self.process is not None:
            self._signal_all(signal.SIGCONT)

    def _signal_all(self, with_signal: signal.Signals) -> None:
        os.kill(self.pid, with_signal)  # before its children: it starts no more of them
        for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), with_signal)

    def restart(self) -> None:
        """Stop it if it runs, and start it on the same data."""
        self.stop()
        self.start()

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self.process is not None, "it does not run"
        return self.process.pid


class RedisServer(Server):
    """Debian's redis-server; data in memory only."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        if shutil.which("redis-server") is None:
            missing("redis-server (scripts/servers installs it)")
        self.port = free_port()

    def command(self) -> list[str]:
        return [
            *("redis-server", "--port", str(self.port), "--bind", "127.0.0.1"),
            *("--save", "", "--appendonly", "no", "--dir", str(self.folder)),
        ]

    def ready(self) -> bool:
        return self.ask(b"PING\r\n") == b"+PONG\r\n"

    def ask(self, command: bytes) -> bytes:
        """The start of the reply to one command, by a connection of its own; b"" without one."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(command)
                return connection.recv(65_536)
        except OSError:
            return b""


class PostgresServer(Server):
    """Debian's PostgreSQL, with one user who has a password; as root it runs as `postgres`."""

    stop_signal = signal.SIGINT  # "fast": does not wait for clients
    user = "bloomery"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        versions = sorted(
            glob.glob("/usr/lib/postgresql/*/bin"), key=lambda p: int(p.split("/")[4])
        )
        found = shutil.which(
            "postgres", path=os.pathsep.join([*versions[::-1], os.environ["PATH"]])
        )
        if found is None:
            missing("PostgreSQL (scripts/servers installs it)")
        self.programs = Path(found).parent
        self.password = secrets.token_hex(12)
        self.port = free_port()
        self.data = folder / "data"
        self.as_user: list[str] = []
        if os.geteuid() == 0:  # which PostgreSQL refuses
            if shutil.which("setpriv") is None:
                missing("setpriv (of util-linux), to start PostgreSQL as another user than root,")
            self.as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
            shutil.chown(folder, "postgres", "postgres")
        self._init()

    def _init(self) -> None:
        password = self.folder / "password"
        password.write_text(self.password)
        if self.as_user:
            shutil.chown(password, "postgres", "postgres")
        init = [
            *(*self.as_user, str(self.programs / "initdb"), "-D", str(self.data)),
            *("-U", self.user, f"--pwfile={password}", "--auth=scram-sha-256"),
            *("--encoding=UTF8", "--locale=C", "--no-sync"),
        ]
        done = subprocess.run(init, capture_output=True, text=True, cwd=self.folder, check=False)
        assert done.returncode == 0, done.stderr

    def command(self) -> list[str]:
        # Without fsync: what is killed here is a process, never the machine.
        settings = ("fsync=off", "listen_addresses=127.0.0.1", "unix_socket_directories=")
        return [
            *(*self.as_user, str(self.programs / "postgres"), "-D", str(self.data)),
            *("-p", str(self.port), *(part for one in settings for part in ("-c", one))),
        ]

    def ready(self) -> bool:
        asked = [str(self.programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(asked, check=False).returncode == 0

    def url(self, database: str) -> str:
        """As people write it."""
        place = f"127.0.0.1:{self.port}/{database}"
        return f"postgresql://{self.user}:{self.password}@{place}"

    def run(self, sql: str, database: str = "postgres") -> list[list[str]]:
        """Run SQL as a person at psql would; its rows."""
        done = subprocess.run(
            [
                *(
                    str(self.programs / "psql"),
                    "-X",
                    "-q",
                    "-A",
                    "-t",
                    "-F",
                    "\t",
                    "-v",
                    "ON_ERROR_STOP=1",
                ),
                *("-d", self.url(database), "-c", sql),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [line.split("\t") for line in done.stdout.splitlines()]


class BloomeryServer(Server):
    """`bloomery serve` on a data folder; its ports are new at every start."""

    tries = 1  # ours has to come up at once
    fresh = False  # a process from scratch, which takes a second of a core more
    READY = re.compile(r"^bloomery ready: resp=\S+:(\d+) http=\S+:(\d+) data=(.*)$", re.M)

    def __init__(self, folder: Path, *arguments: str, data: Path | None = None) -> None:
        super().__init__(folder)
        self.data = data or folder / "data"
        self.arguments = arguments

    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "bloomery", "serve", "--data", str(self.data)),
            *("--resp-port", "0", "--http-port", "0", *self.arguments),
        ]

    def spawn(self) -> None:
        if self.fresh:
            super().spawn()
            return
        arguments = self.command()[3:]  # without `python -m bloomery`
        with self.log.open("wb") as log:
            self.process = Forked(arguments, log.fileno(), self.folder, self.environment())

    def ready(self) -> bool:
        return self.READY.search(self.printed()) is not None

    def _port(self, group: int) -> int:
        found = self.READY.search(self.printed())
        assert found is not None, self.printed()
        return int(found[group])

    def refused(self) -> str:
        """Start it where it must not come up: exit code 2, and the one line that it prints."""
        self.spawn()
        assert self.process is not None
        code = self.process.wait(PATIENCE)
        self.process = None
        assert code == 2, (code, self.printed())
        assert self.printed().count("\n") == 1, self.printed()
        return self.printed()

    @property
    def resp_port(self) -> int:
        """Where it speaks Redis's protocol."""
        return self._port(1)

    @property
    def http_port(self) -> int:
        """Where it speaks HTTP."""
        return self._port(2)

    @property
    def url(self) -> str:
        """Where clients of HTTP find it."""
        return f"http://127.0.0.1:{self.http_port}"


# What the fixture `serve` gives: options of the command, and `data=` for the folder.
Serve = Callable[..., BloomeryServer]
