"""A small web to crawl, made up page by page: the stream of URLs behind `bloomery demo`.

Nothing is fetched. A page's links follow from its address alone, the way real sites repeat
themselves: the same navigation on every page, lists with a next page, articles that link to popular
articles (Zipf) and to each other, a few links to other hosts, the same page under tracking
parameters. So a crawler sees most URLs many times, some a hundred thousand times, and always new
ones. The same run gives the same URLs on every machine.
"""

from collections import deque
from zlib import crc32

HOSTS = (
    "https://www.meadow-times.example",
    "https://shop.ironbridge.example",
    "https://docs.bloomery.example",
    "https://forum.charcoal.example",
    "https://en.wiki.example",
    "https://blog.hammerpond.example",
)
_SECTIONS = ("news", "iron", "rivers", "tools", "people", "maps", "history", "weather")
_PATHS = ("/", "/about", "/contact", "/login?next=/", "/search", "/sitemap.xml", "/feed.rss")
_NAVIGATION = {
    host: [host + path for path in (*_PATHS, *(f"/{name}/" for name in _SECTIONS))]
    for host in HOSTS
}
_TRACKING = ("?utm_source=feed", "?utm_source=mail&utm_medium=weekly", "?ref=top")
_WORDS = ("bridge", "furnace", "ore", "slag", "anvil", "forge", "market", "road")
_POPULAR = 8  # links a page to what everybody links to
_RELATED = 9  # links a page to articles of its own neighbourhood, mostly unseen
LINKS_ON_A_PAGE = len(_PATHS) + len(_SECTIONS) + _POPULAR + _RELATED + 2
_MULTIPLIER = 6364136223846793005  # Knuth's, for a 64-bit linear congruential generator
_WORD = (1 << 64) - 1
_LONGEST_QUEUE = 50_000  # a crawler drops what it cannot get to


def links_of(url: str) -> list[str]:
    """The links on a page, as absolute URLs, in the order a reader would meet them."""
    host = url[: url.index("/", 8)]
    section = _SECTIONS[len(url) & 7]
    links = list(_NAVIGATION[host])
    state = crc32(url.encode())
    for _ in range(_POPULAR):
        state = (state * _MULTIPLIER + 1442695040888963407) & _WORD
        # Log-uniform numbers: the n-th most popular article is linked to in proportion to 1/n.
        rank = int(2.0 ** (20 * (state >> 32) / 4294967296))
        links.append(f"{host}/{section}/{rank}-{_WORDS[rank & 7]}.html")
    for _ in range(_RELATED):
        state = (state * _MULTIPLIER + 1442695040888963407) & _WORD
        number = state >> 33
        links.append(f"{host}/{section}/{number}-{_WORDS[number & 7]}.html")
    plain = url.partition("?")[0]
    links.append(plain + _TRACKING[state % 3])
    other = HOSTS[(state >> 40) % len(HOSTS)]
    links.append(f"{other}/{section}/page/{(state >> 20) % 500}")
    return links


class Crawler:
    """A queue of pages to visit: `visit` gives the links found, `enqueue` takes those not seen."""

    def __init__(self) -> None:
        self._queue = deque(f"{host}/" for host in HOSTS)
        self.pages = 0

    def visit(self, at_least: int) -> list[str]:
        """Links of as many pages as it takes; fewer when the queue runs dry."""
        links: list[str] = []
        while self._queue and len(links) < at_least:
            links += links_of(self._queue.popleft())
            self.pages += 1
        return links

    def enqueue(self, urls: list[str]) -> None:
        """What was definitely not seen before is worth a visit."""
        self._queue.extend(urls[: _LONGEST_QUEUE - len(self._queue)])
