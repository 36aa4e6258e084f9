"""Failures of the world: one line on stderr, the right exit code, no traceback, no debris."""

import fcntl
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import require
from waiting import wait_until

psutil = require("psutil")

# A process for each: seconds in all.
pytestmark = pytest.mark.slow

Run = Callable[..., Any]
OneLine = Callable[[bytes], str]

READS_STDIN = [["dedup"], ["dedup", "-"], ["add", "f.bloom"], ["contains", "f.bloom"]]
PRINTS = [["plan", "10M"], ["plan", "10M", "--json"], ["info", "f.bloom"], ["--version"]]
PRINTS += [["info", "f.bloom", "--json"], ["contains", "f.bloom", "a"], ["--help"], ["plan", "-h"]]
PRINTS += [["contains", "-c", "f.bloom", "a"], ["add", "f.bloom", "--new", "x"]]


def unread(pipe: Any) -> int:
    """Bytes in a pipe that nobody has read yet."""
    return int.from_bytes(fcntl.ioctl(pipe.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder)


def files(folder: Path) -> list[str]:
    """What is in the folder, by name."""
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def folder(run: Run, tmp_path: Path) -> Path:
    """A folder with a filter f.bloom that holds the key a."""
    run("create", "f.bloom", "--capacity", "1000")
    run("add", "f.bloom", "a")
    return tmp_path


@pytest.mark.parametrize("args", READS_STDIN)
def test_standard_input_closed(run: Run, one_line: OneLine, folder: Path, args: list[str]) -> None:
    """`<&-` is an error that says so, and no file changes."""
    before = (folder / "f.bloom").read_bytes()
    done = run(*args, stdin=None, code=2, preexec_fn=lambda: os.close(0))
    assert one_line(done.stderr).startswith("standard input: is closed")
    assert (folder / "f.bloom").read_bytes() == before


@pytest.mark.parametrize("args", [*PRINTS, ["dedup"]])
def test_standard_output_closed(run: Run, folder: Path, args: list[str]) -> None:
    """`>&-` is an error if there is something to print, and nothing is written elsewhere."""
    before = files(folder)
    done = run(*args, stdin=b"x\n", code=None, preexec_fn=lambda: os.close(1))
    assert done.stdout == b""
    if args[-1] not in {"--help", "-h"}:  # typer prints help nowhere, quietly
        assert done.returncode == 2
        assert b"standard output: is closed" in done.stderr
    assert files(folder) == before


@pytest.mark.parametrize("args", [*PRINTS, ["create", "g.bloom", "-n", "0"]])
def test_standard_error_closed(run: Run, folder: Path, args: list[str]) -> None:
    """`2>&-` loses the messages and nothing else."""
    run(*args, code=2 if args[0] == "create" else 0, preexec_fn=lambda: os.close(2))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("args", [*PRINTS, ["dedup"]])
def test_output_disk_full(run: Run, one_line: OneLine, folder: Path, args: list[str]) -> None:
    """Output to a full disk is an error, not a silent loss."""
    before = (folder / "f.bloom").read_bytes()
    with Path("/dev/full").open("wb") as full:
        done = run(*args, stdin=b"x\n", stdout=full, code=2)
    assert "No space left on device" in one_line(done.stderr)
    assert (folder / "f.bloom").read_bytes() == before


@pytest.mark.parametrize("args", [["add", "f.bloom", "b"], ["create", "-f", "f.bloom", "-n", "1M"]])
def test_filter_disk_full(run: Run, one_line: OneLine, folder: Path, args: list[str]) -> None:
    """A save that hits the end of the disk leaves the old file and nothing beside it."""
    resource = pytest.importorskip("resource")
    before = (folder / "f.bloom").read_bytes()

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    done = run(*args, code=2, preexec_fn=limit)
    assert one_line(done.stderr).startswith("f.bloom: ")
    assert (folder / "f.bloom").read_bytes() == before
    assert files(folder) == ["f.bloom"]


@pytest.mark.parametrize("args", [["dedup"], ["contains", "-v", "f.bloom"]])
def test_reader_gone(start: Callable[..., Any], folder: Path, args: list[str]) -> None:
    """`| head -1` ends the run quietly, as it would end cat."""
    (folder / "lines").write_bytes(b"".join(b"%d\n" % n for n in range(500_000)))
    with (folder / "lines").open("rb") as lines:
        process = start(*args, stdin=lines)
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait(timeout=60) == 141


def test_reader_gone_before_new_keys(
    run: Run, start: Callable[..., Any], tmp_path: Path, one_line: OneLine
) -> None:
    """`add --new | head -1` does not keep keys that nobody was told of."""
    run("create", "f.bloom", "--capacity", "1M")
    before = (tmp_path / "f.bloom").read_bytes()
    (tmp_path / "lines").write_bytes(b"".join(b"%d\n" % n for n in range(500_000)))
    with (tmp_path / "lines").open("rb") as lines:
        process = start("add", "--new", "f.bloom", stdin=lines)
        process.stdout.readline()
        process.stdout.close()
        message = process.stderr.read()
        process.stderr.close()
        assert process.wait(timeout=60) == 141
    assert "f.bloom is unchanged" in one_line(message)
    assert (tmp_path / "f.bloom").read_bytes() == before


@pytest.mark.parametrize("args", READS_STDIN)
def test_ctrl_c(
    start: Callable[..., Any], folder: Path, one_line: OneLine, args: list[str]
) -> None:
    """Ctrl-C while waiting for input is one line and 130."""
    process = start(*args)
    process.stdin.write(b"a\n")
    process.stdin.flush()
    if args[0] != "add":
        process.stdout.readline()
    else:
        assert wait_until(lambda: unread(process.stdin) == 0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert one_line(err).startswith("interrupted")
    assert out == b""
    assert files(folder) == ["f.bloom"]


def test_ctrl_c_in_demo(start: Callable[..., Any], one_line: OneLine) -> None:
    """Ctrl-C in the demo is one line and 130 too."""
    process = start("demo", "--capacity", "50M")
    # It says nothing before its end; that much memory it has only when it crawls.
    assert wait_until(lambda: psutil.Process(process.pid).memory_info().rss > 140 << 20)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert one_line(err) == "interrupted"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["dedup", "--frobnicate"], "No such option: --frobnicate"),
        (["info"], "Missing argument"),
        (["dedup", "no.txt"], "no.txt: No such file or directory"),
        (["dedup", "."], ".: is a directory"),
        (["info", "."], "."),
        (["create", "g.bloom", "--capacity", "1e12"], ""),
    ],
)
def test_mistakes(run: Run, one_line: OneLine, folder: Path, args: list[str], message: str) -> None:
    """A mistake on the command line is one line, exit code 2, and no new file."""
    assert message in one_line(run(*args, code=2).stderr)
    assert files(folder) == ["f.bloom"]


def test_no_arguments_shows_the_help(run: Run) -> None:
    """`bloomery` alone shows what there is."""
    done = run(code=2)
    assert done.stdout.count(b"Usage: bloomery") == 1
    assert b"dedup" in done.stdout


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_missing_extra(module: str) -> None:
    """Without the extra the command is one line that says what to install, and exit code 2."""
    require("typer")
    program = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from bloomery.cli import main\nsys.exit(main(['plan', '10M']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 2
    assert b"pip install 'bloomery[cli]'" in done.stderr
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("module", ["alembic", "sqlalchemy"])
def test_missing_server_extra(module: str, tmp_path: Path) -> None:
    """Without the serve extra `bloomery serve` is one line that says what to install."""
    program = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from bloomery.cli import main\n"
        f"sys.exit(main(['serve', '--data', {str(tmp_path)!r}, '--resp-port', '0']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 2
    assert b"pip install 'bloomery[serve]'" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_missing_zstandard() -> None:
    """Without zstandard only zstd input is refused, and the line says what to install."""
    data = require("zstandard").compress(b"a\n")
    program = (
        "import sys; sys.modules['zstandard'] = None\n"
        "from bloomery.cli import main\nsys.exit(main(['dedup']))"
    )
    for given, code in ((data, 2), (b"a\n", 0)):
        done = subprocess.run(
            [sys.executable, "-c", program], input=given, capture_output=True, check=False
        )
        assert done.returncode == code
        assert (b"pip install 'bloomery[cli]'" in done.stderr) == (code == 2)
