"""Arguments and options that several commands share, so that one thing is spelled one way."""

from typing import Annotated, Literal

import typer

from bloomery.cli.amounts import parse_count, parse_rate, parse_seed
from bloomery.filters import COMMON_KINDS, FilterBank

Layout = Literal["blocked", "classic"]
Hasher = Literal["xxh3", "murmur3", "fnv1a", "siphash"]
_KINDS = (*COMMON_KINDS, FilterBank.kind)


def _parse_kind(text: str) -> str:
    if text not in _KINDS:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(_KINDS)}")
    return text


Kind = Annotated[
    str,
    typer.Option("--kind", parser=_parse_kind, metavar="KIND", help=f"One of {', '.join(_KINDS)}."),
]
FilterFile = Annotated[str, typer.Argument(metavar="FILE", help="A saved filter.")]
Keys = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY]...", help="Keys; without any, the lines of standard input."),
]
User = Annotated[
    str | None,
    typer.Option(
        "--user",
        metavar="NAME",
        help="bank: whose keys; without it, lines are USER, a tab, and the key.",
    ),
]
Capacity = Annotated[
    int | None,
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
    Layout | None,
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
CounterBits = Annotated[
    int | None,
    typer.Option("--counter-bits", metavar="4|8", help="counting: how far a counter counts."),
]
Regions = Annotated[
    int | None,
    typer.Option(
        "--regions",
        parser=parse_count,
        metavar="N",
        help="deletable: more regions, more keys that can be removed.",
    ),
]
Window = Annotated[
    str | None,
    typer.Option(
        "--window",
        metavar="TIME",
        help="rotating: how long a key is kept: 7d, 12h; none: until CAPACITY more have come.",
    ),
]
Generations = Annotated[
    int | None,
    typer.Option("--generations", metavar="N", help="rotating: in how many steps it forgets."),
]
Growth = Annotated[
    float | None,
    typer.Option("--growth", metavar="X", help="scalable: how much larger each time it grows."),
]
Grow = Annotated[
    bool | None,
    typer.Option("--grow/--no-grow", help="cuckoo: grow when it is full, or refuse keys."),
]
KeysPerFilter = Annotated[
    int | None,
    typer.Option(
        "--keys-per-filter",
        parser=parse_count,
        metavar="N",
        help="bank: keys that a user is likely to have; 1000.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for a program.")]
