"""Crawlers that share one filter of a server: each URL is fetched by one of them, whoever finds it.

To add a URL and to ask for it is one step: `add` is true for exactly one crawler. A wrong maybe
costs a page that nobody fetches, one in a thousand here.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import bloomery

CRAWLERS, URLS = 4, 2_000


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


def crawl(client: bloomery.Client, number: int, fetched: list[str]) -> None:
    """Follow links that others find too, in another order."""
    found = [f"https://example.org/{n * (2 * number + 1) % URLS}" for n in range(URLS)]
    seen = client["crawl:seen"]
    for start in range(0, URLS, 100):
        links = found[start : start + 100]
        new = seen.add_many(links)  # one request for a page's links
        fetched += [link for link, first in zip(links, new, strict=True) if first]


def main() -> None:
    fetched: list[str] = []
    with server() as url, bloomery.Client(url) as client:
        client.create("crawl:seen", capacity=4_000, error_rate=0.001, on_full="reject")
        with ThreadPoolExecutor() as crawlers:
            list(crawlers.map(lambda number: crawl(client, number, fetched), range(CRAWLERS)))
        state = client["crawl:seen"].info()
    assert len(fetched) == len(set(fetched)) > 0.99 * URLS, "each once, and hardly any left out"
    print(f"{CRAWLERS} crawlers fetched {len(fetched):,} of {URLS:,} pages, none of them twice")
    print(f"{state['items']:,} keys of {state['capacity']:,}, {state['nbytes']:,} bytes")


if __name__ == "__main__":
    main()
