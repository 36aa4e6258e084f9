"""Every command on a file of kind bank."""

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bloomery import CuckooFilter, FilterBank
from conftest import first_fast

# Most of these start processes, or read and write many files.
pytestmark = pytest.mark.slow

Run = Callable[..., Any]
Start = Callable[..., subprocess.Popen[bytes]]
OneLine = Callable[[bytes], str]


@pytest.fixture
def made(tmp_path: Path) -> str:
    """A bank in which ada has two keys and bob has one."""
    with FilterBank(1e-6, 100, path=tmp_path / "b") as bank:
        bank.add_many(["ada", "ada", "bob"], ["a", "b", "a"])
    return "b"


def test_create_add_contains(run: Run, tmp_path: Path) -> None:
    """A bank is made, filled by arguments and by lines, and asked in both ways."""
    size = ["--keys-per-filter", "5k", "-e", "1e-6"]
    assert b"5,000 keys a user" in run("create", "b", "--kind", "bank", *size).stdout
    assert run("add", "b", "--user", "ada", "a", "b").stdout == b""
    run("add", "b", stdin=b"bob\ta\ncy\tx\ty\n\tnobody's")
    asked = b"ada\ta\nada\tx\nbob\ta\nbob\tb\ncy\tx\ty\n\tnobody's"
    found = b"ada\ta\nbob\ta\ncy\tx\ty\n\tnobody's\n"
    assert run("contains", "b", stdin=asked).stdout == found
    assert run("contains", "b", "--user", "ada", "a", "nope", "b").stdout == b"a\nb\n"
    with FilterBank.open(tmp_path / "b", mode="r") as bank:
        assert (bank.keys_per_filter, bank.users) == (5000, 4)
        assert bank.contains("cy", "x\ty")


@pytest.mark.slow
def test_contains_selects_as_for_other_kinds(run: Run, made: str) -> None:
    """-v, -c and -q, the exit code, and lines that are one user's keys."""
    assert run("contains", made, "--user", "ada", stdin=b"a\nno\nb").stdout == b"a\nb\n"
    assert run("contains", "-v", made, stdin=b"bob\ta\nbob\tb\n").stdout == b"bob\tb\n"
    assert run("contains", "-c", made, stdin=b"bob\ta\nada\tb\nx\ty\n").stdout == b"2\n"
    assert run("contains", "-q", made, "--user", "bob", "no", "a").stdout == b""
    assert run("contains", made, "--user", "cy", "a", code=1).stdout == b""
    run("contains", made, stdin=b"", code=1)


def test_new(run: Run, made: str) -> None:
    """--new prints what was definitely new, once."""
    lines = b"ada\ta\nada\tc\nbob\tb\nada\tc\n"
    assert run("add", "--new", made, stdin=lines).stdout == b"ada\tc\nbob\tb\n"
    assert run("add", "--new", made, "--user", "bob", "b", "c").stdout == b"c\n"


def test_info(run: Run, one_line: OneLine, made: str) -> None:
    """The bank, or one user of it, is described; a user who is not there is an error."""
    facts = json.loads(run("info", made, "--json").stdout)
    assert (facts["kind"], facts["users"], facts["estimated_count"]) == ("bank", 2, 3)
    assert json.loads(run("info", made, "--user", "ada", "--json").stdout)["keys"] == 2
    assert b"layers" in run("info", made, "--user", "ada").stdout
    message = one_line(run("info", made, "--user", "cy", code=2).stderr)
    assert "--user" in message
    assert "b has no user 'cy'" in message


def test_remove_forgets_a_user(run: Run, made: str, tmp_path: Path) -> None:
    """--user with --all forgets that user alone; the exit code says whether there was one."""
    assert run("remove", "-v", made, "--user", "ada", "--all").stdout == b"ada\n"
    run("remove", made, "--user", "ada", "--all", code=1)
    with FilterBank.open(tmp_path / made, mode="r") as bank:
        assert "ada" not in bank
        assert bank.contains("bob", "a")


@pytest.mark.parametrize(
    "args",
    first_fast([["a"], [], ["--all"], ["--user", "ada"], ["--user", "ada", "--all", "a"]]),
)
def test_no_key_is_removed(
    run: Run, one_line: OneLine, made: str, tmp_path: Path, args: list[str]
) -> None:
    """Whatever else is asked of remove is refused, with what can be done instead."""
    message = one_line(run("remove", made, *args, stdin=b"a\n", code=2).stderr)
    assert message.startswith("b: no key can be removed from a bank")
    assert "--user NAME --all" in message
    with FilterBank.open(tmp_path / made, mode="r") as bank:
        assert bank.contains_many("ada", ["a", "b"]) == [True, True]


def test_a_line_without_a_tab(run: Run, one_line: OneLine, made: str) -> None:
    """It is named by its number, and the lines before it, of earlier chunks too, were taken."""
    lines = b"".join(b"user%d\tkey%d\n" % (n % 100, n) for n in range(100_000))
    message = one_line(run("add", made, stdin=lines + b"oops\nada\tlate\n", code=2).stderr)
    assert "line 100,001 (b'oops')" in message
    assert "USER<TAB>KEY" in message
    assert message.endswith("b has what came before")
    done = run("contains", made, stdin=lines + b"oops", code=2)
    assert done.stdout == lines
    assert "line 100,001" in one_line(done.stderr)
    run("contains", made, "--user", "ada", "late", code=1)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("args", "option", "part"),
    [
        (["create", "c", "--kind", "bank", "-n", "10"], "--capacity", "--keys-per-filter"),
        (["create", "c", "-n", "10", "--keys-per-filter", "9"], "--keys-per-filter", "bloom"),
        pytest.param(
            ["create", "c", "--kind", "bank", "--layout", "classic"],
            "--layout",
            "bank",
            marks=SLOW,
        ),
        (["add", "b", "a"], "--user", "USER<TAB>KEY"),
        pytest.param(["contains", "b", "a"], "--user", "USER<TAB>KEY", marks=SLOW),
        (["add", "f", "--user", "ada", "a"], "--user", "f is a cuckoo filter"),
        pytest.param(["contains", "f", "--user", "ada"], "--user", "kind bank", marks=SLOW),
        pytest.param(["info", "f", "--user", "ada"], "--user", "kind bank", marks=SLOW),
        pytest.param(["remove", "f", "--user", "ada"], "--user", "kind bank", marks=SLOW),
        pytest.param(["remove", "f", "--all"], "--all", "kind bank", marks=SLOW),
        pytest.param(["add", "no", "--user", "ada"], "no: ", "bloomery create no", marks=SLOW),
    ],
)
def test_options_that_do_not_fit(
    run: Run, one_line: OneLine, made: str, tmp_path: Path, args: list[str], option: str, part: str
) -> None:
    """One line names the option and what is right, and no file is made or changed."""
    CuckooFilter(10).save(tmp_path / "f")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    message = one_line(run(*args, stdin=b"a\n", code=2).stderr)
    assert option in message
    assert part in message
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_commands_wait_for_each_other(start: Start, made: str, tmp_path: Path) -> None:
    """Who finds the bank open says so and waits; no key is lost."""
    first = start("add", made, "--new")
    assert first.stdin is not None
    assert first.stdout is not None
    first.stdin.write(b"ada\tfirst\n")
    first.stdin.flush()
    assert first.stdout.readline() == b"ada\tfirst\n"  # so it has the bank open
    others = [start("add", made, "--user", "ada", f"key{n}") for n in range(3)]
    others.append(start("contains", made, "--user", "ada", "first"))
    for process in others:
        assert process.stderr is not None
        assert (
            process.stderr.readline() == b"bloomery: waiting for another process to finish with b\n"
        )
    assert first.communicate(timeout=60)[1] == b""
    outputs = [process.communicate(timeout=60)[0] for process in others]
    assert outputs == [b"", b"", b"", b"first\n"]
    assert [process.returncode for process in [first, *others]] == [0] * 5
    with FilterBank.open(tmp_path / made, mode="r") as bank:
        assert all(bank.contains_many("ada", ["first", "key0", "key1", "key2"]))


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted(run: Run, start: Start, one_line: OneLine, made: str, signum: int) -> None:
    """What came before a signal is in the bank, and the bank can be used at once."""
    process = start("add", made, "--new")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"ada\tfirst\n")
    process.stdin.flush()
    process.stdout.readline()
    # The chunk is added after it came out: another one that came out says that the first is in.
    process.stdin.write(b"ada\tsecond\n")
    process.stdin.flush()
    process.stdout.readline()
    process.send_signal(signum)
    _, err = process.communicate(timeout=60)
    if signum != signal.SIGKILL:
        assert process.returncode == 128 + signum
        assert one_line(err) == "interrupted; b has what came before"
    assert run("contains", made, "--user", "ada", "first", "nope").stdout == b"first\n"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_no_key_is_kept_that_did_not_come_out(run: Run, one_line: OneLine, made: str) -> None:
    """If --new cannot print a key, the key will be new again."""
    with Path("/dev/full").open("wb") as full:
        done = run("add", made, "--new", "--user", "ada", "x", stdout=full, code=2)
    assert "No space left on device" in one_line(done.stderr)
    assert run("add", made, "--new", "--user", "ada", "x").stdout == b"x\n"
