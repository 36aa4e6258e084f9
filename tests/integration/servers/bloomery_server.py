"""`bloomery serve` for the tests."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from integration.servers.process import Server
from nursery import Forked
from waiting import PATIENCE, wait_until


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
        with self.log.open("wb") as log, open(os.devnull, "rb") as nothing:
            files = (nothing.fileno(), log.fileno(), log.fileno())
            self.process = Forked(arguments, files, self.folder, self.environment())

    def ready(self) -> bool:
        return self.READY.search(self.printed()) is not None

    def _port(self, group: int) -> int:
        found = self.READY.search(self.printed())
        assert found is not None, self.printed()
        return int(found[group])

    def comes_up(self) -> bool:
        """Start it where it may come up, or be refused as `refused` has it."""
        self.spawn()
        assert self.process is not None
        wait_until(lambda: self._ended() or self.ready())
        if self.ready():
            return True
        code, self.process = self.process.wait(PATIENCE), None
        assert (code, self.printed().count("\n")) == (2, 1), (code, self.printed())
        return False

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
