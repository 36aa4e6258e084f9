"""Bodies of requests: read whole within limits, and JSON that means one thing only.

Refused: duplicate members, NaN and Infinity, bytes that are no UTF-8, nesting without end. A long
body is parsed in slices, if it is one of keys; what is longer still comes as a stream (`streams`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from bloomery import _native, errors
from bloomery.service.http import limits
from bloomery.service.http.problems import Refused
from bloomery.service.http.request_cycle import ClientDisconnected
from bloomery.service.network.input_budget import Charge
from bloomery.service.parts import Parts
from bloomery.service.slices import Slice

JSON = "application/json"
NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
_STREAMS = f"a stream of them ({NDJSON}, {ARROW})"
_SLICE = 32 << 10  # bytes of keys that are parsed in one go


async def read(context: Parts, scope: Any, receive: Any, most: int = 1 << 40) -> bytes:
    """The body; RequestTooLarge as soon as it is known to be longer than a body may be."""
    most = min(most, context.settings.http_max_body_bytes)
    length = header(scope, b"content-length")
    if length is not None and (len(length) > 15 or int(length) > most):
        raise _too_large(most)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnected
    body: bytes = message["body"]
    if not message["more_body"]:
        if len(body) > most:
            raise _too_large(most)
        return body
    try:
        seconds = context.settings.http_body_seconds
        return await asyncio.wait_for(_rest(context, body, receive, most), seconds)
    except asyncio.TimeoutError:
        raise Refused(f"the body did not come within {seconds} seconds", 408) from None


async def _rest(context: Parts, body: bytes, receive: Any, most: int) -> bytes:
    parts, size = [body], len(body)
    with Charge(context.input_budget) as charge:
        while True:
            if size > most:
                raise _too_large(most)
            charge.weigh(size)
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            parts.append(message["body"])
            size += len(message["body"])
            if not message["more_body"] and size <= most:
                return b"".join(parts)


def _too_large(most: int) -> errors.RequestTooLarge:
    return errors.RequestTooLarge(
        f"a body may have {most:,} bytes (http-max-body-bytes): send fewer keys at once, or "
        f"{_STREAMS}"
    )


async def parts(receive: Any) -> AsyncIterator[bytes]:
    """A body of any length, as it comes; how slowly it may the connection knows."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        if message["body"]:
            yield message["body"]
        more = message["more_body"]


def header(scope: Any, wanted: bytes) -> bytes | None:
    """The value of a header; None if it was not sent."""
    for name, value in scope["headers"]:
        if name == wanted:
            text: bytes = value
            return text
    return None


def media_type(scope: Any) -> str:
    """What the body says it is, in lower case and without parameters; "" if it does not say."""
    value = header(scope, b"content-type") or b""
    return value.partition(b";")[0].strip().lower().decode("latin-1")


def require_json(scope: Any) -> None:
    """Raise unless the body says that it is JSON."""
    if media_type(scope) != JSON:
        raise other_media_type(scope, JSON)


def other_media_type(scope: Any, right: str) -> Refused:
    """The error for a body of another type, with a command that sends the right one."""
    given = media_type(scope)[:60] or "missing"
    if given == "application/x-www-form-urlencoded":
        given += " (as curl -d sends it)"
    host = (header(scope, b"host") or b"").decode("latin-1")
    url = f"{scope['scheme']}://{host}{scope['raw_path'][:200].decode('latin-1')}"
    return Refused(f"Content-Type is {given}, must be {right}: curl --json '{{…}}' {url}", 415)


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
    if len(body) <= limits.MAX_JSON_AT_ONCE:
        return parse(body)
    cut = await asyncio.to_thread(_native.cut_json, body, b"keys", _SLICE)
    if cut is None:
        return parse_plain(body)
    start, end, count, slices = cut
    parts = sum(body.count(mark) for mark in (b",", b"[", b"{"))
    if count > limits.MAX_JSON_KEYS or parts > limits.MAX_JSON_PARTS:
        raise errors.RequestTooLarge(
            f"a body may have {limits.MAX_JSON_KEYS:,} keys, of {limits.MAX_JSON_PARTS:,} parts in "
            f"all if they are arrays: send fewer at once, or {_STREAMS}"
        )
    value = parse(_short(body[:start] + b"[]" + body[end:], start, len(body)))
    keys: list[Any] = []
    nested, share = 0, Slice()
    for first, last in slices:
        values = _parsed(_short(b"[%b]" % body[first:last], first, last), first - 1, body)
        if not values:
            raise _invalid(f"Expecting value at byte {last}")
        if list in map(type, values):
            nested += body.count(b"[", first, last) - len(values)
            if nested > limits.MAX_JSON_NESTED:
                raise errors.RequestTooLarge(
                    f"the keys of a body may have {limits.MAX_JSON_NESTED:,} arrays in arrays: send"
                    f" fewer at once, or {_STREAMS}"
                )
        keys += keys_of(value, values, len(keys))
        await share.rest()
    value["keys"] = keys
    return value


def _short(text: bytes, start: int, end: int) -> bytes:
    """The text, if it may be parsed at once: one string may have any length, all else not."""
    if len(text) <= limits.MAX_JSON_AT_ONCE:
        return text
    if len(text) > limits.MAX_JSON_KEY:
        raise errors.RequestTooLarge(f"one key may have {limits.MAX_JSON_KEY:,} bytes of JSON")
    commas, opened = text.count(b","), text.count(b"[") + text.count(b"{")
    if opened > limits.MAX_JSON_DEPTH * (
        commas + 1
    ):  # without a comma between, each is in the one before
        raise _invalid("nested too deeply")
    if commas + opened > limits.MAX_JSON_VALUES:
        raise errors.RequestTooLarge(
            f"bytes {start:,} to {end:,} of the body have more than {limits.MAX_JSON_VALUES:,} "
            'values that are not keys of "keys": a key is a string, an integer or a short array'
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
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member comes twice in one object")
    return members


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


# As quick as pydantic's parser here (80 µs against 77 for 1,000 short keys), which keeps the last
# of two members of one name and says nothing.
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
