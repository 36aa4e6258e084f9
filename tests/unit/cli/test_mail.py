"""`bloomery mail dedup`: as people run it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unit.apps.test_mail import COPIES, MESSAGES, contents, maildir, mbox

Run = Callable[..., Any]


def test_the_default_changes_nothing(run: Run, tmp_path: Path) -> None:
    """It says what there is, and how to do something about it."""
    box = maildir(tmp_path / "box", MESSAGES + COPIES)
    printed = run("mail", "dedup", "box").stdout.decode()
    assert "12 messages, 3 of them again" in printed
    assert "4 have no Message-ID" in printed
    assert "nothing was changed" in printed
    assert contents(box) == Counter(MESSAGES + COPIES)


@pytest.mark.slow
def test_move_and_delete(run: Run, tmp_path: Path) -> None:
    """Moved to another mailbox, or deleted; for a program as JSON."""
    box = mbox(tmp_path / "box", MESSAGES + COPIES)
    report = json.loads(run("mail", "dedup", "box", "--move", "twice", "--json").stdout)
    assert (report["messages"], report["moved"], report["deleted"]) == (12, 3, 0)
    assert contents(box) == Counter(MESSAGES)
    assert contents(tmp_path / "twice") == Counter(COPIES)
    report = json.loads(run("mail", "dedup", "box", "twice", "--delete", "--json").stdout)
    assert (report["messages"], report["deleted"]) == (12, 3)
    assert contents(tmp_path / "twice") == Counter()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none"], "none: No such file"),
        (["box", "box", "--delete"], "named twice"),
        (["text"], "no mbox"),
        (["box", "--delete", "--move", "x"], "not with --delete"),
        (["box", "--dry-run", "--delete"], "not with --delete or --move"),
        (["box", "--by", "size"], "size"),
    ],
)
def test_what_is_wrong_is_one_line(
    run: Run, tmp_path: Path, arguments: list[str], message: str
) -> None:
    """And the mailbox is as it was."""
    box = mbox(tmp_path / "box", MESSAGES + COPIES)
    (tmp_path / "text").write_text("Dear")
    before = box.read_bytes()
    printed = run("mail", "dedup", *arguments, code=2).stderr.decode()
    assert message in printed
    assert printed.count("\n") == 1
    assert box.read_bytes() == before
