"""docs/commands.md, made from the server's table of commands: `python scripts/commands_page.py`."""

from __future__ import annotations

from pathlib import Path

from bloomery.service.resp import dispatch
from bloomery.service.resp.table import Command, every

PAGE = Path(__file__).resolve().parent.parent / "docs" / "commands.md"
GROUPS = {
    "bf": "Filters",
    "cf": "Cuckoo filters",
    "generic": "Names",
    "connection": "Connections",
    "transactions": "Transactions",
    "server": "The server",
    "cluster": "Clusters",
}
HEAD = """# Commands

Every command of [the server](service.md), made from its own table by `scripts/commands_page.py`.
As in Redis's documentation, *key* is the name of a filter and *item* what is added or asked for.
"""


def page() -> str:
    """The whole page."""
    assert dispatch.HANDLERS  # importing them has filled the table
    parts = [HEAD]
    for group, title in GROUPS.items():
        rows = [_row(command) for command in every() if command.group == group]
        parts.append(f"\n## {title}\n\n| command | what it does |\n|---|---|\n" + "".join(rows))
    return "".join(parts)


def _row(command: Command) -> str:
    usage = f"{command.name} {command.grammar}".strip().replace("|", "\\|")
    return f"| `{usage}` | {command.summary} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
