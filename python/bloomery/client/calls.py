"""What can be done to a server and to a filter of it, each as the requests that do it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote

from bloomery import errors
from bloomery.client.batches import JSON, Part, parts
from bloomery.client.call import Call
from bloomery.client.keys import dumped, loaded
from bloomery.json_keys import encode_key, encode_keys
from bloomery.names import printable, unprintable

if TYPE_CHECKING:
    from bloomery.guard.answer import Answer
    from bloomery.types import Batch, Key, Mask, Nulls

__all__ = ["FilterCalls", "Many", "Name", "create", "listing", "name_of", "snapshot"]

T = TypeVar("T")
Name = str | bytes
_PAGE = "1000"  # names at a time
_SENT = {"Content-Type": JSON}
_LOOKED_UP = 1000  # keys of one look-up
FILE = "application/octet-stream"
# What an operation answers for each key.
_WORDS = {"add": "new", "contains": "maybe", "remove": "removed"}


@dataclass(frozen=True, slots=True)
class Many(Generic[T]):
    """Requests that are sent one after the other, and what their results come to."""

    calls: Iterator[Call[Any]]
    join: Callable[[list[Any]], T]


def name_of(name: Name) -> bytes:
    """A filter's name as bytes."""
    if isinstance(name, str):
        name = name.encode("utf-8", "surrogateescape")
    if not name:
        raise errors.InvalidParameter("a filter's name over HTTP must not be empty")
    return name


def shown(name: bytes) -> Name:
    """A name as a person would write it: str, or bytes where it is no text."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name


def _nothing(content: bytes) -> None:
    """The answer says nothing that was not known."""


def _member(name: str) -> Callable[[bytes], Any]:
    def read(content: bytes) -> Any:
        return loaded(content)[name]

    return read


def _answer(told: dict[str, Any]) -> Answer:
    from bloomery.guard.answer import Answer  # not before it is needed

    return Answer(told["found"], told["value"], told["by"])


def _answers(told: dict[str, Any]) -> list[Answer]:
    return [_answer(one) for one in told["answers"]]


def _listed(keys: Batch) -> list[Any]:
    from bloomery.guard.lookups import listed

    return listed(keys)


def create(name: Name, settings: dict[str, Any]) -> Call[None]:
    """Make a filter; what is None is left to the server."""
    given = {key: value for key, value in settings.items() if value is not None}
    body = dumped({"name": printable(name_of(name)), **given})
    return Call("POST", "/filters", _nothing, body, _SENT)


def listing(pattern: Name, cursor: str) -> Call[tuple[list[Name], str]]:
    """Some of the names, and the cursor for the next ones; "" at the end."""

    def read(content: bytes) -> tuple[list[Name], str]:
        found = loaded(content)
        names = [shown(unprintable(one["name"])) for one in found["filters"]]
        return names, str(found.get("cursor") or "")

    text = pattern if isinstance(pattern, str) else pattern.decode("utf-8", "surrogateescape")
    query = {"pattern": text, "limit": _PAGE, **({"cursor": cursor} if cursor else {})}
    return Call("GET", "/filters", read, query=query, again=True)


def snapshot() -> Call[None]:
    """Let the server make a snapshot."""
    return Call("POST", "/snapshot", _nothing)


class FilterCalls:
    """The requests about one filter."""

    def __init__(self, name: Name) -> None:
        self.name = name_of(name)
        # A dot alone would be taken for a folder on the way.
        self._path = "/filters/" + quote(self.name, safe="").replace(".", "%2E")

    # Keys.

    def one(self, operation: str, key: Key) -> Call[bool]:
        """Do it with one key."""
        return Call(
            "POST",
            f"{self._path}/{operation}",
            _member(_WORDS[operation]),
            dumped({"key": encode_key(key)}),
            _SENT,
            again=operation == "contains",
        )

    def many(self, operation: str, keys: Batch, nulls: Nulls) -> Many[Mask]:
        """Do it with each key, and say what came of each."""
        rows, bodies = parts(keys, nulls, answers=True)
        return Many((self._part(operation, one) for one in bodies), rows.mask)

    def update(self, keys: Batch, nulls: Nulls) -> Many[None]:
        """Add keys and ask for no answers."""
        _, bodies = parts(keys, nulls, answers=False)
        return Many((self._part("add", one) for one in bodies), lambda results: None)

    def _part(self, operation: str, part: Part) -> Call[Any]:
        whole = isinstance(part.body, bytes)
        read = part.read if part.accept != JSON and part.read else _member(_WORDS[operation])
        return Call(
            "POST",
            f"{self._path}/{operation}",
            read,
            part.body,
            {"Content-Type": part.content, "Accept": part.accept},
            again=whole and operation == "contains",
        )

    def lookup(self, key: Key) -> Call[Answer]:
        """Look one key up."""
        return self._lookup({"key": encode_key(key)}, _answer)

    def lookups(self, keys: Batch) -> Many[list[Answer]]:
        """Look keys up, some at a time."""
        listed = _listed(keys)
        some = (listed[at : at + _LOOKED_UP] for at in range(0, len(listed), _LOOKED_UP))
        calls = (self._lookup({"keys": encode_keys(part)}, _answers) for part in some)
        return Many(calls, lambda results: [answer for part in results for answer in part])

    def _lookup(self, body: dict[str, Any], read: Callable[[Any], T]) -> Call[T]:
        return Call(
            "POST",
            f"{self._path}/lookup",
            lambda content: read(loaded(content)),
            dumped(body),
            _SENT,
            again=True,
        )

    # The whole filter.

    def info(self) -> Call[dict[str, Any]]:
        """All that is known about it."""
        return Call("GET", self._path, loaded, again=True)

    def change(self, **settings: Any) -> Call[None]:
        """Change its policy, its end or its name."""
        return Call("PATCH", self._path, _nothing, dumped(settings), _SENT)

    def drop(self) -> Call[None]:
        """Forget it."""
        return Call("DELETE", self._path, _nothing)

    def act(self, what: str) -> Call[None]:
        """Clear or rotate it."""
        return Call("POST", f"{self._path}/{what}", _nothing)

    def renamed(self, to: FilterCalls) -> Call[None]:
        """Give it another name."""
        return self.change(name=printable(to.name))

    def merge(self, sources: Iterable[Any]) -> Call[None]:
        """Take every key of others, by name or as remote filters, in."""
        names = [name_of(getattr(source, "name", source)) for source in sources]
        body = dumped({"sources": [printable(name) for name in names]})
        return Call("POST", f"{self._path}/merge", _nothing, body, _SENT)

    def rebuild(self, **how: Any) -> Call[None]:
        """Begin to build it anew."""
        return Call("POST", f"{self._path}/rebuild", _nothing, dumped(how), _SENT)

    def samples(self, **query: Any) -> Call[list[dict[str, Any]]]:
        """How it was, over time."""
        given = {key: str(value) for key, value in query.items() if value is not None}
        read = _member("samples")
        return Call("GET", f"{self._path}/samples", read, query=given, again=True)

    # Its file.

    def download(self) -> Call[None]:
        """Take it out as a saved filter."""
        return Call("GET", f"{self._path}/file", _nothing, headers={"Accept": FILE})

    def upload(self, body: Iterator[bytes], nbytes: int, *, replace: bool) -> Call[None]:
        """Make it of a saved filter."""
        headers = {"Content-Type": FILE, "Content-Length": str(nbytes)}
        query = {"replace": "true"} if replace else {}
        return Call("PUT", f"{self._path}/file", _nothing, body, headers, query)
