"""Plain text tables and the JSON file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from benchmarks.settings import Record


@dataclass(frozen=True)
class Column:
    title: str
    left: bool = False


def table(title: str, columns: list[Column], rows: list[list[str]]) -> str:
    """A title, a header, a rule and the rows, each column as wide as its widest cell."""
    widths = [
        max(len(cell) for cell in (column.title, *(row[i] for row in rows)))
        for i, column in enumerate(columns)
    ]

    def line(cells: list[str]) -> str:
        padded = [
            cell.ljust(width) if column.left else cell.rjust(width)
            for cell, width, column in zip(cells, widths, columns, strict=True)
        ]
        return "  ".join(padded).rstrip()

    head = line([column.title for column in columns])
    return "\n".join([title, head, "-" * len(head), *map(line, rows)])


def heading(text: str) -> str:
    return f"\n== {text} " + "=" * max(3, 96 - len(text))


def machine_lines(machine: Record) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return "\n".join(
        [
            f"machine   {machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, "
            f"transparent huge pages: {machine['huge_pages']}",
            f"system    {machine['system']}; Python {machine['python']}; {machine['compiler']}",
            f"versions  {versions}",
            f"commit    {machine['commit']}",
        ]
    )


def minutes(took: dict[str, int], may: dict[str, int]) -> str:
    """How long each part took, in seconds, beside what it may take."""
    columns = [Column("part", left=True), Column("took, s"), Column("may take"), Column("")]
    rows = [
        [name, str(seconds), str(may[name]), "over" if seconds > may[name] else ""]
        for name, seconds in took.items()
    ]
    return heading("minutes") + "\n" + table("Time of each part", columns, rows)


def write_json(path: Path, document: Record) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, default=float) + "\n")
