"""`bloomery dedup --filter`: what is kept between runs, above all when a run goes wrong.

A line that came out but was not kept comes out again; a line that was kept but never came out is
lost. Only the first is allowed.
"""

import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bloomery import BloomFilter
from waiting import wait_until

# A process for each: seconds in all.
pytestmark = pytest.mark.slow

Run = Callable[..., Any]
Start = Callable[..., Any]
OneLine = Callable[[bytes], str]

LINES = b"".join(b"https://host.example/page/%d\n" % n for n in range(50_000))


def test_state_across_runs(run: Run) -> None:
    """The second run prints only what the first had not seen."""
    assert run("dedup", "--filter", "f.bloom", stdin=b"a\nb\na\n").stdout == b"a\nb\n"
    assert run("dedup", "--filter", "f.bloom", stdin=b"b\nc\n").stdout == b"c\n"
    assert run("dedup", "--filter", "f.bloom", stdin=LINES).stdout == LINES
    assert run("dedup", "--filter", "f.bloom", stdin=LINES).stdout == b""


def test_a_created_filter_is_used(run: Run) -> None:
    """A filter made by create keeps its own size, and the same options again are accepted."""
    run("create", "f.bloom", "--capacity", "1000", "--error-rate", "0.1%")
    same = ("--capacity", "1k", "--error-rate", "0.001")
    assert run("dedup", "--filter", "f.bloom", *same, stdin=b"a\n").stdout == b"a\n"
    run("contains", "f.bloom", "a")


@pytest.mark.parametrize("other", [("--capacity", "2k"), ("--error-rate", "2%")])
def test_other_options_than_the_kept_ones(
    run: Run, one_line: OneLine, other: tuple[str, str]
) -> None:
    """A kept filter cannot change its size: another one on the command line is an error."""
    run("create", "f.bloom", "--capacity", "1000")
    message = one_line(run("dedup", "--filter", "f.bloom", *other, stdin=b"a\n", code=2).stderr)
    assert other[0] in message
    assert "f.bloom" in message


def test_a_damaged_filter_stops_the_run(run: Run, one_line: OneLine, tmp_path: Path) -> None:
    """A file that is no filter is an error before any line comes out, and stays as it is."""
    (tmp_path / "f.bloom").write_bytes(b"not a filter")
    done = run("dedup", "--filter", "f.bloom", stdin=b"a\n", code=2)
    one_line(done.stderr)
    assert done.stdout == b""
    assert (tmp_path / "f.bloom").read_bytes() == b"not a filter"


def test_a_filter_that_cannot_be_saved_fails_first(run: Run, one_line: OneLine) -> None:
    """A path that cannot be written is found out before the input is read, not after."""
    done = run("dedup", "--filter", "no/such/f.bloom", stdin=b"a\n", code=2)
    assert one_line(done.stderr).startswith("no/such/f.bloom: No such file")
    assert done.stdout == b""


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_while_waiting(
    start: Start, one_line: OneLine, tmp_path: Path, signum: int, code: int
) -> None:
    """Ctrl-C while waiting for input: what came out is kept, the exit code is 130."""
    process = start("dedup", "--filter", "f.bloom")
    process.stdin.write(b"a\nb\nunfinished")
    process.stdin.flush()
    assert [process.stdout.readline() for _ in range(2)] == [b"a\n", b"b\n"]
    process.send_signal(signum)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert out == b""
    assert one_line(err) == "interrupted; f.bloom has the lines that came out"
    kept = BloomFilter.load(tmp_path / "f.bloom")
    assert "a" in kept
    assert "b" in kept
    assert "unfinished" not in kept


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.05, 0.1])
def test_stopped_at_any_moment(start: Start, tmp_path: Path, delay: float) -> None:
    """Ctrl-C in the middle of a run: exactly the lines that came out are kept."""
    process = start("dedup", "--filter", "f.bloom", "--error-rate", "1e-9")

    def feed() -> None:
        try:
            for n in range(10_000_000):
                process.stdin.write(b"%d\n" % n)
        except (BrokenPipeError, ValueError):
            pass

    feeder = threading.Thread(target=feed)
    feeder.start()
    first = process.stdout.readline()
    threading.Timer(delay, process.send_signal, [signal.SIGINT]).start()
    out = first + process.stdout.read()
    err = process.stderr.read()
    assert process.wait(timeout=60) == 130
    process.stdout.close()
    process.stderr.close()
    feeder.join()
    with suppress(BrokenPipeError):
        process.stdin.close()
    assert b"has the lines that came out" in err
    came_out = out.split(b"\n")[:-1]
    kept = BloomFilter.load(tmp_path / "f.bloom")
    assert all(kept.contains_many(came_out))
    # 1e-9 makes a wrong maybe here unlikelier than a broken machine.
    after = range(len(came_out), len(came_out) + 1000)
    assert not any(kept.contains_many([b"%d" % n for n in after]))


def wait_until_stuck(pid: int) -> None:
    """Return when it sleeps, no signal waits for it, and it stays so for a while."""
    still = 0

    def stuck() -> bool:
        nonlocal still
        words = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        pending = int(words["SigPnd"], 16) | int(words["ShdPnd"], 16)
        still = still + 1 if words["State"].startswith("S") and not pending else 0
        return still >= 10

    assert wait_until(stuck, pause=0.03)


def test_a_second_ctrl_c_does_not_wait_for_the_reader(
    start: Start, run: Run, one_line: OneLine, tmp_path: Path
) -> None:
    """If the reader of our output is stuck, a second Ctrl-C ends the run and keeps nothing."""
    run("dedup", "--filter", "f.bloom", stdin=b"a\n")
    before = (tmp_path / "f.bloom").read_bytes()
    (tmp_path / "lines").write_bytes(LINES)
    process = start("dedup", "--filter", "f.bloom", "lines")
    process.stdout.peek(1)  # it has begun to write; nobody reads on
    wait_until_stuck(process.pid)
    process.send_signal(signal.SIGINT)
    wait_until_stuck(process.pid)  # again: a second one before that would be the same one
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.wait(timeout=60)
    message = one_line(process.communicate()[1])
    assert process.returncode == 130
    assert "f.bloom is as it was before" in message
    assert "will come out again" in message
    assert (tmp_path / "f.bloom").read_bytes() == before


def test_reader_gone(start: Start, run: Run, one_line: OneLine, tmp_path: Path) -> None:
    """`| head -1`: lines that nobody read are not kept as seen, and the run says so."""
    run("dedup", "--filter", "f.bloom", stdin=b"a\n")
    before = (tmp_path / "f.bloom").read_bytes()
    (tmp_path / "lines").write_bytes(LINES)
    process = start("dedup", "--filter", "f.bloom", "lines")
    process.stdout.readline()
    process.stdout.close()
    process.wait(timeout=60)
    message = one_line(process.stderr.read())
    process.stderr.close()
    process.stdin.close()
    assert process.returncode == 141
    assert "will come out again" in message
    assert (tmp_path / "f.bloom").read_bytes() == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_disk_full(run: Run, one_line: OneLine, tmp_path: Path) -> None:
    """Output that cannot be written: an error, and the filter as it was."""
    run("dedup", "--filter", "f.bloom", stdin=b"a\n")
    before = (tmp_path / "f.bloom").read_bytes()
    with Path("/dev/full").open("wb") as full:
        done = run("dedup", "--filter", "f.bloom", stdin=b"b\n", stdout=full, code=2)
    message = one_line(done.stderr)
    assert message.startswith("standard output: No space left on device")
    assert "will come out again" in message
    assert (tmp_path / "f.bloom").read_bytes() == before


def test_filter_disk_full(run: Run, one_line: OneLine, tmp_path: Path) -> None:
    """A filter that cannot be saved at the end: an error, the old file, and no half-written one."""
    resource = pytest.importorskip("resource")
    run("create", "f.bloom", "--capacity", "100k")
    before = (tmp_path / "f.bloom").read_bytes()

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    done = run("dedup", "--filter", "f.bloom", stdin=b"a\n", code=2, preexec_fn=limit)
    assert done.stdout == b"a\n"
    message = one_line(done.stderr)
    assert message.startswith("f.bloom: ")
    assert "will come out again" in message
    assert (tmp_path / "f.bloom").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["f.bloom"]


def test_a_missing_second_file_fails_first(run: Run, one_line: OneLine, tmp_path: Path) -> None:
    """All inputs are looked for before the first line comes out."""
    (tmp_path / "one").write_bytes(b"a\n")
    done = run("dedup", "one", "two", code=2)
    assert one_line(done.stderr) == "two: No such file or directory"
    assert done.stdout == b""


def test_damaged_input_keeps_what_came_out(run: Run, one_line: OneLine, tmp_path: Path) -> None:
    """An input that turns out to be cut off is an error; what came out of it is kept."""
    import gzip

    (tmp_path / "cut.gz").write_bytes(gzip.compress(LINES)[:50_000])
    done = run("dedup", "--filter", "f.bloom", "cut.gz", code=2)
    message = one_line(done.stderr)
    assert message.startswith("cut.gz: the gzip data ends too early")
    assert message.endswith("f.bloom has the lines that came out")
    assert done.stdout
    assert LINES.startswith(done.stdout)
    assert run("dedup", "--filter", "f.bloom", stdin=done.stdout).stdout == b""


def test_two_runs_wait_for_each_other(start: Start, tmp_path: Path) -> None:
    """A second run with the same filter says that it waits, then knows the first's lines."""
    first = start("dedup", "--filter", "f.bloom")
    first.stdin.write(b"a\n")
    first.stdin.flush()
    assert first.stdout.readline() == b"a\n"
    second = start("dedup", "--filter", "f.bloom", stderr=subprocess.PIPE)
    second.stdin.write(b"a\nb\n")
    second.stdin.close()
    assert second.stderr.readline().startswith(b"bloomery: waiting for another process")
    first.communicate(timeout=60)
    assert second.stdout.read() == b"b\n"
    assert second.wait(timeout=60) == 0
    second.stdout.close()
    second.stderr.close()
