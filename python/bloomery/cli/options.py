"""Arguments and options that several commands share, so that one thing is spelled one way."""

from typing import Annotated, Literal

from bloomery.cli.amounts import parse_count, parse_rate, parse_seed
from bloomery.cli.parsing.declared import Argument, Option, bad_parameter
from bloomery.filters import COMMON_KINDS, FilterBank

Layout = Literal["blocked", "classic"]
Hasher = Literal["xxh3", "murmur3", "fnv1a", "siphash"]
FILTER, RUN, _SOME_KINDS = "The filter", "The run", "For some kinds of filter"
_KINDS = (*COMMON_KINDS, FilterBank.kind)


def _parse_kind(text: str) -> str:
    if text not in _KINDS:
        raise bad_parameter(f"{text!r} is not one of {', '.join(_KINDS)}")
    return text


Kind = Annotated[
    str,
    Option(
        "--kind",
        parser=_parse_kind,
        metavar="KIND",
        help=f"One of {', '.join(_KINDS)}.",
        rich_help_panel=FILTER,
    ),
]
FilterFile = Annotated[str, Argument(metavar="FILE", help="A saved filter.")]
KeyType = Annotated[
    Literal["str", "bytes", "int", "uuid", "datetime"] | None,
    Option(
        "--type",
        metavar="TYPE",
        help="What keys are: str (or bytes), int, uuid or datetime. Default: as the file says.",
    ),
]
Force = Annotated[bool, Option("--force", "-f", help="Replace the file that is there.")]
Keys = Annotated[
    list[str] | None,
    Argument(metavar="[KEY]...", help="Keys; without any, the lines of standard input."),
]
User = Annotated[
    str | None,
    Option(
        "--user",
        metavar="NAME",
        help="bank: whose keys; without it, lines are USER, a tab, and the key.",
    ),
]


def capacity(help: str, panel: str | None = FILTER) -> Option:
    """`--capacity`, of what this command counts."""
    return Option(
        *("--capacity", "-n"), parser=parse_count, metavar="N", help=help, rich_help_panel=panel
    )


def error_rate(help: str, panel: str | None = FILTER) -> Option:
    """`--error-rate`, and what that means for this command."""
    return Option(
        *("--error-rate", "-e"), parser=parse_rate, metavar="RATE", help=help, rich_help_panel=panel
    )


Capacity = Annotated[int | None, capacity("Distinct keys it is made for: 10M, 1e9.")]
ErrorRate = Annotated[float, error_rate("Allowed share of wrong maybes: 1%, 1e-6.")]
LayoutOption = Annotated[
    Layout | None,
    Option(
        "--layout",
        metavar="NAME",
        help="blocked (one cache line a key) or classic (the textbook).",
        rich_help_panel=FILTER,
    ),
]
HasherOption = Annotated[
    Hasher,
    Option(
        "--hasher",
        metavar="NAME",
        help="xxh3, murmur3, fnv1a; siphash, with a secret seed, where others choose keys.",
        rich_help_panel=FILTER,
    ),
]
Seed = Annotated[
    int,
    Option(
        "--seed",
        parser=parse_seed,
        metavar="N",
        help="Seed of the hasher; siphash: its key.",
        rich_help_panel=FILTER,
    ),
]
CounterBits = Annotated[
    int | None,
    Option(
        "--counter-bits",
        metavar="4|8",
        help="counting: how far a counter counts.",
        rich_help_panel=_SOME_KINDS,
    ),
]
Regions = Annotated[
    int | None,
    Option(
        "--regions",
        parser=parse_count,
        metavar="N",
        help="deletable: more regions, more keys that can be removed.",
        rich_help_panel=_SOME_KINDS,
    ),
]
Window = Annotated[
    str | None,
    Option(
        "--window",
        metavar="TIME",
        help="rotating: how long a key is kept: 7d, 12h; none: until CAPACITY more have come.",
        rich_help_panel=_SOME_KINDS,
    ),
]
Generations = Annotated[
    int | None,
    Option(
        "--generations",
        metavar="N",
        help="rotating: in how many steps it forgets.",
        rich_help_panel=_SOME_KINDS,
    ),
]
Growth = Annotated[
    float | None,
    Option(
        "--growth",
        metavar="X",
        help="scalable: how much larger each time it grows.",
        rich_help_panel=_SOME_KINDS,
    ),
]
Grow = Annotated[
    bool | None,
    Option(
        "--grow/--no-grow",
        help="cuckoo: grow when it is full, or refuse keys.",
        rich_help_panel=_SOME_KINDS,
    ),
]
KeysPerFilter = Annotated[
    int | None,
    Option(
        "--keys-per-filter",
        parser=parse_count,
        metavar="N",
        help="bank: keys that a user is likely to have; 1000.",
        rich_help_panel=_SOME_KINDS,
    ),
]
Trust = Annotated[
    list[str] | None,
    Option(
        "--trust",
        metavar="KEY",
        help="A publisher's public key, ed25519:…, or a file of such lines; may be given again.",
    ),
]
NumBits = Annotated[
    int | None,
    Option(
        "--num-bits",
        parser=parse_count,
        metavar="M",
        help="bloom, counting: bits, with --num-hashes; the error rate follows from both.",
        rich_help_panel=_SOME_KINDS,
    ),
]
NumHashes = Annotated[
    int | None,
    Option(
        "--num-hashes",
        metavar="K",
        help="bloom, counting: bits or counters that a key has.",
        rich_help_panel=_SOME_KINDS,
    ),
]
LinesPerKey = Annotated[
    int | None,
    Option(
        "--lines-per-key",
        metavar="1|2",
        help="bloom: over how many lines of 64 bytes a key's bits are spread.",
        rich_help_panel=_SOME_KINDS,
    ),
]
Nulls = Annotated[
    Literal["skip", "error"],
    Option(
        "--nulls",
        metavar="WHAT",
        help="skip: leave rows that are NULL out, and count them; error: refuse them.",
        rich_help_panel=RUN,
    ),
]
Checkpoint = Annotated[
    float,
    Option(
        "--checkpoint",
        min=0,
        metavar="SECONDS",
        help="How often to keep how far it came.",
        rich_help_panel=RUN,
    ),
]
NoProgress = Annotated[bool, Option("--quiet", "-q", help="No progress bar.")]
Json = Annotated[bool, Option("--json", help="Print JSON, for a program.")]


def refuse_together(json: bool, name: str, given: bool) -> None:
    """Raise if an option was given that says what to print, and --json says it too."""
    if json and given:
        raise bad_parameter(f"it prints what --json prints: leave {name} or --json out")


JsonSummary = Annotated[
    bool, Option("--json", help="A summary of the run as JSON, on standard error.")
]
