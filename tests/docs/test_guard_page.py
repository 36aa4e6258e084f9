"""docs/guard.md says what the code does."""

import re
from dataclasses import fields
from typing import get_args

import bloomery.guard
from bloomery.guard.answer import By
from bloomery.guard.options import OnOutage, Options
from docs.pages import DOCS

TEXT = (DOCS / "guard.md").read_text("utf-8")


def test_every_option_is_documented() -> None:
    """The table of options has each in order, with its default."""
    (table,) = re.findall(r"^## Options$(.*?)^## ", TEXT, re.M | re.S)
    found = re.findall(r"^\| `([a-z_]+)` \| ([^|]+) \| [^|]+ \|$", table, re.M)
    assert found == [(one.name, repr(one.default)) for one in fields(Options)]


def test_every_way_to_answer_is_documented() -> None:
    """Who may answer, and what may happen while the source is down, is all there."""
    (table,) = re.findall(r"^## Answers$(.*?)^## ", TEXT, re.M | re.S)
    assert tuple(re.findall(r"^\| `([a-z]+)` \|", table, re.M)) == get_args(By)
    policies = re.findall(r"^\*\*`([a-z]+)`\*\*: ", TEXT, re.M)
    assert sorted(policies) == sorted(get_args(OnOutage))


def test_every_public_name_is_documented() -> None:
    """What `bloomery.guard` offers stands on its page."""
    assert [name for name in bloomery.guard.__all__ if f"{name}" not in TEXT] == []
