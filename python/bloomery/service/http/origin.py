"""What keeps web pages of others from using this server by way of a visitor's browser: CSRF, DNS
rebinding, and the security headers of answers. Every request passes here before its route.

- **DNS rebinding**: a page at evil.example has that name lead to this machine, and is then, to the
  browser, of this server's own origin. So Host must be a name of this server's: an address,
  localhost, the setting `host`, one of `http-hosts`, or one of the TLS certificate's.
- **CSRF**: a page has the browser send a form or a script's request here. So Origin, where there is
  one, must be this server's, scheme and port too; and a browser that says by Sec-Fetch-Site that
  another site asks may only follow a link to a page, and not to what is downloaded. What is no
  browser sends neither. (What a browser wants changed also brings a token: `browser`.)
- **Security headers**: what a browser may do with an answer. They suit a page of this server's own,
  with its files and without scripts in its text; other sites get nothing of it to see.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Any

from bloomery import errors
from bloomery.service.config.settings import Settings

_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        b"require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # With it the Origin of a form would be null; this server's own pages ask by fetch, where it is
    # theirs.
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_HSTS = (b"strict-transport-security", b"max-age=31536000")
PAGES = "/ui/"  # what is below it is for people
_LINKED = ("/", "/docs")
_OWN_SITES = (None, b"same-origin", b"none")  # none: somebody typed the address
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(:[0-9]*)?")


def security_headers(tls: bool) -> list[tuple[bytes, bytes]]:
    """The headers of every answer."""
    return [*_HEADERS, _HSTS] if tls else [*_HEADERS]


def refusal(scope: Any, settings: Settings, certified: tuple[str, ...]) -> errors.NotAllowed | None:
    """Why a request is not looked at: a page of somebody else's may have sent it. `certified`: the
    names of the TLS certificate."""
    headers = scope["headers_by_name"]
    host = headers.get(b"host")
    # A browser always sends one: without it, it is a check of HTTP/1.0, as HAProxy's are.
    if host is not None and not _is_ours(host, settings.host, settings.http_hosts, certified):
        return errors.NotAllowed(
            f"the Host {host[:80].decode('latin-1')!a} is no name of this server's: use its "
            "address, or add the name to its setting http-hosts"
        )
    origin = headers.get(b"origin")
    if origin is not None and not _same(origin, scope["scheme"], host, settings):
        return errors.NotAllowed("a web page of another origin may not use this server")
    if headers.get(b"sec-fetch-site") not in _OWN_SITES and not _follows_link(scope, headers):
        return errors.NotAllowed("a web page of another site may not use this server")
    return None


# DNS rebinding.


@lru_cache(maxsize=1024)
def _is_ours(host: bytes, bound: str, configured: str, certified: tuple[str, ...]) -> bool:
    """Whether a Host header names this server. No DNS leads to an address, nor, as browsers have
    it, to localhost."""
    match = _HOST.fullmatch(host.decode("latin-1").lower())
    if match is None:
        return False
    name = match[1].rstrip(".")
    if name == "localhost" or name.endswith(".localhost") or _is_address(name.strip("[]")):
        return True
    origins = (origin.rpartition("://")[2] for origin in configured.split(","))
    return any(_matches(name, pattern) for pattern in (bound, *certified, *origins))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _matches(name: str, pattern: str) -> bool:
    """Whether a name is this one, or, where that is *.example.org, one below it."""
    pattern = pattern.lower().partition(":")[0].rstrip(".")
    if pattern == "*":
        return True
    if pattern.startswith("*."):
        return name.endswith(pattern[1:]) and len(name) > len(pattern[1:])
    return name == pattern


# CSRF.


def _same(origin: bytes, scheme: str, host: bytes | None, settings: Settings) -> bool:
    """Whether an Origin is this server's own, as the browser knows it: behind a proxy that speaks
    TLS it is one of http-hosts."""
    text = origin.decode("latin-1").lower()
    own = f"{scheme}://{(host or b'').decode('latin-1').lower()}"
    return text == own or ("://" in text and text in settings.http_hosts.split(","))


def _follows_link(scope: Any, headers: dict[bytes, bytes]) -> bool:
    """Whether somebody followed a link to here: what they see, the page they came from does not."""
    return (
        scope["method"] in ("GET", "HEAD")
        and (scope["path"] in _LINKED or scope["path"].startswith(PAGES))
        and headers.get(b"sec-fetch-mode") == b"navigate"
        and headers.get(b"sec-fetch-dest") == b"document"
    )
