"""`bloomery add`, `contains` and `remove`: keys go in, are asked for, and go out again.

Keys are bytes: an argument as the shell passed it, a line as it is without its line end; or what
`--type` or the file makes of them (see keys.py). Like grep, `contains` prints what it selects and
says by its exit code whether there was any.
"""

import os
from collections.abc import Callable, Iterable
from itertools import compress
from typing import Annotated, Any

import typer

from bloomery.cli import options
from bloomery.cli.files import bank, state
from bloomery.cli.files import keys as typed
from bloomery.cli.pump import FirstMatch, Interrupts, LinePump, SignalInterrupt
from bloomery.cli.terminal import emit, emit_json, emit_line, say, with_step
from bloomery.errors import BloomeryError, IncompatibleFilters
from bloomery.filters import COMMON_KINDS, AnyFilter, RemovingFilter
from bloomery.filters.files import holds_a_bank, key_type
from bloomery.storage.inputs import InputFile

ADD_EXAMPLE = "bloomery add seen.bloom alice bob; bloomery add seen.bloom < urls.txt; "
ADD_EXAMPLE += "bloomery add bank.bloom --user ada article-1 article-2"
CONTAINS_EXAMPLE = (
    "bloomery contains seen.bloom alice; bloomery contains -v seen.bloom < urls.txt; "
)
CONTAINS_EXAMPLE += "bloomery contains bank.bloom --user ada article-1"
REMOVE_EXAMPLE = "bloomery remove seen.bloom alice; bloomery remove -v seen.bloom < urls.txt; "
REMOVE_EXAMPLE += "bloomery remove bank.bloom --user ada --all"

# What is to happen to some keys, and to lines of them.
Many = Callable[[list[Any]], Iterable[bool]]


def add(
    file: options.FilterFile,
    keys: options.Keys = None,
    new: Annotated[
        bool, typer.Option("--new", help="Print the keys that were definitely new.")
    ] = False,
    type: options.KeyType = None,
    user: options.User = None,
    json: options.Json = False,
) -> int:
    """Add keys to a filter and save it, in one step, at the end (a bank: as they come).

    A bank's file is mapped: whoever makes it shorter meanwhile ends the command (SIGBUS).
    """
    options.refuse_together(json, "--new", new)
    if holds_a_bank(file):
        added = bank.add(file, keys, user, new, type)
    else:
        bank.refuse_user(file, user)
        added = _change(file, keys, new, type, lambda filter: (filter.add_many, filter.add_lines))
    if json:
        emit_json({"file": file, "new": added})
    return 0


def remove(
    file: options.FilterFile,
    keys: options.Keys = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print the keys that were removed.")
    ] = False,
    type: options.KeyType = None,
    user: options.User = None,
    everything: Annotated[
        bool, typer.Option("--all", help="bank: forget the user, with all of its keys.")
    ] = False,
    json: options.Json = False,
) -> int:
    """Remove keys from a filter that can do that, and save it, in one step, at the end.

    Remove only what was added. Exits with 0 when a key was removed, 1 when none was, 2 on an error.
    """
    options.refuse_together(json, "--verbose", verbose)
    if holds_a_bank(file):
        dropped = bank.remove(file, keys, user, everything=everything, verbose=verbose)
        if json:
            emit_json({"file": file, "users_removed": int(dropped)})
        return 0 if dropped else 1
    bank.refuse_user(file, user)
    if everything:
        raise typer.BadParameter("it is for files of kind bank, with --user", param_hint="--all")

    def pick(filter: AnyFilter) -> tuple[Many, typed.Lines]:
        if not isinstance(filter, RemovingFilter):
            able = [name for name, kind in COMMON_KINDS.items() if issubclass(kind, RemovingFilter)]
            raise IncompatibleFilters(
                f"{file}: no key can be removed from a {filter.kind} filter; "
                f"filters of kind {', '.join(able)} can do that"
            )
        return filter.remove_many, filter.remove_lines

    removed = _change(file, keys, verbose, type, pick)
    if json:
        emit_json({"file": file, "removed": removed})
    return 0 if removed else 1


def _change(
    file: str,
    keys: list[str] | None,
    show: bool,
    type: str | None,
    pick: Callable[[AnyFilter], tuple[Many, typed.Lines]],
) -> int:
    """Change the filter by each key, print those that changed it, and save; how many did."""
    with Interrupts() as interrupts, state.locked(file):
        filter = state.load_any(file)
        many, lines_of = pick(filter)
        type_of_file = key_type(file)
        kind = typed.resolve(file, type) or "str"
        parse = typed.parser(kind)

        def change(texts: list[bytes]) -> Iterable[bool]:
            return many([parse(text) for text in texts])

        if not typed.is_text(kind):
            lines_of = typed.by_batch(change)
        changed = 0
        recorded = True  # what was printed and what was changed are the same set

        def take(data: memoryview, final: bool) -> int:
            nonlocal recorded, changed
            recorded = False
            lines, consumed, _, count = lines_of(data, final=final)
            changed += count
            if show:
                emit(lines)
            recorded = True
            return consumed

        def keep(consequence: str) -> None:
            with interrupts.held_off(last=True):
                # Keys of two types: the file says of neither that all are like it.
                all_alike = type_of_file == typed.saved_as(kind)
                state.save(filter, file, consequence, type_of_file if all_alike else None)

        try:
            if keys:
                given = [os.fsencode(key) for key in keys]
                chosen = list(compress(given, change(given)))
                changed = len(chosen)
                if show:
                    emit(typed.join_lines(chosen))
            else:
                with InputFile("-") as source:
                    LinePump(interrupts).run(source, take)
        except SignalInterrupt as stop:
            if recorded and not keys:
                keep(f"{file} is unchanged")
                end = "has what came before"
            else:
                end = "is unchanged"
            raise SignalInterrupt(stop.signum, f"interrupted; {file} {end}") from None
        except BrokenPipeError:
            say(f"the reader of the output went away; {file} is unchanged")
            raise
        except (OSError, BloomeryError) as failure:
            raise with_step(failure, f"{file} is unchanged") from None
        keep(f"{file} is unchanged")
    return changed


def contains(
    file: options.FilterFile,
    keys: options.Keys = None,
    invert: Annotated[
        bool, typer.Option("--invert", "-v", help="Select the keys that are definitely not in it.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print nothing; stop at the first one selected.")
    ] = False,
    count: Annotated[
        bool, typer.Option("--count", "-c", help="Print only how many were selected.")
    ] = False,
    type: options.KeyType = None,
    user: options.User = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print every key with its answer, an object a line.")
    ] = False,
) -> int:
    """Print the keys that may have been added (or, with -v, those that definitely were not).

    Exits with 0 when a key was selected, 1 when none was, 2 on an error. The file is mapped:
    whoever makes it shorter meanwhile ends the command (SIGBUS).
    """
    for name, given in (("--invert", invert), ("--quiet", quiet), ("--count", count)):
        options.refuse_together(json, name, given)
    if holds_a_bank(file):
        how = {"invert": invert, "quiet": quiet, "count": count, "json": json}
        return bank.contains(file, keys, user, type, **how)
    bank.refuse_user(file, user)
    filter = state.load_any(file, mmap=True)
    kind = typed.resolve(file, type)
    read = typed.reader(kind)
    selected = 0

    def select(texts: list[bytes]) -> list[bool]:
        there = typed.ask_forms(filter.contains_many, [[read(text)] for text in texts])
        return [maybe != invert for maybe in there]

    def ask(data: memoryview, final: bool) -> int:
        nonlocal selected
        if json:
            texts, consumed = typed.split_lines(data, final)
            answers = select(texts)
            lines, matched = typed.join_answers(texts, answers), sum(answers)
        elif typed.are_text(kind, data):
            lines, consumed, _, matched = filter.contains_lines(data, final=final, invert=invert)
        else:
            lines, consumed, _, matched = typed.by_batch(select)(data, final=final)
        selected += matched
        if quiet and selected:
            raise FirstMatch
        if not (quiet or count):
            emit(lines)
        return consumed

    if keys:
        texts = [os.fsencode(key) for key in keys]
        answers = select(texts)
        selected = sum(answers)
        if json:
            emit(typed.join_answers(texts, answers))
        elif not (quiet or count):
            emit(typed.join_lines(compress(texts, answers)))
    else:
        try:
            with Interrupts() as interrupts, InputFile("-") as source:
                LinePump(interrupts).run(source, ask)
        except FirstMatch:
            pass
    if count and not quiet:
        emit_line(str(selected))
    return 0 if selected else 1


COMMANDS = [
    ("add", add, ADD_EXAMPLE),
    ("contains", contains, CONTAINS_EXAMPLE),
    ("remove", remove, REMOVE_EXAMPLE),
]
