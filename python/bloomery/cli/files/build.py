"""`bloomery build`: a filter file out of a database's rows or a file's lines or columns."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bloomery.cli import options
from bloomery.cli.amounts import show_memory, show_rate
from bloomery.cli.files.create import check_fit, check_free
from bloomery.cli.progress import RowProgress
from bloomery.cli.pump import Interrupts, SignalInterrupt
from bloomery.cli.terminal import emit_line, say, with_step
from bloomery.errors import BloomeryError
from bloomery.filters import COMMON_KINDS

EXAMPLE = (
    "bloomery build --from postgresql://ann@db/shop --query 'SELECT url FROM urls' --out seen.bloom"
    "; bloomery build --from postgresql://ann@db/shop --table urls --column url --out seen.bloom"
    "; bloomery build --from urls.parquet --column url --out seen.bloom"
)

_DATABASE, _TABLES = "From a database", "From CSV or Parquet"


def build(
    sources: Annotated[
        list[str],
        typer.Option(
            "--from",
            metavar="PLACE",
            help="A database (postgresql://user@host/name, sqlite:///file.db), or files: .csv,"
            " .parquet, else lines; -: standard input. May be repeated.",
        ),
    ],
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="FILE", help="Where to save the filter.")
    ],
    query: Annotated[
        str | None,
        typer.Option(
            "--query",
            metavar="SQL",
            help="A SELECT that gives the keys.",
            rich_help_panel=_DATABASE,
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(
            "--table", metavar="NAME", help="A table, with --column.", rich_help_panel=_DATABASE
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="NAME",
            help="The column of the keys; in files also its number. Several: keys are tuples.",
        ),
    ] = None,
    order_by: Annotated[
        str | None,
        typer.Option(
            "--order-by",
            metavar="COLUMN",
            help="Read in this order, so that a build that stopped can go on."
            " Default: the table's primary key.",
            rich_help_panel=_DATABASE,
        ),
    ] = None,
    password_file: Annotated[
        str | None,
        typer.Option(
            "--password-file",
            metavar="FILE",
            help="Its first line is the password. PGPASSWORD and ~/.pgpass work too.",
            rich_help_panel=_DATABASE,
        ),
    ] = None,
    type: Annotated[
        Literal["str", "int"] | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="CSV, lines: what keys are: str or int.",
        ),
    ] = None,
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            help="CSV: the first line has the names, or not.",
            rich_help_panel=_TABLES,
        ),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(
            "--delimiter",
            metavar="CHAR",
            help="CSV: what is between two columns.",
            rich_help_panel=_TABLES,
        ),
    ] = None,
    format: Annotated[
        Literal["lines", "csv", "parquet"] | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="lines, csv or parquet, where names do not say it.",
            rich_help_panel=_TABLES,
        ),
    ] = None,
    kind: Annotated[
        Literal["bloom", "scalable", "counting", "deletable", "cuckoo"],
        typer.Option(
            "--kind",
            metavar="KIND",
            help="One of bloom, scalable, counting, deletable, cuckoo.",
            rich_help_panel=options.FILTER,
        ),
    ] = "bloom",
    capacity: options.Capacity = None,
    estimate: Annotated[
        bool,
        typer.Option(
            "--estimate",
            help="Estimate the capacity; do not count the rows.",
            rich_help_panel=options.FILTER,
        ),
    ] = False,
    error_rate: options.ErrorRate = 0.01,
    layout: options.LayoutOption = None,
    hasher: options.HasherOption = "xxh3",
    seed: options.Seed = 0,
    counter_bits: options.CounterBits = None,
    regions: options.Regions = None,
    growth: options.Growth = None,
    grow: options.Grow = None,
    nulls: options.Nulls = "skip",
    checkpoint: options.Checkpoint = 30.0,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart",
            help="Forget an earlier build that stopped; begin anew.",
            rich_help_panel=options.RUN,
        ),
    ] = False,
    force: options.Force = False,
    quiet: options.NoProgress = False,
    json: options.Json = False,
) -> int:
    """Make a filter of all keys of a database's query or table, or of files, in constant memory.

    Stopped or killed, it goes on where it was when it is run again. Exits with 0 when done, 1 when
    more keys came than the filter has room for, 2 on an error.
    """
    from bloomery import building

    check_free(out, force)
    given: dict[str, Any] = {
        "layout": layout,
        "counter_bits": counter_bits,
        "regions": regions,
        "growth": growth,
        "grow": grow,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if kind in building.KINDS:  # of others the library says that they cannot be built
        check_fit(kind, COMMON_KINDS[kind], given)
    progress = RowProgress(quiet)
    with Interrupts() as interrupts, _closing(progress):
        rows = building.open_rows(
            sources,
            format=format,
            query=query,
            table=table,
            columns=columns,
            order_by=order_by,
            password=_password(password_file),
            type=type,
            header=header,
            delimiter=delimiter,
        )
        try:
            with _resume_hint(rows, out, progress):
                built = building.build(
                    rows,
                    out,
                    kind=kind,
                    capacity=capacity,
                    estimate=estimate,
                    nulls=nulls,
                    restart=restart,
                    every=checkpoint,
                    on_batch=lambda now: progress.advance(now.rows, now.total),
                    held=lambda last: interrupts.held_off(last=last),
                    error_rate=error_rate,
                    hasher=hasher,
                    seed=seed,
                    **given,
                )
        finally:
            rows.close()
    return _report(out, built, json)


def _password(path: str | None) -> str | None:
    if path is None:
        return None
    with Path(path).open(encoding="utf-8") as file:
        return file.readline().rstrip("\r\n")


@contextmanager
def _closing(progress: RowProgress) -> Iterator[None]:
    try:
        yield
    finally:
        progress.stop()


@contextmanager
def _resume_hint(rows: Any, out: str, progress: RowProgress) -> Iterator[None]:
    """Add to what stopped the build whether it can be resumed, and how."""
    try:
        yield
    except (SignalInterrupt, BloomeryError, OSError) as failure:
        progress.stop()
        kept = os.path.exists(f"{out}.resume")
        step = ""
        if kept and not rows.unresumable:
            step = "the same command goes on from where it was"
        elif rows.unresumable and progress.begun:
            step = f"nothing was kept: {rows.unresumable}"
        if isinstance(failure, SignalInterrupt):
            message = "; ".join(part for part in ("interrupted", step) if part)
            raise SignalInterrupt(failure.signum, message) from None
        if not getattr(failure, "next_step", "") and getattr(failure, "resumable", True):
            with_step(failure, step)
        raise


def _report(out: str, built: Any, json: bool) -> int:
    facts = built.filter.info()
    keys = built.rows - built.nulls
    # So many rows have no more keys than that, whatever the estimate from the bits says.
    facts["saturated"] &= keys > facts["capacity"]
    rate = facts["estimated_error_rate"]
    if json:
        from json import dumps

        names = ("kind", "capacity", "error_rate", "estimated_error_rate", "nbytes", "saturated")
        figures = {"keys": keys, "nulls": built.nulls, "seconds": round(built.seconds, 3)}
        emit_line(
            dumps({"file": out, **figures, **{name: facts[name] for name in names}}, indent=2)
        )
    else:
        left = f" ({built.nulls:,} NULLs left out)" if built.nulls else ""
        emit_line(
            f"{out}: {keys:,} keys{left} in {built.seconds:.1f} s, {show_memory(facts['nbytes'])},"
            f" wrong maybes {show_rate(rate)} (estimated)"
        )
    if facts["saturated"]:
        say(
            f"warning: {out} holds about {facts['estimated_count']:,.0f} keys and was made for"
            f" {facts['capacity']:,}: it denies no key, but wrong maybes are {show_rate(rate)}, not"
            f" {show_rate(facts['error_rate'])}; build it again with a larger --capacity"
        )
        return 1
    return 0


COMMANDS = [("build", build, EXAMPLE)]
