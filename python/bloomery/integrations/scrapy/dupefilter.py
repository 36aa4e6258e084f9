"""`BloomDupeFilter`: Scrapy's DUPEFILTER_CLASS over a filter, an exact set, or a shared filter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bloomery import extras
from bloomery.integrations.scrapy.fingerprints import Fingerprints, open_fingerprints
from bloomery.integrations.scrapy.settings import JobSettings, read_settings

with extras.needed("scrapy", "bloomery.integrations.scrapy"):
    from scrapy.dupefilters import RFPDupeFilter
    from scrapy.utils.misc import load_object

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.utils.request import RequestFingerprinterProtocol
    from typing_extensions import Self

_RUNNING = "bloomery.running"  # a file that is there while a job runs


class BloomDupeFilter(RFPDupeFilter):
    """Was this request seen? Scrapy's own fingerprints, in 4 bytes a request instead of 90.

        DUPEFILTER_CLASS = "bloomery.integrations.scrapy.BloomDupeFilter"

    The settings BLOOMERY_* choose what remembers them (docs/crawling.md).
    """

    def __init__(
        self,
        crawler: Crawler,
        settings: JobSettings,
        fingerprinter: RequestFingerprinterProtocol,
    ) -> None:
        """Use `from_crawler`."""
        super().__init__(
            None, crawler.settings.getbool("DUPEFILTER_DEBUG"), fingerprinter=fingerprinter
        )
        self._crawler, self._settings = crawler, settings
        self.fingerprint = fingerprinter.fingerprint
        self.seen: Fingerprints = open_fingerprints(settings)
        self._add = self.seen.add
        self._new = 0
        figures = self.seen.stats()
        self._room = settings.capacity - figures.get("estimated_count", 0)
        if settings.exact:
            self._room = -1  # it has no capacity
        folder = settings.folder
        self._running: Path | None = folder / _RUNNING if folder else None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Make the filter of a crawler, whose settings are checked first."""
        assert crawler.request_fingerprinter is not None
        return cls(crawler, read_settings(crawler), crawler.request_fingerprinter)

    def open(self) -> None:
        """Notice whether the job's last run was killed."""
        if self._running is None:
            return
        if self._running.exists() and not self._is_ours():
            self.logger.warning(
                "The last run of the job in %s was killed. Scrapy's own queue has lost what waited "
                "in it, and the dupefilter knows those requests as seen: their pages are not "
                "fetched. Begin a new job with SCHEDULER = "
                "'bloomery.integrations.scrapy.JobScheduler', which loses none.",
                self._running.parent,
            )
        self._running.touch()

    def _is_ours(self) -> bool:
        return hasattr(load_object(self._crawler.settings["SCHEDULER"]), "outlives_kill")

    def request_seen(self, request: Request) -> bool:
        """Return whether this request, or its like, came before; from now on it has."""
        if not self._add(self.fingerprint(request)):
            return True
        self._new += 1
        if self._new == self._room:
            self.tell_full()
        return False

    def tell_full(self) -> None:
        """Say that more requests come than the filter was made for."""
        self.logger.warning(
            "The dupefilter was made for %d requests, and has them: from now on new pages are "
            "dropped more often than %g of the time. Begin a new job with a larger "
            "BLOOMERY_CAPACITY, or with BLOOMERY_EXACT = True.",
            self._settings.capacity,
            self._settings.error_rate,
        )

    def close(self, reason: str) -> None:
        """Put figures into Scrapy's stats, and let go of files and connections."""
        stats = self._crawler.stats
        assert stats is not None
        stats.set_value("bloomery/new", self._new)
        for name, value in self.seen.stats().items():
            stats.set_value(f"bloomery/{name}", value)
        self.seen.close()
        if self._running is not None:
            self._running.unlink(missing_ok=True)
