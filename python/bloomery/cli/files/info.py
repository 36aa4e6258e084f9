"""`bloomery info`: a filter file is described."""

from typing import Any

from bloomery.cli import options
from bloomery.cli.amounts import show_memory, show_rate
from bloomery.cli.files import bank, state
from bloomery.cli.terminal import bar, emit_json, emit_line, render
from bloomery.filters.files import holds_a_bank

_BAR = 20  # characters of the bar beside a share
EXAMPLE = "bloomery info seen.bloom --json; bloomery info bank.bloom --user ada"


def info(file: options.FilterFile, json: options.Json = False, user: options.User = None) -> int:
    """Show what a filter was made for, how full it is, and how often a maybe is wrong by now.

    The file is mapped: whoever makes it shorter meanwhile ends the command (SIGBUS).
    """
    if holds_a_bank(file):
        facts = bank.describe(file, user)
    else:
        bank.refuse_user(file, user)
        facts = state.describe(file)
    if json:
        emit_json({"file": file, **facts}, indent=2)
        return 0
    from rich.table import Table

    table = Table(title=file, show_header=False, title_justify="left", title_style="bold")
    for name, value in facts.items():
        text = _for_a_person(name, value)
        share = _share(name, value, facts)
        if share is not None:
            text = f"{bar(share, _BAR)} {text}"
        table.add_row(name.replace("_", " "), text)
    emit_line(render(table))
    if facts.get("saturated"):
        emit_line("It holds more keys than it was made for: more maybes are wrong than promised.")
    return 0


def _share(name: str, value: Any, facts: dict[str, Any]) -> float | None:
    """The share that a bar is drawn for: of places, of the capacity, or of the rate allowed."""
    whole = {
        "fill_ratio": 1.0,
        "estimated_count": facts.get("capacity"),
        "estimated_error_rate": facts.get("error_rate"),
    }.get(name)
    return value / whole if whole and isinstance(value, int | float) else None


def _for_a_person(name: str, value: Any) -> str:
    if value is None:
        return "not said"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "nbytes":
        return f"{show_memory(value)} ({value:,} bytes)"
    if name in ("error_rate", "estimated_error_rate"):
        return show_rate(value)
    if name == "fill_ratio":
        return f"{value:.1%}"
    if name == "estimated_count":
        return f"{value:,.0f}"
    if isinstance(value, int) and name != "seed":
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


COMMANDS = [("info", info, EXAMPLE)]
