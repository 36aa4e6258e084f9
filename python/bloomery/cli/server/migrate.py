"""`bloomery migrate`: all filters of a RedisBloom or bloomery server, copied to another."""

from typing import Annotated

import typer

from bloomery.cli import options, terminal
from bloomery.cli.amounts import show_memory
from bloomery.cli.progress import ByteProgress

EXAMPLE = (
    "bloomery migrate redis://localhost:6379 --to bloomery://localhost:6380; "
    "bloomery migrate rediss://user:password@redis.example.org --to bloomery://localhost --replace"
)
_TIMEOUT = 300.0  # seconds: the last part of a large filter takes long


def migrate(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="The server with the filters: redis://, rediss:// or bloomery://.",
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            metavar="URL", help="The server that gets them: bloomery://host:port, port 6380."
        ),
    ],
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Replace filters of the target that have the same name."),
    ] = False,
    json: options.Json = False,
) -> int:
    """Copy all filters of a RedisBloom or bloomery server to another, with their names and expiry.

    Without --replace, a filter that the target has is left alone: run an interrupted command again,
    and it continues. Stop clients that write to the source first.
    """
    from bloomery.integrations.redis.transfer.migrating import migration

    with migration(source, to, _TIMEOUT) as work:
        found = work.find()
        bar = ByteProgress("migrate", sum(filter.nbytes for filter in found) or 1)
        copied, skipped, nbytes = list[str](), list[str](), 0
        try:
            for filter in found:
                done = work.copy(filter, replace=replace, advance=bar.advance)
                (copied if done else skipped).append(filter.text)
                nbytes += filter.nbytes if done else 0
                if not done:
                    bar.advance(filter.nbytes)
        finally:
            bar.stop()
    if json:
        terminal.emit_json({"copied": copied, "skipped": skipped, "bytes": nbytes})
    else:
        count = f"{len(copied):,} filter{'s' if len(copied) != 1 else ''}"
        there = f"; {len(skipped):,} skipped, which the target has" if skipped else ""
        terminal.emit_line(f"{count} copied, {show_memory(nbytes)}{there}")
    return 0


COMMANDS = [("migrate", migrate, EXAMPLE)]
