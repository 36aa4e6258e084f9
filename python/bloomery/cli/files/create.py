"""`bloomery create`: a filter file of any kind is made."""

import errno
import inspect
import os
from typing import Annotated, Any

import typer

from bloomery.cli import options
from bloomery.cli.amounts import show_memory, show_rate
from bloomery.cli.files import bank, state
from bloomery.cli.files import keys as typed
from bloomery.cli.terminal import emit_json, emit_line, with_step
from bloomery.filters import COMMON_KINDS, AnyFilter, FilterBank
from bloomery.storage.inputs import InputFile, lines_of

EXAMPLE = (
    "bloomery create seen.bloom --capacity 10M --error-rate 0.1%; "
    "bloomery create week.bloom --kind rotating --capacity 1M --window 7d; "
    "bloomery create words.bloom --kind static < words.txt; "
    "bloomery create bank.bloom --kind bank --keys-per-filter 5000; "
    "bloomery create shaped.bloom --num-bits 1M --num-hashes 7 --layout classic"
)


def create(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to save the filter.")],
    kind: options.Kind = "bloom",
    capacity: options.Capacity = None,
    error_rate: options.ErrorRate = 0.01,
    layout: options.LayoutOption = None,
    hasher: options.HasherOption = "xxh3",
    seed: options.Seed = 0,
    counter_bits: options.CounterBits = None,
    regions: options.Regions = None,
    window: options.Window = None,
    generations: options.Generations = None,
    growth: options.Growth = None,
    grow: options.Grow = None,
    keys_per_filter: options.KeysPerFilter = None,
    num_bits: options.NumBits = None,
    num_hashes: options.NumHashes = None,
    lines_per_key: options.LinesPerKey = None,
    type: options.KeyType = None,
    force: options.Force = False,
    json: options.Json = False,
) -> int:
    """Make an empty filter and save it; a static one is made of the lines of standard input."""
    check_free(file, force)
    given: dict[str, Any] = {
        "layout": layout,
        "counter_bits": counter_bits,
        "regions": regions,
        "window": window,
        "generations": generations,
        "growth": growth,
        "grow": grow,
        "keys_per_filter": keys_per_filter,
    }
    common = {"error_rate": error_rate, "hasher": hasher, "seed": seed}
    given = {name: value for name, value in given.items() if value is not None}
    if window == "none":
        given["window"] = None
    if type is not None and kind != "bloom":
        raise _refuse("type", f"files of kind {kind} do not keep it: give it to each command")
    shape = {"num_bits": num_bits, "num_hashes": num_hashes, "lines_per_key": lines_per_key}
    shape = {name: value for name, value in shape.items() if value is not None}
    filter: AnyFilter | FilterBank
    if shape:
        filter = _make_shape(kind, capacity, {"hasher": hasher, "seed": seed, **given, **shape})
    else:
        filter = _make(kind, capacity, common, given)
    state.save(filter, file, "nothing was written", typed.saved_as(type or "str"))
    rate = show_rate(filter.error_rate)
    if json:
        facts = bank.describe(file, None) if kind == "bank" else state.describe(file)
        emit_json({"file": file, **facts}, indent=2)
    elif isinstance(filter, FilterBank):
        emit_line(f"{file}: a bank for about {filter.keys_per_filter:,} keys a user at {rate}")
    else:
        memory = show_memory(filter.nbytes)
        emit_line(f"{file}: room for {filter.capacity:,} keys at {rate} in {memory}")
    return 0


def _make_shape(kind: str, capacity: int | None, given: dict[str, Any]) -> AnyFilter:
    """The filter of bits and hashes that are given; its error rate follows from them."""
    make: Any = getattr(COMMON_KINDS.get(kind), "with_shape", None)
    if make is None:
        raise _refuse("num-bits", f"a filter of kind {kind} is made for a capacity")
    for name in ("num_bits", "num_hashes"):
        if name not in given:
            raise _refuse(name, "bits and hashes go together")
    given |= {} if capacity is None else {"capacity": capacity}
    check_fit(kind, make, given)
    filter: AnyFilter = make(**given)
    return filter


def _make(
    kind: str, capacity: int | None, common: dict[str, Any], given: dict[str, Any]
) -> AnyFilter | FilterBank:
    """The filter. Which options fit is what the kind's own arguments say."""
    cls: Any = COMMON_KINDS.get(kind, FilterBank)
    build: Any = getattr(cls, "build", None)  # made at once, of all of its keys
    make: Any = build or cls
    check_fit(kind, make, given)
    parameters = inspect.signature(make).parameters
    filter: AnyFilter | FilterBank
    if cls is FilterBank:
        if capacity is not None:
            raise _refuse("capacity", "a bank grows with its users; --keys-per-filter is its size")
        filter = FilterBank(**common, **given)
    elif build is None:
        first = next(iter(parameters.values()))
        if capacity is None and first.default is first.empty:
            raise _refuse("capacity", "say for how many keys, as in 10M")
        filter = make(*([] if capacity is None else [capacity]), **common, **given)
    elif capacity is not None:
        raise _refuse("capacity", "a static filter has room for its lines, and no more")
    else:
        with InputFile("-") as source:
            filter = build(lines_of(source), **common, **given)
    return filter


def check_free(path: str, force: bool) -> None:
    """Refuse to replace a file, unless that is wished."""
    if not force and os.path.lexists(path):
        there = FileExistsError(errno.EEXIST, "is there already", path)
        raise with_step(there, "--force replaces it")


def check_fit(kind: str, make: Any, given: dict[str, Any]) -> None:
    """Refuse an option that this kind has not."""
    parameters = inspect.signature(make).parameters
    for name in given:
        if name not in parameters:
            raise _refuse(name, f"a filter of kind {kind} takes no such option")


def _refuse(name: str, reason: str) -> Exception:
    return typer.BadParameter(reason, param_hint=f"--{name.replace('_', '-')}")


COMMANDS = [("create", create, EXAMPLE)]
