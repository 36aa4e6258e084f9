"""`bloomery publish` and `bloomery feed-key`: a filter file as a version of a signed feed."""

import os
from typing import Annotated

import typer

from bloomery.cli import options
from bloomery.cli.amounts import show_memory
from bloomery.cli.feeds.values import parse_span, show_time, trusted_keys
from bloomery.cli.terminal import emit_json, emit_line

KEY_EXAMPLE = "bloomery feed-key feed.key; bloomery publish revoked.bloom feed --key feed.key"
EXAMPLE = (
    "bloomery publish revoked.bloom www/revoked --key feed.key --expires 1d;"
    " bloomery publish revoked.bloom www/revoked --key old.key --key new.key"
)


def feed_key(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where the private key is to be.")],
    json: options.Json = False,
) -> int:
    """Make a key to sign feeds with, which only you may read, and print its public half.

    The public half is also written to FILE.pub; subscribers name it with --trust.
    """
    from bloomery.feeds import PrivateKey
    from bloomery.storage import files

    public = PrivateKey.create(file).public
    with files.replacing(f"{file}.pub") as written:
        written.write(f"{public}\n".encode("ascii"))
    if json:
        emit_json({"file": file, "public": str(public), "id": public.id})
    else:
        emit_line(str(public))
    return 0


def publish(
    filter: options.FilterFile,
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="The feed: what a web server is to serve.")
    ],
    key: Annotated[
        list[str],
        typer.Option(metavar="FILE", help="The private key to sign with; again for a second one."),
    ],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The feed's name; default: the folder's.")
    ] = None,
    expires: Annotated[
        float,
        typer.Option(parser=parse_span, metavar="TIME", help="How long copies are fresh: 12h, 7d."),
    ] = 7 * 86400.0,
    deltas: Annotated[
        int, typer.Option(metavar="N", help="Up to so many versions back deltas lead.")
    ] = 8,
    grace: Annotated[
        float,
        typer.Option(parser=parse_span, metavar="TIME", help="How long old files stay."),
    ] = 86400.0,
    version: Annotated[
        int | None,
        typer.Option(metavar="N", help="Go on from here, if the folder was lost; default: next."),
    ] = None,
    trust: options.Trust = None,
    json: options.Json = False,
) -> int:
    """Publish a filter file as the next version of a feed, in a folder of static files.

    Files come first and the manifest last: a feed is whole at every moment. Publish again before it
    expires, also if nothing has changed.
    """
    from bloomery.feeds import PrivateKey
    from bloomery.feeds import publish as publish_feed

    manifest = publish_feed(
        filter,
        folder,
        [PrivateKey.load(file) for file in key],
        name=name,
        expires_in=expires,
        max_deltas=deltas,
        grace=grace,
        version=version,
        trust=trusted_keys(trust or []),
    )
    sizes = [delta.size for delta in manifest.deltas]
    if json:
        emit_json(
            {
                "folder": os.fspath(folder),
                "feed": manifest.feed,
                "version": manifest.version,
                "kind": manifest.kind,
                "size": manifest.full.size,
                "deltas": sizes,
                "expires": manifest.expires,
            }
        )
        return 0
    newest = f", the newest delta {show_memory(sizes[-1])}" if sizes else ", no delta"
    emit_line(
        f"{manifest.feed}: version {manifest.version}, {show_memory(manifest.full.size)}{newest}; "
        f"expires {show_time(manifest.expires)}"
    )
    return 0


COMMANDS = [("publish", publish, EXAMPLE), ("feed-key", feed_key, KEY_EXAMPLE)]
