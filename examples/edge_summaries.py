"""Three edges of a CDN that know what the others hold, so that fewer requests reach the origin.

Origin and edges are HTTP servers on this machine. Each edge publishes a filter of what its cache
holds (`/summary`); the others fetch it now and then, and ask the neighbour whose summary says
*maybe* before they go to the origin. A wrong maybe, or a page that has left the neighbour's cache
since, is one request in vain (504, as HTTP has it for `only-if-cached`).
"""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from cachetools import LRUCache

from bloomery.apps import EdgeSummaries, edge_summary


def fetch(url: str, **headers: str) -> bytes:
    with urlopen(Request(url, headers=headers), timeout=30) as response:
        return bytes(response.read())


class Origin:
    """Where the pages come from."""

    def __init__(self) -> None:
        self.asked = 0

    def answer(self, path: str, cached_only: bool) -> bytes | None:
        self.asked += 1
        return f"the page {path}".encode()


class Edge:
    """A small cache near the readers."""

    def __init__(self, origin: str) -> None:
        self.origin, self.neighbours = origin, dict[str, str]()
        self.cache: LRUCache[str, bytes] = LRUCache(40)
        self.summaries = EdgeSummaries(max_age=600)

    def answer(self, path: str, cached_only: bool) -> bytes | None:
        if path == "/summary":
            return edge_summary(list(self.cache))
        if path in self.cache or cached_only:
            return self.cache.get(path)
        self.cache[path] = page = self.from_neighbour(path) or fetch(self.origin + path)
        return page

    def from_neighbour(self, path: str) -> bytes | None:
        for name in self.summaries.holders(path):
            try:
                page = fetch(self.neighbours[name] + path, **{"Cache-Control": "only-if-cached"})
            except HTTPError:
                self.summaries.report(name, held=False)
            else:
                self.summaries.report(name, held=True)
                return page
        return None

    def refresh(self) -> None:
        """Fetch the neighbours' summaries; a real edge does so every minute."""
        for name, url in self.neighbours.items():
            self.summaries.receive(name, fetch(f"{url}/summary"))


@contextmanager
def served(site: Origin | Edge) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = site.answer(self.path, self.headers.get("Cache-Control") == "only-if-cached")
            self.send_response(504 if body is None else 200)
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=[0.01]).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def run(requests: list[tuple[int, str]], summaries: bool) -> tuple[int, int, int]:
    """Requests that reached the origin, that a neighbour answered, and that asked one in vain."""
    origin = Origin()
    with served(origin) as url:
        edges = [Edge(url) for _ in range(3)]
        with served(edges[0]) as first, served(edges[1]) as second, served(edges[2]) as third:
            urls = {"first": first, "second": second, "third": third}
            for edge, own in zip(edges, urls, strict=True):
                edge.neighbours = {name: url for name, url in urls.items() if name != own}
            for number, (turn, path) in enumerate(requests):
                if summaries and number % 40 == 39:
                    edges[number // 40 % 3].refresh()
                assert fetch(list(urls.values())[turn] + path) == f"the page {path}".encode()
    counts = [edge.summaries.info() for edge in edges]
    return origin.asked, sum(c["held"] for c in counts), sum(c["wasted"] for c in counts)


def main() -> None:
    rng = random.Random(7)
    weights = [1 / (rank + 1) for rank in range(200)]
    pages = rng.choices(range(200), weights, k=600)
    requests = [(rng.randrange(3), f"/page/{page}") for page in pages]
    alone, _, _ = run(requests, summaries=False)
    together, answered, wasted = run(requests, summaries=True)
    assert together < 0.9 * alone
    assert answered > wasted
    print(f"{len(requests)} requests to three edges; to the origin without summaries: {alone}")
    print(f"with them: {together}; from a neighbour {answered}, asked in vain {wasted}")


if __name__ == "__main__":
    main()
