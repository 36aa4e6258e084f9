"""The `bloomery` command: arguments to library calls, answers to output and exit codes.

    main ──> app (typer) ──> plan · create · info · add · contains · remove · dedup · demo · user
     │                          │
     │                          └──> sources, pump, state (bytes in, lines through, filter file)
     └── the one place where a failure becomes one line on stderr and an exit code

Exit codes: 0 done (for `contains` and `remove`: a key was found), 1 they found none, 2 an error,
130 Ctrl-C (128 + the signal), 141 the reader of our output went away.

Start-up is part of the interface: nothing here imports typer, rich or zstandard at the top, and a
run that shows nothing (a small `dedup` in a pipe) never imports rich at all.
"""

import errno
import os
import re
import sys
from typing import Any, cast

from bloomery import extras
from bloomery.cli import terminal
from bloomery.cli.parsing.plain import parse
from bloomery.cli.version import version
from bloomery.errors import BloomeryError, NotEnoughMemory

EXIT_ERROR = 2
EXIT_CLOSED_PIPE = 141

_SYNONYMS = {
    "add": "insert put update append set",
    "contains": "check exists has query test lookup get grep ask might-contain",
    "remove": "delete rm discard del",
    "create": "new make init reserve",
    "build": "load import from fill",
    "merge": "union combine join or",
    "info": "stats show describe inspect status",
    "dedup": "uniq unique distinct",
    "plan": "size sizing calc calculate params",
    "serve": "server start run listen",
    "top": "watch monitor live htop",
    "plot": "graph chart draw",
    "list": "ls show",
}
_OF_A_SERVER = {
    "serve",
    "user",
    "cluster",
    "backup",
    "restore",
    "top",
}  # the extra `serve` brings all that they need
_NEXT_STEP = {
    errno.ENOSPC: "free some space and run it again",
    errno.EFBIG: "the limit on file sizes (`ulimit -f`) is in the way",
    errno.EACCES: "check the permissions",
}


def main(argv: list[str] | None = None) -> int:
    """Run the command line; the exit code. A failure is one line, never a traceback."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        terminal.occupy_closed_descriptors()
        code = _run(argv)
        if sys.stdout is not None:  # only --help goes through it; everything else is os.write
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        terminal.discard_output()
        return EXIT_CLOSED_PIPE
    except KeyboardInterrupt as stop:
        terminal.discard_output()
        signum = getattr(stop, "signum", 2)
        terminal.say(getattr(stop, "message", "") or "interrupted")
        return 128 + int(signum)
    except (BloomeryError, OSError, MemoryError) as failure:
        terminal.discard_output()
        for problem in getattr(failure, "problems", [failure]):  # a configuration's are many
            terminal.say(describe(problem) if problem is failure else problem)
        return EXIT_ERROR
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package == "bloomery":  # a broken install, not a missing extra
            raise
        command = argv[0] if argv and argv[0].isalpha() else ""
        extra = "serve" if command in _OF_A_SERVER else "cli"
        what = f"`bloomery {command}`" if command else "the command line"
        terminal.say(describe(extras.missing(package, what, extra)))
        return EXIT_ERROR


def _run(argv: list[str]) -> int:
    if argv in (["--version"], ["version"]):  # by the plain install too, which has no typer
        return version()
    completing = "_BLOOMERY_COMPLETE" in os.environ  # a shell asks for completions
    plain = None if completing else parse(argv)
    if plain is not None:
        function, arguments = plain
        try:
            return function(**arguments)
        except Exception as wrong:
            if "typer" not in sys.modules or not isinstance(wrong, _usage_error()):
                raise
            return _usage(wrong, f"bloomery {argv[0]}")
    import typer

    from bloomery.cli.app import build

    if completing:
        build().main(argv, prog_name="bloomery")
        return 0
    command = build(argv)
    # command.main() would turn Ctrl-C and a closed pipe into codes of its own, so the two halves
    # of it are called here.
    try:
        with command.make_context("bloomery", list(argv)) as context:
            result = command.invoke(context)
    except typer.Exit as stop:
        return stop.exit_code
    except _usage_error() as wrong:
        return _usage(wrong, "bloomery")
    return result if isinstance(result, int) else 0


def _usage_error() -> type[Exception]:
    """UsageError has no public name in typer; it is BadParameter's base."""
    import typer

    return cast("type[Exception]", typer.BadParameter.__mro__[1])


def _usage(wrong: BaseException, name: str) -> int:
    context = getattr(wrong, "ctx", None)
    message = str(getattr(wrong, "format_message", wrong.__str__)())
    if type(wrong).__name__ == "NoArgsIsHelpError":
        terminal.emit(message.encode())  # empty if rich has printed the help already
        return EXIT_ERROR
    name = context.command_path if context is not None else name
    near = ""
    if message.startswith("No such command"):
        near = _nearest(message.partition("'")[2].partition("'")[0], context)
    elif re.match(r"No such option: -\d", message):
        near = ": what begins with a minus and is no option goes behind --"
    terminal.say(f"{' '.join(message.split()).rstrip('.')}{near} (see `{name} --help`)")
    return EXIT_ERROR


def _nearest(word: str, context: Any) -> str:
    """The command that was meant, by the words of others or by its spelling."""
    from difflib import get_close_matches

    commands = list(context.command.commands)
    near = [name for name in commands if word.lower() in _SYNONYMS.get(name, "").split()]
    near = near or get_close_matches(word, commands, n=1, cutoff=0.7)
    return f": did you mean {near[0]!r}?" if near else ""


def describe(failure: BaseException) -> str:
    """One line: what failed, on what, and the next step where there is one."""
    step = str(getattr(failure, "next_step", ""))
    if isinstance(failure, OSError) and failure.strerror:
        # Two file names: a rename. The second is the one that the person named.
        name = failure.filename2 if failure.filename2 is not None else failure.filename
        place = f"{os.fsdecode(name)}: " if isinstance(name, (str, bytes, os.PathLike)) else ""
        text = f"{place}{failure.strerror}"
        step = step or _NEXT_STEP.get(failure.errno or 0, "")
    elif isinstance(failure, MemoryError) and not isinstance(failure, NotEnoughMemory):
        text, step = "out of memory", step or "a smaller --capacity needs less"
    else:
        text = str(failure) or type(failure).__name__
    return " ".join(f"{text}; {step}".split()) if step else " ".join(text.split())
