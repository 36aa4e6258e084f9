"""WSGI middleware that caches responses at their second request (Flask, Django, plain WSGI)."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from bloomery.apps.caching.admission import AdmissionCache
from bloomery.apps.caching.http_rules import CacheRequest, Exchange
from bloomery.apps.caching.request_headers import (
    ANONYMOUS_HEADERS,
    IDENTITY_HEADERS,
    HeaderKind,
    HeaderRules,
)
from bloomery.apps.caching.responses import ResponseCache

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
_SAFE = ("GET", "HEAD", "OPTIONS", "TRACE")


class WsgiCacheMiddleware:
    """A WSGI application whose responses are cached, from their second request on.

        cache = AdmissionCache(LRUCache(64 << 20, len), RotatingBloomFilter(100_000, window="1h"))
        app = WsgiCacheMiddleware(app, cache)

    Kept are whole responses 200 to GET that say how long they are fresh (`Cache-Control: max-age`
    or `s-maxage`) and are for everybody: no `private`, `no-store`, `no-cache` or `Set-Cookie`; to a
    request with a cookie only if they say `public`. A request that tells who asks goes past: by a
    user or a client certificate that the server knows, or by one of the `identity_headers`. A
    header that is not among the `anonymous_headers` either may do so too, unless the response
    names it in `Vary`. `Vary` is followed, bodies above `max_body` bytes and streams pass. A POST,
    PUT, PATCH or DELETE that succeeds makes its URL be forgotten.
    """

    def __init__(
        self,
        app: Application,
        cache: AdmissionCache,
        *,
        max_body: int = 1 << 20,
        identity_headers: Collection[str] = IDENTITY_HEADERS,
        anonymous_headers: Collection[str] = ANONYMOUS_HEADERS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._app, self._responses = app, ResponseCache(cache, max_body, clock)
        self._clock = clock
        self._rules = HeaderRules(identity_headers, anonymous_headers)

    def info(self) -> dict[str, Any]:
        """Figures: hits, misses, bypassed, kept, forgotten, and the cache's own."""
        return self._responses.info()

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        request = _request(environ, self._rules)
        if not request.may_use_cache:
            self._responses.count("bypassed")
            return self._app(environ, self._forgetting(request, start_response))
        response = self._responses.find(request)
        if response is not None:
            age = str(int(response.age_at(self._clock())))
            start_response(
                "200 OK", [*response.headers, ("Age", age), ("Cache-Status", "bloomery; hit")]
            )
            return [] if request.method == "HEAD" else [response.body]
        exchange = self._responses.begin(request)
        recording = _WsgiRecording(self._responses, exchange, start_response)
        try:
            body = self._app(environ, recording.start)
            return recording.body_of(body)
        except BaseException:
            self._responses.end(exchange)
            raise

    def _forgetting(
        self, request: CacheRequest, start_response: Callable[..., Any]
    ) -> Callable[..., Any]:
        """`start_response`, which forgets the resource when it was changed."""
        if request.method in _SAFE:
            return start_response

        def start(status: str, *others: Any) -> Any:
            if status[:1] in ("2", "3"):
                self._responses.forget(request)
            return start_response(status, *others)

        return start


class _WsgiRecording:
    """A response on its way: passed on piece by piece, and kept when it was whole."""

    def __init__(
        self, responses: ResponseCache, exchange: Exchange, start_response: Callable[..., Any]
    ) -> None:
        self._responses, self._exchange, self._start = responses, exchange, start_response
        self._started = self._wanted = self._says_length = False
        self._pieces: list[bytes] = []
        self._length = 0

    def start(self, status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Any:
        """The application's `start_response`; the last call counts, as PEP 3333 has it."""
        self._started = True
        code = int(status[:3]) if status[:3].isdigit() else 0
        self._wanted = self._responses.wants(self._exchange, code, headers)
        self._says_length = any(name.lower() == "content-length" for name, _ in headers)
        write = self._start(status, headers, *exc_info)

        def writing(data: bytes) -> Any:
            self._wanted = False  # what is written so is not seen here
            return write(data)

        return writing

    def body_of(self, body: Iterable[bytes]) -> Iterable[bytes]:
        """The body, as it is if it is known by now whether it will be kept."""
        if self._started and isinstance(body, (list, tuple)):
            if self._wanted:
                self._responses.keep(self._exchange, b"".join(body))
            self._responses.end(self._exchange)
            return body
        if self._started and not self._worth_recording():
            self._responses.end(self._exchange)
            return body
        return _RecordedBody(self, body)

    def _worth_recording(self) -> bool:
        """A stream that does not say how long it is passes."""
        return self._wanted and self._says_length

    def note(self, piece: bytes) -> None:
        """One more piece of the body."""
        self._length += len(piece)
        if not self._worth_recording() or self._length > self._responses.max_body:
            self._wanted = False
            self._pieces.clear()
        else:
            self._pieces.append(piece)

    def finish(self) -> None:
        """The body has come to its end."""
        if self._worth_recording():
            self._responses.keep(self._exchange, b"".join(self._pieces))

    def close(self) -> None:
        """End the exchange: no more of the body comes."""
        self._responses.end(self._exchange)


class _RecordedBody:
    """The application's iterable, with a recording of what it gives."""

    def __init__(self, recording: _WsgiRecording, body: Iterable[bytes]) -> None:
        self._recording, self._body, self._pieces = recording, body, iter(body)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            piece = next(self._pieces)
        except StopIteration:
            self._recording.finish()
            self._recording.close()
            raise
        self._recording.note(piece)
        return piece

    def close(self) -> None:
        self._recording.close()
        if hasattr(self._body, "close"):
            self._body.close()


# Of the server or of middleware outside; with a value, there is a user.
_IDENTITY_VARIABLES = {"REMOTE_USER", "REMOTE_IDENT", "AUTH_TYPE", "HTTPS_DN", "HTTPS_CC"}
_IDENTITY_VARIABLES |= {"GSS_NAME", "peercert", "repoze.who.identity"}
_IDENTITY_VARIABLES |= {"AUTH_USER", "LOGON_USER", "CERT_SUBJECT", "AUTHORIZATION"}  # of IIS
_IDENTITY_PREFIXES = ("SSL_CLIENT_", "OIDC_", "MELLON_", "Shib-", "SHIB_", "AUTHENTICATE_")


def _request(environ: dict[str, Any], rules: HeaderRules) -> CacheRequest:
    headers = [
        (key[5:].replace("_", "-").lower(), str(value))
        for key, value in environ.items()
        if key.startswith("HTTP_")
    ]
    headers += [  # the two that have no HTTP_
        (key.replace("_", "-").lower(), str(environ[key]))
        for key in ("CONTENT_TYPE", "CONTENT_LENGTH")
        if environ.get(key)
    ]
    place = ("wsgi.url_scheme", "SERVER_NAME", "SERVER_PORT", "SCRIPT_NAME", "PATH_INFO")
    target = [str(environ.get(name, "")) for name in (*place, "QUERY_STRING", "RAW_URI")]
    authenticated = any(
        value and _may_identify(str(name), value, rules) for name, value in environ.items()
    )
    return CacheRequest(environ["REQUEST_METHOD"], target, headers, authenticated, rules)


def _may_identify(name: str, value: object, rules: HeaderRules) -> bool:
    """Return whether a variable of the server, and not a header, may name a user."""
    if name.startswith("REDIRECT_"):  # by Apache, for each internal redirect
        name = name.replace("REDIRECT_", "")
        if name.startswith("HTTP_"):
            header = name[5:].replace("_", "-").lower()
            return rules.judge(header) is HeaderKind.IDENTITY
    if (name, value) == ("SSL_CLIENT_VERIFY", "NONE"):
        return False
    return name in _IDENTITY_VARIABLES or name.startswith(_IDENTITY_PREFIXES)
