"""Which request headers may tell who asks: a cached response is for requests that do not.

Proxies and single sign-on name a user in headers of many names, and new ones come every year. So
the lists have three outcomes: a header that *identifies* makes a request go past the cache; one
that is *anonymous* does not matter; any other may be either, and is safe only if the response names
it in `Vary`, since it is part of the key then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from fnmatch import translate
from functools import lru_cache

from bloomery.errors import InvalidParameter

IDENTITY_HEADERS = (
    *("authorization", "proxy-authorization", "cookie2", "from", "dpop", "eppn"),
    *("*auth*", "*user*", "*token*", "*session*", "*identity*", "*principal*", "*email*"),
    *("*oidc*", "*jwt*", "*saml*", "*assertion*", "*claim*", "*credential*", "*secret*"),
    *("*password*", "*login*", "*account*", "*member*", "*customer*", "*consumer*", "*tenant*"),
    *("*group*", "*role*", "*subject*", "*cert*", "*ssl-client*", "*client-s-dn*", "*client-dn*"),
    *("*api-key*", "*apikey*", "*access-key*", "remote-*", "x-remote-*", "shib*", "mellon*"),
)
"""Names and patterns of request headers that can identify a user."""

ANONYMOUS_HEADERS = (
    # What browsers and clients send.
    *("accept", "accept-charset", "accept-datetime", "accept-encoding", "accept-language"),
    *("cache-control", "connection", "content-length", "content-type", "cookie", "dnt", "expect"),
    *("host", "keep-alive", "max-forwards", "origin", "pragma", "priority", "proxy-connection"),
    *("purpose", "referer", "save-data", "sec-ch-*", "sec-fetch-*", "sec-fetch-user", "sec-gpc"),
    *("sec-purpose", "te", "transfer-encoding", "upgrade-insecure-requests", "user-agent"),
    *("device-memory", "downlink", "dpr", "ect", "rtt", "viewport-width", "width"),
    *("x-moz", "x-purpose", "x-requested-with"),
    # What proxies add: addresses, and links, which are part of the key.
    *("cdn-loop", "client-ip", "early-data", "forwarded", "true-client-ip", "via", "warning"),
    *("x-client-ip", "x-cluster-client-ip", "x-forwarded-for", "x-forwarded-host"),
    *("x-forwarded-port", "x-forwarded-prefix", "x-forwarded-proto", "x-forwarded-scheme"),
    *("x-forwarded-server", "x-forwarded-ssl", "x-original-url", "x-real-ip", "x-rewrite-url"),
    *("x-scheme", "x-varnish", "x-request-start", "x-queue-start"),
    *("cf-connecting-ip", "cf-connecting-ipv6", "cf-ew-via", "cf-ipcountry", "cf-ray"),
    *("cf-visitor", "cf-worker", "fastly-client-ip", "fastly-ff", "fastly-ssl", "x-amz-cf-id"),
    *("fly-client-ip", "fly-forwarded-port", "fly-forwarded-proto", "fly-forwarded-ssl"),
    *("fly-region", "fly-request-id", "x-arr-log-id", "x-arr-ssl", "x-azure-clientip"),
    *("x-azure-fdid", "x-azure-ref", "x-azure-requestchain", "x-azure-socketip"),
    *("x-envoy-attempt-count", "x-envoy-expected-rq-timeout-ms", "x-envoy-external-address"),
    # Tracing.
    *("b3", "baggage", "newrelic", "sentry-trace", "traceparent", "tracestate", "uber-trace-id"),
    *("x-amzn-trace-id", "x-b3-*", "x-cloud-trace-context", "x-correlation-id", "x-datadog-*"),
    *("x-request-id", "x-trace-id"),
)
"""Names and patterns of request headers that say nothing of a user."""

_LONGEST_CACHED = 64  # characters: the names are the clients' to choose


class HeaderKind(Enum):
    """What a request header may say of a user."""

    IDENTITY = "identity"
    ANONYMOUS = "anonymous"
    UNKNOWN = "unknown"


class HeaderRules:
    """Judges request headers by their names, in lower case.

    A name comes before a pattern, and one that identifies before one that does not.
    """

    def __init__(
        self,
        identity: Iterable[str] = IDENTITY_HEADERS,
        anonymous: Iterable[str] = ANONYMOUS_HEADERS,
    ) -> None:
        self._identity = _split("identity_headers", identity)
        self._anonymous = _split("anonymous_headers", anonymous)
        self._cached = lru_cache(4096)(self._judge)

    def judge(self, name: str) -> HeaderKind:
        """Return what the header may say."""
        return self._cached(name) if len(name) <= _LONGEST_CACHED else self._judge(name)

    def _judge(self, name: str) -> HeaderKind:
        by_name = ((HeaderKind.IDENTITY, self._identity), (HeaderKind.ANONYMOUS, self._anonymous))
        for kind, (names, _) in by_name:
            if name in names:
                return kind
        for kind, (_, patterns) in by_name:
            if patterns.fullmatch(name):
                return kind
        return HeaderKind.UNKNOWN


def _split(setting: str, given: Iterable[str]) -> tuple[frozenset[str], re.Pattern[str]]:
    names: list[object] | None = None if isinstance(given, str) else list(given)
    if names is None or not all(isinstance(name, str) and name for name in names):
        raise InvalidParameter(
            f"{setting} is {given!r}, must be a list of header names, which may have a *"
        )
    lower = [str(name).lower() for name in names]
    patterns = [translate(name) for name in lower if "*" in name]
    return frozenset(lower), re.compile("|".join(patterns) or r"(?!)")


DEFAULT_RULES = HeaderRules()
