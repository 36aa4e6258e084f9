"""`bloomery serve`: named filters over the Redis protocol."""

import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from bloomery import errors

EXAMPLE = (
    "bloomery serve --data ./data; "
    "bloomery serve --data ./data --resp-port 0 --http-port 0 --maxmemory 4gb --fsync always; "
    "redis-cli -p 6380 BF.ADD seen alice"
)


def serve(
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder of the data; made if it is not there.")
    ] = Path("bloomery-data"),
    resp_port: Annotated[
        int, typer.Option(min=0, max=65535, help="For the Redis protocol; 0 takes any free port.")
    ] = 6380,
    http_port: Annotated[
        int, typer.Option(min=0, max=65535, help="For /healthz and /readyz; 0 takes any free port.")
    ] = 8100,
    registry: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="BLOOMERY_REGISTRY",
            help="Where filters are listed in SQL: postgresql://user:password@host/database. "
            "Without it, registry.sqlite in DIR.",
        ),
    ] = None,
    fsync: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="When the log goes to the disk: always (before each reply), everysec (the "
            "default) or never. Whichever it is, kill -9 loses nothing that was acknowledged.",
        ),
    ] = None,
    bf_layout: Annotated[
        str | None,
        typer.Option(
            metavar="LAYOUT",
            help="What BF.* commands make: bloomery (the default), or redisbloom: bit for bit.",
        ),
    ] = None,
    maxmemory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="The most memory of all filters: 4gb, say.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other setting (docs/service.md)."),
    ] = None,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="Start without filters whose every snapshot is damaged."
        ),
    ] = False,
) -> int:
    """Serve named filters over the Redis protocol, and lose nothing."""
    # Imported here: other commands start without asyncio, SQLAlchemy and the rest.
    from bloomery.service.server import Server
    from bloomery.service.settings import Settings

    settings = Settings()
    given = {"fsync": fsync, "bf-layout": bf_layout, "maxmemory": maxmemory}
    for pair in set_ or []:
        name, equals, value = pair.partition("=")
        if not equals:
            known = ", ".join(settings.names())
            raise errors.InvalidParameter(f"--set is {pair!r}, must be NAME=VALUE; names: {known}")
        given[name] = value
    for name, text in given.items():
        if text is not None:
            settings.set(name, text, running=False)
    server = Server(
        Path(os.path.abspath(data)),
        settings,
        resp_port=resp_port,
        http_port=http_port,
        registry=registry,
        accept_loss=accept_loss,
    )
    return _run(server.run())


def _run(main: Coroutine[Any, Any, int]) -> int:
    import asyncio

    try:
        import uvloop  # three times as quick as asyncio's own loop
    except ModuleNotFoundError:  # there is none for Windows
        return asyncio.run(main)
    return uvloop.run(main)
