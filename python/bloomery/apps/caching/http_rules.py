"""Which HTTP responses a shared cache may keep, for how long, and for which requests (RFC 9111).

A subset on purpose: whatever is in doubt is not cached, which is always right. Kept are whole
responses 200 to GET that say how long they are fresh (`max-age`, `s-maxage`), to requests that do
not tell who asks; nothing is served past that time, and nothing is revalidated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

from bloomery.apps.caching.request_headers import DEFAULT_RULES, HeaderKind, HeaderRules

Headers = Sequence[tuple[str, str]]
"""Names and values, as latin-1 text, in their order."""

MAX_TTL = 365 * 86400.0
_MAX_VARY = 16
# Requests that carry one of these get no cached response and leave none: they ask for a part of the
# response, or have a condition that the application is to judge.
_PARTIAL = {"range", "x-http-method-override", "x-http-method", "x-method-override"}
_PARTIAL |= {"if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range"}
# What applications build links from, without saying so in Vary: part of every key, so that nobody
# can poison what others get by sending one (the unkeyed inputs of web cache poisoning).
_ALWAYS_KEYED = [
    *("host", "forwarded", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port"),
    *("x-forwarded-prefix", "x-forwarded-scheme", "x-original-url", "x-rewrite-url"),
]
# Part of the variant's key alone: browsers send them with a POST, which changes the same resource,
# and a proxy its own name.
_ALWAYS_VARIED = ("origin", "content-type", "x-forwarded-server")
# A response with one of these is for one connection or one person.
_UNSHARED = {"set-cookie", "set-cookie2", "transfer-encoding", "connection", "upgrade", "trailer"}
_UNSHARED |= {"content-range", "www-authenticate"}
# Each part can match in one way only: a hostile header takes time in proportion to its length.
_TOKEN = r"[!#$%&'*+.^`|~\w-]+"
_VALUE = r'"(?:[^"\\]|\\.)*"|[^\s,"]+'
_DIRECTIVE = re.compile(rf"({_TOKEN})(?:[ \t]*=[ \t]*({_VALUE}))?[ \t]*(?:,|$)", re.ASCII)
_LONGEST_CONTROL = 8192


def header_values(headers: Headers, name: str) -> list[str]:
    """All values of a header, by its name in lower case."""
    return [value for key, value in headers if key.lower() == name]


def cache_control(headers: Headers) -> dict[str, str] | None:
    """The directives of Cache-Control in lower case, with their values; None if they cannot be read
    or one of them is there with two values: then nothing is known."""
    text = ",".join(header_values(headers, "cache-control"))
    directives: dict[str, str] = {}
    at = 0
    if len(text) > _LONGEST_CONTROL:
        return None
    while at < len(text):
        if text[at] in ", \t":
            at += 1
            continue
        directive = _DIRECTIVE.match(text, at)
        if directive is None:
            return None
        name, value = directive[1].lower(), (directive[2] or "").strip('"')
        if directives.setdefault(name, value) != value:
            return None
        at = directive.end()
    return directives


def _seconds(value: str) -> float | None:
    """A number of seconds as HTTP writes it; None if it is none."""
    return min(float(value), MAX_TTL) if re.fullmatch(r"[0-9]{1,12}", value) else None


@dataclass(frozen=True)
class CacheRequest:
    """What a cache has to know of a request."""

    method: str
    target: Sequence[str]  # scheme, path, query and whatever else names the resource
    headers: Headers
    authenticated: bool = False  # by the server, before the application
    rules: HeaderRules = DEFAULT_RULES

    @cached_property
    def primary_key(self) -> str:
        """The name of the resource, whatever `Vary` says; a digest, so no URL is too long."""
        keyed = [header_values(self.headers, name) for name in _ALWAYS_KEYED]
        return _digest([*self.target, keyed])

    def variant_key(self, names: Iterable[str]) -> str:
        """The name of the response that requests with the same values of these headers get."""
        keyed = [[name, header_values(self.headers, name)] for name in (*_ALWAYS_VARIED, *names)]
        return _digest([self.primary_key, keyed])

    @property
    def has_cookie(self) -> bool:
        """Whether the application may know the person."""
        return bool(header_values(self.headers, "cookie"))

    @cached_property
    def may_use_cache(self) -> bool:
        """Whether a response may come from the cache, or go there."""
        names = {name.lower() for name, _ in self.headers}
        control = cache_control(self.headers)
        length = header_values(self.headers, "content-length")
        return (
            self.method in ("GET", "HEAD")
            and not self.authenticated
            and not names & _PARTIAL
            and all(self.rules.judge(name) is not HeaderKind.IDENTITY for name in names)
            and "transfer-encoding" not in names  # a GET with a body
            and all(value.strip() == "0" for value in length)
            and control is not None
            and "no-store" not in control
        )

    @cached_property
    def unknown_headers(self) -> frozenset[str]:
        """Headers of which nobody knows whether they name a user: a response must vary by them."""
        names = {name.lower() for name, _ in self.headers}
        return frozenset(n for n in names if self.rules.judge(n) is HeaderKind.UNKNOWN)

    @property
    def oldest(self) -> float:
        """How old a cached response may be, in seconds; 0: it wants a new one."""
        control = cache_control(self.headers) or {}
        if "no-cache" in control or header_values(self.headers, "pragma"):
            return 0.0
        if "max-age" in control:
            return _seconds(control["max-age"]) or 0.0
        return MAX_TTL


@dataclass(frozen=True)
class CachedResponse:
    """A response as it is kept: what it says, until when, and whether people with cookies may have
    it."""

    headers: Headers
    body: bytes
    stored: float  # Unix time
    expires: float
    public: bool
    nonce: str = ""  # of the resource: what was kept before the last change of it does not count
    age: float = 0.0  # when it was stored

    def to_bytes(self) -> bytes:
        """A line of JSON, then the body."""
        head = {name: value for name, value in vars(self).items() if name != "body"}
        return json.dumps(head).encode() + b"\n" + self.body

    @classmethod
    def from_bytes(cls, data: object) -> CachedResponse | None:
        """What `to_bytes` gave; None if it is not that."""
        if not isinstance(data, bytes):
            return None
        head, _, body = data.partition(b"\n")
        try:
            fields = json.loads(head)
            times = {name: float(fields[name]) for name in ("stored", "expires", "age")}
            return cls(
                headers=[(str(name), str(value)) for name, value in fields["headers"]],
                body=body,
                public=fields["public"] is True,
                nonce=str(fields["nonce"]),
                **times,
            )
        except (ValueError, TypeError, KeyError, RecursionError):
            return None

    def serves(self, request: CacheRequest, now: float) -> bool:
        """Whether this request may be answered with it. A clock that was set back shows it as
        stored in the future: then it is not."""
        if not self.stored <= now < self.expires:
            return False
        if request.has_cookie and not self.public:
            return False
        return self.age_at(now) < request.oldest

    def age_at(self, now: float) -> float:
        """Its age in seconds."""
        return self.age + now - self.stored


@dataclass(frozen=True)
class Freshness:
    """How a response may be kept: how long, for people with cookies too, and by which headers."""

    seconds: float
    age: float
    public: bool
    vary: tuple[str, ...]


class Exchange:
    """A request that the application answers, and what becomes of its response."""

    def __init__(self, request: CacheRequest, began: float) -> None:
        self.request, self.began = request, began
        self.freshness: Freshness | None = None
        self.headers: Headers = ()
        self.changed = False  # the resource, while the response was under way


def freshness(request: CacheRequest, status: int, headers: Headers) -> Freshness | None:
    """How the response to this request may be kept; None: not at all."""
    control = cache_control(headers)
    names = {name.lower() for name, _ in headers}
    if request.method != "GET" or not request.may_use_cache or status != 200:
        return None
    if control is None or names & _UNSHARED:
        return None
    if control.keys() & {"no-store", "private", "no-cache"}:
        return None
    lifetime = _seconds(control.get("s-maxage", control.get("max-age", "")))
    (age_text, *others) = header_values(headers, "age") or ["0"]
    age = _seconds(age_text.strip())
    if lifetime is None or age is None or others or age >= lifetime:
        return None
    public = "public" in control or "s-maxage" in control
    if request.has_cookie and not public:
        return None
    varied = ",".join(header_values(headers, "vary")).lower().split(",")
    vary = tuple(sorted({name.strip() for name in varied} - {""}))
    if "*" in vary or len(vary) > _MAX_VARY:
        return None
    return Freshness(lifetime - age, age, public, vary)


def content_length(headers: Headers) -> int | None:
    """The length that a response says it has; None if it says none, or several."""
    values = set(header_values(headers, "content-length"))
    (value, *others) = values or {""}
    return int(value) if not others and re.fullmatch(r"[0-9]{1,15}", value) else None


def _digest(parts: object) -> str:
    return sha256(json.dumps(parts).encode()).hexdigest()
