"""Fingerprints that were seen: in a filter or an exact set, of one spider or of many."""

from __future__ import annotations

import logging
import os
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bloomery.apps.diskset import DiskSet
from bloomery.errors import BloomeryError, FilterExists, InvalidConfiguration
from bloomery.filters import BloomFilter

if TYPE_CHECKING:
    from collections.abc import Callable

    from bloomery.integrations.scrapy.settings import JobSettings

logger = logging.getLogger(__name__)
_FILTER, _EXACT = "bloomery.seen.bloom", "bloomery.seen.sqlite"
_COMMIT_EVERY = 1000  # and whenever a page is done, by `JobScheduler`


class Fingerprints(Protocol):
    """Which fingerprints were seen, and who was first."""

    def add(self, fingerprint: bytes, /) -> bool:
        """Add it; True if nobody had it before."""

    def knows(self, fingerprint: bytes, /) -> bool:
        """Return whether it was added before; nothing changes."""

    def commit(self) -> None:
        """Return when no kill of this process takes back what was added."""

    def close(self) -> None:
        """Let go of files and connections."""

    def stats(self) -> dict[str, Any]:
        """Return figures for Scrapy's stats."""


def open_fingerprints(settings: JobSettings) -> Fingerprints:
    """Return what the settings ask for."""
    if settings.url:
        return SharedFingerprints(settings)
    return ExactFingerprints(settings) if settings.exact else FilterFingerprints(settings)


class FilterFingerprints:
    """A plain filter in memory; with JOBDIR the memory is a mapped file, so that the kernel has
    every bit as soon as it is set."""

    def __init__(self, settings: JobSettings) -> None:
        self._filter = (
            _mapped(settings, settings.folder) if settings.folder else _new_filter(settings)
        )
        self.add = self._filter.add
        self.knows = self._filter.contains

    def commit(self) -> None:
        """Do nothing: a bit that is set survives the process."""

    def close(self) -> None:
        """Do nothing: the mapping ends with the object."""

    def stats(self) -> dict[str, Any]:
        """Return how full the filter is."""
        return {
            "mode": "filter",
            "filter_bytes": self._filter.nbytes,
            "estimated_count": self._filter.estimated_count,
            "estimated_error_rate": self._filter.estimated_error_rate,
        }


class ExactFingerprints:
    """An exact set in JOBDIR, with a filter in front: no page is dropped by a wrong maybe."""

    def __init__(self, settings: JobSettings) -> None:
        assert settings.folder is not None
        _refuse_other(settings.folder / _FILTER, "without BLOOMERY_EXACT")
        self._set = DiskSet(settings.folder / _EXACT, fsync=False, commit_every=_COMMIT_EVERY)
        self.add = self._set.add
        self.knows = self._set.contains
        self.commit = self._set.commit
        self.close = self._set.close

    def stats(self) -> dict[str, Any]:
        """Return how many there are, and how often the filter in front was wrong."""
        figures = self._set.info()
        del figures["path"]
        return {"mode": "exact", **figures}


class SharedFingerprints:
    """A filter in Redis or of a server, or an exact set in Redis, which many spiders share: one of
    them is first.

    While it cannot be reached, or refuses, every request counts as new: a page is rather fetched
    twice than never.
    """

    def __init__(self, settings: JobSettings) -> None:
        of_redis: Callable[[JobSettings], Any] = _of_redis
        self._mode = "shared"
        if settings.exact:
            self._mode, of_redis = "shared, exact", Claims
        self._filter = _of_server(settings) if settings.over_http else of_redis(settings)
        self._unavailable = 0

    def add(self, fingerprint: bytes) -> bool:
        """Add it for all; True for the one who was first."""
        try:
            return bool(self._filter.add(fingerprint))
        except BloomeryError as problem:
            self._tell(problem)
            return True

    def knows(self, fingerprint: bytes) -> bool:
        """Return whether one of them had it."""
        try:
            return bool(self._filter.contains(fingerprint))
        except BloomeryError as problem:
            self._tell(problem)
            return False

    def _tell(self, problem: Exception) -> None:
        if not self._unavailable:
            logger.error(
                "The shared filter does not answer; requests count as new until it does, so that "
                "no page is lost: %s",
                problem,
            )
        self._unavailable += 1

    def commit(self) -> None:
        """Do nothing: what was acknowledged is the server's to keep."""

    def close(self) -> None:
        """Do nothing: connections end with the process."""

    def stats(self) -> dict[str, Any]:
        """Return how often nobody could be asked."""
        return {"mode": self._mode, "unavailable": self._unavailable}


class Claims:
    """An exact set in Redis: a hash of fingerprints, each with the claim of who was first.

    A claim is of one call. If a connection breaks and the call is sent again, the claim that is
    found tells whether it was this one that came first: no request is nobody's.
    """

    def __init__(self, settings: JobSettings) -> None:
        from bloomery.integrations.redis.wire.link import Link

        # As filters are asked: undecoded, in a cluster too, and again if a connection is lost.
        self._link = Link(settings.url)
        self._key = f"{settings.name}:exact".encode()
        self._spider, self._calls = os.urandom(6).hex(), count()
        self.contains(b"")  # fails now, and not for every request, if there is no such Redis

    def add(self, fingerprint: bytes) -> bool:
        """Claim it; True for the call that was first."""
        from bloomery.integrations.redis.wire.flow import commands, replies_to

        claim = f"{self._spider}:{next(self._calls):x}".encode()
        ask = commands(
            self._key,
            ("HSETNX", self._key, fingerprint, claim),
            ("HGET", self._key, fingerprint),
        )
        [[_, first]] = self._link.run(replies_to([ask]))
        return bool(first == claim)

    def contains(self, fingerprint: bytes) -> bool:
        """Return whether anybody has claimed it."""
        from bloomery.integrations.redis.wire.flow import reply_to

        return bool(self._link.run(reply_to(self._key, "HEXISTS", self._key, fingerprint)))


def _new_filter(settings: JobSettings) -> BloomFilter:
    return BloomFilter(settings.capacity, settings.error_rate)


def _mapped(settings: JobSettings, folder: Path) -> BloomFilter:
    _refuse_other(folder / _EXACT, "with BLOOMERY_EXACT")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _FILTER
    if not path.exists():
        _new_filter(settings).save(path)
    mapped = BloomFilter.load(path, mmap=True, writable=True)
    for name, has, wanted in (
        ("BLOOMERY_CAPACITY", mapped.capacity, settings.capacity),
        ("BLOOMERY_ERROR_RATE", mapped.error_rate, settings.error_rate),
    ):
        if has != wanted:
            raise InvalidConfiguration(
                f"{name} is {wanted:g}, and the job in {folder} was begun with {has:g}: set that, "
                "or begin a new job in another JOBDIR"
            )
    return mapped


def _refuse_other(path: Path, how: str) -> None:
    if path.exists():
        raise InvalidConfiguration(
            f"the job in {path.parent} was begun {how}: go on with it like that, or begin a new job"
            " in another JOBDIR"
        )


def _of_redis(settings: JobSettings) -> Any:
    from bloomery.integrations.redis import RedisFilter

    return RedisFilter.create(
        settings.url, settings.name, settings.capacity, settings.error_rate, backend="bits"
    )


def _of_server(settings: JobSettings) -> Any:
    from bloomery.client import Client

    client = Client(str(settings.url), token=settings.token)
    try:
        return client.create(settings.name, settings.capacity, settings.error_rate)
    except FilterExists:
        return client[settings.name]
