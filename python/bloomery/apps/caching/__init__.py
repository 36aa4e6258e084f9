"""Caches that keep what is asked for twice, also as HTTP middleware, and edges that share theirs.

    WsgiCacheMiddleware   AsgiCacheMiddleware      a request in, a response out
             │                     │
    responses, aioresponses ── http_rules          which responses may be kept, and for whom
             │                request_headers     which headers tell who asks
             │
    admission, aioadmission ── stores, aiostores   the second request is cached, in any store
             │
    a filter: what was asked for once, and lately

What a filter gets wrong here costs a write into the cache, never a wrong value: the filter only
decides whether a value is kept, and a value is found by its whole key.
"""

from bloomery.apps.caching.admission import AdmissionCache
from bloomery.apps.caching.aioadmission import AsyncAdmissionCache
from bloomery.apps.caching.aiostores import AsyncRedisStore
from bloomery.apps.caching.asgi import AsgiCacheMiddleware
from bloomery.apps.caching.edges import EdgeSummaries, edge_summary
from bloomery.apps.caching.request_headers import ANONYMOUS_HEADERS, IDENTITY_HEADERS
from bloomery.apps.caching.stores import RedisStore
from bloomery.apps.caching.wsgi import WsgiCacheMiddleware

__all__ = [
    "ANONYMOUS_HEADERS",
    "IDENTITY_HEADERS",
    "AdmissionCache",
    "AsgiCacheMiddleware",
    "AsyncAdmissionCache",
    "AsyncRedisStore",
    "EdgeSummaries",
    "RedisStore",
    "WsgiCacheMiddleware",
    "edge_summary",
]
