"""The server's pages say what the server does: every command and every setting is there."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from bloomery.service.config.machine import SHARE
from bloomery.service.config.settings import Settings
from docs.pages import DOCS, script


def test_the_access_page_is_made_from_the_tables() -> None:
    """The tables of docs/access.md are what scripts/access_page.py makes of operations, commands
    and routes."""
    assert (DOCS / "access.md").read_text("utf-8") == script("access_page").page()


def test_the_commands_page_is_made_from_the_table() -> None:
    """docs/commands.md is what scripts/commands_page.py makes of the commands there are."""
    module = script("commands_page")
    assert {command.group for command in module.every()} == set(module.GROUPS)
    assert (DOCS / "commands.md").read_text("utf-8") == module.page()


def test_the_scaling_page_is_made_from_the_figures() -> None:
    """The tables of docs/scaling.md are what scripts/scaling_page.py makes of the figures."""
    assert (DOCS / "scaling.md").read_text("utf-8") == script("scaling_page").page()


def test_published_figures_are_made_from_results() -> None:
    """What README, the pages and `bloomery plan --nodes` say was measured is what
    scripts/figures.py makes of the committed results files."""
    for path, text in script("figures").made().items():
        assert path.read_text("utf-8") == text, f"make figures: {path.name}"


@pytest.mark.parametrize(
    "change", [{"busy": 1.5}, {"settings": {"quick": True, "scale": 1.0}}], ids=["busy", "quick"]
)
def test_busy_and_quick_runs_are_not_published(
    change: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A results file that says that others used the machine, or that it is of a quick run, makes
    no figures."""
    figures = script("figures")
    good = {"busy": 0.0, "settings": {"quick": False, "scale": 1.0}, "records": [{"seconds": 1}]}
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    (tmp_path / "good.json").write_text(json.dumps(good), "utf-8")
    (tmp_path / "bad.json").write_text(json.dumps(good | change), "utf-8")
    assert figures.records("good") == [{"seconds": 1}]
    with pytest.raises(figures.Unpublishable, match=r"bad\.json"):
        figures.records("bad")


def test_every_setting_is_documented() -> None:
    """The table of settings has each, with its default and whether it can be set live."""
    text = (DOCS / "service.md").read_text("utf-8")
    found = {
        name: (default, live)
        for name, default, live in re.findall(
            r"^\| `([a-z-]+)` \| (\S+) \| (yes|no) \|", text, re.M
        )
    }
    settings = Settings()
    by_machine = {"maxmemory": f"{SHARE:.0%}"}
    for item in fields(settings):
        name = item.name.replace("_", "-")
        live = "yes" if item.metadata["live"] else "no"
        assert found.pop(name) == (by_machine.get(name) or settings.get(name) or "–", live)
    assert found == {}
