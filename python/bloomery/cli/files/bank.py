"""Files of kind bank, where a key belongs to a user: `add`, `contains` and `remove` for those.

A bank lives in its file: it is changed there and not saved at the end, so what came before a
failure stays. Its own lock is the library's, one writer or many readers; `state.locked` would lock
us out of it.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import compress
from typing import Any, Literal

import typer

from bloomery.cli.files import keys as typed
from bloomery.cli.files import state
from bloomery.cli.pump import FirstMatch, Interrupts, LinePump, SignalInterrupt
from bloomery.cli.terminal import emit, emit_line, say, with_step
from bloomery.errors import BloomeryError, CorruptData, IncompatibleFilters, InvalidParameter
from bloomery.filters import FilterBank
from bloomery.storage.inputs import InputFile

_LOOK_AGAIN = 0.05  # seconds; the library's lock can be tried, not waited for

# Gets one user, or one for each key; the keys; and what to print for each.
Take = Callable[[bytes | list[bytes], list[bytes], list[bytes]], None]


def refuse_user(file: str, user: str | None) -> None:
    """Raise if a user was named for a file that holds no bank."""
    if user is not None:
        kind = state.describe(file)["kind"]
        raise _refuse(f"{file} is a {kind} filter, and only files of kind bank have users")


def opened(file: str, mode: Literal["r", "r+"]) -> FilterBank:
    """The bank in a file; waits for a process that has it open, repairs one that was killed."""
    reported = False
    while True:
        try:
            return FilterBank.open(file, mode=mode)
        except CorruptData as problem:
            if mode == "r+":
                raise
            try:  # only a writer repairs, and is told what is wrong if that is something else
                return opened(file, "r+")
            except PermissionError:
                raise problem from None
        except BlockingIOError:
            if not reported:
                say(f"waiting for another process to finish with {file}")
                reported = True
            time.sleep(_LOOK_AGAIN)


def describe(file: str, user: str | None) -> dict[str, Any]:
    """All that is known about a bank, or about one of its users."""
    with opened(file, "r") as bank:
        try:
            return bank.info(None if user is None else os.fsencode(user))
        except KeyError:
            raise _refuse(f"{file} has no user {user!r}") from None


def add(file: str, keys: list[str] | None, user: str | None, new: bool, type: str | None) -> int:
    """Add keys, and print those that were definitely new if they are wanted; how many were."""
    whose = _whose(keys, user)
    parse = typed.parser(type)
    added = 0
    with Interrupts() as interrupts, opened(file, "r+") as bank:

        def take(users: bytes | list[bytes], texts: list[bytes], shown: list[bytes]) -> None:
            nonlocal added
            keys = [parse(text) for text in texts]
            if new:
                there = bank.contains_many(users, keys)
                # Before they are added: one that is kept but never came out would be lost.
                fresh = compress(shown, (not known for known in there))
                emit(typed.join_lines(dict.fromkeys(fresh)))
            added += sum(bank.add_many(users, keys))

        came = f"{file} has what came before"
        try:
            _feed(interrupts, keys, whose, take)
        except SignalInterrupt as stop:
            raise SignalInterrupt(stop.signum, f"interrupted; {came}") from None
        except BrokenPipeError:
            say(f"the reader of the output went away; {came}")
            raise
        except (OSError, BloomeryError) as failure:
            raise with_step(failure, came) from None
        with interrupts.held_off(last=True):
            bank.close()
    return added


def contains(
    file: str,
    keys: list[str] | None,
    user: str | None,
    type: str | None,
    *,
    invert: bool,
    quiet: bool,
    count: bool,
    json: bool,
) -> int:
    """Print what is selected; 0 if something was, else 1."""
    whose = _whose(keys, user)
    read = typed.reader(type)
    selected = 0
    with Interrupts() as interrupts, opened(file, "r") as bank:

        def take(users: bytes | list[bytes], keys: list[bytes], shown: list[bytes]) -> None:
            nonlocal selected
            names = [users] * len(keys) if isinstance(users, bytes) else users
            pairs = zip(map(typed.forms, names), map(read, keys), strict=True)
            there = typed.ask_forms(bank.contains_many, list(pairs))
            chosen = list(compress(shown, (maybe != invert for maybe in there)))
            selected += len(chosen)
            if quiet and selected:
                raise FirstMatch
            if json:
                emit(typed.join_answers(shown, there))
            elif not (quiet or count):
                emit(typed.join_lines(chosen))

        with suppress(FirstMatch):
            _feed(interrupts, keys, whose, take)
    if count and not quiet:
        emit_line(str(selected))
    return 0 if selected else 1


def remove(
    file: str, keys: list[str] | None, user: str | None, *, everything: bool, verbose: bool
) -> bool:
    """Forget a user; True if there was such a one."""
    if keys or user is None or not everything:
        raise IncompatibleFilters(
            f"{file}: no key can be removed from a bank, only a user with all of its keys:"
            f" `bloomery remove {file} --user NAME --all`"
        )
    with Interrupts() as interrupts, opened(file, "r+") as bank, interrupts.held_off(last=True):
        dropped = bank.drop(os.fsencode(user))
        bank.close()
    if dropped and verbose:
        emit(os.fsencode(user) + b"\n")
    return dropped


def _whose(keys: list[str] | None, user: str | None) -> bytes | None:
    if keys and user is None:
        raise _refuse("say whose keys these are, or give lines USER<TAB>KEY on standard input")
    return None if user is None else os.fsencode(user)


def _feed(interrupts: Interrupts, keys: list[str] | None, whose: bytes | None, take: Take) -> None:
    """Arguments, or else the lines of standard input a chunk at a time, to `take`."""
    if keys and whose is not None:
        given = [os.fsencode(key) for key in keys]
        with interrupts.held_off():
            take(whose, given, given)
        return
    before = 0

    def step(data: memoryview, final: bool) -> int:
        nonlocal before
        lines, end = typed.split_lines(data, final)
        if whose is not None:
            take(whose, lines, lines)
        else:
            _take_pairs(lines, before, take)
        before += len(lines)
        return end

    with InputFile("-") as source:
        LinePump(interrupts).run(source, step)


def _take_pairs(lines: list[bytes], before: int, take: Take) -> None:
    """Lines `user<TAB>key` to `take`, up to one that is none."""
    pairs = [line.split(b"\t", 1) for line in lines]
    wrong = next((n for n, pair in enumerate(pairs) if len(pair) < 2), None)
    good = pairs[:wrong]
    if good:
        take([pair[0] for pair in good], [pair[1] for pair in good], lines[:wrong])
    if wrong is not None:
        raise InvalidParameter(
            f"standard input: line {before + wrong + 1:,} ({lines[wrong][:40]!r}) has no tab,"
            " must be USER<TAB>KEY; with --user NAME every line is a key of that user"
        )


def _refuse(reason: str) -> Exception:
    return typer.BadParameter(reason, param_hint="--user")
