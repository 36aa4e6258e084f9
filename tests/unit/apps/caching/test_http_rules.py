"""Headers are read as HTTP writes them, and hostile ones cost nothing and allow nothing."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery import RotatingBloomFilter, errors
from bloomery.apps import (
    AdmissionCache,
    AsgiCacheMiddleware,
    AsyncAdmissionCache,
    WsgiCacheMiddleware,
)
from bloomery.apps.caching import ANONYMOUS_HEADERS, IDENTITY_HEADERS
from bloomery.apps.caching.http_rules import CachedResponse, CacheRequest, cache_control, freshness
from bloomery.apps.caching.request_headers import HeaderKind, HeaderRules


def control(text: str) -> dict[str, str] | None:
    return cache_control([("Cache-Control", text)])


def get(**headers: str) -> CacheRequest:
    pairs = [(name.replace("_", "-").lower(), value) for name, value in headers.items()]
    return CacheRequest("GET", ["http", "/"], pairs)


@pytest.mark.parametrize(
    ("text", "directives"),
    [
        ("", {}),
        ("public", {"public": ""}),
        ("Max-Age = 5 , X", {"max-age": "5", "x": ""}),
        ('private="a, b", max-age="5"', {"private": "a, b", "max-age": "5"}),
        ('a="quoted \\" quote"', {"a": 'quoted \\" quote'}),
        ("max-age=5, max-age=5", {"max-age": "5"}),
        ("max-age=5, max-age=6", None),
        ('a="', None),
        ("a b", None),
        ("=5", None),
        ("max-age=\xa05", {"max-age": "\xa05"}),
        ("x" * 10_000, None),
    ],
)
def test_cache_control(text: str, directives: dict[str, str] | None) -> None:
    """Directives and their values, or None where nothing can be relied on."""
    assert control(text) == directives


@pytest.mark.parametrize("text", ["a" + " " * 8000 + "b", "a=" + " " * 8000 + '"', ' a="' * 2000])
def test_hostile_headers_take_no_time(text: str) -> None:
    """Headers on which a careless pattern would search for hours are read at once."""
    for _ in range(100):
        assert control(text) is None


@given(
    st.text(st.characters(max_codepoint=255), max_size=40), st.text('mage-x=0123," ', max_size=30)
)
def test_whatever_cannot_be_read_is_not_kept(junk: str, more: str) -> None:
    """Any text in any header is a decision and no crash; what says no-store is never kept."""
    request = get(cache_control=junk, cookie=more)
    headers = [("Cache-Control", more), ("Vary", junk), ("Age", more), ("Content-Length", junk)]
    freshness(request, 200, headers)
    for text in (junk, more):
        assert freshness(get(), 200, [("Cache-Control", f"no-store, {text}")]) is None
        assert freshness(get(), 200, [("Cache-Control", f"{text}, no-store")]) is None
        CachedResponse.from_bytes(text.encode("latin-1"))


def test_no_two_requests_share_a_key_by_chance() -> None:
    """Parts of a request cannot be moved from one to another without another key."""
    keys = [
        CacheRequest("GET", ["http", "/a", "b"], []).primary_key,
        CacheRequest("GET", ["http", "/ab", ""], []).primary_key,
        CacheRequest("GET", ["http", "/a", "b"], [("host", "h")]).primary_key,
        CacheRequest("GET", ["http", "/a", "b"], [("forwarded", "h")]).primary_key,
        CacheRequest("GET", ["http", "/a", "b"], [("host", "h"), ("host", "i")]).primary_key,
        CacheRequest("GET", ["http", "/a", "b"], [("host", "h, i")]).primary_key,
    ]
    request = get(accept="x", accept_language="y")
    keys += [
        request.variant_key(names) for names in ((), ("accept",), ("accept", "accept-language"))
    ]
    keys.append(get(accept="xy").variant_key(("accept", "accept-language")))
    assert len(set(keys)) == len(keys)


def test_an_origin_is_a_variant_of_the_same_resource() -> None:
    """A POST from a browser, which says its Origin, changes what is kept for all of them."""
    other = get(origin="https://other.example")
    assert other.primary_key == get().primary_key
    assert other.variant_key(()) != get().variant_key(())


# What proxies and single sign-on name a user by.
IDENTITY = [
    "Authorization",
    "Proxy-Authorization",
    "From",
    "DPoP",
    "Remote-User",
    "X-Remote-User",
    "X-Forwarded-User",
    "X-Forwarded-Email",
    "X-Forwarded-Preferred-Username",
    "X-Forwarded-Groups",
    "X-Forwarded-Access-Token",
    "X-Forwarded-Client-Cert",
    "X-Api-Key",
    "ApiKey",
    "X-Auth-Token",
    "X-Auth-Request-User",
    "X-Auth-Request-Email",
    "X-Amzn-Oidc-Identity",
    "X-Amzn-Oidc-Data",
    "X-Amz-Security-Token",
    "X-SSL-Client-S-DN",
    "X-SSL-Client-Cert",
    "Ssl-Client-Verify",
    "X-Client-Cert",
    "X-ARR-ClientCert",
    "X-MS-Client-Principal-Name",
    "X-MS-Token-AAD-Id-Token",
    "X-Goog-Iap-Jwt-Assertion",
    "X-Goog-Authenticated-User-Email",
    "Cf-Access-Jwt-Assertion",
    "Cf-Access-Authenticated-User-Email",
    "X-WEBAUTH-USER",
    "X-Authentik-Username",
    "Remote-Groups",
    "X-Pomerium-Claim-Email",
    "Tailscale-User-Login",
    "X-Vouch-User",
    "X-Consumer-Username",
    "X-Userinfo",
    "X-Access-Token",
    "X-Session-Id",
    "X-Tenant-Id",
    "X-Account",
    "Shib-Session-ID",
    "MELLON_NAME",
    "eppn",
]


@pytest.mark.parametrize("name", IDENTITY)
def test_who_asks_is_told_by_many_headers(name: str) -> None:
    """Whatever names a person goes past the cache."""
    assert get().may_use_cache
    assert not CacheRequest("GET", ["http", "/"], [(name, "x")]).may_use_cache


def test_headers_of_browsers_and_proxies_are_anonymous() -> None:
    """Chrome and Firefox behind nginx, Traefik and Cloudflare are served from the cache."""
    names = [
        "Host",
        "User-Agent",
        "Accept",
        "Accept-Language",
        "Accept-Encoding",
        "Referer",
        "DNT",
        "Connection",
        "Cookie",
        "Upgrade-Insecure-Requests",
        "Sec-Fetch-Dest",
        "Sec-Fetch-Mode",
        "Sec-Fetch-Site",
        "Sec-Fetch-User",
        "Sec-CH-UA",
        "Sec-CH-UA-Mobile",
        "Sec-CH-UA-Platform",
        "Priority",
        "Pragma",
        "Cache-Control",
        "Save-Data",
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Port",
        "X-Forwarded-Proto",
        "X-Forwarded-Server",
        "X-Real-Ip",
        "X-Request-Id",
        "CF-Ray",
        "CF-Connecting-IP",
        "CF-IPCountry",
        "CF-Visitor",
        "CDN-Loop",
        "Via",
        "X-Amzn-Trace-Id",
        "traceparent",
        "tracestate",
        "Content-Type",
        "X-Requested-With",
        "TE",
        "Keep-Alive",
    ]
    request = CacheRequest("GET", ["http", "/"], [(name, "no-transform") for name in names])
    assert request.may_use_cache
    assert request.unknown_headers == set()


def test_lists_of_headers_are_settings() -> None:
    """A name comes before a pattern, and one that identifies before one that does not."""
    rules = HeaderRules(
        identity=(*IDENTITY_HEADERS, "Accept-Language", "x-staff-*"),
        anonymous=(*ANONYMOUS_HEADERS, "X-User-Colour", "x-*"),
    )
    kinds = {
        name: rules.judge(name).value for name in ("accept-language", "x-staff-id", "x-a", "y")
    }
    assert list(kinds.values()) == ["identity", "identity", "anonymous", "unknown"]
    assert rules.judge("x-user-colour") is HeaderKind.ANONYMOUS
    assert rules.judge("x-user-name") is HeaderKind.IDENTITY
    assert rules.judge("y" * 100_000) is HeaderKind.UNKNOWN
    wrong: Any
    for wrong in ("x-user", [""], [5]):
        with pytest.raises(errors.InvalidParameter, match="identity_headers is"):
            HeaderRules(identity=wrong)
        with pytest.raises(errors.InvalidParameter, match="anonymous_headers is"):
            WsgiCacheMiddleware(
                cast("Any", None),
                AdmissionCache({}, RotatingBloomFilter(10)),
                anonymous_headers=wrong,
            )


def test_a_response_survives_its_bytes() -> None:
    """Headers, times and a body with newlines come back; everything else is None."""
    response = CachedResponse([("X", "\xe9\n")], b"a\nb\n\0", 1.5, 2.5, True, "n", 0.5)
    assert CachedResponse.from_bytes(response.to_bytes()) == response
    for junk in (b"[" * 100_000, b"", b"{}", b"[]", b"5", b'{"headers": 5}', None, "text"):
        assert CachedResponse.from_bytes(junk) is None


def test_each_middleware_wants_its_cache() -> None:
    """The twin for the other kind, or a body limit that is none, is refused."""
    filter = RotatingBloomFilter(10)
    ours, theirs = AdmissionCache({}, filter), AsyncAdmissionCache({}, filter)
    application = cast("Any", None)
    with pytest.raises(errors.InvalidParameter, match="must be an AdmissionCache"):
        WsgiCacheMiddleware(application, cast("Any", theirs))
    with pytest.raises(errors.InvalidParameter, match="must be an AsyncAdmissionCache"):
        AsgiCacheMiddleware(application, cast("Any", ours))
    with pytest.raises(errors.InvalidParameter, match="max_body is 0"):
        WsgiCacheMiddleware(application, ours, max_body=0)
