"""`bloomery serve`: named filters over the Redis protocol and HTTP."""

import gc
from collections.abc import Coroutine
from contextlib import ExitStack
from typing import Annotated, Any

import typer

from bloomery import errors

EXAMPLE = (
    "bloomery serve --data ./data; "
    "bloomery serve --data ./data --resp-port 0 --http-port 0 --maxmemory 4gb --fsync always; "
    "bloomery serve --config bloomery.toml --check; "
    "redis-cli -p 6380 BF.ADD seen alice"
)


def serve(
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Settings in TOML, weaker than the environment "
            "(BLOOMERY_…) and flags. Also BLOOMERY_CONFIG.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="The folder of the data; made if it is not there. bloomery-data."
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            help="The address to serve at: 127.0.0.1. Others than this machine's own take users "
            "(bloomery user) and TLS.",
        ),
    ] = None,
    resp_port: Annotated[
        str | None,
        typer.Option(metavar="PORT", help="For the Redis protocol: 6380; 0 takes any free port."),
    ] = None,
    http_port: Annotated[
        str | None, typer.Option(metavar="PORT", help="For HTTP: 8100; 0 takes any free port.")
    ] = None,
    tls_cert: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The certificate and its chain, PEM: TLS at both ports."),
    ] = None,
    tls_key: Annotated[str | None, typer.Option(metavar="FILE", help="Its key, PEM.")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve others without TLS: passwords can be read.")
    ] = False,
    registry: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where filters are listed in SQL: postgresql://user:password@host/database. "
            "Without it, registry.sqlite in DIR. Better BLOOMERY_REGISTRY: others see flags.",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Be a node: the filters are in this Redis (redis://host:6379), and any number of "
            "nodes share them. Better BLOOMERY_STORE: others see flags.",
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
    log_format: Annotated[
        str | None, typer.Option(metavar="FORM", help="Of what it tells on stderr: text or json.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Any setting: `bloomery serve --check` lists them."
        ),
    ] = None,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Start with what is left of a damaged data folder, once; the damaged files are "
            "set aside in DIR/damaged.",
        ),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Start nothing: say what is wrong, what is effective and from where."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="--check for a program.")] = False,
) -> int:
    """Serve named filters over the Redis protocol and HTTP, and lose nothing."""
    # Imported here: other commands start without asyncio, SQLAlchemy and the rest.
    from bloomery.service.config import configuration

    named = {
        "data": data,
        "host": host,
        "resp-port": resp_port,
        "http-port": http_port,
        "tls-cert": tls_cert,
        "tls-key": tls_key,
        "insecure": "yes" if insecure else None,
        "registry": registry,
        "store": store,
        "fsync": fsync,
        "bf-layout": bf_layout,
        "maxmemory": maxmemory,
        "log-format": log_format,
    }
    given = [
        configuration.RawSetting(name, text, f"--{name}")
        for name, text in named.items()
        if text is not None
    ]
    for pair in set_ or []:
        name, _, text = pair.partition("=")
        given.append(configuration.RawSetting(name, text, f"--set {name}"))

    def read() -> configuration.Configuration:
        return configuration.read(given, file=config)

    loaded = read()
    loaded.problems += [
        f"--set {pair}: must be NAME=VALUE: --set maxmemory=4gb, say"
        for pair in set_ or []
        if "=" not in pair
    ]
    if check:
        from bloomery.cli.server.check import show

        return show(loaded, as_json)
    if as_json:
        raise errors.InvalidParameter("--json is for --check: --log-format json is for the log")
    settings = loaded.require()
    from bloomery.service.durability.preload import Preload

    with ExitStack() as stack:
        # Until the filters are loaded: what is imported stays, and to look for garbage among it
        # took a fifth of the time of the imports.
        gc.disable()
        stack.callback(gc.enable)
        # Begun before the server is imported, which takes about as long.
        preload = None if settings.store else stack.enter_context(Preload(settings.data))
        from bloomery.service.observe import logs
        from bloomery.service.server import Server

        logs.set_up(settings.log_format, settings.log_level)
        for secret in loaded.secrets():
            logs.hide(secret)
        server = Server(
            settings,
            accept_loss=accept_loss,
            config=loaded.file,
            sources=loaded.sources,
            filters=loaded.filters,
            read=read,
            preload=preload,
        )
        for warning in loaded.warnings:
            server.say(warning, level="warning")
        return _run(server.run())


def _run(main: Coroutine[Any, Any, int]) -> int:
    import asyncio
    import sys

    # The thread that writes the log, and the one that serves, wait so long for each other at most,
    # and not 5 ms: a write that waited for a large one had to take turns several times.
    sys.setswitchinterval(0.001)
    try:
        import uvloop  # three times as quick as asyncio's own loop
    except ModuleNotFoundError:  # there is none for Windows
        return asyncio.run(main)
    return uvloop.run(main)


COMMANDS = [("serve", serve, EXAMPLE)]
