"""A Scrapy crawl of a site with loops is killed in the middle and resumed: no page is lost.

The dupefilter is exact, so no page is dropped by a wrong maybe. The scheduler keeps a request until
its page is done: what was in flight at the kill is fetched again, and nothing else.
"""

import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGES, IN_FLIGHT = 80, 16
fetched: Counter[int] = Counter()


class Site(BaseHTTPRequestHandler):
    """Page n links to 2n + 1 and 2n + 2, back to n // 2, and to the front page."""

    def do_GET(self) -> None:
        page = int(self.path[1:])
        fetched[page] += 1
        links = (n for n in (2 * page + 1, 2 * page + 2, page // 2, 0) if n < PAGES)
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write("".join(f'<a href="/{n}">{n}</a>' for n in links).encode())

    def log_message(self, *_: object) -> None:
        pass


SPIDER = """
import sys
from scrapy import Spider
from scrapy.crawler import CrawlerProcess

class Follow(Spider):
    name, start_urls = "follow", [sys.argv[1]]
    def parse(self, response):
        yield from response.follow_all(css="a")

process = CrawlerProcess({
    "DUPEFILTER_CLASS": "bloomery.integrations.scrapy.BloomDupeFilter",
    "SCHEDULER": "bloomery.integrations.scrapy.JobScheduler",
    "JOBDIR": sys.argv[2], "BLOOMERY_EXACT": True, "LOG_LEVEL": "ERROR",
})
process.crawl(Follow)
process.start()
"""


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as job:
        crawl = [sys.executable, "-c", SPIDER, f"http://127.0.0.1:{server.server_port}/0", job]
        first = subprocess.Popen(crawl)
        while len(fetched) < PAGES // 3 and first.poll() is None:
            time.sleep(0.001)
        first.kill()
        first.wait()
        before = len(fetched)
        subprocess.run(crawl, check=True)
    server.shutdown()
    server.server_close()
    again = sum(times > 1 for times in fetched.values())
    assert len(fetched) == PAGES, "no page is lost"
    assert again <= IN_FLIGHT, "fetched again is what was in flight"
    print(f"killed after {before} pages; all {PAGES} fetched, {again} of them again")


if __name__ == "__main__":
    main()
