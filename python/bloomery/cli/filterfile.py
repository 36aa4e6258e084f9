"""`bloomery create` and `bloomery info`: a filter file is made, a filter file is described."""

import errno
import os
from typing import Annotated, Any

import typer

from bloomery import BloomFilter
from bloomery.cli import options, state
from bloomery.cli.amounts import show_memory, show_rate
from bloomery.cli.terminal import emit_line, render, with_step

CREATE_EXAMPLE = "bloomery create seen.bloom --capacity 10M --error-rate 0.1%"
INFO_EXAMPLE = "bloomery info seen.bloom --json"


def create(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to save the filter.")],
    capacity: options.Capacity,
    error_rate: options.ErrorRate = 0.01,
    layout: options.LayoutOption = "blocked",
    hasher: options.HasherOption = "xxh3",
    seed: options.Seed = 0,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Replace FILE, and forget the keys in it.")
    ] = False,
) -> int:
    """Make an empty filter and save it."""
    if not force and os.path.lexists(file):
        raise with_step(
            FileExistsError(errno.EEXIST, "is there already", file), "--force replaces it"
        )
    made = BloomFilter(capacity, error_rate, layout=layout, hasher=hasher, seed=seed)
    state.save(made, file, "nothing was written")
    emit_line(
        f"{file}: room for {made.capacity:,} keys at {show_rate(made.error_rate)}"
        f" in {show_memory(made.nbytes)}"
    )
    return 0


def info(file: options.FilterFile, json: options.Json = False) -> int:
    """Show what a filter was made for, how full it is, and how often a maybe is wrong by now."""
    facts = state.load(file, mmap=True).info()
    if json:
        from json import dumps

        emit_line(dumps({"file": file, **facts}, indent=2, default=str))
        return 0
    from rich.table import Table

    table = Table(title=file, show_header=False, title_justify="left", title_style="bold")
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), _for_a_person(name, value))
    emit_line(render(table))
    if facts.get("saturated"):
        emit_line("It holds more keys than it was made for: more maybes are wrong than promised.")
    return 0


def _for_a_person(name: str, value: Any) -> str:
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
