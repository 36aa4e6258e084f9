"""A request, its JSON, how its response is read, and the errors of ours that failures become."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from bloomery import errors, extras

if TYPE_CHECKING:
    import ssl

    import httpx

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """What to send, and what the response means."""

    method: str
    path: str  # percent-encoded
    read: Callable[[bytes], T]
    body: bytes | Iterator[bytes] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)  # without a type, a body is JSON
    query: Mapping[str, str] = field(default_factory=dict)
    # It changes nothing and can be sent again: if a connection that was kept turns out to be gone.
    repeatable: bool = False


@dataclass(frozen=True, slots=True)
class Requests(Generic[T]):
    """Requests that are sent one after the other, and what their results come to."""

    each: Iterator[Request[Any]]
    join: Callable[[list[Any]], T]


@lru_cache
def _encoder(between: str) -> Callable[[Any], str]:
    """What writes JSON. Made once: `json.dumps` would make one for each key."""
    import json  # not before it is needed: `bloomery dedup` starts without it

    return json.JSONEncoder(ensure_ascii=False, separators=(between, ":")).encode


def dumped(value: Any, between: str = ",") -> bytes:
    """JSON bytes; InvalidKey for a string that has no UTF-8."""
    try:
        return _encoder(between)(value).encode()
    except UnicodeEncodeError:
        raise errors.InvalidKey("a str with a lone surrogate has no UTF-8 and is no key") from None


def loaded(content: bytes) -> Any:
    """The value of JSON bytes."""
    import json

    return json.loads(content)


def lines(keys: list[Any]) -> bytes:
    """Strings and ints, each as a line of JSON."""
    return dumped(keys, "\n")[1:-1] + b"\n"


def nothing(content: bytes) -> None:
    """Read a response that says no more than that it was done."""


def member(name: str) -> Callable[[bytes], Any]:
    """What reads one member of a response's JSON."""

    def read(content: bytes) -> Any:
        return loaded(content)[name]

    return read


def load_httpx() -> Any:
    """Return httpx; MissingExtra if it is not installed."""
    with extras.needed("httpx", "a client"):
        import httpx
    return httpx


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where the server is, who asks, and for how long to wait."""

    url: str
    token: str | None = field(repr=False)
    user: str | None
    password: str | None = field(repr=False)
    timeout: float | None
    verify: bool | str | ssl.SSLContext

    def httpx_options(self) -> dict[str, Any]:
        """The arguments of httpx's client, of either kind."""
        httpx = load_httpx()
        if self.token is not None and self.user is not None:
            raise errors.InvalidParameter("give a token, or user and password, not both")
        if (self.user is None) != (self.password is None):
            raise errors.InvalidParameter("user and password go together")
        try:
            url = httpx.URL(self.url)
        except (httpx.InvalidURL, TypeError):
            url = None
        if url is None or url.scheme not in {"http", "https"} or not url.host:
            raise errors.InvalidParameter(
                "url must be that of a server's HTTP port, like http://127.0.0.1:8100"
            )
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        auth = None if self.user is None else (self.user, self.password)
        return {
            "base_url": url,
            "headers": headers,
            "auth": auth,
            "timeout": self.timeout,
            "verify": self._verified(url.scheme),
        }

    def _verified(self, scheme: str) -> bool | ssl.SSLContext:
        if scheme == "http":
            return False  # to read all certificates of the system takes 50 ms
        if isinstance(self.verify, str):
            import ssl

            try:
                return ssl.create_default_context(cafile=self.verify)
            except OSError as problem:  # ssl.SSLError is one
                raise errors.InvalidParameter(
                    f"verify is {self.verify!r}, must be a file of certificates in PEM: {problem}"
                ) from problem
        return self.verify


@contextlib.contextmanager
def failures_as_errors(request: Request[Any], client: Any) -> Iterator[None]:
    """Raise what a connection can fail with as ServerUnavailable, with what to do next."""
    httpx = load_httpx()
    place = f"{client.base_url.scheme}://{client.base_url.netloc.decode('ascii', 'replace')}"
    unsure = "" if request.repeatable else "; whether it was done is not known"
    try:
        yield
    except httpx.ConnectError as problem:
        raise errors.ServerUnavailable(
            f"no server can be reached at {place} ({problem}): {_next_step(str(problem))}"
        ) from problem
    except httpx.ConnectTimeout as problem:
        raise errors.ServerUnavailable(f"{place} did not take the connection in time") from problem
    except httpx.TimeoutException as problem:
        raise errors.ServerUnavailable(
            f"{place} did not answer in time{unsure}: try again later, or give a longer timeout"
        ) from problem
    except httpx.TransportError as problem:
        plain = client.base_url.scheme == "http"
        raise errors.ServerUnavailable(
            f"the connection to {place} broke ({type(problem).__name__}){unsure}: try again"
            + ("; is this its HTTP port? a server that has TLS is at https://" if plain else "")
        ) from problem


def _next_step(why: str) -> str:
    """What to do about a connection that did not come about."""
    if "CERTIFICATE_VERIFY_FAILED" in why:
        return "give the certificate that signed the server's own, verify='ca.pem'"
    if "WRONG_VERSION_NUMBER" in why or "RECORD_LAYER_FAILURE" in why:
        return "it does not speak TLS there: is the URL http://…?"
    return "is `bloomery serve` running, and is this its HTTP port?"


def error_of(response: httpx.Response) -> errors.BloomeryError:
    """The error that a response means: by its code, or by its status if it is no server of ours."""
    try:
        problem = loaded(response.content)
    except ValueError:
        problem = None
    if isinstance(problem, dict) and isinstance(problem.get("code"), str):
        detail = problem.get("detail") or problem.get("title") or problem["code"]
        return errors.of_code(problem["code"], str(detail))
    status = f"HTTP status {response.status_code} {response.reason_phrase}".rstrip()
    if response.status_code in {502, 503, 504}:
        return errors.ServerUnavailable(f"{status}: the server is away or not ready: try again")
    return errors.BloomeryError(f"{status}, and no word of why: is this a bloomery server?")
