"""`bloomery log`: the write-ahead log of a server, for people."""

import json as json_module
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bloomery.cli import terminal
from bloomery.cli.options import Json
from bloomery.errors import CorruptData, InvalidParameter
from bloomery.service.domain import operations
from bloomery.service.domain.operations import HASHES, Op

if TYPE_CHECKING:
    from bloomery.service.durability.log_reader import LogReader, Row

DUMP_EXAMPLE = (
    "bloomery log dump bloomery-data; bloomery log dump bloomery-data/log/00000007.log --json"
)
_SUFFIX = ".log"
_NAMES = {int(op): op.name for op in Op}


def dump(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER|SEGMENT", help="A server's data folder, or one segment of its log."
        ),
    ],
    json: Json = False,
) -> int:
    """Print the records of a server's log: number, time (UTC), filter number, operation, bytes,
    the filter's name, and what the operation has: its fields, or how many hashes.

    It changes nothing, and the server may run. It reports damage on standard error, prints the
    records after it, and exits with 1.
    """
    reader = _open(path)
    show: Callable[[Row], str] = _as_json if json else _as_text
    for rows in reader.chunks():
        terminal.emit("".join(f"{show(row)}\n" for row in rows).encode())
    for problem in [*reader.problems, *([] if reader.tail is None else [reader.tail])]:
        terminal.say(problem)
    return 1 if reader.problems else 0


def _open(path: Path) -> "LogReader":
    from bloomery.service.durability.folder import check_log, log_folder, segments
    from bloomery.service.durability.log_reader import LogReader

    if path.is_dir():
        check_log(path)
        folder = log_folder(path) if log_folder(path).is_dir() else path
        numbers = segments(folder)
        if not numbers:
            raise InvalidParameter(f"{path}: no segments of a log: name a server's data folder")
        return LogReader(folder, numbers[0], None, salvage=True)
    if not path.exists():
        raise FileNotFoundError(2, "no such file or folder", str(path))
    if path.suffix != _SUFFIX or not path.stem.isdecimal():
        raise InvalidParameter(f"{path}: a segment's name is a number and {_SUFFIX}")
    number = int(path.stem)
    return LogReader(path.parent, number, None, number + 1, salvage=True)


def _details(op: int, data: bytes) -> tuple[str, dict[str, Any]]:
    """The name of an operation, and what it has."""
    name = _NAMES.get(op)
    if name is None:  # a newer version wrote it
        return f"operation {op}", {}
    try:
        filter, body = operations.split(data)
        named = {"name": _printable(filter)}
        if op in HASHES:
            return name, {**named, "hashes": len(body) // 8}
        if op == Op.CHUNK:
            position, fields, part = operations.read_chunk(body)
            return name, {**named, "position": position, "part_bytes": len(part), "fields": fields}
        if op == Op.FORGET:
            return name, {**named, "names": len(operations.read_names(body))}
        if op == Op.ROTATE or not body:
            return name, named
        return name, {**named, "fields": operations.read_fields(body)}
    except CorruptData as problem:
        return name, {"problem": str(problem)}


def _printable(name: bytes) -> str:
    """Return a name on one line: other bytes and characters are escaped."""
    text = name.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _as_text(row: "Row") -> str:
    seq, at, filter, op, data = row
    name, details = _details(op, data)
    fields = details.pop("fields", None)
    parts = [f"{key.replace('_', ' ')} {value}" for key, value in details.items()]
    parts += [] if not fields else [json_module.dumps(fields)]
    return "\t".join([str(seq), _time(at), str(filter), name, str(len(data)), *parts])


def _time(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="microseconds")
    except (ValueError, OverflowError, OSError):  # no server writes that
        return str(at)


def _as_json(row: "Row") -> str:
    seq, at, filter, op, data = row
    name, details = _details(op, data)
    shown = {"seq": seq, "time": at, "filter": filter, "operation": name, "bytes": len(data)}
    return json_module.dumps(shown | details)


COMMANDS: list[tuple[str, Callable[..., int], str]] = [("dump", dump, DUMP_EXAMPLE)]
