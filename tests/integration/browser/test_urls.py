"""A URL is looked up by the host and the path that a browser would ask for."""

import ipaddress
import random
import re
from typing import Any

from bloomery.errors import InvalidKey
from bloomery.feeds import canonical_url, url_expressions, url_key
from golden.test_urls_golden import ROWS
from unit.feeds.test_urls import HOSTS

# What `new URL` makes of each: null if it is not a URL of the web.
PARSE = """([urls, base]) => urls.map((text) => {
    try {
        const url = base ? new URL(text, base) : new URL(text);
        return /^(https?|wss?|ftp):$/.test(url.protocol) ? [url.hostname, url.href] : null;
    } catch { return null; }
})"""
BASE = "base.example"
BASES = ["", f"http://{BASE}/folder/page", f"https://{BASE}/folder/page"]
PIECES = [
    *(
        "http:",
        "https:",
        "HTTP:",
        "ftp:",
        "ws:",
        "foo:",
        "/",
        "\\",
        "//",
        "/\\",
        "@",
        ":",
        "?",
        "#",
    ),
    *("evil", "example", ".", "..", "/../", "/./", "%2e", "%2E%2e", "%2F", "%5C", "%40", "%3F"),
    *(
        "%23",
        "%25",
        "%252e",
        "%00",
        "%09",
        "%E3%80%82",
        "%EF%BC%8E",
        "%c2%ad",
        "%ff",
        "u:p@",
        ":80",
    ),
    *("\t", "\n", "\r", "\x01", "\x0b", " ", "\x7f", "[::1]", "[", "]", "1.2.3.4", "0x7f", "0177"),
    *("127", "256", "0", "08", "0x", "1", "xn--", "xn--fa-hia", "-", "_", "*", "|", "^", "<"),
    *("\u3002", "\uff0e", "\u200b", "\u00ad", "\u00df", "\u1e9e", "\u03a3", "\u03c2", "\u0130"),
    *("\u212a", "\u2460", "\u2126", "\ufb01", "\u2100", "e\u0301", "\u0301", "\u0323", "\uac00"),
    *("\u1100", "\u1161", "\u05d0", "\u0661", "\u200d", "\U0001f4a9", "\ud800", "\u2024"),
]


def same_host(browser: str) -> str:
    """Return the browser's host in the one spelling of its kind that Safe Browsing has."""
    host = re.sub(r"\.{2,}", ".", browser).strip(".")
    if not host.startswith("["):
        return host
    return canonical_url(f"http://{host}/").removeprefix("http://").removesuffix("/")


def differences(page: Any, urls: list[str], base: str = "") -> dict[str, tuple[Any, ...]]:
    """Return the URLs that a browser takes elsewhere than we look them up."""
    found: dict[str, tuple[Any, ...]] = {}
    for url, parsed in zip(urls, page.evaluate(PARSE, [urls, base]), strict=True):
        # Chromium escapes some characters that the standard refuses; no DNS has such a name.
        if parsed is None or "%" in parsed[0] or parsed[0].strip(".") in ("", BASE):
            continue
        host, href = parsed
        try:
            expected, ours = (canonical_url(one).partition("://")[2] for one in (href, url))
        except InvalidKey as problem:
            if "in a URL's host" not in str(problem):
                found[url] = (href, problem)
            continue
        if expected != ours or not _is_host(same_host(host), ours.partition("/")[0]):
            found[url] = (href, expected, ours)
    return found


def _is_host(host: str, ours: str) -> bool:
    """Return whether ours is the browser's host. A number that two dots follow, which no DNS has,
    is an address for Safe Browsing and not for browsers."""
    try:
        ipaddress.IPv4Address(ours)
    except ValueError:
        return ours == host
    return True


def test_published_vectors(page: Any) -> None:
    """The browser goes to the host that the URL standard's vectors say, and there we look."""
    for base in dict.fromkeys(row[1] for row in ROWS):
        rows = [row for row in ROWS if row[1] == base]
        urls = [row[0] for row in rows]
        parsed = page.evaluate(PARSE, [urls, base])
        found = {
            url: (came, host)
            for (url, _, host, _), came in zip(rows, parsed, strict=True)
            # It is more lenient than the standard, and escapes `*`.
            if host is not None and "*" not in host and (came is None or came[0] != host)
        }
        assert found == {}
        assert differences(page, urls) == {}


def test_known_vectors(page: Any) -> None:
    """The browser agrees with the table of the unit tests, and so do we."""
    urls = [url for url, _ in HOSTS]
    for (url, host), parsed in zip(HOSTS, page.evaluate(PARSE, [urls, BASES[1]]), strict=True):
        if parsed[0] != BASE:  # `http:x` on a page of http is a path of that page
            assert same_host(parsed[0]) == host, url
        assert url_key(f"http://{host}/") in url_expressions(url)
    for base in BASES:
        assert differences(page, urls, base) == {}


def test_any_pieces(page: Any) -> None:
    """Pieces that parsers stumble over, in any order, on their own and as links of a page."""
    chance = random.Random(33)
    urls = []
    for _ in range(8_000):
        pieces = chance.choices(PIECES, k=chance.randrange(1, 10))
        start = chance.choice(("http:", "https://", "http://evil.example", "//", ""))
        urls.append(start + "".join(pieces))
    for base in BASES:
        assert differences(page, urls, base) == {}


# Without ideographs, syllables of Hangul, surrogates and what is private: these have no other form.
CHARACTERS = [
    *(range(0x80, 0x3400), range(0xA000, 0xAC00), range(0xD7B0, 0xD800), range(0xF900, 0x13000)),
    *(range(0x16000, 0x17000), range(0x1B000, 0x20000), range(0x2F800, 0x2FA20)),
    range(0xE0000, 0xE1000),
]


def test_every_character_in_a_host(page: Any) -> None:
    """Each character of Unicode maps to what the browser maps it to, or is an error."""
    characters = [chr(code) for part in CHARACTERS for code in part]
    found = differences(page, [f"http://a{one}b.example/" for one in characters])
    assert found == {}, list(found.items())[:20]
