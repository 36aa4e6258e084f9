"""What `bloomery serve --check` prints: what is effective, from where, and what is wrong."""

import json
from typing import TYPE_CHECKING

from bloomery.cli import terminal

if TYPE_CHECKING:
    from bloomery.service.config.configuration import Configuration

EXIT_WRONG = 2


def show(found: "Configuration", as_json: bool) -> int:
    """Look at everything around a configuration, and print what was found; the exit code."""
    from bloomery.service.config import preflight

    if not found.problems:  # else it would be about settings that nobody asked for
        preflight.examine(found)
    if as_json:
        terminal.emit_line(json.dumps(_facts(found), indent=2))
    else:
        terminal.emit_line(terminal.render(_table(found)))
        for warning in found.warnings:
            terminal.say(f"warning: {warning}")
        for problem in found.problems:
            terminal.say(problem)
        if not found.problems:
            terminal.say("the configuration is right: nothing was started")
    return EXIT_WRONG if found.problems else 0


def _facts(found: "Configuration") -> dict[str, object]:
    settings = found.settings
    return {
        "ok": not found.problems,
        "problems": found.problems,
        "warnings": found.warnings,
        "config": str(found.file) if found.file else None,
        "settings": {
            name: {"value": settings.get(name), "from": found.origin(name)}
            for name in settings.names()
        },
        "sources": {name: source.as_dict() for name, source in found.sources.items()},
        "filters": found.declared(),
    }


def _table(found: "Configuration") -> object:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=str(found.file or "no file"), title_justify="left", title_style="bold")
    table.add_column("setting")
    table.add_column("value", overflow="fold")
    table.add_column("from", overflow="fold")
    for name in found.settings.names():
        origin = found.origin(name)
        style = "dim" if origin == "default" else ""
        # Text: what is in brackets is no markup.
        table.add_row(name, Text(found.settings.get(name)), Text(origin), style=style)
    for name, source in found.sources.items():
        told = source.as_dict()
        where = f"{told['url']}, {told['table'] or 'query'}, cache {told['cache']}"
        table.add_row(f"sources.{name}", Text(where), Text(str(found.file)))
    for name, parameters in found.declared().items():
        what = ", ".join(f"{field} {value}" for field, value in parameters.items())
        table.add_row(Text(f"filters.{name}"), Text(what), Text(str(found.file)))
    return table
