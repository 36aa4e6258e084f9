"""Standard output and standard error as file descriptors: whole writes, one-line messages.

Output goes through `os.write`, not `sys.stdout`: there is no buffer left to flush when the disk is
full or the reader is gone, so every failure is raised where it happens and `main` can report it.
"""

import errno
import os
import select
from contextlib import suppress
from io import StringIO

STDIN, STDOUT, STDERR = 0, 1, 2


def occupy_closed_descriptors() -> None:
    """Keep a file opened later from becoming descriptor 0, 1 or 2 when the shell closed one.

    Opened the wrong way round, as gnulib's stdopen does: reading standard input or writing
    standard output then still fails with EBADF instead of silently reading or eating data.
    """
    for fd in (STDIN, STDOUT, STDERR):
        if not _is_open(fd):
            os.open(os.devnull, os.O_WRONLY if fd == STDIN else os.O_RDONLY)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def emit(data: bytes | memoryview) -> None:
    """Write all of it to standard output, or raise the OSError that says why not."""
    view = memoryview(data)
    while view.nbytes:
        view = view[_write(view) :]


def _write(view: memoryview) -> int:
    try:
        return os.write(STDOUT, view)
    except BrokenPipeError:
        raise
    except BlockingIOError:  # a shared pipe that somebody made non-blocking
        select.select([], [STDOUT], [])
        return 0
    except OSError as failure:
        why = "is closed" if failure.errno == errno.EBADF else failure.strerror
        raise OSError(failure.errno, why, "standard output") from None


def emit_line(text: str) -> None:
    """One line of text to standard output."""
    emit(text.encode("utf-8", "surrogateescape") + b"\n")


def emit_json(value: object, indent: int | None = None) -> None:
    """A value as JSON to standard output, for a program."""
    from json import dumps

    emit_line(dumps(value, indent=indent, default=str))


def say(message: str) -> None:
    """One line to standard error, `bloomery: ...`; lost without a fuss if that is closed."""
    note(f"bloomery: {message}")


def note(text: str) -> None:
    """Write one line to standard error; if that cannot be written to, it is lost."""
    with suppress(OSError):
        os.write(STDERR, text.encode("utf-8", "surrogateescape") + b"\n")


def with_step(failure: BaseException, step: str) -> BaseException:
    """The same failure, carrying the next step that `main` will print after it."""
    failure.next_step = step  # type: ignore[attr-defined]
    return failure


def discard_output() -> None:
    """After a failed write: what Python still holds for standard output has nowhere to go."""
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, STDOUT)
        os.close(null)


def is_terminal(fd: int) -> bool:
    """Whether a person is looking at this descriptor."""
    try:
        return os.isatty(fd)
    except OSError:
        return False


def render(*things: object, width: int = 100) -> str:
    """Rich renderables as text for standard output: coloured on a terminal and as wide as that is,
    plain in a pipe and so many characters wide."""
    import shutil

    from rich.console import Console

    on_terminal = is_terminal(STDOUT)
    console = Console(
        file=StringIO(),  # not sys.stdout, which rich would flush and which may be full or gone
        force_terminal=on_terminal or None,
        width=shutil.get_terminal_size().columns if on_terminal else width,
    )
    with console.capture() as captured:
        console.print(*things)
    return captured.get().rstrip("\n")


def bar(share: float, width: int) -> str:
    """A share from 0 to 1 as a bar of so many characters; what is more than 1 fills all of it."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    drawn = "█" * full + " ▏▎▍▌▋▊▉"[rest].strip()
    return drawn.ljust(width, "·")
