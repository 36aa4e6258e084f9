"""URLs: the published examples of Safe Browsing, and what a list covers."""

from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloomery.errors import InvalidKey
from bloomery.feeds import canonical_url, url_expressions, url_key

# The examples of the protocol's pages on URLs and hashing, versions 4 and 5.
CANONICAL = [
    ("http://host/%25%32%35", "http://host/%25"),
    ("http://host/%25%32%35%25%32%35", "http://host/%25%25"),
    ("http://host/%2525252525252525", "http://host/%25"),
    ("http://host/asdf%25%32%35asd", "http://host/asdf%25asd"),
    ("http://host/%%%25%32%35asd%%", "http://host/%25%25%25asd%25%25"),
    ("http://www.google.com/", "http://www.google.com/"),
    (
        "http://%31%36%38%2e%31%38%38%2e%39%39%2e%32%36/%2E%73%65%63%75%72%65/%77%77%77%2E%65%62%61"
        "%79%2E%63%6F%6D/",
        "http://168.188.99.26/.secure/www.ebay.com/",
    ),
    (
        "http://195.127.0.11/uploads/%20%20%20%20/.verify/.eBaysecure=updateuserdataxplimnbqmn-xplm"
        "validateinfoswqpcmlx=hgplmcx/",
        "http://195.127.0.11/uploads/%20%20%20%20/.verify/.eBaysecure=updateuserdataxplimnbqmn-xplm"
        "validateinfoswqpcmlx=hgplmcx/",
    ),
    (
        "http://host%23.com/%257Ea%2521b%2540c%2523d%2524e%25f%255E00%252611%252A22%252833%252944_5"
        "5%252B",
        "http://host%23.com/~a!b@c%23d$e%25f^00&11*22(33)44_55+",
    ),
    ("http://3279880203/blah", "http://195.127.0.11/blah"),
    ("http://www.google.com/blah/..", "http://www.google.com/"),
    ("www.google.com/", "http://www.google.com/"),
    ("www.google.com", "http://www.google.com/"),
    ("http://www.evil.com/blah#frag", "http://www.evil.com/blah"),
    ("http://www.GOOgle.com/", "http://www.google.com/"),
    ("http://www.google.com.../", "http://www.google.com/"),
    ("http://www.google.com/foo\tbar\rbaz\n2", "http://www.google.com/foobarbaz2"),
    ("http://www.google.com/q?", "http://www.google.com/q?"),
    ("http://www.google.com/q?r?", "http://www.google.com/q?r?"),
    ("http://www.google.com/q?r?s", "http://www.google.com/q?r?s"),
    ("http://evil.com/foo#bar#baz", "http://evil.com/foo"),
    ("http://evil.com/foo;", "http://evil.com/foo;"),
    ("http://evil.com/foo?bar;", "http://evil.com/foo?bar;"),
    (b"http://\x01\x80.com/", "http://%01%80.com/"),
    ("http://notrailingslash.com", "http://notrailingslash.com/"),
    ("http://www.gotaport.com:1234/", "http://www.gotaport.com/"),
    ("  http://www.google.com/  ", "http://www.google.com/"),
    ("http:// leadingspace.com/", "http://%20leadingspace.com/"),
    ("http://%20leadingspace.com/", "http://%20leadingspace.com/"),
    ("%20leadingspace.com/", "http://%20leadingspace.com/"),
    ("https://www.securesite.com/", "https://www.securesite.com/"),
    ("http://host.com/ab%23cd", "http://host.com/ab%23cd"),
    (
        "http://host.com//twoslashes?more//slashes",
        "http://host.com/twoslashes?more//slashes",
    ),
    # Addresses of IPv6, of version 5's page.
    ("http://[2001:0db8:0000::1]/", "http://[2001:db8::1]/"),
    ("http://[::ffff:1.2.3.4]/", "http://1.2.3.4/"),
    ("http://[64:ff9b::1.2.3.4]/", "http://1.2.3.4/"),
]


@pytest.mark.parametrize(("url", "canonical"), CANONICAL)
def test_the_published_examples(url: str | bytes, canonical: str) -> None:
    """Each has the canonical form that is published for it, which is its own."""
    assert canonical_url(url) == canonical
    assert canonical_url(canonical) == canonical


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("http://user:password@host.com:80/", "http://host.com/"),
        ("HTTP://Host.COM", "http://host.com/"),
        ("http://host.com?q", "http://host.com/?q"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://0177.0.0.01/", "http://127.0.0.1/"),
        ("http://1.2.3/", "http://1.2.0.3/"),
        ("http://1.2.3.256/", "http://1.2.3.256/"),
        ("http://1.2.3.4.5/", "http://1.2.3.4.5/"),
        ("http://4294967296/", "http://4294967296/"),
        ("http://08.1.1.1/", "http://08.1.1.1/"),
        ("http://[2001:db8::1]:8080/x", "http://[2001:db8::1]/x"),
        ("http://host/a/./b/../c/", "http://host/a/c/"),
        ("http://host/../../a", "http://host/a"),
        ("http://host/a/.", "http://host/a/"),
        ("http://host/?a/../b", "http://host/?a/../b"),
        ("http://host\\a\\b", "http://host/a/b"),
        ("http://Bücher.example/", "http://xn--bcher-kva.example/"),
        ("http://host/ż", "http://host/%C5%BC"),
    ],
)
def test_other_spellings(url: str, canonical: str) -> None:
    """Ports, users, addresses in any number of parts, dots, and names that are not ASCII."""
    assert canonical_url(url) == canonical


# Which host a browser goes to: from the tests that are published with the WHATWG's URL standard,
# and spellings of the same kinds.
HOSTS = [
    ("http:/evil.example/", "evil.example"),
    ("http:evil.example", "evil.example"),
    ("http:\\\\evil.example\\", "evil.example"),
    ("https:/\\evil.example/x", "evil.example"),
    ("\x01http://evil.example/", "evil.example"),
    ("\x0bhttp://evil.example/", "evil.example"),
    ("\x00\x1b\x04\x12 http://example.com/\x1f \r ", "example.com"),
    ("//evil.example/", "evil.example"),
    ("/\\evil.example/", "evil.example"),
    ("\\\\evil.example\\", "evil.example"),
    ("http:///path", "path"),
    ("ftp:/example.com/", "example.com"),
    ("wss:example.com/", "example.com"),
    ("https:////\\\\//example.com/", "example.com"),
    ("HtTp:\\example.com", "example.com"),
    ("h\tt\nt\rp://h\to\ns\rt:9\t0\n0\r0/p", "host"),
    ("http://example\t.\norg", "example.org"),
    ("http://user:pass@foo:21/bar;par?b#c", "foo"),
    ("http:@www.example.com", "www.example.com"),
    ("http:/a:b@www.example.com", "www.example.com"),
    ("http::b@www.example.com", "www.example.com"),
    ("https://@test@test@example:800/", "example"),
    ("https://@@@example", "example"),
    ("http://&a:foo(b]c@d:2/", "d"),
    ("http://::@c@d:2", "d"),
    ("http://foo.com/\\@", "foo.com"),
    ("http:\\\\a\\b:c\\d@foo.com\\", "a"),
    ("http://foo.com\\@evil.example", "foo.com"),
    ("http://foo.com?@evil.example", "foo.com"),
    ("http://foo.com#@evil.example", "foo.com"),
    ("http://%25DOMAIN:foobar@foodomain.com/", "foodomain.com"),
    ("http://x%2F@evil.example/", "evil.example"),
    ("http://x%5C@evil.example/", "evil.example"),
    ("http://x%3F@evil.example/", "evil.example"),
    ("http://x%40y@evil.example/", "evil.example"),
    ("http://ExAmPlE.CoM", "example.com"),
    ("http://%65vil.example", "evil.example"),
    ("http://GOO\u200b\u2060\ufeffgoo.com", "googoo.com"),
    ("http://ev\u00adil.example", "evil.example"),
    ("http://www.foo\u3002bar.com", "www.foo.bar.com"),
    ("http://evil\uff0eexample", "evil.example"),
    ("http://evil\uff61example", "evil.example"),
    ("http://evil%E3%80%82example", "evil.example"),
    ("http://\uff27\uff4f.com", "go.com"),
    ("http://\u24d4\u24e5\u24d8\u24db.example", "evil.example"),
    ("http://\U0001d41e\U0001d42f\U0001d422\U0001d425.example", "evil.example"),
    ("http://\u4f60\u597d\u4f60\u597d", "xn--6qqa088eba"),
    ("https://fa\u00df.ExAmPlE/", "xn--fa-hia.example"),
    ("https://FA\u1e9e.example/", "xn--fa-hia.example"),
    ("https://\u03b2\u03cc\u03bb\u03bf\u03c2.com", "xn--nxasmm1c.com"),
    ("https://%e2%98%83", "xn--n3h"),
    ("http://e\u0301vil.example", "xn--vil-9la.example"),
    ("http://\U0001f4a9.example", "xn--ls8h.example"),
    ("http://192.0x00A80001", "192.168.0.1"),
    ("http://%30%78%63%30%2e%30%32%35%30.01%2e", "192.168.0.1"),
    (
        "http://\uff10\uff38\uff43\uff10\uff0e\uff10\uff12\uff15\uff10\uff0e\uff10\uff11",
        "192.168.0.1",
    ),
    ("http://192.168.257", "192.168.1.1"),
    ("http://192.168.257.com", "192.168.257.com"),
    ("http://256", "0.0.1.0"),
    ("http://999999999", "59.154.201.255"),
    ("http://0xffffffff", "255.255.255.255"),
    ("https://0x.0x.0", "0.0.0.0"),
    ("http://0x000000000000000000000007f.1", "127.0.0.1"),
    ("http://00000000000000000000000000000177.1", "127.0.0.1"),
    ("http://[2001::1]:80", "[2001::1]"),
    ("http://[1:0::]", "[1::]"),
]


@pytest.mark.parametrize(("url", "host"), HOSTS)
def test_host_is_the_one_that_a_browser_goes_to(url: str, host: str) -> None:
    """A list that names the host covers the URL, however it is spelt."""
    assert url_key(f"http://{host}/") in url_expressions(url)
    assert canonical_url(url).partition("://")[2].partition("/")[0] == host


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("http://h/a//../b", "/a/b"),
        ("http://h/x%2Fy/../b", "/b"),
        ("http://h/x/%2e%2E/b", "/b"),
        ("http://h/x\\.%2e\\b", "/b"),
        ("http://h/foo/%2e./%2e%2e/.%2e/bar", "/bar"),
        ("http://h/foo/bar//../..", "/foo/"),
        ("http://h////../..", "/"),
        ("http://h/foo/./", "/foo/"),
        ("http://h/a%3F/../b", "/b"),
    ],
)
def test_path_is_the_one_that_a_browser_requests(url: str, path: str) -> None:
    """A browser resolves dots before escapes are undone; runs of slashes become one after that."""
    assert canonical_url(url) == f"http://h{path}"


def test_host_that_cannot_be_mapped_is_an_error() -> None:
    """A character that this Python's Unicode does not have is an error and never a *no*."""
    with pytest.raises(InvalidKey, match="not a character of Unicode"):
        canonical_url("http://a\U0001ffffb.example/")
    for mark in " *^/%":
        with pytest.raises(InvalidKey, match="in a URL's host"):
            canonical_url(f"http://a{mark}\u00e9".replace("/", "\uff0f"))


def repeatedly(text: str) -> str:
    """A path unescaped until nothing changes, as the pages say it."""
    data = text.encode()
    while (after := unquote_to_bytes(data)) != data:
        data = after
    return data.decode("latin-1")


@given(st.text("%%%%0123456789abcdefAF25x", max_size=60))
def test_escapes_are_undone_to_the_last(text: str) -> None:
    """In one pass, but as if all were undone again and again."""
    query = canonical_url(f"http://h/?q{text}").partition("?")[2]
    assert unquote_to_bytes(query) == repeatedly(f"q{text}").encode("latin-1")


def test_a_long_url_takes_no_time() -> None:
    """One that was escaped half a million times is undone within the test's patience."""
    assert canonical_url("http://h/%" + "25" * 500_000 + "41") == "http://h/A"
    assert len(url_expressions("http://" + "a." * 100_000 + "b/" + "c/" * 100_000)) == 25
    assert canonical_url("http://" + "ż" * 100_000 + ".example/").endswith(".example/")


@given(st.one_of(st.binary(max_size=60), st.text(max_size=60)), st.sampled_from(["", "http://h/"]))
def test_a_canonical_url_is_its_own(text: str | bytes, before: str) -> None:
    """Whatever is given is a URL without a host, or has one spelling, and its key is among its
    expressions, of which there are at most thirty."""
    url = before + text if isinstance(text, str) else before.encode() + text
    try:
        canonical = canonical_url(url)
    except InvalidKey:
        return
    assert canonical.isascii()
    assert canonical_url(canonical) == canonical
    expressions = url_expressions(url)
    assert url_key(url) == expressions[0] == canonical.partition("://")[2]
    assert len(set(expressions)) == len(expressions) <= 30
    assert url_expressions(canonical) == expressions


@pytest.mark.parametrize(
    "url", ["", "http:", "http://", "/path", "http://...", "http://[::g]/", "http:#evil.example"]
)
def test_no_host(url: str) -> None:
    """What has no host that can be looked up is an error."""
    with pytest.raises(InvalidKey):
        canonical_url(url)


@pytest.mark.parametrize(
    ("url", "expressions"),
    [
        (
            "http://a.b.c/1/2.html?param=1",
            "a.b.c/1/2.html?param=1 a.b.c/1/2.html a.b.c/ a.b.c/1/ "
            "b.c/1/2.html?param=1 b.c/1/2.html b.c/ b.c/1/",
        ),
        (
            "http://a.b.c.d.e.f.g/1.html",
            "a.b.c.d.e.f.g/1.html a.b.c.d.e.f.g/ c.d.e.f.g/1.html c.d.e.f.g/ d.e.f.g/1.html "
            "d.e.f.g/ e.f.g/1.html e.f.g/ f.g/1.html f.g/",
        ),
        ("http://1.2.3.4/1/", "1.2.3.4/1/ 1.2.3.4/"),
        ("http://[2001:db8::1]/1/", "[2001:db8::1]/1/ [2001:db8::1]/"),
        ("http://example.co.uk/1", "example.co.uk/1 example.co.uk/ co.uk/1 co.uk/"),
        ("http://localhost/", "localhost/"),
        (
            "http://b.c/1/2/3/4/5.html",
            "b.c/1/2/3/4/5.html b.c/ b.c/1/ b.c/1/2/ b.c/1/2/3/",
        ),
    ],
)
def test_expressions(url: str, expressions: str) -> None:
    """The published examples: up to five hosts, up to six paths, each with each."""
    assert url_expressions(url) == expressions.split()


def test_a_key_covers_what_is_below_it() -> None:
    """A host covers its pages and the hosts below it, a folder its pages, a page itself with any
    query."""
    host, folder = url_key("http://evil.example"), url_key("https://shop.example/bad/")
    page = url_key("shop.example/login.html")
    assert (host, folder) == ("evil.example/", "shop.example/bad/")
    assert host in url_expressions("http://a.b.evil.example/any/page?q=1")
    assert host not in url_expressions("http://notevil.example/")
    assert folder in url_expressions("http://www.shop.example/bad/x/y.html")
    assert folder not in url_expressions("http://shop.example/good/")
    assert page in url_expressions("http://shop.example/login.html?session=1")
    assert url_key("http://shop.example/a?b") not in url_expressions("http://shop.example/a")
