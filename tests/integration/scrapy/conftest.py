"""A web site to crawl, and crawls of it in processes of their own, which can be killed."""

from __future__ import annotations

import json
import pickle
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from conftest import require
from waiting import wait_until

HERE = Path(__file__).parent
PAGES = 120
JOB_SCHEDULER = "bloomery.integrations.scrapy.JobScheduler"


class Site:
    """A web site of `PAGES` pages, and what was fetched from it."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "fetched"
        self.process = subprocess.Popen(
            [sys.executable, HERE / "website.py", str(PAGES), self.log],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}"

    @property
    def fetched(self) -> list[int]:
        """The pages that were asked for, in order."""
        return [int(line) for line in self.log.read_bytes().split()] if self.log.exists() else []

    @contextmanager
    def held(self, pages: int) -> Iterator[None]:
        """After so many pages no more are answered: no crawl ends before it is stopped, however
        busy the machine is."""
        hold = Path(f"{self.log}.hold")
        hold.write_text(str(pages))
        assert wait_until(lambda: len(self.fetched) >= pages, 120)
        yield
        hold.unlink()


class Crawl:
    """A crawl that runs."""

    def __init__(self, folder: Path, url: str, settings: dict[str, Any]) -> None:
        self.errors = folder / "errors"
        given = [f"{name}={json.dumps(value)}" for name, value in settings.items()]
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, HERE / "crawl.py", url, folder / "done", *given],
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def end(self) -> dict[str, Any]:
        """Its stats, once it has ended well."""
        printed, _ = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, self.errors.read_text()
        stats: dict[str, Any] = json.loads(printed)
        return stats

    def stop(self, number: int) -> None:
        """Send it a signal, and return when it has ended."""
        self.process.send_signal(number)
        self.process.communicate(timeout=120)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A web site that runs, of which nothing was fetched yet."""
    require("scrapy")
    site = Site(tmp_path)
    try:
        yield site
    finally:
        site.process.kill()
        site.process.communicate()


@pytest.fixture
def crawl(tmp_path: Path, site: Site) -> Iterator[Callable[..., Crawl]]:
    """Start a crawl of the site, from a page on: `crawl(0, JOBDIR="job")`."""
    crawls: list[Crawl] = []

    def start(page: int = 0, **settings: Any) -> Crawl:
        crawls.append(Crawl(tmp_path, f"{site.url}/{page}", settings))
        return crawls[-1]

    yield start
    for crawl in crawls:
        crawl.process.kill()
        crawl.process.communicate()


def kill_after(crawl: Crawl, site: Site, pages: int) -> None:
    """Kill it as soon as so many more pages were fetched."""
    with site.held(len(site.fetched) + pages):
        crawl.stop(signal.SIGKILL)
    assert crawl.process.returncode == -signal.SIGKILL, crawl.errors.read_text()


def in_flight(job: Path) -> set[int]:
    """The pages that a killed crawl was at, by its queue."""
    connection = sqlite3.connect(job / "bloomery.queue.sqlite")
    try:
        rows = connection.execute("SELECT body FROM requests WHERE taken = 1").fetchall()
    finally:
        connection.close()
    urls = [pickle.loads(body)["url"] for (body,) in rows]
    return {int(urlsplit(url).path.strip("/")) for url in urls}
