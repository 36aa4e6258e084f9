"""Real crawls of a site with loops: stopped, killed, resumed, and by several spiders at once."""

from __future__ import annotations

import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from scrapy import Request
from scrapy.utils.test import get_crawler

from bloomery.integrations.scrapy import BloomDupeFilter
from integration.scrapy.conftest import JOB_SCHEDULER, PAGES, Crawl, Site, in_flight, kill_after
from integration.servers import BloomeryServer, RedisCluster, RedisServer, Serve

Start = Callable[..., Crawl]
ALL = set(range(PAGES))


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "filter"])
def test_a_killed_job_loses_no_page(site: Site, crawl: Start, tmp_path: Path, exact: bool) -> None:
    """Killed twice and resumed, every page is fetched, and again only what was in flight."""
    job = tmp_path / "job"
    settings = {"JOBDIR": str(job), "BLOOMERY_EXACT": exact, "SCHEDULER": JOB_SCHEDULER}
    settings["BLOOMERY_CAPACITY"] = 100_000
    again: set[int] = set()
    for pages in (20, 50):
        kill_after(crawl(**settings), site, pages)
        again |= in_flight(job)
    stats = crawl(**settings).end()
    fetched = Counter(site.fetched)
    assert set(fetched) == ALL
    assert {page for page, times in fetched.items() if times > 1} <= again
    assert len(again) < PAGES / 2, "else the test would say nothing"
    done = Counter(map(int, (tmp_path / "done").read_text().split()))
    assert set(done) == ALL
    assert {page for page, times in done.items() if times > 1} <= again
    assert stats["bloomery/mode"] == ("exact" if exact else "filter")
    assert in_flight(job) == set()


def test_a_job_that_was_stopped_goes_on(site: Site, crawl: Start, tmp_path: Path) -> None:
    """Stopped by Ctrl-C and resumed, each page is fetched once, the start page too."""
    settings = {
        "JOBDIR": str(tmp_path / "job"),
        "BLOOMERY_EXACT": True,
        "SCHEDULER": JOB_SCHEDULER,
    }
    first = crawl(**settings)
    with site.held(40):
        first.process.send_signal(signal.SIGINT)
    first.end()
    assert 40 <= len(site.fetched) < PAGES
    stats = crawl(**settings).end()
    assert sorted(site.fetched) == sorted(ALL)
    assert stats["bloomery/keys"] == PAGES
    assert stats["scheduler/dequeued/disk"] < PAGES


def test_scrapys_own_queue_and_its_warning(site: Site, crawl: Start, tmp_path: Path) -> None:
    """With Scrapy's own scheduler a job that was stopped goes on; one that was killed is told."""
    settings = {"JOBDIR": str(tmp_path / "job"), "BLOOMERY_CAPACITY": 100_000}
    first = crawl(**settings)
    with site.held(40):
        first.process.send_signal(signal.SIGINT)
    first.end()
    second = crawl(**settings)
    second.end()
    fetched = Counter(site.fetched)
    assert set(fetched) == ALL
    assert {page for page, times in fetched.items() if times > 1} <= {0}  # Scrapy's dont_filter
    assert "was killed" not in second.errors.read_text()
    (tmp_path / "job" / "bloomery.running").touch()  # as a kill leaves it
    third = crawl(**settings)
    third.end()
    assert "was killed" in third.errors.read_text()
    assert JOB_SCHEDULER in third.errors.read_text()


@pytest.mark.parametrize("where", ["redis", "redis, exact", "server"])
def test_spiders_share_a_filter(
    site: Site,
    crawl: Start,
    tmp_path: Path,
    redis_server: RedisServer,
    server: BloomeryServer,
    where: str,
) -> None:
    """A spider is killed, and goes on beside another that begins elsewhere: each page is fetched by
    one of them."""
    url = server.url if where == "server" else redis_server.url
    shared: dict[str, object] = {"BLOOMERY_URL": url, "BLOOMERY_NAME": f"crawl-{tmp_path.name}"}
    shared |= {"BLOOMERY_CAPACITY": 100_000, "SCHEDULER": JOB_SCHEDULER}
    shared["BLOOMERY_EXACT"] = exact = where.endswith("exact")
    jobs = [tmp_path / "one", tmp_path / "two"]
    kill_after(crawl(0, JOBDIR=str(jobs[0]), **shared), site, 20)
    again = in_flight(jobs[0])
    both = [
        crawl(start, JOBDIR=str(job), **shared) for start, job in zip((0, 2), jobs, strict=True)
    ]
    for stats in [one.end() for one in both]:
        assert stats["bloomery/mode"] == ("shared, exact" if exact else "shared")
        assert stats["bloomery/unavailable"] == 0
    fetched = Counter(site.fetched)
    assert set(fetched) == ALL
    # A start request is fetched by whoever has it, whatever others did.
    assert {page for page, times in fetched.items() if times > 1} <= again | {0, 2}


def test_a_shared_filter_that_is_away(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """Requests count as new until it is back: a page is rather fetched twice than never."""
    server = serve()
    settings = {"BLOOMERY_URL": server.url, "BLOOMERY_CAPACITY": 1000}
    dupefilter = BloomDupeFilter.from_crawler(get_crawler(settings_dict=settings))
    request = Request("https://example.org/")
    assert [dupefilter.request_seen(request) for _ in range(2)] == [False, True]
    server.kill()
    assert [dupefilter.request_seen(request) for _ in range(2)] == [False, False]
    assert caplog.text.count("does not answer") == 1
    assert dupefilter.seen.stats() == {"mode": "shared", "unavailable": 2}


def test_an_exact_claim_that_is_sent_twice(redis_server: RedisServer, tmp_path: Path) -> None:
    """The reply to a claim is lost and it is sent again: it is still new, and to this spider alone;
    a claim that never came leaves the request to others."""
    dropped: list[bytes] = []

    def relayed(data: bytes) -> bool:
        """Whether the reply to what was sent goes back: not to the first claim."""
        if b"HSETNX" in data and not dropped:
            dropped.append(data)
            return False
        return True

    name = f"claims-{tmp_path.name}"
    with relay(redis_server.port, relayed) as port:
        one, two = (
            exact_of(url, name) for url in (f"redis://127.0.0.1:{port}/0", redis_server.url)
        )
        request = Request("https://example.org/")
        assert not one.request_seen(request)
        assert dropped
        assert one.request_seen(request)
        assert two.request_seen(request)
        assert one.seen.stats() == {"mode": "shared, exact", "unavailable": 0}


def test_exact_claims_where_replies_are_decoded(redis_server: RedisServer) -> None:
    """A URL that is shared with other programs may say so: claims are compared all the same."""
    assert_claims(f"{redis_server.url}?decode_responses=true", "https://example.org/")


def test_exact_claims_in_a_cluster(redis_cluster: RedisCluster) -> None:
    """By the URL of any of its nodes, though one of them alone has the claims."""
    for number, master in enumerate(redis_cluster.masters()):
        assert_claims(master.url, f"https://example.org/{number}")


def assert_claims(url: str, page: str) -> None:
    """A page is new once."""
    dupefilter = exact_of(url, "claims")
    assert [dupefilter.request_seen(Request(page)) for _ in range(2)] == [False, True]
    assert dupefilter.seen.stats()["unavailable"] == 0


def test_a_refused_claim_is_sent_once(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """What Redis refuses it refuses again; the log says why, and not what was sent."""
    sent: list[bytes] = []

    def relayed(data: bytes) -> bool:
        sent.append(data)
        return True

    with relay(redis_server.port, relayed) as port:
        dupefilter = exact_of(f"redis://127.0.0.1:{port}/0", "claims")
        redis_server.run("SET", "claims:exact", "taken")
        assert not dupefilter.request_seen(Request("https://example.org/"))
    assert sum(b"HSETNX" in data for data in sent) == 1
    assert "another value is in the place" in caplog.text
    assert "HSETNX" not in caplog.text
    assert dupefilter.seen.stats()["unavailable"] == 1


def exact_of(url: str, name: str) -> BloomDupeFilter:
    """What a spider with an exact set in this Redis asks."""
    settings = {"BLOOMERY_URL": url, "BLOOMERY_EXACT": True, "BLOOMERY_NAME": name}
    return BloomDupeFilter.from_crawler(get_crawler(settings_dict=settings))


@contextmanager
def relay(port: int, goes_back: Callable[[bytes], bool]) -> Iterator[int]:
    """A port that passes bytes on to another and back; a connection whose replies are not to go
    back is cut once they have come."""

    def serve(near: socket.socket) -> None:
        with near, socket.create_connection(("127.0.0.1", port)) as far:
            while data := near.recv(1 << 16):
                far.sendall(data)
                reply = far.recv(1 << 16)
                if not goes_back(data):
                    return
                near.sendall(reply)

    def accept() -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:  # closed: the test is over
                return
            threading.Thread(target=serve, args=(near,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
