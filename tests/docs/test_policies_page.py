"""docs/policies.md says what the code does."""

import re
from dataclasses import fields

from bloomery.service.domain.policy import FIELDS, ON_FULL, FilterPolicy
from bloomery.service.policy.alerts import KINDS
from bloomery.service.resp.handlers.bf_reserve import POLICY
from docs.pages import DOCS

TEXT = (DOCS / "policies.md").read_text("utf-8")


def test_every_alert_is_documented() -> None:
    """The table of alerts has each, with its level and what it means."""
    found = re.findall(r"^\| `([a-z-]+)` \| (info|warning|error) \| (.*) \|$", TEXT, re.M)
    assert {name: (level, what) for name, level, what in found} == KINDS


def test_every_field_is_documented() -> None:
    """The table of fields has each, with its word and its default; and every policy is there."""
    found = re.findall(r"^\| `([a-z_]+)` \| `([A-Z]+)` \| ([^|]+) \|", TEXT, re.M)
    defaults = {one.name: str(one.default) for one in fields(FilterPolicy)} | {"on_full": "by kind"}
    assert {(name, word) for name, word, _ in found} == {(b, a) for a, b in POLICY.items()}
    assert {name: default for name, _, default in found} == defaults
    assert set(FIELDS) == set(defaults)
    assert tuple(re.findall(r"^\| `([a-z]+)` \| [^`]", TEXT, re.M)[:4]) == ON_FULL
