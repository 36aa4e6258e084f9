"""The published vectors of the URL standard: a list covers a URL by the host that it leads to."""

import json
from urllib.parse import urlsplit

import pytest

from bloomery.errors import InvalidKey
from bloomery.feeds import canonical_url, url_expressions, url_key
from golden.make_urls import VECTORS

ROWS = json.loads(VECTORS.read_text("ascii"))


def canonical(url: str) -> str:
    """Return host, path and query of a URL in one spelling; "" if it has no host."""
    try:
        return canonical_url(url).partition("://")[2]
    except InvalidKey:
        return ""


def test_urls_lead_where_the_standard_says() -> None:
    """Each URL and what the standard makes of it have the same key, which covers both. A link that
    stays on the host of its page is no URL without that page."""
    found = {}
    checked = 0
    for url, base, host, href in ROWS:
        if href is None or (base is not None and urlsplit(base).hostname == host):
            continue
        checked += 1
        ours, expected = canonical(url), canonical(href)
        covered = not expected or url_key(f"http://{expected.partition('/')[0]}/") in (
            url_expressions(url)
        )
        if ours != expected or not covered:
            found[url] = (href, ours)
    assert found == {}
    assert checked > 150


@pytest.mark.parametrize("url", [url for url, _, _, href in ROWS if href is None])
def test_urls_that_no_browser_opens_are_keys_or_errors(url: str) -> None:
    """Nothing else is raised, and a key is one in its canonical form."""
    key = canonical(url)
    assert key == canonical(f"http://{key}") if key else key == ""
