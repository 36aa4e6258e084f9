"""A filter in Redis for threads or for asyncio, called in the same way."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import redis
import redis.asyncio

from bloomery.integrations.redis import AsyncRedisFilter, RedisFilter

BOTH = [False, True]  # for threads, for asyncio


class Either:
    """One of the two, with a loop of its own if it needs one; to be closed."""

    def __init__(self, for_asyncio: bool) -> None:
        self.loop = asyncio.new_event_loop() if for_asyncio else None
        self.kind: Any = AsyncRedisFilter if for_asyncio else RedisFilter
        self.clients: list[Any] = []
        self.filters: list[Any] = []

    def do(self, what: Any) -> Any:
        """What a method returned, or will."""
        return (
            self.loop.run_until_complete(what) if inspect.isawaitable(what) and self.loop else what
        )

    def client(self, url: str, **options: Any) -> Any:
        """A client of the right kind."""
        kind: Any = redis.asyncio.Redis if self.loop else redis.Redis
        self.clients.append(kind.from_url(url, **options))
        return self.clients[-1]

    def cluster(self, url: str, **options: Any) -> Any:
        """A client of a cluster."""
        kind: Any = redis.asyncio.RedisCluster if self.loop else redis.RedisCluster
        self.clients.append(kind.from_url(url, **options))
        return self.clients[-1]

    def create(self, *arguments: Any, **options: Any) -> Filter:
        """As the class's."""
        return self._kept(self.do(self.kind.create(*arguments, **options)))

    def open(self, *arguments: Any, **options: Any) -> Filter:
        """As the class's."""
        return self._kept(self.do(self.kind.open(*arguments, **options)))

    def _kept(self, made: Any) -> Filter:
        self.filters.append(made)
        return Filter(self, made)

    def close(self) -> None:
        """Close filters, then clients, then the loop."""
        for one in self.filters:
            self.do(one.close())
        for one in self.clients:
            self.do(one.aclose() if self.loop else one.close())
        if self.loop:
            self.loop.close()


class Filter:
    """A filter whose coroutines are waited for."""

    def __init__(self, either: Either, made: Any) -> None:
        self.either, self.made = either, made

    def __contains__(self, key: Any) -> bool:
        if self.either.loop:
            return bool(self.either.do(self.made.contains(key)))
        return key in self.made

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.made, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            return self.either.do(found(*arguments, **options))

        return call
