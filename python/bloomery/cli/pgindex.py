"""`bloomery pgindex advise`: the bloom index of PostgreSQL that suits a table."""

from pathlib import Path
from typing import Annotated

import typer

from bloomery.cli import options
from bloomery.cli.amounts import show_memory
from bloomery.cli.terminal import emit_line

EXAMPLE = (
    "bloomery pgindex advise postgresql://ann@db/shop orders"
    "; bloomery pgindex advise postgresql://ann@db/shop orders --queries city,status | psql shop"
)


def advise(
    database: Annotated[
        str, typer.Argument(metavar="DSN", help="The database: postgresql://user@host/name.")
    ],
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table, or schema.table.")],
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns", metavar="A,B,…", help="Which columns. Default: all that can be indexed."
        ),
    ] = None,
    queries: Annotated[
        list[str] | None,
        typer.Option(
            "--queries",
            metavar="A,B",
            help="Columns that one query asks for together; may be repeated. Default: all pairs.",
        ),
    ] = None,
    operator_classes: Annotated[
        bool,
        typer.Option(
            "--operator-classes",
            help="Take columns of other types than int4 and text too: their operator classes are"
            " created first, by a superuser.",
        ),
    ] = False,
    password_file: Annotated[
        str | None,
        typer.Option(
            "--password-file",
            metavar="FILE",
            help="Its first line is the password. PGPASSWORD and ~/.pgpass work too.",
        ),
    ] = None,
    json: options.Json = False,
) -> int:
    """Read a table's statistics, and print the CREATE INDEX … USING bloom that suits it.

    What is printed is SQL, with what is to be known of it in comments: what the index and B-trees
    would weigh, and how many rows a query would recheck in vain. Nothing is changed.
    """
    from bloomery.signatures.advice import advise as choose
    from bloomery.signatures.postgres import read_table

    password = None
    if password_file is not None:
        with Path(password_file).open(encoding="utf-8") as file:
            password = file.readline().rstrip("\r\n")
    statistics = read_table(database, table, password)
    advice = choose(
        statistics,
        _names(columns) if columns is not None else [],
        [_names(one) for one in queries or []],
        operator_classes=operator_classes,
    )
    if json:
        from json import dumps

        emit_line(dumps(advice.as_dict(), indent=2))
        return 0
    trees = sum(advice.btree_bytes.values())
    comments = [
        f"{statistics.name}: {advice.rows:,} rows in {statistics.pages:,} pages",
        f"this index: {show_memory(advice.index_bytes)}; "
        f"a B-tree for each of its columns: {show_memory(trees)}",
        *(
            f"{' and '.join(question.columns)}: {question.matches:,.1f} rows expected, "
            f"{question.false_matches:,.1f} more removed by the recheck; "
            f"{question.heap_pages:,.0f} pages of the table"
            for question in advice.questions
        ),
        *advice.notes,
    ]
    for comment in comments:  # a name may hold the end of a line, and of the comment with it
        emit_line(f"-- {' '.join(comment.split())}")
    for statement in advice.statements:
        emit_line(f"{statement};")
    return 0


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise typer.BadParameter(f"{text!r} is no list of columns: city,status")
    return names


COMMANDS = [("advise", advise, EXAMPLE)]
