"""`bloomery exact build`: a file without errors about known members and known non-members."""

from contextlib import ExitStack
from typing import Annotated, Any, Literal

import typer

from bloomery.cli import options
from bloomery.cli.amounts import show_memory, show_rate
from bloomery.cli.files.create import check_free
from bloomery.cli.progress import RowProgress
from bloomery.cli.pump import Interrupts, SignalInterrupt
from bloomery.cli.terminal import emit_json, emit_line

EXAMPLE = (
    "bloomery exact build --members revoked.txt --non-members valid.txt --out revoked.exact; "
    "bloomery exact build --members revoked.csv --non-members valid.parquet --column id -o r.exact"
)


def build(
    members: Annotated[
        list[str],
        typer.Option(
            "--members",
            metavar="PLACE",
            help="Keys that are in: a database (postgresql://user@host/name, sqlite:///file.db), or"
            " files: .csv, .parquet, else lines; -: standard input. May be repeated.",
        ),
    ],
    non_members: Annotated[
        list[str],
        typer.Option("--non-members", metavar="PLACE", help="Keys that are not in, likewise."),
    ],
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Where to save the set.")],
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="NAME",
            help="CSV, Parquet: the column of the keys, on both sides. Several: keys are tuples.",
        ),
    ] = None,
    members_query: Annotated[
        str | None,
        typer.Option("--members-query", metavar="SQL", help="A database: gives the members."),
    ] = None,
    non_members_query: Annotated[
        str | None,
        typer.Option("--non-members-query", metavar="SQL", help="Gives the non-members."),
    ] = None,
    type: Annotated[
        Literal["str", "int"] | None,
        typer.Option("--type", metavar="TYPE", help="CSV, lines: what keys are: str or int."),
    ] = None,
    error_rate: Annotated[
        float | None,
        options.error_rate(
            "The share of keys of neither side that may be a yes. Default: whatever makes the"
            " file smallest.",
            None,
        ),
    ] = None,
    hasher: options.HasherOption = "xxh3",
    seed: options.Seed = 0,
    nulls: options.Nulls = "skip",
    force: options.Force = False,
    quiet: options.NoProgress = False,
    json: options.Json = False,
) -> int:
    """Make a set that is right about every member and every non-member, and save it.

    A key of both sides is an error. A key of neither is answered by chance. Both sides are read
    once; a set is brought up to date by building it again.
    """
    from bloomery import building

    check_free(out, force)
    if members == non_members == ["-"]:
        raise typer.BadParameter("only one side can be standard input", param_hint="--members")
    progress = RowProgress(quiet)
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        stack.callback(progress.stop)
        sides = []
        for places, query in ((members, members_query), (non_members, non_members_query)):
            # A side of lines has no columns, and a database no type; the other side may.
            given: dict[str, Any] = {"query": query, "columns": columns, "type": type}
            sides.append(building.open_rows(places, **_fitting(places, given)))
            stack.callback(sides[-1].close)
        progress.advance(0, None)
        try:
            built = building.build_exact(
                sides[0],
                sides[1],
                out,
                error_rate=error_rate,
                hasher=hasher,
                seed=seed,
                nulls=nulls,
                on_batch=lambda rows: progress.advance(rows, None),
                held=lambda last: interrupts.held_off(last=last),
            )
        except SignalInterrupt as stop:
            raise SignalInterrupt(stop.signum, "interrupted; nothing was written") from None
    facts = built.filter.info()
    if json:
        seconds = round(built.seconds, 3)
        facts = {"rows": built.rows, "nulls": built.nulls, "seconds": seconds, **facts}
        emit_json({"file": out, **facts}, indent=2)
        return 0
    left = f" ({built.nulls:,} NULLs left out)" if built.nulls else ""
    emit_line(
        f"{out}: {built.filter.member_count:,} members, {built.filter.non_member_count:,}"
        f" non-members{left} in {built.seconds:.1f} s, {show_memory(facts['nbytes'])}; of other"
        f" keys {show_rate(facts['estimated_error_rate'])} are a yes"
    )
    return 0


def _fitting(places: list[str], given: dict[str, Any]) -> dict[str, Any]:
    """What of the options is for this side: the sides may be of two kinds."""
    from bloomery.building.opening import takes

    return {name: value for name, value in given.items() if takes(places[0], name)}


COMMANDS = [("build", build, EXAMPLE)]
