"""`JobScheduler`: Scrapy's SCHEDULER over a queue that outlives kill -9 (design: `__init__.py`)."""

from __future__ import annotations

import logging
import pickle
from typing import TYPE_CHECKING, Any

from bloomery import extras
from bloomery.errors import CorruptData, InvalidConfiguration
from bloomery.integrations.scrapy.dupefilter import BloomDupeFilter
from bloomery.integrations.scrapy.queue import JobQueue
from bloomery.integrations.scrapy.settings import read_settings

with extras.needed("scrapy", "bloomery.integrations.scrapy"):
    from scrapy.core.scheduler import BaseScheduler
    from scrapy.utils.misc import build_from_crawler, load_object
    from scrapy.utils.request import request_from_dict

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from typing_extensions import Self

logger = logging.getLogger(__name__)
_QUEUE = "bloomery.queue.sqlite"


class JobScheduler(BaseScheduler):
    """A scheduler whose requests survive the end of the process at any moment.

        SCHEDULER = "bloomery.integrations.scrapy.JobScheduler"
        DUPEFILTER_CLASS = "bloomery.integrations.scrapy.BloomDupeFilter"
        JOBDIR = "jobs/news"

    A request leaves the queue when its page is done: its callback has ended, and the links that it
    found are in the queue. What was in flight when the process was killed is fetched again. Start
    requests of a job that is resumed are asked for too, whatever their `dont_filter` says.
    """

    outlives_kill = True

    def __init__(self, crawler: Crawler, dupefilter: BloomDupeFilter, queue: JobQueue) -> None:
        """Use `from_crawler`."""
        assert crawler.stats is not None
        self.df = dupefilter
        self._crawler, self._queue, self._stats = crawler, queue, crawler.stats
        self._in_flight: dict[Request, int] = {}
        self._unwritten: dict[int, Request] = {}  # requests that cannot be pickled
        self._spider: Spider | None = None
        self._failed = False  # a file could not be written: nothing is taken out of the queue

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Make the scheduler of a crawler, whose settings are checked first."""
        settings = read_settings(crawler)
        wanted = load_object(crawler.settings["DUPEFILTER_CLASS"])
        if settings.folder is None:
            raise InvalidConfiguration("SCHEDULER is JobScheduler, which needs JOBDIR: set it")
        if not issubclass(wanted, BloomDupeFilter):
            raise InvalidConfiguration(
                "SCHEDULER is JobScheduler, which needs DUPEFILTER_CLASS = "
                f"'bloomery.integrations.scrapy.BloomDupeFilter', and not {wanted.__name__}"
            )
        settings.folder.mkdir(parents=True, exist_ok=True)
        # The queue first: it is where another process that has the job is noticed.
        queue = JobQueue(settings.folder / _QUEUE, settings.order)
        return cls(crawler, build_from_crawler(wanted, crawler), queue)

    def open(self, spider: Spider) -> None:
        """Take up what an earlier run has left."""
        self._spider = spider
        if lost := self._queue.unwritten():
            logger.error(
                "%d requests of the last run could not be written to the disk and are lost: their "
                "callbacks must be methods of the spider, and their meta must be picklable",
                len(lost),
            )
            self._queue.done(lost, taken=False)
        # One that was written and not yet marked when the process was killed.
        for fingerprint in self._queue.fingerprints():
            self.df.seen.add(fingerprint)
        self.df.seen.commit()
        self.df.open()
        if self._queue.resumed:
            logger.info("Resuming the job: %d requests wait", self._queue.waiting)

    def close(self, reason: str) -> None:
        """Let go of the files; what waits stays in them."""
        self._finish_done()
        self._queue.close()
        self.df.close(reason)

    def has_pending_requests(self) -> bool:
        """Return whether a request waits that can be given out."""
        return self._queue.waiting > 0 and not self._failed

    def __len__(self) -> int:
        """Return how many requests wait."""
        return self._queue.waiting

    def enqueue_request(self, request: Request) -> bool:
        """Add a request unless it was seen; the queue has it before anybody knows it as seen.

        If it cannot be written the crawl ends: pages that are in flight stay in the queue, since
        their links may not be there; and no link is taken any more.
        """
        if self._failed:
            return False
        try:
            return self._enqueue(request)
        except (OSError, CorruptData) as problem:
            self._fail(problem)
            return False

    def _fail(self, problem: Exception) -> None:
        logger.critical("The crawl ends, to be resumed when this is mended: %s", problem)
        self._failed = True

    def _enqueue(self, request: Request) -> bool:
        start = bool(request.meta.get("is_start_request"))
        asked = not request.dont_filter or (start and self._queue.resumed)
        # A start request is marked whatever it says: it is not to be fetched again as a link.
        fingerprint = self.df.fingerprint(request) if asked or start else None
        if asked and fingerprint is not None and self.df.seen.knows(fingerprint):
            return self._filtered(request)
        number = self._put(request, start, fingerprint)
        if fingerprint is not None and self.df.request_seen(request) and asked:
            # Another spider was first, since we asked.
            self._queue.done([number], taken=False)
            self._unwritten.pop(number, None)
            return self._filtered(request)
        self._stats.inc_value("scheduler/enqueued")
        return True

    def _filtered(self, request: Request) -> bool:
        assert self._spider is not None
        self.df.log(request, self._spider)
        return False

    def _put(self, request: Request, start: bool, fingerprint: bytes | None) -> int:
        try:
            body = pickle.dumps(request.to_dict(spider=self._spider), protocol=4)
        except (pickle.PicklingError, AttributeError, TypeError, ValueError) as problem:
            if not self._unwritten:
                logger.warning("A kill would lose what cannot be pickled: %s: %s", request, problem)
            self._stats.inc_value("scheduler/unserializable")
            number = self._queue.put(request.priority, start, fingerprint, None)
            self._unwritten[number] = request
            self._stats.inc_value("scheduler/enqueued/memory")
            return number
        self._stats.inc_value("scheduler/enqueued/disk")
        return self._queue.put(request.priority, start, fingerprint, body)

    def next_request(self) -> Request | None:
        """Return the next request, which stays in the queue until its page is done."""
        self._finish_done()
        try:
            row = None if self._failed else self._queue.take()
        except (OSError, CorruptData) as problem:
            self._fail(problem)
            return None
        if row is None:
            return None
        number, body = row
        if body is None:
            request = self._unwritten.pop(number)
            self._stats.inc_value("scheduler/dequeued/memory")
        else:
            request = request_from_dict(pickle.loads(body), spider=self._spider)
            self._stats.inc_value("scheduler/dequeued/disk")
        self._in_flight[request] = number
        self._stats.inc_value("scheduler/dequeued")
        return request

    def _finish_done(self) -> None:
        """Take out of the queue what the engine is done with."""
        if self._failed:
            return
        in_progress = _in_progress(self._crawler.engine)
        done = [request for request in self._in_flight if request not in in_progress]
        if not done:
            return
        try:
            self.df.seen.commit()  # before: a page that is done must not be new again
            self._queue.done([self._in_flight.pop(request) for request in done])
        except (OSError, CorruptData) as problem:
            self._fail(problem)


def _in_progress(engine: Any) -> set[Request]:
    """Return the requests that are downloaded or whose callbacks run. Scrapy tells no public way:
    no signal says that a callback and all that it yielded have been dealt with."""
    slot = engine._slot
    return slot.inprogress if slot is not None else set()
