"""A process of `bloomery cluster up`, with processes that do what servers should not; and the file
that HAProxy is given."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bloomery.cli.app import build
from bloomery.cli.trial.members import CONFIGURATION
from bloomery.cli.trial.process import ManagedProcess, environment, how_it_ended
from conftest import missing
from docs.pages import TREE
from waiting import wait_until


class Shell(ManagedProcess):
    """A line of shell; it is up when it has said so."""

    def __init__(self, folder: Path, line: str) -> None:
        self.told: list[str] = []
        super().__init__("shell", folder / "own", self.told.append)
        self.line = line
        self.is_up = False

    def command(self) -> list[str]:
        shell = shutil.which("sh")
        if shell is None:
            missing("sh")
        return [shell, "-c", self.line]

    def heard(self, line: str) -> bool:
        self.is_up = self.is_up or line == "up"
        return line != "hidden"

    def up(self) -> bool:
        return self.is_up


def never() -> bool:
    return False


def given_up(one: Shell) -> bool:
    """Wait until it is."""
    return wait_until(lambda: one.failed)


def test_one_that_does_not_come_up_is_given_up(tmp_path: Path) -> None:
    """At the first try, with its last lines; all that it printed was shown."""
    one = Shell(tmp_path, "echo a; echo; echo b >&2; echo hidden; echo c; exit 3")
    one.start()
    assert not one.wait(never)
    assert one.failed == "shell ended with exit code 3: b / hidden / c"
    assert one.told == ["shell | a", "shell | b", "shell | c"]
    assert one.folder.is_dir()
    one.stop()
    one.join(10, never)


@pytest.mark.slow
def test_one_that_was_up_is_started_again(tmp_path: Path) -> None:
    """But not for ever, if it dies at once each time."""
    mark = tmp_path / "mark"
    one = Shell(tmp_path, f"echo up; while [ ! -e {mark} ]; do sleep 0.01; done; kill -9 $$")
    one.start()
    assert one.wait(never)
    mark.touch()
    assert given_up(one)
    again = [line for line in one.told if line.endswith("; it is started again")]
    assert again == ["shell was ended by SIGKILL: up; it is started again"] * 4
    assert one.failed == "shell was ended by SIGKILL: up"


def test_one_that_cannot_be_run(tmp_path: Path) -> None:
    """A program that went away is told as that."""
    one = Shell(tmp_path, "")
    one.command = lambda: [str(tmp_path / "nothing")]  # type: ignore[method-assign]
    one.start()
    assert given_up(one)
    assert "No such file or directory" in one.failed
    assert "Traceback" not in one.failed


@pytest.mark.parametrize(("seconds", "hurry"), [(0.1, never), (60, lambda: True)])
def test_one_that_does_not_end_is_killed(
    tmp_path: Path, seconds: float, hurry: Callable[[], bool]
) -> None:
    """When patience is over, or a second signal says so."""
    one = Shell(tmp_path, "trap '' TERM; echo up; while :; do sleep 0.02; done")
    one.start()
    assert one.wait(never)
    assert one.process is not None
    one.stop()
    one.join(seconds, hurry)
    assert one.process.returncode == -9
    assert not one.failed
    assert any("it is killed" in line for line in one.told) is (seconds == 0.1)


def test_one_that_was_never_started_ends_at_once(tmp_path: Path) -> None:
    """As do those behind one that did not come up."""
    one = Shell(tmp_path, "echo up")
    one.stop()
    one.join(10, never)
    assert one.process is None


def test_lines_without_an_end(tmp_path: Path) -> None:
    """A line of megabytes is shown in parts, and what is no text is shown somehow."""
    one = Shell(tmp_path, "printf 'a\\377b\\n'; head -c 10000 /dev/zero | tr '\\0' x; exit 1")
    one.start()
    assert given_up(one)
    assert one.told[0] == "shell | a\ufffdb"
    assert sum(line.count("x") for line in one.told) == 10_000
    assert max(map(len, one.told)) < 5000
    assert len(one.failed) < 1000


def test_settings_of_other_servers_are_not_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment has for a server, a balancer or systemd is not passed on."""
    for name in ("BLOOMERY_TLS_CERT", "BALANCER_NODE_9", "NOTIFY_SOCKET", "WATCHDOG_USEC"):
        monkeypatch.setenv(name, "x")
    found = environment(BLOOMERY_STORE="redis://127.0.0.1")
    assert [name for name, text in found.items() if text == "x"] == []
    assert found["BLOOMERY_STORE"] == "redis://127.0.0.1"
    assert found["PATH"] == os.environ["PATH"]


def test_ends_in_words() -> None:
    """Codes, signals, and signals that have no name."""
    assert how_it_ended(0) == "ended with exit code 0"
    assert how_it_ended(-15) == "was ended by SIGTERM"
    assert how_it_ended(-99) == "was ended by signal 99"


def test_the_file_of_haproxy_is_the_one_that_people_are_given() -> None:
    """deploy/haproxy.cfg is the package's, and has a line at each door for as many nodes as there
    may be."""
    assert (TREE / "deploy" / "haproxy.cfg").samefile(CONFIGURATION)
    text = CONFIGURATION.read_text("utf-8")
    (nodes,) = (p for p in build().commands["cluster"].commands["up"].params if p.name == "nodes")
    every = [str(number) for number in range(1, nodes.type.max + 1)]
    assert re.findall(r'server "node-(\d+):', text) == every * 2
