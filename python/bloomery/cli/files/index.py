"""`bloomery index`: a folder of Parquet, CSV and JSONL files, and where in it a value may be."""

from typing import Annotated, Any, Literal

import typer

from bloomery.cli.amounts import parse_rate, show_memory, show_rate
from bloomery.cli.options import Json
from bloomery.cli.progress import FileProgress
from bloomery.cli.pump import Interrupts, SignalInterrupt
from bloomery.cli.terminal import emit, emit_json, emit_line, render, say
from bloomery.storage.arrow_tables import python_rows

BUILD_EXAMPLE = "bloomery index build data/ --columns user_id,email --fp-chance 1%"
FIND_EXAMPLE = (
    "bloomery index find data/ user_id=42; "
    "bloomery index find data/ user_id=42 email=ada@example.org --show email,amount --format csv"
)
STATS_EXAMPLE = "bloomery index stats data/ --json"
VERIFY_EXAMPLE = "bloomery index verify data/"

Folder = Annotated[str, typer.Argument(metavar="FOLDER", help="The folder of files.")]
Place = Annotated[
    str | None,
    typer.Option("--index", metavar="DIR", help="Where the index is. Default: in the folder."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar, no summary.")]


def build(
    folder: Folder,
    columns: Annotated[
        str, typer.Option("--columns", metavar="NAMES", help="Columns to index: user_id,email.")
    ],
    fp_chance: Annotated[
        float,
        typer.Option(
            "--fp-chance",
            parser=parse_rate,
            metavar="P",
            help="How often a part may be read in vain, as 0.01 or 1%; for files to come.",
        ),
    ] = 0.01,
    index: Place = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Forget the index that is there, and begin anew.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Index columns of all files below a folder: Parquet, CSV and JSONL, .gz and .zst too.

    Run it again when files came, changed or went: only these are read. Until then files that came
    or changed are always searched.
    """
    from bloomery.segments import SegmentIndex

    bar = FileProgress("index build", quiet)
    try:
        with Interrupts():
            built = SegmentIndex.build(
                folder,
                [name.strip() for name in columns.split(",") if name.strip()],
                fp_chance=fp_chance,
                path=index,
                rebuild=rebuild,
                on_file=bar.advance,
            )
    except SignalInterrupt as stop:
        raise SignalInterrupt(
            stop.signum, "interrupted; the index has what came before, and the same command goes on"
        ) from None
    finally:
        bar.stop()
    with built:
        stats = _lasting(built.stats())
    if json:
        emit_json(stats)
    elif not quiet:
        say(
            f"{stats['files']:,} files, {stats['rows']:,} rows, {stats['filters']:,} filters, "
            f"{show_memory(stats['index_bytes'])}"
        )
    for name in stats["columns_without_values"] if stats["rows"] else ():
        say(f"no row has a value in the column {name!r}: is that its name?")
    return 0


def find(
    folder: Folder,
    conditions: Annotated[
        list[str],
        typer.Argument(metavar="COLUMN=VALUE...", help="What rows must have; all of these."),
    ],
    show: Annotated[
        str | None,
        typer.Option("--show", metavar="NAMES", help="Columns to print. Default: all."),
    ] = None,
    format: Annotated[
        Literal["jsonl", "csv", "parts"],
        typer.Option("--format", metavar="FORMAT", help="jsonl, csv, or parts: what may have it."),
    ] = "jsonl",
    json: Annotated[
        bool, typer.Option("--json", help="Rows are JSON as they are; of parts, an object each.")
    ] = False,
    index: Place = None,
) -> int:
    """Print the rows that have these values. Exit code 1: there are none."""
    from bloomery.segments import SegmentIndex

    if json and format == "csv":
        raise typer.BadParameter("not with --json: leave one of them out", param_hint="--format")
    wanted = dict(map(_condition, conditions))
    with Interrupts(), SegmentIndex(index or folder) as opened:
        if format == "parts":
            candidates = opened.candidates(wanted)
            for candidate in candidates:
                if json:
                    emit_json(
                        {"path": candidate.path, "part": candidate.part, "why": candidate.why}
                    )
                    continue
                part = "" if candidate.part is None else f" part {candidate.part}"
                emit_line(f"{candidate.path}{part} ({candidate.why})")
            return 0 if candidates else 1
        table = opened.find(wanted, show.split(",") if show else None)
    if format == "csv":
        import pyarrow as pa
        from pyarrow import csv

        sink = pa.BufferOutputStream()
        csv.write_csv(table, sink)
        emit(memoryview(sink.getvalue()))
    else:
        from json import dumps

        for row in python_rows(table):
            emit_line(dumps(row, default=_text, ensure_ascii=False))
    return 0 if table.num_rows else 1


def _condition(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"{text!r} must be COLUMN=VALUE", param_hint="COLUMN=VALUE")
    return name, value


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def stats(folder: Folder, json: Json = False, index: Place = None) -> int:
    """Show what an index covers and what it takes."""
    from bloomery.segments import SegmentIndex

    with SegmentIndex(index or folder) as opened:
        facts = _lasting(opened.stats())
    if json:
        emit_json(facts, indent=2)
        return 0
    from rich.table import Table

    table = Table(title=facts["root"], show_header=False, title_justify="left", title_style="bold")
    for name, value in facts.items():
        if name != "root":
            table.add_row(name.replace("_", " "), _for_a_person(name, value))
    emit_line(render(table))
    return 0


def _lasting(facts: dict[str, Any]) -> dict[str, Any]:
    """Without what this process has counted, which has not asked for anything."""
    counted = ("finds", "parts_skipped", "parts_read", "parts_in_vain")
    return {name: value for name, value in facts.items() if name not in counted}


def _for_a_person(name: str, value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    if name == "fp_chance":
        return show_rate(value)
    if name.endswith("_bytes"):
        return f"{show_memory(value)} ({value:,} bytes)"
    if value is None:
        return "no keys yet"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def verify(folder: Folder, index: Place = None, json: Json = False, quiet: Quiet = False) -> int:
    """Read all of an index and the ends of all files. Exit code 1: something is damaged.

    Files that came, changed or are gone are printed; they are searched all the same.
    """
    from bloomery.segments import SegmentIndex

    bar = FileProgress("index verify", quiet)
    try:
        with Interrupts(), SegmentIndex(index or folder) as opened:
            result = opened.verify(bar.advance)
    finally:
        bar.stop()
    if json:
        damage = {"filters": result.filters, "damaged": result.damaged, "stale": result.stale}
        emit_json({"ok": result.ok, **damage})
        return 0 if result.ok else 1
    for text in result.damaged:
        emit_line(f"damaged: {text}")
    for path in result.stale:
        emit_line(f"changed since it was indexed: {path}")
    if not quiet:
        say(
            f"{result.filters:,} filters are whole, {len(result.damaged):,} damaged; "
            f"{len(result.stale):,} files to index"
        )
    return 0 if result.ok else 1


COMMANDS = [
    ("build", build, BUILD_EXAMPLE),
    ("find", find, FIND_EXAMPLE),
    ("stats", stats, STATS_EXAMPLE),
    ("verify", verify, VERIFY_EXAMPLE),
]
