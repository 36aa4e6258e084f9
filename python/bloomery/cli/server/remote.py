"""A server that runs, as commands reach it: its URL, a token, and who signed its certificate."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from bloomery import errors
from bloomery.cli.parsing.declared import Option

if TYPE_CHECKING:
    from bloomery.client import Client

DEFAULT_URL = "http://127.0.0.1:8100"
Url = Annotated[str, Option(metavar="URL", help="The HTTP port of the server that runs.")]
TokenFile = Annotated[
    str | None,
    Option(
        metavar="FILE",
        help="A token, where the server has users (bloomery user token). Also BLOOMERY_TOKEN.",
    ),
]
Ca = Annotated[
    str | None,
    Option(metavar="FILE", help="Who signed the server's certificate, PEM."),
]


def connect(url: str, token_file: str | None, ca: str | None, timeout: float) -> "Client":
    """Return a client of the server; it connects with the first request."""
    from bloomery.client import Client

    return Client(url, token=_token(token_file), verify=ca or True, timeout=timeout)


def _token(path: str | None) -> str | None:
    if path is None:
        return os.environ.get("BLOOMERY_TOKEN") or None
    token = Path(path).read_text("utf-8", "replace").strip()
    if not token or not token.isascii() or not token.isprintable():
        raise errors.InvalidParameter(f"{path}: not a token: `bloomery user token` prints one")
    return token
