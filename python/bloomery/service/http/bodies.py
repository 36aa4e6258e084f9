"""Bodies of requests: read whole within limits, and JSON that means one thing only.

Refused: duplicate members, NaN and Infinity, bytes that are no UTF-8, nesting without end. A body
is parsed in one go, so it must not be long: what is longer comes as a stream (`streams`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from bloomery import errors
from bloomery.service.http.problems import Refused

if TYPE_CHECKING:
    from bloomery.service.server import Server

__all__ = ["Bodies", "Gone", "header", "media_type", "parse", "parts"]

_SMALL = 64 << 10  # bytes: smaller bodies do not count into what all take together
# Commas of a body, and so about its values: 4 million, all of them empty lists, took 7 s in one go.
_MOST_COMMAS = 1 << 18
_AT_ONCE = 8  # of the largest bodies may be read at the same time


class Gone(Exception):
    """The client went away: nobody waits for an answer."""


class Bodies:
    """The bodies that are being read."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.taken = 0  # bytes that large ones have together

    async def read(self, scope: Any, receive: Any) -> bytes:
        """The body; RequestTooLarge as soon as it is known to be longer than a body may be."""
        most = self.server.settings.http_max_body_bytes
        length = header(scope, b"content-length")
        if length is not None and (len(length) > 15 or int(length) > most):
            raise self._too_large(most)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        body: bytes = message["body"]
        if not message["more_body"]:
            if len(body) > most:
                raise self._too_large(most)
            return body
        try:
            seconds = self.server.settings.http_body_seconds
            return await asyncio.wait_for(self._rest(body, receive, most), seconds)
        except asyncio.TimeoutError:
            raise Refused(f"the body did not come within {seconds} seconds", 408) from None

    async def _rest(self, body: bytes, receive: Any, most: int) -> bytes:
        parts, size, counted = [body], len(body), 0
        try:
            while True:
                if size > most:
                    raise self._too_large(most)
                if size > _SMALL:
                    self.taken += size - counted
                    counted = size
                    if self.taken > _AT_ONCE * most:
                        raise errors.ServerUnavailable("too many large requests at once")
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                parts.append(message["body"])
                size += len(message["body"])
                if not message["more_body"] and size <= most:
                    return b"".join(parts)
        finally:
            self.taken -= counted

    @staticmethod
    def _too_large(most: int) -> errors.RequestTooLarge:
        return errors.RequestTooLarge(
            f"a body may have {most:,} bytes (http-max-body-bytes): send fewer keys at once, or a "
            "stream of them (application/x-ndjson, application/vnd.apache.arrow.stream)"
        )


async def parts(receive: Any) -> AsyncIterator[bytes]:
    """A body of any length, as it comes; how slowly it may the connection knows."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        if message["body"]:
            yield message["body"]
        more = message["more_body"]


def header(scope: Any, wanted: bytes) -> bytes | None:
    """The value of a header; None if it was not sent."""
    for name, value in scope["headers"]:
        if name == wanted:
            found: bytes = value
            return found
    return None


def media_type(scope: Any) -> bytes:
    """What the body says it is, in lower case and without parameters; b"" if it does not say."""
    return (header(scope, b"content-type") or b"").partition(b";")[0].strip().lower()


def parse(body: bytes) -> Any:
    """The value of JSON; InvalidRequest says where it is none. RequestTooLarge if it would hold up
    all others."""
    if len(body) > _MOST_COMMAS and body.count(b",") > _MOST_COMMAS:
        raise errors.RequestTooLarge(
            f"a body may have {_MOST_COMMAS:,} commas: send fewer keys at once, or a stream of "
            "them (application/x-ndjson, application/vnd.apache.arrow.stream)"
        )
    try:
        return _DECODER.decode(body.decode())
    except UnicodeDecodeError as problem:
        raise _invalid(f"not UTF-8 at byte {problem.start}") from None
    except json.JSONDecodeError as problem:
        raise _invalid(f"{problem.msg} at character {problem.pos}") from None
    except RecursionError:
        raise _invalid("nested too deeply") from None
    except ValueError as problem:  # duplicate members, NaN, an integer of thousands of digits
        raise _invalid(str(problem)) from None


def _invalid(why: str) -> errors.InvalidRequest:
    return errors.InvalidRequest(f"the body is not JSON that can be read: {why}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a member comes twice in one object")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


# As quick as pydantic's parser here (80 µs against 77 for 1,000 short keys), which keeps the last
# of two members of one name and says nothing.
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
