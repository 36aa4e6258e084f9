"""The server's pages say what the server does: every command and every setting is there."""

import re
from dataclasses import fields

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
