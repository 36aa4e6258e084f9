"""`bloomery mail dedup`: messages that are in mailboxes more than once."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from bloomery.cli import options
from bloomery.cli.amounts import show_memory
from bloomery.cli.progress import MailProgress
from bloomery.cli.terminal import emit_line

EXAMPLE = "bloomery mail dedup Maildir/; bloomery mail dedup inbox.mbox old.mbox --move twice.mbox"


def dedup(
    mailboxes: Annotated[
        list[Path],
        typer.Argument(metavar="MAILBOX...", help="Maildir folders and mbox files."),
    ],
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete all copies but the first.")
    ] = False,
    move: Annotated[
        Path | None,
        typer.Option("--move", metavar="MAILBOX", help="Move all copies but the first to here."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; that is the default.")
    ] = False,
    by: Annotated[
        Literal["id", "content"],
        typer.Option(
            metavar="WHAT",
            help="id: two messages of one Message-ID are the same; content: of the same text.",
        ),
    ] = "id",
    json: options.Json = False,
    quiet: options.NoProgress = False,
) -> int:
    """Find messages that are in mailboxes more than once, across all that are named.

    Nothing is changed unless --delete or --move says so: then the first copy stays, and so does one
    of its Message-ID that has more text, since the first may be cut off. Messages without a
    Message-ID are compared by what they say: headers of the author, and the body. No filter
    decides: the set of what was seen is exact. --by content trusts no Message-ID.
    """
    from bloomery.apps.mail import deduplicate_mail

    if dry_run and (delete or move is not None):
        raise typer.BadParameter("not with --delete or --move", param_hint="--dry-run")
    if delete and move is not None:
        raise typer.BadParameter("not with --delete", param_hint="--move")
    progress = MailProgress(quiet or json)
    try:
        report = deduplicate_mail(
            mailboxes, by=by, delete=delete, move=move, progress=progress.advance
        )
    finally:
        progress.stop()
    if json:
        from json import dumps

        emit_line(dumps(asdict(report)))
        return 0
    emit_line(
        f"{report.messages:,} messages, {report.duplicates:,} of them again "
        f"({show_memory(report.duplicate_bytes)})"
    )
    for box, count in report.duplicates_in.items():
        emit_line(f"  {count:,} in {box}")
    if report.without_id:
        emit_line(f"{report.without_id:,} have no Message-ID and were compared by content")
    if report.longer:
        emit_line(f"{report.longer:,} have more text than the copy before them and stay")
    if report.unreadable:
        emit_line(
            f"{report.unreadable:,} stay: they cannot be read (check the permissions), are "
            "symbolic links, or are cut by a line of text that begins with 'From '"
        )
    if delete:
        emit_line(f"{report.deleted:,} deleted")
    elif move is not None:
        emit_line(f"{report.moved:,} moved to {move}")
    elif report.duplicates:
        emit_line("nothing was changed: --move MAILBOX or --delete does it")
    return 0


COMMANDS = [("dedup", dedup, EXAMPLE)]
