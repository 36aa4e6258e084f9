"""`bloomery user`: users are added, shown, changed and removed; no secret is ever printed twice."""

import json
import os
import pty
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import require

pytestmark = pytest.mark.slow

require("typer")
require("argon2")

from bloomery.service.access.users import hasher, load, split_token  # noqa: E402

Run = Callable[..., Any]
SECRET = b"correct horse"


@pytest.fixture
def data(run: Run, tmp_path: Path) -> Path:
    """A folder with an admin, ann."""
    folder = tmp_path / "data"
    words = ("add", "ann", "--role", "admin", "--password-stdin", "--data", str(folder))
    run("user", *words, stdin=SECRET + b"\r\n")
    return folder


def test_a_password_is_read_without_its_line_end(data: Path) -> None:
    """What comes on standard input is the password, but for the end of its line."""
    hashed = load(data)["ann"].password or ""
    assert hasher().verify(hashed, SECRET)


def test_add_list_and_remove(run: Run, data: Path) -> None:
    """A user who was added is listed with role and filters, and is gone when removed."""
    more = ("--filters", "a:*", "--filters", "b", "--no-password")
    run("user", "add", "bob", "--role", "read", *more, "--data", str(data))
    listed = json.loads(run("user", "list", "--json", "--data", str(data)).stdout)
    assert listed[1] == {
        "name": "bob",
        "role": "read",
        "filters": ["a:*", "b"],
        "password": False,
        "disabled": False,
        "tokens": [],
    }
    shown = run("user", "list", "--data", str(data)).stdout.decode()
    assert "ann" in shown
    assert "bob" in shown
    run("user", "remove", "bob", "--data", str(data))
    assert list(load(data)) == ["ann"]


def test_a_token_is_shown_once(run: Run, data: Path) -> None:
    """The token is printed when it is made; later only its id, label and end are."""
    words = ("token", "ann", "--label", "the crawler", "--expires", "90d", "--data", str(data))
    text = run("user", *words).stdout.decode().strip()
    number, secret = split_token(text) or ("", "")
    for option in ([], ["--json"]):
        shown = run("user", "list", *option, "--data", str(data)).stdout.decode()
        assert number in shown
        assert "the crawler" in shown
        assert secret not in shown
        assert (load(data)["ann"].password or "") not in shown
    for path in data.iterdir():
        assert secret not in path.read_text()
    run("user", "revoke", number, "--data", str(data))
    assert load(data)["ann"].tokens == ()


def test_allow(run: Run, data: Path) -> None:
    """Role, filters and whether one can log in are changed each by itself."""
    run("user", "add", "bob", "--role", "read", "--no-password", "--data", str(data))
    run("user", "allow", "bob", "--role", "write", "--filters", "x*", "--data", str(data))
    run("user", "allow", "bob", "--disable", "--data", str(data))
    bob = load(data)["bob"]
    assert (bob.role.name, bob.patterns, bob.disabled) == ("WRITE", ("x*",), True)
    run("user", "allow", "bob", "--enable", "--data", str(data))
    assert not load(data)["bob"].disabled


def test_a_password_is_set(run: Run, data: Path) -> None:
    """The password is replaced, or taken away."""
    run("user", "password", "ann", "--password-stdin", "--data", str(data), stdin=b"another one")
    assert hasher().verify(load(data)["ann"].password or "", b"another one")
    run("user", "password", "ann", "--no-password", "--data", str(data))
    assert load(data)["ann"].password is None


@pytest.mark.parametrize(
    "words",
    [
        ["remove", "ann"],
        ["allow", "ann", "--role", "write"],
        ["allow", "ann", "--disable"],
        ["allow", "ann", "--filters", "a*"],
    ],
)
def test_the_last_admin_stays(run: Run, data: Path, words: list[str], one_line: Any) -> None:
    """Nobody who could do everything would be left: refused, unless it is forced."""
    before = load(data)
    done = run("user", *words, "--data", str(data), code=2)
    assert "--force" in one_line(done.stderr)
    assert load(data) == before
    run("user", *words, "--force", "--data", str(data))
    assert load(data) != before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["remove", "bob"], "there is no user named 'bob'; there is ann"),
        (["password", "bob", "--no-password"], "there is no user named 'bob'"),
        (["token", "bob"], "there is no user named 'bob'"),
        (["token", "ann", "--expires", "soon"], "--expires is 'soon', must be a time such as"),
        (["revoke", "0123"], "there is no token '0123'"),
        (["allow", "ann"], "nothing to change"),
        (["add", "ann", "--role", "read", "--no-password"], "a user named 'ann' already"),
        (["add", "a b", "--role", "read", "--no-password"], "must be up to 64 letters"),
        (["add", "bob", "--role", "root", "--no-password"], "read"),
        (["add", "bob", "--role", "read"], "no terminal to ask for the password"),
        (["add", "bob", "--role", "read", "--password-stdin"], "a password of 0 bytes"),
    ],
)
def test_what_is_wrong_is_said(
    run: Run, data: Path, one_line: Any, words: list[str], says: str
) -> None:
    """Each mistake is one line that says what would be right, and changes nothing."""
    before = load(data)
    assert says in one_line(run("user", *words, "--data", str(data), code=2).stderr)
    assert load(data) == before


def test_a_folder_that_is_not_there(run: Run, tmp_path: Path, one_line: Any) -> None:
    """Only `add` makes the folder; for all else a wrong --data is a mistake."""
    done = run("user", "list", "--data", str(tmp_path / "no"), code=2)
    assert "no such folder" in one_line(done.stderr)
    assert not (tmp_path / "no").exists()


def test_a_damaged_file(run: Run, data: Path, one_line: Any) -> None:
    """A damaged file is left as it is, and said to be so."""
    (data / "users.json").write_text("{")
    done = run("user", "token", "ann", "--data", str(data), code=2)
    assert "not a whole file of users" in one_line(done.stderr)
    assert (data / "users.json").read_text() == "{"


def test_changes_are_in_the_audit_log(run: Run, data: Path) -> None:
    """Who changed which user is noted, and whether it was done; no password, no token."""
    run("user", "token", "ann", "--data", str(data))
    run("user", "remove", "ann", "--data", str(data), code=2)
    raw = (data / "audit.log").read_text()
    lines = [json.loads(line) for line in raw.splitlines()]
    assert [(one["command"], one["outcome"]) for one in lines] == [
        ("add ann", "done"),
        ("token ann", "done"),
        ("remove ann", "failed"),
    ]
    assert all(one["door"] == "cli" and one["user"] for one in lines)
    assert SECRET.decode() not in raw


def at_a_prompt(tmp_path: Path, *typed: bytes) -> tuple[int, bytes]:
    """Answer the prompts of `user add` at a terminal; the exit code and what was shown."""
    ours, theirs = pty.openpty()
    # A session and a terminal of its own: Ctrl-C there is a signal to nobody else.
    program = (
        "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        "from bloomery.cli import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", program, "user", "add", "ann", "--role", "admin"]
    child = subprocess.Popen(
        [*command, "--data", str(tmp_path)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    seen = b""
    for answer in typed:
        while not seen.endswith(b": "):  # what is typed before the blank is thrown away
            seen += os.read(ours, 1000)
        os.write(ours, answer)
        seen += b"|"
    while True:
        try:
            seen += os.read(ours, 1000)
        except OSError:  # the child has ended, and with it the terminal
            break
    os.close(ours)
    return child.wait(60), seen


def test_a_password_is_asked_for(tmp_path: Path) -> None:
    """On a terminal the password is asked for twice and not shown; again if the two differ."""
    answers = [b"typed secret\n", b"typed secrte\n", b"typed secret\n", b"typed secret\n"]
    code, seen = at_a_prompt(tmp_path, *answers)
    assert code == 0, seen
    assert b"typed secr" not in seen
    assert hasher().verify(load(tmp_path)["ann"].password or "", b"typed secret")


@pytest.mark.parametrize(("key", "code", "said"), [(3, 130, "interrupted"), (4, 2, "no password")])
def test_a_prompt_can_be_left(tmp_path: Path, key: int, code: int, said: str) -> None:
    """Ctrl-C and Ctrl-D end the command with one line of its own, and nothing has changed."""
    ended, seen = at_a_prompt(tmp_path, bytes([key]))
    assert ended == code, seen
    last = seen.decode().split("|")[1].strip().splitlines()
    assert len(last) == 1, seen
    assert last[0].startswith(f"bloomery: {said}")
    assert not load(tmp_path)


@pytest.mark.parametrize("name", ["users.json", "users.lock", "audit.log"])
def test_a_link_in_the_folder_leads_nowhere(run: Run, name: str) -> None:
    """Who owns the folder cannot make root write, make or give away a file elsewhere."""
    # Not pytest's own folder, which another user cannot enter.
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)
        folder, there, not_there = Path(made, "data"), Path(made, "there"), Path(made, "not there")
        folder.mkdir()
        there.touch(0o600)
        if os.geteuid() == 0:
            os.chown(folder, 12345, 12345)
        for target in (there, not_there):
            Path(folder, name).unlink(missing_ok=True)
            Path(folder, name).symlink_to(target)
            words = ("add", "ann", "--role", "admin", "--no-password", "--data", str(folder))
            run("user", *words, code=None)
            assert there.stat().st_uid == os.geteuid()
            assert there.read_bytes() == b""
            if os.geteuid() == 0:
                assert not not_there.exists()


def test_root_adds_users_to_anybodys_folder(run: Run) -> None:
    """What root adds is the folder's owner's, whose server has to read it."""
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)
        owner = 12345 if os.geteuid() == 0 else os.geteuid()
        folder = Path(made, "data")
        folder.mkdir()
        os.chown(folder, owner, -1)
        run("user", "add", "ann", "--role", "admin", "--no-password", "--data", str(folder))
        assert list(load(folder)) == ["ann"]
        assert {one.stat().st_uid for one in folder.iterdir()} == {owner}
