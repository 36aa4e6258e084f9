"""A crawl of the site in a process of its own: `python crawl.py URL DONE NAME=VALUE…`.

A line of DONE is a page whose callback has ended. Settings are JSON.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

from scrapy import Spider
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response, TextResponse


class SiteSpider(Spider):
    """Follows every link."""

    name = "site"

    def __init__(self, url: str, done: str, **options: Any) -> None:
        """Note pages that are done in this file."""
        super().__init__(**options)
        self.start_urls = [url]
        self.done = open(done, "ab", buffering=0)  # noqa: SIM115 (until the process ends)

    def parse(self, response: Response, **_: Any) -> Iterator[Any]:
        """Follow all links, and note the page behind the last."""
        assert isinstance(response, TextResponse)
        yield from response.follow_all(css="a", callback=self.parse)
        self.done.write(response.url.rpartition("/")[2].encode() + b"\n")


def main(url: str, done: str, *given: str) -> None:
    """Crawl, and print the stats as JSON."""
    settings = {name: json.loads(value) for name, value in (g.split("=", 1) for g in given)}
    process = CrawlerProcess(
        {
            "DUPEFILTER_CLASS": "bloomery.integrations.scrapy.BloomDupeFilter",
            "LOG_LEVEL": "WARNING",
            "TELNETCONSOLE_ENABLED": False,
            "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
            "DOWNLOAD_DELAY": 0,
            **settings,
        }
    )
    crawler = process.create_crawler(SiteSpider)
    process.crawl(crawler, url=url, done=done)
    process.start()
    assert crawler.stats is not None
    print(json.dumps(crawler.stats.get_stats(), default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
