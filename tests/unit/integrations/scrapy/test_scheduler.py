"""The scheduler and its queue: in Scrapy's order, and killed between any two writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.utils.test import get_crawler

from bloomery.integrations.scrapy import JobScheduler
from limits import failing_writes
from privates import crawler_of, queue_of
from unit.integrations.scrapy.test_settings import OURS
from unit.kills import die, killed

URL = "https://example.org/"


def opened(folder: Path, **settings: Any) -> JobScheduler:
    """A scheduler of a job in this folder; its engine has nothing in progress."""
    given: dict[str, Any] = {"JOBDIR": str(folder), "BLOOMERY_CAPACITY": 1000, **OURS, **settings}
    crawler = get_crawler(Spider, settings_dict=given)
    crawler.spider = Spider.from_crawler(crawler, name="test")
    crawler.engine = Engine()  # type: ignore[assignment]
    scheduler = JobScheduler.from_crawler(crawler)
    scheduler.open(crawler.spider)
    return scheduler


class Engine:
    """What a scheduler asks of the engine: which requests are in progress."""

    def __init__(self) -> None:
        self._slot = self
        self.inprogress: set[Request] = set()


def urls(scheduler: JobScheduler) -> list[str]:
    """All that it has, in order."""
    found = []
    while (request := scheduler.next_request()) is not None:
        found.append(request.url.removeprefix(URL))
    return found


@pytest.mark.parametrize("order", ["lifo", "fifo"])
def test_requests_come_in_scrapys_order(tmp_path: Path, order: str) -> None:
    """The highest priority first; then the newest, or the oldest; start requests last, in turn."""
    scheduler = opened(tmp_path, BLOOMERY_QUEUE=order)
    for name, priority, start in [
        ("s1", 0, True),
        ("a", 0, False),
        ("s2", 0, True),
        ("b", 0, False),
        ("low", -5, False),
        ("high", 5, False),
    ]:
        meta = {"is_start_request": True} if start else {}
        assert scheduler.enqueue_request(Request(URL + name, priority=priority, meta=meta))
    middle = ["b", "a"] if order == "lifo" else ["a", "b"]
    assert len(scheduler) == 6
    assert urls(scheduler) == ["high", *middle, "s1", "s2", "low"]
    assert not scheduler.has_pending_requests()
    scheduler.close("finished")


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "filter"])
def test_killed_between_the_queue_and_the_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exact: bool
) -> None:
    """A request that is in the queue and was not yet marked is there once, and then known."""

    def work() -> None:
        scheduler = opened(tmp_path, BLOOMERY_EXACT=exact)
        scheduler.enqueue_request(Request(URL + "a"))
        monkeypatch.setattr(scheduler.df, "request_seen", lambda _: die())
        scheduler.enqueue_request(Request(URL + "b"))

    killed(work)
    scheduler = opened(tmp_path, BLOOMERY_EXACT=exact)
    for name in ("a", "b"):
        assert not scheduler.enqueue_request(Request(URL + name))
    assert sorted(urls(scheduler)) == ["a", "b"]
    scheduler.close("finished")


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "filter"])
def test_killed_when_a_page_is_done(tmp_path: Path, exact: bool) -> None:
    """What was in flight comes again; what is done does not, and is known."""

    def work() -> None:
        scheduler = opened(tmp_path, BLOOMERY_EXACT=exact)
        for name in ("a", "b"):
            scheduler.enqueue_request(Request(URL + name))
        done, going = scheduler.next_request(), scheduler.next_request()
        assert done is not None
        assert going is not None
        crawler_of(scheduler).engine._slot.inprogress.add(going)
        scheduler.enqueue_request(Request(URL + "link of the one that is done"))
        scheduler.next_request()

    killed(work)
    scheduler = opened(tmp_path, BLOOMERY_EXACT=exact)
    assert not scheduler.enqueue_request(Request(URL + "b"))
    assert sorted(urls(scheduler)) == ["a", "link%20of%20the%20one%20that%20is%20done"]
    scheduler.close("finished")


def test_start_requests_of_a_resumed_job(tmp_path: Path) -> None:
    """They are fetched once, whatever their dont_filter says; other such requests always are."""
    start = {"is_start_request": True}
    scheduler = opened(tmp_path)
    assert scheduler.enqueue_request(Request(URL, dont_filter=True, meta=start))
    assert not scheduler.enqueue_request(Request(URL))
    assert urls(scheduler) == [""]
    scheduler.close("finished")
    scheduler = opened(tmp_path)
    assert not scheduler.enqueue_request(Request(URL, dont_filter=True, meta=start))
    assert scheduler.enqueue_request(Request(URL, dont_filter=True))
    scheduler.close("finished")


def test_requests_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are kept in memory, with a warning; after a kill it is said how many are lost."""

    def request() -> Request:
        def callback(response: Any) -> None:
            """No method of the spider."""

        return Request(URL + "a", callback=callback)

    scheduler = opened(tmp_path / "one")
    assert scheduler.enqueue_request(request())
    assert "cannot be pickled" in caplog.text
    assert urls(scheduler) == ["a"]
    scheduler.close("finished")
    killed(lambda: opened(tmp_path / "two").enqueue_request(request()))
    scheduler = opened(tmp_path / "two")
    assert "1 requests of the last run could not be written" in caplog.text
    assert not scheduler.has_pending_requests()
    scheduler.close("finished")


def test_a_job_has_one_spider(tmp_path: Path) -> None:
    """A second process on the same JOBDIR is refused."""
    scheduler = opened(tmp_path)
    with pytest.raises(OSError, match="another process uses it"):
        opened(tmp_path)
    scheduler.close("finished")


def test_a_full_filter_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At its capacity the filter warns, once, also when the job was resumed meanwhile."""
    for run in range(2):
        scheduler = opened(tmp_path)
        for number in range(600):
            scheduler.enqueue_request(Request(f"{URL}{run}/{number}"))
        assert caplog.text.count("was made for 1000 requests") == run
        urls(scheduler)
        scheduler.close("finished")
        stats = crawler_of(scheduler).stats.get_stats()
        assert stats["bloomery/estimated_count"] == pytest.approx((run + 1) * 600, rel=0.05)


def test_a_full_disk_ends_the_crawl_and_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The page whose links could not be written stays in the queue, and no other is given out."""
    scheduler = opened(tmp_path)
    assert scheduler.enqueue_request(Request(URL + "page"))
    page = scheduler.next_request()
    assert page is not None
    queue_of(scheduler).execute("PRAGMA max_page_count = 1")
    links = [Request(f"{URL}{number}", meta={"text": "x" * 2_000}) for number in range(50)]
    assert not all(map(scheduler.enqueue_request, links))
    assert "The crawl ends" in caplog.text
    assert not scheduler.has_pending_requests()
    assert scheduler.next_request() is None
    scheduler.close("finished")
    scheduler = opened(tmp_path)
    assert "page" in urls(scheduler)
    scheduler.close("finished")


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "filter"])
@pytest.mark.parametrize("moment", ["link", "done"])
def test_an_error_of_the_disk_that_goes_by_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, moment: str, exact: bool
) -> None:
    """Whether a link or a page that is done cannot be written: page and links come again."""
    scheduler = opened(tmp_path, BLOOMERY_EXACT=exact)
    assert scheduler.enqueue_request(Request(URL + "page"))
    page = scheduler.next_request()
    assert page is not None
    if moment == "link":
        crawler_of(scheduler).engine._slot.inprogress.add(page)
    with failing_writes(tmp_path / "bloomery.queue.sqlite"):
        if moment == "link":
            assert not scheduler.enqueue_request(Request(URL + "first"))
        else:
            assert scheduler.next_request() is None
    assert "The crawl ends" in caplog.text
    assert "ulimit -f" in caplog.text
    assert not scheduler.enqueue_request(Request(URL + "second"))
    crawler_of(scheduler).engine._slot.inprogress.clear()
    assert scheduler.next_request() is None
    scheduler.close("finished")
    scheduler = opened(tmp_path, BLOOMERY_EXACT=exact)
    assert urls(scheduler) == ["page"]
    assert scheduler.enqueue_request(Request(URL + "first"))
    assert scheduler.enqueue_request(Request(URL + "second"))
    scheduler.close("finished")
