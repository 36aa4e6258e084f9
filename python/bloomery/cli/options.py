"""Arguments and options that several commands share, so that one thing is spelled one way."""

from typing import Annotated, Literal

import typer

from bloomery.cli.amounts import parse_count, parse_rate, parse_seed

Layout = Literal["blocked", "classic"]
Hasher = Literal["xxh3", "murmur3", "fnv1a", "siphash"]

FilterFile = Annotated[str, typer.Argument(metavar="FILE", help="A saved filter.")]
Keys = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY]...", help="Keys; without any, the lines of standard input."),
]
Capacity = Annotated[
    int,
    typer.Option(
        "--capacity",
        "-n",
        parser=parse_count,
        metavar="N",
        help="Distinct keys it is made for: 1000000, 10M, 1e9.",
    ),
]
ErrorRate = Annotated[
    float,
    typer.Option(
        "--error-rate",
        "-e",
        parser=parse_rate,
        metavar="RATE",
        help="Allowed share of wrong maybes: 0.01, 1%, 1e-6.",
    ),
]
LayoutOption = Annotated[
    Layout,
    typer.Option(
        "--layout", help="blocked: one cache line a key, fastest; classic: the textbook layout."
    ),
]
HasherOption = Annotated[
    Hasher,
    typer.Option("--hasher", help="siphash, with a secret seed, where others choose the keys."),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed", parser=parse_seed, metavar="N", help="Seed of the hasher; siphash: its key."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for a program.")]
