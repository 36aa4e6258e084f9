"""A PostgreSQL server for the tests."""

import glob
import os
import secrets
import shutil
import signal
import subprocess
from pathlib import Path

from conftest import missing
from integration.servers.process import Server, free_port


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
