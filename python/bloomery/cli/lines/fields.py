"""What of a line is its key: all of it, a field of its JSON (`--key .url`), or a column of CSV.

A field's key is text: the characters of a JSON string, any other JSON value as it is written, a
column without its quotes. So `5` and `"5"` are one key. A line that has no such field, or a null
there, has no key: it goes through as it is, and is counted; `--strict` makes it an error.
"""

import re
from collections.abc import Sequence
from typing import Annotated, NamedTuple

from bloomery._native import LineKey
from bloomery.cli.parsing.declared import Option, bad_parameter
from bloomery.cli.terminal import say
from bloomery.errors import InvalidParameter

_PANEL = "What of a line is its key"
Key = Annotated[
    str | None,
    Option(
        "--key",
        "-k",
        metavar="PATH",
        help="Lines are JSON: the field that counts, as jq names it: .url, .user.id, .tags[0].",
        rich_help_panel=_PANEL,
    ),
]
Column = Annotated[
    str | None,
    Option(
        "--column",
        "-c",
        metavar="NAME|N",
        help="Lines are CSV: the column that counts, by its name or its number from 1.",
        rich_help_panel=_PANEL,
    ),
]
Delimiter = Annotated[
    str | None,
    Option(
        "--delimiter",
        "-d",
        metavar="CHAR",
        help="Of CSV; tab for a tab. Default: a comma; a tab for files named .tsv.",
        rich_help_panel=_PANEL,
    ),
]
NoHeader = Annotated[
    bool,
    Option(
        "--no-header",
        help="CSV that begins with a record, not with the columns' names.",
        rich_help_panel=_PANEL,
    ),
]
Strict = Annotated[
    bool,
    Option(
        "--strict",
        help="Stop at a line without the field. Default: let it through, and say how many.",
        rich_help_panel=_PANEL,
    ),
]

_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]"'\s]+)        # .url
      | \.?\[?"(?P<quoted>[^"]+)"\]?     # ."odd name" or ["odd name"]
      | \.?\[(?P<number>\d{1,9})\]       # [0]""",
    re.VERBOSE,
)
_HEADER = 64 << 10  # bytes that hold a header, nearly always


class FieldOptions(NamedTuple):
    """What was asked for, checked."""

    path: tuple[str | int, ...] | None = None
    column: str | None = None
    delimiter: str = ","
    header: bool = True
    strict: bool = False
    described: str = ""

    def __bool__(self) -> bool:
        """Whether a part of each line is its key, and not all of it."""
        return self.path is not None or self.column is not None

    def reader(self) -> "FieldReader | None":
        """What reads one input, if its lines are more than lines."""
        return FieldReader(self) if self else None


def parse(
    key: str | None,
    column: str | None,
    delimiter: str | None,
    no_header: bool,
    strict: bool,
    files: Sequence[str] = (),
) -> FieldOptions:
    """Read the options; BadParameter says which is wrong."""
    if key is not None and column is not None:
        raise bad_parameter("--key is for JSON and --column for CSV: give one of them")
    if column is None and (delimiter is not None or no_header):
        raise bad_parameter("--delimiter and --no-header go with --column")
    if key is None and column is None and strict:
        raise bad_parameter("--strict goes with --key or --column")
    if key is not None:
        return FieldOptions(path=_path(key), strict=strict, described=key)
    if column is None:
        return FieldOptions()
    if no_header and not (column.isascii() and column.isdecimal() and 0 < int(column) < 1 << 31):
        raise bad_parameter(
            f"{column!r} is no number, and without a header columns have only numbers: 1, 2, …",
            "--column",
        )
    if delimiter is None:
        stem = files[0].removesuffix(".gz").removesuffix(".zst") if files else ""
        delimiter = "\t" if stem.endswith(".tsv") else ","
    delimiter = {"tab": "\t", "\\t": "\t"}.get(delimiter, delimiter)
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise bad_parameter(f"{delimiter!r} is not one character of ASCII", "--delimiter")
    described = f"column {column}"
    return FieldOptions(None, column, delimiter, not no_header, strict, described)


def _path(text: str) -> tuple[str | int, ...]:
    steps: list[str | int] = []
    at = 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            break
        number = step["number"]
        steps.append(int(number) if number else step["name"] or step["quoted"])
        at = step.end()
    if not steps or at < len(text) or "\udc80" <= max(text) <= "\udcff":
        near = (
            f"; did you mean .{text}? (of CSV: --column {text})"
            if re.fullmatch(r"[\w-]+", text)
            else ""
        )
        raise bad_parameter(
            f"{text!r} is not a path such as .url, .user.id or .tags[0]{near}", "--key"
        )
    return tuple(steps)


class FieldReader:
    """The fields of one input: its header, which is no line, and how many lines had none."""

    def __init__(self, options: FieldOptions) -> None:
        self._options = options
        self.header = b""  # as it stands, with its line end; b"" until it was read, or of JSON
        self.key: LineKey | None = None
        if options.path is not None:
            self.key = LineKey.json(list(options.path))
        elif not options.header:
            self.key = LineKey.csv(int(str(options.column)) - 1, options.delimiter.encode())

    def begin(self, data: memoryview, final: bool, name: str) -> int:
        """Read what is no line, if it has come; how many bytes that was."""
        if self.key is not None:
            return 0
        delimiter = self._options.delimiter.encode()
        for size in (_HEADER, len(data)):
            whole = final and size >= len(data)
            records, _, _ = LineKey.csv(0, delimiter).split(data[:size], final=whole)
            if records:
                break
        else:
            return 0
        self.header = records[0] + b"\n"
        self.key = LineKey.csv(self._number(records[0], name), delimiter)
        return min(len(records[0]) + 1, len(data))

    def _number(self, header: bytes, name: str) -> int:
        import csv
        import io

        column = str(self._options.column)
        text = header.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=self._options.delimiter)
        try:
            names = next(rows, [])
        except csv.Error as problem:
            raise InvalidParameter(f"{name}: its header cannot be read: {problem}") from None
        if names.count(column) > 1:
            raise InvalidParameter(
                f"{name}: {names.count(column)} columns are named {column!r}: give its number"
            )
        if column in names:
            return names.index(column)
        if column.isdecimal() and 1 <= int(column) <= len(names):
            return int(column) - 1
        raise InvalidParameter(
            f"{name}: there is no column {column!r} among {', '.join(names[:20]) or 'none'};"
            " --delimiter, if others than commas are between them"
        )

    def check(self, name: str) -> None:
        """Raise if a line had no field and that was not to be."""
        if self._options.strict and self.key is not None and self.key.missing:
            raise InvalidParameter(
                f"{name}: {self._where()} has no {self._options.described}; without --strict such"
                " lines are let through"
            )

    def report(self, name: str) -> None:
        """Say how many lines were let through because they had no field."""
        if self.key is not None and self.key.missing:
            say(
                f"{name}: {self.key.missing:,} of {self.key.lines:,} lines have no"
                f" {self._options.described} and were let through; the first is {self._where()}"
            )

    def _where(self) -> str:
        assert self.key is not None
        number = self.key.first_missing + bool(self.header)
        return f"{'line' if self._options.path else 'record'} {number:,}"
