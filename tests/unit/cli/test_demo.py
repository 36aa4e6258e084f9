"""`bloomery demo`: a crawl whose every answer is checked."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from bloomery.cli.crawl import HOSTS, LINKS_ON_A_PAGE, Crawler, links_of

Run = Callable[..., Any]


@pytest.mark.slow
def test_demo_in_a_pipe(run: Run) -> None:
    """The summary shows rate, memory, the observed rate within the allowed one, and no wrong no."""
    text = run("demo", "--capacity", "20k", "--error-rate", "1%").stdout.decode()
    assert "of 20,000 (100%)" in text
    assert "M URLs/s" in text
    assert "times the filter's" in text
    assert "Wrong noes: none." in text
    observed = re.search(r"when full\W+([0-9.]+)% \(", text)
    assert observed is not None
    assert float(observed[1]) < 1.1
    assert "\x1b" not in text


def test_the_crawl_is_the_same_everywhere() -> None:
    """A page's links follow from its address alone."""
    assert len(links_of(HOSTS[0] + "/")) == LINKS_ON_A_PAGE
    assert links_of(HOSTS[0] + "/")[-1] == "https://shop.ironbridge.example/iron/page/343"


def test_the_crawl_looks_like_one() -> None:
    """Absolute URLs of the known hosts, most of them seen before, and always some new."""
    crawler, seen, total = Crawler(), set(), 0
    for _ in range(20):
        links = crawler.visit(1000)
        total += len(links)
        new = [link for link in dict.fromkeys(links) if link not in seen]
        assert new
        seen.update(new)
        crawler.enqueue(new)
    assert all(link.startswith(HOSTS) for link in seen)
    assert 0.2 < len(seen) / total < 0.6
