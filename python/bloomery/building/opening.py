"""Opens the rows of a database or of files, by URL or path."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from bloomery.building.files import LineRows
from bloomery.building.postgres import Postgres
from bloomery.building.rows import Rows
from bloomery.building.sql import Dialect, SqlRows
from bloomery.building.sqlite import Sqlite
from bloomery.building.table_files import CsvRows, ParquetRows
from bloomery.errors import InvalidParameter, InvalidSource

Format = Literal["lines", "csv", "parquet"]
_POSTGRES = ("postgresql", "postgres", "postgresql+psycopg")
_SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
# What each kind of source takes beside its name.
_TAKES = {
    "database": {"query", "table", "columns", "order_by", "password"},
    "csv": {"columns", "type", "header", "delimiter"},
    "parquet": {"columns"},
    "lines": {"type"},
}
_NAMES = {"database": "a database", "csv": "CSV", "parquet": "Parquet", "lines": "a file of lines"}


def open_rows(source: str | Sequence[str], *, format: Format | None = None, **options: Any) -> Rows:
    """Open a database by its URL, or files (`-`: standard input) by their names.

    `query`, or `table` and `columns`, `order_by` and `password` are for databases; `columns`,
    `type` ("str" or "int"), `header` and `delimiter` for CSV; `columns` for Parquet; `type` for
    lines. `format` is for files whose names do not say it: "lines", "csv" or "parquet".
    """
    sources = [source] if isinstance(source, str) else list(source)
    kinds = {format or _kind_of(path) for path in sources}
    if len(kinds) != 1:
        raise InvalidParameter("files that are read together must be of one kind")
    (kind,) = kinds
    if kind == "lines":
        for path in sources:
            _refuse_binary(path)
    given = {name: value for name, value in options.items() if value not in (None, (), [])}
    for name in given:
        if name not in _TAKES[kind]:
            takes = ", ".join(sorted(_TAKES[kind])) or "nothing"
            raise InvalidParameter(f"{name} is not for {_NAMES[kind]}: it takes {takes} beside it")
    if kind == "database":
        if len(sources) != 1:
            raise InvalidParameter("rows come from one database at a time")
        password = given.pop("password", None)
        return SqlRows(_dialect(sources[0], password), **given)
    if kind == "lines":
        return LineRows(sources, **given)
    if "columns" not in given:
        raise InvalidParameter(f"{sources[0]}: say which column holds the keys")
    if kind == "parquet":
        return ParquetRows(sources, **given)
    if re.search(r"\.tsv(\.\w+)?$", sources[0]):
        given.setdefault("delimiter", "\t")
    return CsvRows(sources, **given)


def takes(source: str, option: str) -> bool:
    """Whether `open_rows` has a use for this option with such a source."""
    return option in _TAKES[_kind_of(source)]


def key_batches(source: str | Sequence[str], **options: Any) -> Iterator[Any]:
    """All keys of a source, a batch at a time, for `Guard.rebuild` and its like.

    The source is opened with the first batch, not before: what a database shows is what it holds at
    that moment.
    """
    rows = open_rows(source, **options)
    try:
        for batch in rows.batches():
            yield batch.for_add_many()
    finally:
        rows.close()


def _kind_of(source: str) -> str:
    if "://" in source:
        return "database"
    plain = re.sub(r"\.(gz|zst)$", "", source.lower())
    return next((kind for end, kind in _SUFFIXES.items() if plain.endswith(end)), "lines")


def _refuse_binary(path: str) -> None:
    """Refuse a binary file, which would be read as lines by mistake."""
    if not os.path.isfile(path):  # standard input, a pipe; or it is not there, and others say so
        return
    with open(path, "rb") as file:
        begin = file.read(16)
    if begin == b"SQLite format 3\0":
        raise InvalidSource(
            f"{path} is an SQLite database, not lines: write sqlite:///{path}, with a query, or a "
            "table and its column"
        )
    if begin.startswith(b"PAR1"):
        raise InvalidSource(f"{path} is a Parquet file, not lines: say so (format parquet)")


def _dialect(url: str, password: str | None) -> Dialect:
    scheme, _, rest = url.partition("://")
    if scheme in _POSTGRES:
        return Postgres(url, password)
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        if password is not None:
            raise InvalidParameter("password is given, but SQLite has none")
        return Sqlite(rest[1:])
    raise InvalidParameter(
        f"{scheme}://… is not read: postgresql://user@host/database and sqlite:///file.db are"
    )
