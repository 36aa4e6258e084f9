"""`bloomery merge`: one filter file out of several."""

from typing import Annotated

import typer

from bloomery.cli import options
from bloomery.cli.amounts import show_rate
from bloomery.cli.files import state
from bloomery.cli.files.create import check_free
from bloomery.cli.terminal import emit_json, emit_line, say
from bloomery.errors import IncompatibleFilters
from bloomery.filters.files import key_type

EXAMPLE = "bloomery merge week.bloom monday.bloom tuesday.bloom; bloomery info week.bloom"


def merge(
    out: Annotated[str, typer.Argument(metavar="OUT", help="Where to save the filter.")],
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Filters made with the same options.")
    ],
    force: options.Force = False,
    json: options.Json = False,
) -> int:
    """Make one filter that holds every key of several; they stay as they are.

    They are of kind bloom, counting or deletable, and were made with the same options. A filter
    that comes to hold more keys than its capacity errs more often than you allowed.
    """
    check_free(out, force)
    first, *others = files
    merged = state.load_any(first)
    for file in others:
        try:
            merged |= state.load_any(file, mmap=True)
        except IncompatibleFilters as why:
            raise IncompatibleFilters(f"{first} and {file}: {why}") from None
    types = {key_type(file) for file in files}
    state.save(merged, out, "nothing was written", types.pop() if len(types) == 1 else None)
    if json:
        emit_json({"file": out, **state.describe(out)}, indent=2)
    else:
        emit_line(f"{out}: about {merged.estimated_count:,} keys, room for {merged.capacity:,}")
    if merged.saturated:
        say(
            f"warning: {out} denies no key, but wrong maybes are"
            f" {show_rate(merged.estimated_error_rate)}, not {show_rate(merged.error_rate)}; build"
            " one of all keys with a larger --capacity"
        )
        return 1
    return 0


COMMANDS = [("merge", merge, EXAMPLE)]
