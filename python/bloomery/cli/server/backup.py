"""`bloomery backup` and `bloomery restore`: all filters of a server in one file, and back."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bloomery.cli import options, terminal
from bloomery.cli.amounts import parse_memory, show_memory
from bloomery.cli.progress import ByteProgress
from bloomery.cli.server import remote

if TYPE_CHECKING:
    from bloomery.service.durability.backup import BackupContent

BACKUP_EXAMPLE = (
    "bloomery backup filters.backup; "
    "bloomery backup filters.backup --url https://filters.example.org:8100 --token-file token"
    " --rate 20MB"
)
RESTORE_EXAMPLE = "bloomery restore filters.backup --data ./data; bloomery serve --data ./data"
_TIMEOUT = 900.0  # seconds: the server makes a snapshot before the first byte
_File = Annotated[str, typer.Argument(metavar="FILE", help="The backup.")]


def backup(
    file: _File,
    url: remote.Url = remote.DEFAULT_URL,
    rate: Annotated[
        int,
        typer.Option(
            parser=parse_memory, metavar="SIZE", help="Bytes a second that the server may send."
        ),
    ] = 50_000_000,
    token_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The token of an admin, where the server has users (bloomery user token). Also "
            "BLOOMERY_TOKEN.",
        ),
    ] = None,
    ca: remote.Ca = None,
    json: options.Json = False,
) -> int:
    """Back up all filters of a running server into one file, which is verified before it counts."""
    from bloomery.service.durability.backup import verify
    from bloomery.storage import files

    with remote.connect(url, token_file, ca, _TIMEOUT) as client:
        bar = ByteProgress("backup")
        with files.replacing(file, 0o600) as target:
            try:
                counted, query = _Counted(target, bar), {"rate": str(rate)}
                client.transport.download("/backup", counted, query, bar.begin)
            finally:
                bar.stop()
            target.flush()
            with files.naming(file), open(target.name, "rb") as written:
                content = verify(written)
    if json:
        terminal.emit_json({"file": file, **_facts(content)})
    else:
        terminal.emit_line(f"{file}: {_described(content)}")
    return 0


def restore(
    file: _File,
    data: Annotated[
        Path,
        typer.Option(metavar="DIR", help="The folder to make; if it is there, it must be empty."),
    ],
    json: options.Json = False,
) -> int:
    """Make the data folder of a server out of a backup."""
    from bloomery.service.durability import backup as backups

    bar = ByteProgress("restore", 2 * os.stat(file).st_size)  # verified, then written
    try:
        content = backups.restore(file, data, bar.advance)
    finally:
        bar.stop()
    if json:
        terminal.emit_json({"data": str(data), **_facts(content)})
    else:
        terminal.emit_line(f"{data}: {_described(content)}: bloomery serve --data {data}")
    return 0


class _Counted:
    """A file that is written, and how far that is."""

    def __init__(self, file: Any, bar: ByteProgress) -> None:
        self._file, self._bar = file, bar

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._bar.advance(len(data))


def _facts(content: "BackupContent") -> dict[str, Any]:
    return {
        "filters": [entry.name for entry in content.manifest.entries],
        "bytes": content.nbytes,
        "taken_at": content.taken_at,
        "bloomery": content.bloomery,
    }


def _described(content: "BackupContent") -> str:
    count = len(content.manifest.entries)
    at = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(content.taken_at))
    size = show_memory(content.nbytes)
    return f"{count:,} filter{'s' if count != 1 else ''}, {size}, of {at} by {content.bloomery}"


COMMANDS = [("backup", backup, BACKUP_EXAMPLE), ("restore", restore, RESTORE_EXAMPLE)]
