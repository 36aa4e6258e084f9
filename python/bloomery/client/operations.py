"""The requests about keys of a filter, and the names of filters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from bloomery import errors
from bloomery.client.batches import JSON, RequestBody, request_bodies
from bloomery.client.request import Request, Requests, dumped, loaded, member, nothing
from bloomery.json_keys import encode_key, encode_keys

if TYPE_CHECKING:
    from bloomery.guard.answer import Answer
    from bloomery.types import Batch, Key, Mask, Nulls

T = TypeVar("T")
Name = str | bytes
_LOOKUP_KEYS = 1000  # of one request
# The member of the response that has an operation's result for each key.
_RESULT_MEMBER = {"add": "new", "contains": "maybe", "remove": "removed"}


def name_of(name: Name) -> bytes:
    """A filter's name as bytes."""
    if isinstance(name, str):
        name = name.encode("utf-8", "surrogateescape")
    if not isinstance(name, bytes):
        raise errors.InvalidParameter(f"a filter's name is a str or bytes, not {name!r}")
    if not name:
        raise errors.InvalidParameter("a filter's name over HTTP must not be empty")
    return name


def readable_name(name: bytes) -> Name:
    """A name as a person would write it: str, or bytes where it is no text."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name


def path_of(name: bytes) -> str:
    """Where a filter is on its server. A dot alone would be taken for a folder on the way."""
    return "/filters/" + quote(name, safe="").replace(".", "%2E")


def _answer(row: dict[str, Any]) -> Answer:
    from bloomery.guard.answer import Answer  # not before it is needed

    return Answer(row["found"], row["value"], row["by"])


def _answers(content: dict[str, Any]) -> list[Answer]:
    return [_answer(row) for row in content["answers"]]


def _listed(keys: Batch) -> list[Any]:
    from bloomery.guard.lookups import listed

    return listed(keys)


def _bodies(keys: Batch) -> Iterator[dict[str, Any]]:
    """Keys that are looked up, or forgotten: so many a request."""
    wanted = _listed(keys)
    for start in range(0, len(wanted), _LOOKUP_KEYS):
        yield {"keys": encode_keys(wanted[start : start + _LOOKUP_KEYS])}


class KeyRequests:
    """The requests about keys of one filter."""

    def __init__(self, path: str) -> None:
        self._path = path

    def single(self, operation: str, key: Key) -> Request[bool]:
        """Do it with one key."""
        return Request(
            "POST",
            f"{self._path}/{operation}",
            member(_RESULT_MEMBER[operation]),
            dumped({"key": encode_key(key)}),
            repeatable=operation == "contains",
        )

    def many(self, operation: str, keys: Batch, nulls: Nulls) -> Requests[Mask]:
        """Do it with each key, and say what came of each."""
        rows, bodies = request_bodies(keys, nulls, answers=True)
        return Requests((self._keys(operation, body) for body in bodies), rows.mask)

    def update(self, keys: Batch, nulls: Nulls) -> Requests[None]:
        """Add keys and ask for no answers."""
        _, bodies = request_bodies(keys, nulls, answers=False)
        return Requests((self._keys("add", body) for body in bodies), lambda results: None)

    def _keys(self, operation: str, keys: RequestBody) -> Request[Any]:
        whole = isinstance(keys.body, bytes)
        read = keys.read if keys.accept != JSON and keys.read else member(_RESULT_MEMBER[operation])
        return Request(
            "POST",
            f"{self._path}/{operation}",
            read,
            keys.body,
            {"Content-Type": keys.content_type, "Accept": keys.accept},
            repeatable=whole and operation == "contains",
        )

    def lookup(self, key: Key) -> Request[Answer]:
        """Look one key up."""
        return self._lookup({"key": encode_key(key)}, _answer)

    def lookups(self, keys: Batch) -> Requests[list[Answer]]:
        """Look keys up, some at a time."""
        requests = (self._lookup(body, _answers) for body in _bodies(keys))
        return Requests(requests, lambda results: [answer for batch in results for answer in batch])

    def forgets(self, keys: Batch) -> Requests[None]:
        """Let keys be looked up anew, some at a time."""
        path = f"{self._path}/forget"
        requests = (
            Request("POST", path, nothing, dumped(body), repeatable=True) for body in _bodies(keys)
        )
        return Requests(requests, lambda results: None)

    def _lookup(self, body: dict[str, Any], read: Callable[[Any], T]) -> Request[T]:
        return Request(
            "POST",
            f"{self._path}/lookup",
            lambda content: read(loaded(content)),
            dumped(body),
            repeatable=True,
        )
