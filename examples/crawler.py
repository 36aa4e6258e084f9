"""A crawl frontier: every URL is fetched once, and a restart goes on where the last run stopped.

A wrong maybe costs one page that is never fetched; at an error rate of 1e-4 that is one in ten
thousand. A page is never fetched twice, because a key that was added is never answered with no.
"""

import tempfile
from collections import deque
from pathlib import Path

from bloomery import BloomFilter


def links_on(url: str) -> list[str]:
    """The links of a made-up page: a few neighbours, and often the start page."""
    page = int(url.rsplit("/", 1)[1])
    near = (page * 2 + 1, page * 2 + 2, page // 2, 0)
    return [f"https://example.org/{n}" for n in near if n < 20_000]


def crawl(seen: BloomFilter, frontier: deque[str], budget: int) -> list[str]:
    """Fetch up to `budget` pages; new links go to the end of the frontier."""
    fetched: list[str] = []
    while frontier and len(fetched) < budget:
        url = frontier.popleft()
        fetched.append(url)
        links = links_on(url)
        # add_many: True where a link is definitely new. Seen and asked in one step.
        new = seen.add_many(links)
        frontier.extend(link for link, is_new in zip(links, new, strict=True) if is_new)
    return fetched


def main() -> None:
    start = "https://example.org/0"
    seen = BloomFilter(capacity=20_000, error_rate=1e-4)
    seen.add(start)
    frontier = deque([start])
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "seen.bloom"
        pages = crawl(seen, frontier, budget=5_000)
        seen.save(state)  # and the frontier; the process may end here …
        seen = BloomFilter.load(state)  # … and another one goes on
        pages += crawl(seen, frontier, budget=100_000)

    assert len(pages) == len(set(pages)), "no page is fetched twice"
    assert len(pages) > 19_900, "hardly a page is missed"
    print(f"fetched {len(pages):,} of 20,000 pages once; {seen.nbytes:,} bytes to know them by")


if __name__ == "__main__":
    main()
