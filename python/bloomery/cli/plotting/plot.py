"""`bloomery plot`: a server's filter over time, or how often a filter in a file errs."""

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from bloomery import errors
from bloomery.cli import options, terminal
from bloomery.cli.parsing.declared import bad_parameter
from bloomery.cli.server import remote

if TYPE_CHECKING:
    from bloomery.cli.plotting.panels import Drawing

EXAMPLE = (
    "bloomery plot seen.bloom; bloomery plot seen.bloom --out seen.png; "
    "bloomery plot users --since 24h; "
    "bloomery plot users --url https://filters.example.org:8100 --token-file token --out users.svg"
)
_TIMEOUT = 30.0
_FORMS = ("png", "svg", "pdf")
_SAMPLES = 2000  # a picture has about a point a pixel
_HEIGHT = 10  # lines of a panel in the terminal
_WIDEST = 100


def plot(
    filter: Annotated[
        str,
        typer.Argument(
            metavar="FILTER", help="A saved filter; if there is no such file, a server's filter."
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="A picture: FILE.png, .svg or .pdf. Else it is drawn in the terminal.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="A server's: the last 15min, 24h, 30d; 1h."),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help=f"The server's HTTP port; {remote.DEFAULT_URL}."),
    ] = None,
    token_file: remote.TokenFile = None,
    ca: remote.Ca = None,
    json: options.Json = False,
) -> int:
    """Draw a filter: in a file, how often it errs as it fills, and now; of a server, how it was
    over time (error rate against its limit, fill, keys, traffic, memory).

    In the terminal, or with --out as a picture.
    """
    from bloomery.cli.plotting import panels, text

    options.refuse_together(json, "--out", out is not None)
    form = None if out is None else _form(out)
    if url is None and os.path.isfile(filter):
        if since is not None:
            raise bad_parameter("a file has no past: only a server keeps samples", "--since")
        drawing = panels.of_file(filter)
    else:
        drawing = _of_server(filter, url, since, token_file, ca)
    if out is not None and form is not None:
        from bloomery.cli.plotting import picture
        from bloomery.storage import files

        with files.replacing(out) as target:
            picture.save(drawing, target, form)
        terminal.emit_line(f"{out}: {drawing.title}")
        return 0
    if json:
        terminal.emit_json(drawing.as_dict())
        return 0
    width = shutil.get_terminal_size((80, 24)).columns
    plain = os.environ.get("TERM") == "dumb" and terminal.is_terminal(terminal.STDOUT)
    braille = not plain and "utf" in (sys.getfilesystemencoding() or "").lower()
    terminal.emit_line(text.draw(drawing, min(width, _WIDEST), _HEIGHT, braille=braille))
    return 0


def _form(out: str) -> str:
    form = os.path.splitext(out)[1].lower().lstrip(".")
    if form not in _FORMS:
        raise bad_parameter(f"{out!r} must end in .png, .svg or .pdf", "--out")
    return form


def _of_server(
    name: str, url: str | None, since: str | None, token_file: str | None, ca: str | None
) -> "Drawing":
    from bloomery.cli.plotting import panels
    from bloomery.filters.rotating import parse_window

    back = parse_window(since or "1h")
    try:
        with remote.connect(url or remote.DEFAULT_URL, token_file, ca, _TIMEOUT) as client:
            filter = client.filter(name)
            info = filter.info()
            samples = filter.samples(since=time.time() - back, limit=_SAMPLES)
    except errors.ServerUnavailable as problem:
        if url is not None:
            raise
        raise errors.ServerUnavailable(f"there is no file {name}, and {problem}") from None
    except errors.UnknownFilter as problem:
        terminal.with_step(problem, f"`bloomery top --url {url or remote.DEFAULT_URL}` lists all")
        raise
    return panels.of_samples(name, info, samples)


COMMANDS = [("plot", plot, EXAMPLE)]
