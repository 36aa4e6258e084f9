"""Bodies of requests: read whole within limits, and JSON that means one thing only.

Refused: duplicate members, NaN and Infinity, bytes that are no UTF-8, nesting without end. A long
body is parsed in slices, if it is one of keys; what is longer still comes as a stream (`streams`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from bloomery import _native, errors
from bloomery.service.http.problems import Refused
from bloomery.service.network.input_budget import Charge
from bloomery.service.slices import Slice

if TYPE_CHECKING:
    from bloomery.service.server import Server

__all__ = ["Bodies", "Gone", "header", "media_type", "parse", "parse_keys", "parse_plain", "parts"]

MOST_AT_ONCE = 64 << 10  # bytes of JSON: some milliseconds, whatever is in it
MOST_KEY = 4 << 20  # of one key, which is copied several times: 10 ms
MOST_PLAIN = 1 << 20  # of a body that has no keys
_SLICE = 32 << 10
_MOST_KEYS = 1 << 18
_MOST_PARTS = 1 << 19
_DEEP = 1000  # arrays in arrays: Python's parser takes fewer
_MOST_VALUES = 10_000  # of what is longer and cannot be cut


class Gone(Exception):
    """The client went away: nobody waits for an answer."""


class Bodies:
    """The bodies that are being read."""

    def __init__(self, server: Server) -> None:
        self.server = server

    async def read(self, scope: Any, receive: Any, most: int = 1 << 40) -> bytes:
        """The body; RequestTooLarge as soon as it is known to be longer than a body may be."""
        most = min(most, self.server.settings.http_max_body_bytes)
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
        parts, size = [body], len(body)
        with Charge(self.server.input_budget) as charge:
            while True:
                if size > most:
                    raise self._too_large(most)
                charge.weigh(size)
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                parts.append(message["body"])
                size += len(message["body"])
                if not message["more_body"] and size <= most:
                    return b"".join(parts)

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
    """The value of JSON that is short enough to be parsed at once; InvalidRequest says where it is
    none."""
    return _parsed(body, 0)


def parse_plain(body: bytes) -> Any:
    """The value of JSON that is no list of keys; RequestTooLarge if it has too many values."""
    return parse(_short(body, 0, len(body)))


async def parse_keys(body: bytes, keys_of: Callable[[dict[str, Any], list[Any], int], Any]) -> Any:
    """The value of JSON that has its keys, any number of them, as the member "keys" of an object:
    those are parsed in slices, between which others have their turn. `keys_of` makes keys of some
    of them: it is given the object without any, those, and how many came before."""
    if len(body) <= MOST_AT_ONCE:
        return parse(body)
    found = await asyncio.to_thread(_native.cut_json, body, b"keys", _SLICE)
    if found is None:
        return parse_plain(body)
    start, end, count, slices = found
    parts = sum(body.count(mark) for mark in (b",", b"[", b"{"))
    if count > _MOST_KEYS or parts > _MOST_PARTS:
        raise errors.RequestTooLarge(
            f"a body may have {_MOST_KEYS:,} keys, of {_MOST_PARTS:,} parts in all if they are "
            "arrays: send fewer at once, or a stream of them "
            "(application/x-ndjson, application/vnd.apache.arrow.stream)"
        )
    value = parse(_short(body[:start] + b"[]" + body[end:], start, len(body)))
    keys: list[Any] = []
    share = Slice()
    for first, last in slices:
        some = _parsed(_short(b"[%b]" % body[first:last], first, last), first - 1, body)
        if not some:
            raise _invalid(f"Expecting value at byte {last}")
        keys += keys_of(value, some, len(keys))
        await share.rest()
    value["keys"] = keys
    return value


def _short(text: bytes, start: int, end: int) -> bytes:
    """The text, if it may be parsed at once: one string may have any length, all else not."""
    if len(text) <= MOST_AT_ONCE:
        return text
    if len(text) > MOST_KEY:
        raise errors.RequestTooLarge(f"one key may have {MOST_KEY:,} bytes of JSON")
    commas, opened = text.count(b","), text.count(b"[") + text.count(b"{")
    if opened > _DEEP * (commas + 1):  # without a comma between, each is in the one before
        raise _invalid("nested too deeply")
    if commas + opened > _MOST_VALUES:
        raise errors.RequestTooLarge(
            f"bytes {start:,} to {end:,} of the body have more than {_MOST_VALUES:,} values that "
            'are not keys of "keys": a key is a string, an integer or a short array'
        )
    return text


def _parsed(text: bytes, before: int, body: bytes | None = None) -> Any:
    """The value of JSON that stands so many bytes behind the beginning of a body."""
    try:
        return _DECODER.decode(text.decode())
    except UnicodeDecodeError as problem:
        raise _invalid(f"not UTF-8 at byte {before + problem.start}") from None
    except json.JSONDecodeError as problem:
        at = problem.pos + (0 if body is None else len(body[:before].decode(errors="replace")))
        raise _invalid(f"{problem.msg} at character {at}") from None
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
