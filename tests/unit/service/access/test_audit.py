"""The audit log: a line for what was done, none lost without a word, none pushed out."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from bloomery import errors
from bloomery.service.access import audit
from bloomery.service.access.audit import Audit, append, audit_file, line
from waiting import wait_until


def lines(folder: Path) -> list[dict[str, Any]]:
    """What is in the log."""
    return [json.loads(one) for one in audit_file(folder).read_text().splitlines()]


def test_a_line_says_who_what_when_and_whether(tmp_path: Path) -> None:
    """Each line is JSON and has the user, the address, the door, the operation and the outcome."""
    log = Audit(tmp_path, print)
    log.note("ann", "10.0.0.7", "resp", "drop", "done", command="del", names=[b"a\xff", b"b"])
    log.close("done")
    start, found, stop = lines(tmp_path)
    assert (start["operation"], stop["operation"]) == ("start", "stop")
    assert found.pop("at").endswith("Z")
    assert found == {
        "user": "ann",
        "address": "10.0.0.7",
        "door": "resp",
        "operation": "drop",
        "command": "del",
        "names": ["a\\xff", "b"],
        "outcome": "done",
    }


def test_the_log_is_its_owners_alone(tmp_path: Path) -> None:
    """Nobody else can read it."""
    append(tmp_path, [line("ann", "", "cli", "user", "done")])
    assert stat.S_IMODE(audit_file(tmp_path).stat().st_mode) == 0o600


def test_many_names_are_counted(tmp_path: Path) -> None:
    """A command with a million names is a line of ordinary length."""
    made = line("ann", "", "resp", "drop", "done", names=[b"x" * 1000] * 1000)
    assert made["more_names"] == 980
    assert len(json.dumps(made)) < 10_000


def test_it_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long log is put aside, some are kept, and the newest lines are in order in the newest."""
    monkeypatch.setattr(audit, "MAX_BYTES", 2000)
    for number in range(200):
        append(tmp_path, [line("ann", "", "cli", "user", "done", command=str(number))])
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == ["audit.log", *(f"audit.log.{n}" for n in range(1, audit.KEPT + 1))]
    kept = [
        json.loads(one)["command"]
        for name in [*found[:0:-1], "audit.log"]
        for one in (tmp_path / name).read_text().splitlines()
    ]
    assert kept == [str(number) for number in range(200)][-len(kept) :]
    assert len(kept) > 50


def test_what_is_refused_again_and_again_is_one_line(tmp_path: Path) -> None:
    """Ten thousand failed logins are two lines, of which the second says how many."""
    log = Audit(tmp_path, print)
    for _ in range(10_000):
        log.note("ann", "10.0.0.7", "http", "login", "refused")
    log.note("bob", "10.0.0.7", "http", "login", "refused")
    log.close("done")
    found = [one for one in lines(tmp_path) if one["operation"] == "login"]
    assert [one["user"] for one in found] == ["ann", "bob", "ann"]
    assert found[-1]["note"] == "9999 more times in a minute"


def test_a_log_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """Where the log cannot be written the operator is told once, and all else goes on; at the end
    nobody waits for it, and what was lost is counted."""
    audit_file(tmp_path).mkdir()
    said: list[str] = []
    log = Audit(tmp_path, lambda text, **_: said.append(text))
    log.note("ann", "", "resp", "drop", "done")
    assert wait_until(lambda: said)
    with pytest.raises(errors.LogUnavailable, match="3 lines of it are lost"):
        log.close("done")
    assert len(said) == 1
    assert "the audit log cannot be written" in said[0]


@pytest.mark.slow
def test_lines_that_were_lost_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What there was no room for while the log could not be written is told as a number."""
    monkeypatch.setattr(audit, "_MOST_QUEUED", 5)
    audit_file(tmp_path).mkdir()
    said: list[str] = []
    log = Audit(tmp_path, lambda text, **_: said.append(text))
    for _ in range(100):
        log.note("ann", "", "resp", "drop", "done")
    assert wait_until(lambda: said)
    audit_file(tmp_path).rmdir()
    log.close("done")
    found = lines(tmp_path)
    lost = sum(int(one["note"].split()[0]) for one in found if one["operation"] == "audit")
    kept = sum(one["operation"] == "drop" for one in found)
    ends = sum(one["operation"] in ("start", "stop") for one in found)
    assert lost + kept + ends == 102  # the last line may be lost too
