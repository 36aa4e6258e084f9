"""`bloomery fetch`: a copy of a feed in a folder, kept current by deltas."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from bloomery.cli import options
from bloomery.cli.amounts import parse_memory, show_memory
from bloomery.cli.feeds.values import parse_span, show_time, trusted_keys
from bloomery.cli.progress import ByteProgress
from bloomery.cli.terminal import emit_json, emit_line, say, with_step

if TYPE_CHECKING:
    from bloomery.feeds import Subscriber

EXAMPLE = (
    "bloomery fetch https://example.org/revoked/ copy --trust feed.key.pub;"
    " bloomery fetch https://example.org/revoked/ copy --trust feed.key.pub --watch 5min"
)


def fetch(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="The feed: a URL of http(s), or a folder.")
    ],
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="The copy; FOLDER/current is the filter file.")
    ],
    trust: options.Trust,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The feed's name; default: that of the first fetch."),
    ] = None,
    watch: Annotated[
        float | None,
        typer.Option(parser=parse_span, metavar="TIME", help="Go on, and look again: 5min."),
    ] = None,
    max_size: Annotated[
        int, typer.Option(parser=parse_memory, metavar="SIZE", help="Take no larger file.")
    ] = 1 << 30,
    timeout: Annotated[
        float, typer.Option(parser=parse_span, metavar="TIME", help="How long a server may take.")
    ] = 30.0,
    json: options.Json = False,
) -> int:
    """Keep a copy of a feed current, by deltas, and refuse what its publisher did not sign.

    A feed that is forged, damaged, expired or older than one that was seen changes nothing: the
    copy goes on answering, and the exit code is 2. With --watch it goes on.
    """
    from bloomery.errors import BloomeryError
    from bloomery.feeds import Subscriber

    copy = Subscriber(
        source, folder, trusted_keys(trust or []), name=name, max_bytes=max_size, timeout=timeout
    )
    while True:
        try:
            _update(copy, folder, json, quiet=watch is not None)
        except (BloomeryError, OSError) as why:
            held = copy.manifest
            step = "there is no copy yet"
            if held is not None:
                until = "is stale since" if copy.stale else "goes on answering until"
                step = f"the copy, version {held.version}, {until} {show_time(held.expires)}"
            if watch is None:
                raise with_step(why, step) from None
            say(f"{why}; {step}")
        if watch is None:
            return 0
        time.sleep(watch)


def _update(copy: "Subscriber", folder: str, json: bool, quiet: bool) -> None:
    """Fetch what is new, and say what came; of nothing new only if that was the question."""
    bar = ByteProgress("fetch")
    begun = False

    def progress(nbytes: int, total: int) -> None:
        nonlocal begun
        if not begun:
            bar.begin(total)
            begun = True
        bar.advance(nbytes)

    try:
        done = copy.update(progress)
    finally:
        bar.stop()
    held = copy.manifest
    assert held is not None
    if quiet and done.by == "nothing":
        return
    if json:
        facts = copy.info()
        del facts["problem"]
        emit_json({"folder": folder, **facts, "by": done.by, "fetched": done.fetched})
        return
    how = {
        "nothing": "nothing new",
        "manifest": "signed anew",
        "deltas": f"{show_memory(done.fetched)} of deltas fetched",
        "full": f"{show_memory(done.fetched)} fetched",
    }
    emit_line(
        f"{held.feed}: version {done.version}, {how[done.by]}; expires {show_time(held.expires)}"
    )


COMMANDS = [("fetch", fetch, EXAMPLE)]
