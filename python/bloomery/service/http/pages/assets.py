"""The files of pages: modules, the style, the icon; each under an address with their hash in it, so
that a browser keeps them for ever and still has the right ones after an upgrade."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib import resources

from fastapi import Request, Response

from bloomery.service.http.origin import PAGES
from bloomery.service.http.problems import Refused

_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable"}


@lru_cache(maxsize=1)
def files() -> dict[str, bytes]:
    """All files by their name."""
    folder = resources.files("bloomery.service.http.pages") / "static"
    named = ((item.name, item) for item in folder.iterdir())
    return {name: item.read_bytes() for name, item in named if name.rpartition(".")[2] in _TYPES}


@lru_cache(maxsize=1)
def digest() -> str:
    """What changes if any of them does: modules import each other by names beside their own."""
    whole = hashlib.sha256()
    for name, data in sorted(files().items()):
        whole.update(b"%s %d " % (name.encode(), len(data)))
        whole.update(data)
    return whole.hexdigest()[:16]


def address(name: str) -> str:
    """Where a file is, for templates; KeyError if there is none."""
    return f"{PAGES}static/{digest()}/{name}" if name in files() else files()[name].decode()


async def send(request: Request) -> Response:
    """A file."""
    name, wanted = request.path_params["file"], request.path_params["digest"]
    data = files().get(name)
    if data is None or wanted != digest():
        raise Refused("there is no such file: load the page again", 404)
    media = f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8"
    return Response(data, headers={**_FOR_EVER, "Content-Type": media})
