"""What can be done to a server and to a filter of it, each as the requests that do it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from bloomery import errors
from bloomery.client.batches import JSON, RequestBody, request_bodies
from bloomery.client.keys import dumped, loaded
from bloomery.client.request import Request, Requests
from bloomery.json_keys import encode_key, encode_keys
from bloomery.names import printable, unprintable

if TYPE_CHECKING:
    from bloomery.guard.answer import Answer
    from bloomery.types import Batch, Key, Mask, Nulls

__all__ = [
    "FilterRequests",
    "Name",
    "backup",
    "create",
    "listing",
    "name_of",
    "readable_name",
    "snapshot",
]

T = TypeVar("T")
Name = str | bytes
_PAGE = "1000"  # names at a time
_JSON_BODY = {"Content-Type": JSON}
_LOOKUP_KEYS = 1000  # of one request
FILE = "application/octet-stream"
# The member of the response that has an operation's result for each key.
_RESULT_MEMBER = {"add": "new", "contains": "maybe", "remove": "removed"}


def name_of(name: Name) -> bytes:
    """A filter's name as bytes."""
    if isinstance(name, str):
        name = name.encode("utf-8", "surrogateescape")
    if not name:
        raise errors.InvalidParameter("a filter's name over HTTP must not be empty")
    return name


def readable_name(name: bytes) -> Name:
    """A name as a person would write it: str, or bytes where it is no text."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name


def _nothing(content: bytes) -> None:
    """Read a response that says no more than that it was done."""


def _member(name: str) -> Callable[[bytes], Any]:
    def read(content: bytes) -> Any:
        return loaded(content)[name]

    return read


def _answer(row: dict[str, Any]) -> Answer:
    from bloomery.guard.answer import Answer  # not before it is needed

    return Answer(row["found"], row["value"], row["by"])


def _answers(content: dict[str, Any]) -> list[Answer]:
    return [_answer(row) for row in content["answers"]]


def _listed(keys: Batch) -> list[Any]:
    from bloomery.guard.lookups import listed

    return listed(keys)


def create(name: Name, settings: dict[str, Any]) -> Request[None]:
    """Make a filter; what is None is left to the server."""
    chosen = {key: value for key, value in settings.items() if value is not None}
    body = dumped({"name": printable(name_of(name)), **chosen})
    return Request("POST", "/filters", _nothing, body, _JSON_BODY)


def listing(pattern: Name, cursor: str) -> Request[tuple[list[Name], str]]:
    """Some of the names, and the cursor for the next ones; "" at the end."""

    def read(content: bytes) -> tuple[list[Name], str]:
        page = loaded(content)
        names = [readable_name(unprintable(filter["name"])) for filter in page["filters"]]
        return names, str(page.get("cursor") or "")

    text = pattern if isinstance(pattern, str) else pattern.decode("utf-8", "surrogateescape")
    query = {"pattern": text, "limit": _PAGE, **({"cursor": cursor} if cursor else {})}
    return Request("GET", "/filters", read, query=query, repeatable=True)


def snapshot() -> Request[None]:
    """Let the server make a snapshot."""
    return Request("POST", "/snapshot", _nothing)


def backup(rate: int) -> Request[None]:
    """All filters in one file, at most so many bytes a second."""
    return Request("GET", "/backup", _nothing, query={"rate": str(rate)})


class FilterRequests:
    """The requests about one filter."""

    def __init__(self, name: Name) -> None:
        self.name = name_of(name)
        # A dot alone would be taken for a folder on the way.
        self._path = "/filters/" + quote(self.name, safe="").replace(".", "%2E")

    # Keys.

    def one(self, operation: str, key: Key) -> Request[bool]:
        """Do it with one key."""
        return Request(
            "POST",
            f"{self._path}/{operation}",
            _member(_RESULT_MEMBER[operation]),
            dumped({"key": encode_key(key)}),
            _JSON_BODY,
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
        read = (
            keys.read if keys.accept != JSON and keys.read else _member(_RESULT_MEMBER[operation])
        )
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
        listed = _listed(keys)
        starts = range(0, len(listed), _LOOKUP_KEYS)
        batches = (listed[start : start + _LOOKUP_KEYS] for start in starts)
        requests = (self._lookup({"keys": encode_keys(batch)}, _answers) for batch in batches)
        return Requests(requests, lambda results: [answer for batch in results for answer in batch])

    def _lookup(self, body: dict[str, Any], read: Callable[[Any], T]) -> Request[T]:
        return Request(
            "POST",
            f"{self._path}/lookup",
            lambda content: read(loaded(content)),
            dumped(body),
            _JSON_BODY,
            repeatable=True,
        )

    # The whole filter.

    def info(self) -> Request[dict[str, Any]]:
        """All that is known about it."""
        return Request("GET", self._path, loaded, repeatable=True)

    def change(self, **settings: Any) -> Request[None]:
        """Change its policy, its end or its name."""
        return Request("PATCH", self._path, _nothing, dumped(settings), _JSON_BODY)

    def drop(self) -> Request[None]:
        """Forget it."""
        return Request("DELETE", self._path, _nothing)

    def act(self, what: str) -> Request[None]:
        """Clear or rotate it."""
        return Request("POST", f"{self._path}/{what}", _nothing)

    def renamed(self, to: FilterRequests) -> Request[None]:
        """Give it another name."""
        return self.change(name=printable(to.name))

    def merge(self, sources: Iterable[Any]) -> Request[None]:
        """Take every key of others, by name or as remote filters, in."""
        names = [name_of(getattr(source, "name", source)) for source in sources]
        body = dumped({"sources": [printable(name) for name in names]})
        return Request("POST", f"{self._path}/merge", _nothing, body, _JSON_BODY)

    def rebuild(self, **how: Any) -> Request[None]:
        """Begin to build it anew."""
        return Request("POST", f"{self._path}/rebuild", _nothing, dumped(how), _JSON_BODY)

    def samples(self, **query: Any) -> Request[list[dict[str, Any]]]:
        """How it was, over time."""
        chosen = {key: str(value) for key, value in query.items() if value is not None}
        read = _member("samples")
        return Request("GET", f"{self._path}/samples", read, query=chosen, repeatable=True)

    # Its file.

    def download(self) -> Request[None]:
        """Take it out as a saved filter."""
        return Request("GET", f"{self._path}/file", _nothing, headers={"Accept": FILE})

    def upload(self, body: Iterator[bytes], nbytes: int, *, replace: bool) -> Request[None]:
        """Make it of a saved filter."""
        headers = {"Content-Type": FILE, "Content-Length": str(nbytes)}
        query = {"replace": "true"} if replace else {}
        return Request("PUT", f"{self._path}/file", _nothing, body, headers, query)
