"""Scrapy spiders that share one filter of a server: each page is fetched by one of them.

The answer to an add decides: it is true for exactly one spider. Redis does as well as a server:
`BLOOMERY_URL = "redis://…"`. A wrong maybe costs a page that nobody fetches, one in a million here.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

PAGES = 60
SPIDER = """
import json, sys
from scrapy import Spider
from scrapy.crawler import CrawlerProcess

class Follow(Spider):
    name = "follow"
    def parse(self, response):  # a page that is its own number: nothing goes over the network
        page = int(response.text)
        self.pages.append(page)
        for n in (2 * page + 1, 2 * page + 2, page // 2):
            if n < int(sys.argv[2]):
                yield response.follow(f"data:,{n}")

process = CrawlerProcess({
    "DUPEFILTER_CLASS": "bloomery.integrations.scrapy.BloomDupeFilter",
    "BLOOMERY_URL": sys.argv[1], "BLOOMERY_NAME": "crawl:seen", "LOG_LEVEL": "ERROR",
    "BLOOMERY_CAPACITY": 100_000,
})
fetched = [], []
for start, pages in zip((0, 2), fetched):
    process.crawl(Follow, start_urls=[f"data:,{start}"], pages=pages)
process.start()
print(json.dumps(fetched))
"""


@contextmanager
def server() -> Iterator[str]:
    """A server of our own on a free port; elsewhere it runs already, and has a URL."""
    command = [sys.executable, "-m", "bloomery", "serve", "--resp-port", "0", "--http-port", "0"]
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen([*command, "--data", folder], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            ready = dict(word.split("=") for word in process.stdout.readline().split()[2:])
            yield f"http://{ready['http']}"
        finally:
            process.terminate()
            process.communicate()


def main() -> None:
    with server() as url:
        spiders = [sys.executable, "-c", SPIDER, url, str(PAGES)]
        pages = json.loads(subprocess.run(spiders, stdout=subprocess.PIPE, check=True).stdout)
    both = set(pages[0]) & set(pages[1])
    assert set(pages[0]) | set(pages[1]) == set(range(PAGES)), "no page is left out"
    assert both <= {0, 2}, "no page is fetched by both but where they begin"
    print(f"two spiders fetched {len(pages[0])} and {len(pages[1])} pages: all {PAGES} of the site")
    print(f"by both: {len(both)}, where they began")


if __name__ == "__main__":
    main()
