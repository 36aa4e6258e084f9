"""What `bloomery serve --check` prints: what is effective, from where, and what is wrong."""

import json
from typing import TYPE_CHECKING

from bloomery.cli import terminal

if TYPE_CHECKING:
    from bloomery.service.config.configuration import Configuration

EXIT_WRONG = 2


def show(configuration: "Configuration", as_json: bool) -> int:
    """Look at everything around a configuration, and print what was found; the exit code."""
    from bloomery.service.config import preflight

    if not configuration.problems:  # else it would be about settings that nobody asked for
        preflight.examine(configuration)
    if as_json:
        terminal.emit_line(json.dumps(_facts(configuration), indent=2))
    else:
        terminal.emit_line(terminal.render(_table(configuration)))
        for warning in configuration.warnings:
            terminal.say(f"warning: {warning}")
        for problem in configuration.problems:
            terminal.say(problem)
        if not configuration.problems:
            terminal.say("the configuration is right: nothing was started")
    return EXIT_WRONG if configuration.problems else 0


def _facts(configuration: "Configuration") -> dict[str, object]:
    settings = configuration.settings
    return {
        "ok": not configuration.problems,
        "problems": configuration.problems,
        "warnings": configuration.warnings,
        "config": str(configuration.file) if configuration.file else None,
        "settings": {
            name: {"value": settings.get(name), "from": configuration.origin(name)}
            for name in settings.names()
        },
        "sources": {name: source.as_dict() for name, source in configuration.sources.items()},
        "filters": configuration.declared(),
    }


def _table(configuration: "Configuration") -> object:
    from rich.table import Table
    from rich.text import Text

    title = str(configuration.file or "no file")
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("setting")
    table.add_column("value", overflow="fold")
    table.add_column("from", overflow="fold")
    for name in configuration.settings.names():
        origin = configuration.origin(name)
        style = "dim" if origin == "default" else ""
        # Text: what is in brackets is no markup.
        table.add_row(name, Text(configuration.settings.get(name)), Text(origin), style=style)
    for name, source in configuration.sources.items():
        facts = source.as_dict()
        where = f"{facts['url']}, {facts['table'] or 'query'}, cache {facts['cache']}"
        table.add_row(f"sources.{name}", Text(where), Text(str(configuration.file)))
    for name, parameters in configuration.declared().items():
        what = ", ".join(f"{field} {value}" for field, value in parameters.items())
        table.add_row(Text(f"filters.{name}"), Text(what), Text(str(configuration.file)))
    return table
