"""HTTP responses in an admission cache, for asyncio: found, kept, and forgotten when they change.

A resource has an entry with the header names of its `Vary` and a nonce, and each variant has an
entry with the same nonce. Whoever changes the resource deletes the first entry, and none of the
variants counts any more. A response that was under way meanwhile is not kept.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable
from secrets import token_hex
from typing import Any, cast

from bloomery import errors
from bloomery.apps.caching import http_rules
from bloomery.apps.caching.aioadmission import AsyncAdmissionCache
from bloomery.apps.caching.http_rules import CachedResponse, CacheRequest, Exchange, Headers

_MAX_UNKNOWN, _LONGEST_NAME = 32, 64  # names are the clients' to choose
_logger = logging.getLogger("bloomery.apps")


class AsyncResponseCache:
    """Responses by request, in an admission cache, for asyncio."""

    def __init__(
        self, cache: AsyncAdmissionCache, max_body: int, clock: Callable[[], float] = time.time
    ) -> None:
        if not isinstance(cast("object", cache), AsyncAdmissionCache):
            raise errors.InvalidParameter(
                f"cache is a {type(cache).__name__}, must be an AsyncAdmissionCache"
            )
        if type(max_body) is not int or max_body < 1:
            raise errors.InvalidParameter(f"max_body is {max_body!r}, must be an int of bytes")
        self.cache, self.max_body, self._clock = cache, max_body, clock
        self._lock = threading.Lock()
        self._unknown: dict[str, None] = {}
        self._under_way: dict[str, list[Exchange]] = {}
        self._counts = dict.fromkeys(("hits", "misses", "bypassed", "kept", "forgotten"), 0)

    def count(self, name: str) -> None:
        """Count one more."""
        with self._lock:
            self._counts[name] += 1

    def info(self) -> dict[str, Any]:
        """Responses so far: from the cache (hits), from the application (misses), past the cache
        (bypassed); kept, forgotten because the resource changed, and under way now; names of
        headers of which it is not known whether they identify a user, which kept responses out.
        And the cache's own figures, in which a response is two look-ups."""
        with self._lock:
            under_way = sum(map(len, self._under_way.values()))
            unknown = list(self._unknown)
            return {
                **self._counts,
                "under_way": under_way,
                "unknown_headers": unknown,
                "cache": self.cache.info(),
            }

    async def find(self, request: CacheRequest) -> CachedResponse | None:
        """Return the response that this request may be answered with."""
        resource = await self._resource(request)
        if resource is not None:
            nonce, names = resource
            if not request.unknown_headers <= set(names):
                self.count("misses")
                return None
            data = await self.cache.find(f"response:{request.variant_key(names)}")
            response = CachedResponse.from_bytes(data)
            same = response is not None and response.nonce == nonce
            if response is not None and same and response.serves(request, self._clock()):
                self.count("hits")
                return response
        self.count("misses")
        return None

    def begin(self, request: CacheRequest) -> Exchange:
        """The application is about to be asked."""
        exchange = Exchange(request, self._clock())
        with self._lock:
            self._under_way.setdefault(request.primary_key, []).append(exchange)
        return exchange

    def end(self, exchange: Exchange) -> None:
        """End an exchange: the application has answered, or failed."""
        key = exchange.request.primary_key
        with self._lock:
            left = [each for each in self._under_way.get(key, ()) if each is not exchange]
            if left:
                self._under_way[key] = left
            else:
                self._under_way.pop(key, None)

    def wants(self, exchange: Exchange, status: int, headers: Headers) -> bool:
        """Whether the response that begins so may be kept, should its body be whole."""
        fresh = http_rules.freshness(exchange.request, status, headers)
        if fresh is not None and (unknown := exchange.request.unknown_headers - {*fresh.vary}):
            self._note_unknown(unknown)
            fresh = None
        exchange.freshness = fresh
        exchange.headers = [(name, value) for name, value in headers if name.lower() != "age"]
        length = http_rules.content_length(headers)
        return exchange.freshness is not None and (length is None or length <= self.max_body)

    def _note_unknown(self, names: Iterable[str]) -> None:
        with self._lock:
            for name in sorted(names):
                if len(self._unknown) < _MAX_UNKNOWN:
                    self._unknown.setdefault(name[:_LONGEST_NAME])

    async def keep(self, exchange: Exchange, body: bytes) -> None:
        """Offer the whole response to the cache."""
        request, fresh = exchange.request, exchange.freshness
        length = http_rules.content_length(exchange.headers)
        if fresh is None or len(body) > self.max_body or length not in (None, len(body)):
            return
        nonce, names = await self._resource(request) or (token_hex(8), ())
        names = tuple(sorted({*names, *fresh.vary}))
        began = exchange.began  # its age counts from there, however long it took to make
        response = CachedResponse(
            exchange.headers, body, began, began + fresh.seconds, fresh.public, nonce, fresh.age
        )
        if exchange.changed:
            return
        key = request.variant_key(names)
        if await self.cache.offer(f"response:{key}", response.to_bytes()):
            resource = json.dumps([nonce, names]).encode()
            await self.cache.put(f"resource:{request.primary_key}", resource)
            self.count("kept")
            if cast("bool", exchange.changed):  # while it was written
                await self.forget(request)

    async def forget(self, request: CacheRequest) -> None:
        """The resource was changed: let nothing count that was answered before."""
        with self._lock:
            for exchange in self._under_way.get(request.primary_key, ()):
                exchange.changed = True
        self.count("forgotten")
        try:
            await self.cache.delete(f"resource:{request.primary_key}")
        except OSError as problem:
            _logger.error("a changed resource stays cached until its max-age is over: %s", problem)

    async def _resource(self, request: CacheRequest) -> tuple[str, tuple[str, ...]] | None:
        """The nonce and the names of `Vary` of the resource, if anything of it is cached."""
        data = await self.cache.find(f"resource:{request.primary_key}")
        try:
            nonce, names = json.loads(data)
            return str(nonce), tuple(map(str, names))
        except (TypeError, ValueError, RecursionError):
            return None
