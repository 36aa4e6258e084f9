"""`bloomery parquet`: Parquet's own filters, listed, added, and used to find rows."""

from __future__ import annotations

import json
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any
from uuid import UUID

import typer

from bloomery.cli.progress import FilterProgress
from bloomery.cli.terminal import emit_line, say
from bloomery.errors import InvalidParameter
from bloomery.storage.arrow_tables import python_rows

_FILE = Annotated[str, typer.Argument(metavar="FILE", help="A Parquet file.")]
_SIDECAR = Annotated[
    str | None,
    typer.Option("--sidecar", metavar="FILE", help="Filters beside a file that must not change."),
]
_JSON = Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")]


def inspect(file: _FILE, sidecar: _SIDECAR = None, as_json: _JSON = False) -> int:
    """List the filters of a Parquet file: of which column in which row group, how large, and how
    often each would be wrong."""
    from bloomery.integrations import parquet

    inspection = parquet.inspect(file, sidecar=sidecar)
    if as_json:
        for each in inspection.filters:
            emit_line(json.dumps(vars(each)))
        return 0
    say(
        f"{sum(inspection.rows):,} rows in {len(inspection.rows):,} row groups, "
        f"{len(inspection.columns):,} columns, {len(inspection.filters):,} filters"
    )
    for column in inspection.columns:
        filters = [each for each in inspection.filters if each.column == column]
        if not filters:
            emit_line(f"{column}\tno filters")
            continue
        rate = max(each.estimated_error_rate for each in filters)
        nbytes = sum(each.num_bytes for each in filters)
        emit_line(
            f"{column}\t{len(filters)} of {len(inspection.rows)} row groups\t{nbytes:,} bytes\t"
            f"wrong at most {rate:.2g}"
        )
    return 0


def add_bloom(
    file: _FILE,
    columns: Annotated[
        list[str],
        typer.Option("--column", "-c", metavar="NAME", help="A column to filter; may be repeated."),
    ],
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="FILE", help="The new file.")
    ] = None,
    sidecar: _SIDECAR = None,
    error_rate: Annotated[
        str,
        typer.Option("--error-rate", "-e", help="How often a filter may be wrong: 1%, 0.001."),
    ] = "1%",
    as_json: _JSON = False,
) -> int:
    """Add filters to a Parquet file: a new file whose data is the old one's byte for byte, or a
    sidecar beside a file that must not change."""
    from bloomery.integrations import parquet
    from bloomery.sizing.limits import check_error_rate

    bar = FilterProgress()
    try:
        added = parquet.add_bloom(
            file,
            columns,
            check_error_rate(error_rate),
            out=out,
            sidecar=sidecar,
            progress=bar.advance,
        )
    finally:
        bar.stop()
    if as_json:
        for each in added:
            emit_line(json.dumps(vars(each)))
        return 0
    nbytes = sum(each.num_bytes for each in added)
    say(f"{len(added):,} filters, {nbytes:,} bytes: {out or sidecar}")
    return 0


def find(
    file: _FILE,
    column: Annotated[str, typer.Argument(metavar="COLUMN", help="The column to look in.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="What its rows are to equal.")],
    sidecar: _SIDECAR = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--show", "-s", metavar="NAME", help="A column to print; may be repeated."),
    ] = None,
    row_groups: Annotated[
        bool, typer.Option("--row-groups", help="Only the row groups that may hold it.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Rows are JSON as they are; of row groups, an object each."),
    ] = False,
) -> int:
    """Print the rows of a Parquet file whose column equals a value, one JSON object a line; only
    row groups that may hold it are read. The exit code is 1 if there are none."""
    from bloomery.integrations import parquet
    from bloomery.integrations.parquet.layout import ParquetLayout

    with ParquetLayout(file, sidecar) as layout:
        wanted = _parsed(layout.columns[layout.column(column)], value)
    if row_groups:
        maybe = parquet.might_contain(file, column, wanted, sidecar=sidecar)
        groups = [number for number, answer in enumerate(maybe) if answer]
        for number in groups:
            emit_line(json.dumps({"row_group": number}) if as_json else str(number))
        return 0 if groups else 1
    rows = parquet.read(file, column, wanted, columns, sidecar=sidecar)
    for row in python_rows(rows):
        emit_line(json.dumps(row, default=_as_text, ensure_ascii=False))
    return 0 if rows.num_rows else 1


def _parsed(column: Any, text: str) -> object:
    """A value as the command line has it, in the type of the column."""
    kind, physical = column.logical_type.type, column.physical_type
    parsers: dict[str, Any] = {
        "DECIMAL": Decimal,
        "DATE": date.fromisoformat,
        "TIME": time.fromisoformat,
        "TIMESTAMP": lambda text: datetime.fromisoformat(text.replace("Z", "+00:00")),
        "UUID": UUID,
        "INT32": int,
        "INT64": int,
        "FLOAT": float,
        "DOUBLE": float,
        "FLOAT16": float,
        "BOOLEAN": {"true": True, "false": False}.__getitem__,
    }
    parse = parsers.get(kind) or parsers.get(physical) or str
    try:
        return parse(text)
    except (ValueError, KeyError, InvalidOperation):
        shown = physical if kind in ("NONE", "INT") else kind
        raise InvalidParameter(
            f"column {column.path!r} holds {shown}, and {text!r} is none: give it as the column "
            "shows it (42, 1.50, 2024-02-29, 2024-02-29T12:00:00Z)"
        ) from None


def _as_text(value: object) -> str:
    """What JSON has no type for, as text."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


COMMANDS = [
    ("inspect", inspect, "bloomery parquet inspect events.parquet"),
    (
        "add-bloom",
        add_bloom,
        "bloomery parquet add-bloom events.parquet -c user_id -c email -o filtered.parquet",
    ),
    ("find", find, "bloomery parquet find filtered.parquet user_id 42"),
]
