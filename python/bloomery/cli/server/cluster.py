"""`bloomery cluster`: several servers on this machine, for a try-out."""

from typing import Annotated

import typer

from bloomery.cli import terminal
from bloomery.errors import InvalidParameter

EXAMPLE = (
    "bloomery cluster up --nodes 3; "
    "bloomery cluster up --tour; "
    "bloomery cluster up --nodes 5 --data ./cluster --resp-port 0 --http-port 0; "
    "bloomery cluster up --store redis://10.0.0.5:6379 --set store-consistency=strong; "
    "redis-cli -p 6380 BF.ADD seen alice"
)
_MOST = 16  # haproxy.cfg has lines for so many


def up(
    nodes: Annotated[
        int, typer.Option(metavar="N", min=1, max=_MOST, help=f"How many nodes: 1 to {_MOST}.")
    ] = 3,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Where Redis and the nodes keep what they have; made if it is not there. Without "
            "it all is gone when the cluster ends.",
        ),
    ] = None,
    resp_port: Annotated[
        int,
        typer.Option(
            metavar="PORT", min=0, max=65535, help="Of HAProxy, for the Redis protocol; 0: any."
        ),
    ] = 6380,
    http_port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="Of HAProxy, for HTTP; 0: any.")
    ] = 8100,
    redis_port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="Of Redis; 0: any free port.")
    ] = 0,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="BLOOMERY_STORE",
            help="A Redis that is there already, in place of one of its own.",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting of the nodes."),
    ] = None,
    tour: Annotated[
        bool,
        typer.Option(
            "--tour",
            help="Show what nodes do, in half a minute, and end: one key at all nodes, look-ups, a "
            "full filter that is rotated, a node that is killed.",
        ),
    ] = False,
) -> int:
    """Start Redis, nodes that share it, and HAProxy in front, on this machine; Ctrl-C stops all."""
    from bloomery.cli.trial.trial import Cluster, data_folder

    if tour and store:
        raise InvalidParameter("a tour has a Redis of its own: leave --store out")
    if tour and nodes < 2:
        raise InvalidParameter("a tour kills a node, and others answer: --nodes 2 or more")
    with data_folder(data) as folder:
        cluster = Cluster(nodes, folder, show=terminal.emit_line, tell=terminal.note)
        cluster.prepare(store or "", set_ or (), resp_port, http_port, redis_port)
        return cluster.run(tour)


COMMANDS = [("up", up, EXAMPLE)]
