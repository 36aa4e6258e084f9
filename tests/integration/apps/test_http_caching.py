"""WSGI and ASGI middleware cache what may be cached, asked by real clients through real servers."""

import shutil
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from conftest import missing
from integration.apps.sites import Page, Served, served
from waiting import wait_until


@pytest.fixture(scope="module", params=["wsgi", "asgi"])
def _running(request: pytest.FixtureRequest) -> Iterator[Served]:
    with served(request.param) as running:
        yield running


@pytest.fixture
def at(_running: Served) -> Served:
    """A server whose site, cache and clock are new."""
    _running.begin()
    return _running


@pytest.fixture
def client(at: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=at.url) as made:
        yield made


def bodies(client: httpx.Client, path: str, count: int = 4, **options: Any) -> list[str]:
    """The bodies of so many requests: how often the page was made, and the page."""
    found = []
    for _ in range(count):
        client.cookies.clear()  # a person each time
        found.append(client.get(path, **options).text)
    return found


CACHED = ["1:page", "2:page", "2:page", "2:page"]
NOT_CACHED = ["1:page", "2:page", "3:page", "4:page"]


def test_the_second_request_is_cached(at: Served, client: httpx.Client) -> None:
    """Two requests reach the application, the others are answered from the cache, which says so;
    until max-age is over."""
    at.site.pages["/"] = Page()
    assert bodies(client, "/") == CACHED
    at.clock.now += 30
    hit = client.get("/")
    assert hit.headers["Age"] == "30"
    assert hit.headers["Cache-Status"] == "bloomery; hit"
    assert hit.headers["Cache-Control"] == "max-age=60"
    assert len(hit.headers.get_list("Content-Length")) == 1
    at.clock.now += 30
    assert client.get("/").text == "3:page"
    assert client.get("/").text == "3:page"
    counts = at.middleware.info()
    assert (counts["hits"], counts["misses"], counts["kept"]) == (4, 3, 2)


def test_curl_gets_the_same(at: Served) -> None:
    """curl reads a cached response to its end, and a HEAD of it without a body."""
    curl = shutil.which("curl") or missing("curl")
    at.site.pages["/"] = Page(b"x" * 5000)
    command = [curl, "--silent", "--show-error", "--max-time", "20", at.url]
    first, second, third = (
        subprocess.run(command, capture_output=True, check=True).stdout for _ in range(3)
    )
    assert (first[:2], second[:2], third) == (b"1:", b"2:", second)
    head = subprocess.run([*command, "--head"], capture_output=True, check=True).stdout.decode()
    assert "200 OK" in head
    assert "bloomery; hit" in head
    assert "content-length: 5002" in head.lower()
    assert at.site.asked["HEAD", "/"] == 0


NOT_KEPT = {
    "no freshness": Page(headers={}),
    "private": Page(headers={"Cache-Control": "private, max-age=60"}),
    "private for a header": Page(headers={"Cache-Control": 'max-age=60, private="X-Name, Y"'}),
    "no-store": Page(headers={"Cache-Control": "max-age=60,NO-STORE"}),
    "no-cache": Page(headers={"Cache-Control": "no-cache, max-age=60"}),
    "max-age 0": Page(headers={"Cache-Control": "max-age=0"}),
    "s-maxage 0": Page(headers={"Cache-Control": "max-age=60, s-maxage=0"}),
    "negative": Page(headers={"Cache-Control": "max-age=-1"}),
    "no number": Page(headers={"Cache-Control": "max-age=1e9"}),
    "other digits": Page(headers={"Cache-Control": "max-age=6\xb2"}),
    "two ages": Page(more=[("Cache-Control", "max-age=61")]),
    "a second header": Page(more=[("Cache-Control", "no-store")]),
    "unreadable": Page(headers={"Cache-Control": 'max-age=60, x="'}),
    "old already": Page(more=[("Age", "60")]),
    "an age that is none": Page(more=[("Age", "young")]),
    "cookie": Page(more=[("Set-Cookie", "id=1")]),
    "varies by all": Page(more=[("Vary", "Accept, *")]),
    "varies by too much": Page(more=[("Vary", ",".join(f"X-{n}" for n in range(17)))]),
    "range": Page(more=[("Content-Range", "bytes 0-5/6")]),
    "not found": Page(status=404),
    "created": Page(status=201),
    "moved": Page(status=301),
    "error": Page(status=500),
}


@pytest.mark.parametrize("name", NOT_KEPT)
def test_what_may_not_be_kept_is_not(at: Served, client: httpx.Client, name: str) -> None:
    """Responses that are for one person, of unknown age or no success reach the application."""
    at.site.pages["/"] = NOT_KEPT[name]
    assert bodies(client, "/") == NOT_CACHED
    assert not at.store


def test_responses_that_are_kept(at: Served, client: httpx.Client) -> None:
    """Directives are read as HTTP writes them; the shared age counts before the private one."""
    for number, control in enumerate(
        (
            "public, s-maxage=60, max-age=0",
            'MAX-AGE="60"',
            "max-age=60, must-revalidate, x-new=1",
            "max-age=60, max-age=60",
            " ,, max-age=60 ,",
        )
    ):
        at.site.pages[f"/{number}"] = Page(headers={"Cache-Control": control})
        assert bodies(client, f"/{number}") == CACHED, control


def test_the_time_to_make_a_response_counts(at: Served, client: httpx.Client) -> None:
    """A response that took 50 of its 60 seconds to be made is fresh for 10 more."""
    at.site.pages["/"] = page = Page()

    def wait() -> None:
        at.clock.now += 50

    page.wait = wait
    client.get("/")
    client.get("/")
    at.clock.now += 9
    assert client.get("/").headers["Age"] == "59"
    at.clock.now += 1
    assert client.get("/").text == "3:page"


def test_the_age_upstream_counts(at: Served, client: httpx.Client) -> None:
    """A response that is 50 of 60 seconds old is fresh for 10 more, and says its whole age."""
    at.site.pages["/"] = Page(more=[("Age", "50")])
    assert bodies(client, "/") == CACHED
    at.clock.now += 9
    assert client.get("/").headers.get_list("Age") == ["59"]
    at.clock.now += 1
    assert client.get("/").text == "3:page"


PERSONAL = {
    "authorization": {"Authorization": "Bearer x"},
    "range": {"Range": "bytes=0-1"},
    "condition": {"If-None-Match": '"x"'},
    "no-store": {"Cache-Control": "no-store"},
    "no-cache": {"Cache-Control": "no-cache"},
    "max-age=0": {"Cache-Control": "max-age=0"},
    "pragma": {"Pragma": "no-cache"},
    "hostile control": {"Cache-Control": '"'},
    "method override": {"X-HTTP-Method-Override": "DELETE"},
    "cookie": {"Cookie": "session=1"},
}


@pytest.mark.parametrize("name", PERSONAL)
def test_requests_that_get_no_cached_response(at: Served, client: httpx.Client, name: str) -> None:
    """Whoever shows who it is, wants a part, or wants no cache is answered by the application, and
    others get what was kept for all."""
    at.site.pages["/"] = Page()
    assert bodies(client, "/", 3) == CACHED[:3]
    assert client.get("/", headers=PERSONAL[name]).text == "3:page"
    again = client.get("/").text
    assert again in ("2:page", "3:page")
    if name in ("authorization", "range", "condition", "no-store", "cookie", "method override"):
        assert again == "2:page", "what the person got is not for others"


def test_a_cookie_needs_public(at: Served, client: httpx.Client) -> None:
    """A request with a cookie is answered from the cache only if the response says it is public;
    by `Vary: Cookie` each cookie has its own."""
    cookie = {"Cookie": "session=1"}
    at.site.pages["/mine"] = Page()
    at.site.pages["/ours"] = Page(headers={"Cache-Control": "public, max-age=60"})
    at.site.pages["/each"] = Page(headers={"Cache-Control": "public, max-age=60", "Vary": "Cookie"})
    assert bodies(client, "/mine", headers=cookie) == NOT_CACHED
    assert bodies(client, "/ours", headers=cookie) == CACHED
    assert bodies(client, "/each", headers=cookie) == CACHED
    assert client.get("/each", headers={"Cookie": "session=2"}).text == "3:page"


def test_vary(at: Served, client: httpx.Client) -> None:
    """Each value of a header that the response varies by has a response of its own, which is
    admitted by itself."""
    at.site.pages["/"] = Page(more=[("Vary", "Accept-Language, accept-encoding")])
    for language in ("de", "en"):
        at.site.asked.clear()
        assert bodies(client, "/", headers={"Accept-Language": language}) == CACHED
    at.site.asked.clear()
    assert client.get("/", headers={"Accept-Language": "fr"}).text == "1:page"
    assert client.get("/", headers={"Accept-Language": "de"}).text == "2:page"
    assert at.site.asked["GET", "/"] == 1


@pytest.mark.parametrize("header", ["Host", "Origin", "Forwarded", "X-Forwarded-Host"])
def test_links_of_others_do_not_poison(at: Served, client: httpx.Client, header: str) -> None:
    """Headers that applications make links of are part of the key, whatever `Vary` says."""
    at.site.pages["/"] = Page()
    assert bodies(client, "/", 3, headers={header: "evil.example"}) == CACHED[:3]
    assert client.get("/").text == "3:page"


def test_other_urls_are_others(at: Served, client: httpx.Client) -> None:
    """Path and query are all of the key; no two spellings share a response by chance."""
    for path in ("/a", "/a/b", "/a%2Fb", "/"):
        at.site.pages[path.replace("%2F", "/")] = Page()
    seen = set()
    for path in ("/a?b=c", "/a?b=d", "/a?", "/a/b", "/", "/?/a"):
        assert client.get(path).status_code == 200
        client.get(path)
        seen.add((path, client.get(path).text))
    assert len(seen) == at.middleware.info()["kept"] == 6


def test_a_change_makes_the_page_be_forgotten(at: Served, client: httpx.Client) -> None:
    """After a POST, PUT, PATCH or DELETE that succeeded, the next request is the application's, in
    every variant; one that failed changes nothing."""
    at.site.pages["/"] = Page(more=[("Vary", "Accept-Language")])
    german = {"Accept-Language": "de"}
    for headers in (german, {}):
        bodies(client, "/", 3, headers=headers)
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        before = client.get("/").text
        assert client.get("/").text == before
        client.request(method, "/", headers={"Origin": at.url})  # as browsers do
        assert client.get("/", headers=german).text != before
        assert client.get("/").text != before
        assert client.get("/").text == client.get("/").text
    at.site.pages["/"].status = 500
    before = client.get("/").text
    client.post("/")
    assert client.get("/").text == before


def test_a_response_that_a_change_overtook_is_not_kept(at: Served, client: httpx.Client) -> None:
    """A page that was made before a change, and comes after it, is not cached."""
    at.site.pages["/"] = page = Page()
    client.get("/")
    asked, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        asked.set()
        go_on.wait(30)

    page.wait = wait
    slow = threading.Thread(target=lambda: httpx.get(f"{at.url}/"))
    slow.start()
    assert asked.wait(30)
    page.wait = lambda: None
    client.post("/")
    go_on.set()
    slow.join()
    assert client.get("/").text == "3:page"
    assert at.middleware.info()["kept"] == 1, "the third alone"


@pytest.mark.parametrize(
    "page",
    [
        Page(b"x" * 20_000),
        Page(b"x" * 20_000, pieces=50),
        Page(b"x" * 500, pieces=5, lengths=False),
        Page(b"x" * 20_000, pieces=50, lengths=False),
    ],
    ids=["large", "large, in pieces", "stream", "large stream"],
)
def test_large_bodies_and_streams_pass(at: Served, client: httpx.Client, page: Page) -> None:
    """Bodies above the limit, and those that do not say how long they are, come whole and are not
    kept."""
    at.site.pages["/"] = page
    for number in range(1, 5):
        assert client.get("/").content == b"%d:%s" % (number, page.body)
    assert not at.store


def test_bodies_in_pieces_are_kept_whole(at: Served, client: httpx.Client) -> None:
    """A body in pieces that says its length is kept as one."""
    at.site.pages["/"] = Page(bytes(range(256)) * 20, pieces=7)
    first, second, third = (client.get("/").content for _ in range(3))
    assert (first[:2], second[:2], third) == (b"1:", b"2:", second)


def test_a_body_that_breaks_off_is_not_kept(at: Served, client: httpx.Client) -> None:
    """A response shorter than its Content-Length is no whole one."""
    at.site.pages["/"] = Page(lengths=False, more=[("Content-Length", "99")], pieces=2)
    for _ in range(3):
        with pytest.raises(httpx.HTTPError):
            client.get("/", timeout=5)
    assert not at.store


def test_a_clock_set_back_serves_nothing_old(at: Served, client: httpx.Client) -> None:
    """A response that seems to come from the future is not served."""
    at.site.pages["/"] = Page()
    assert bodies(client, "/", 3) == CACHED[:3]
    at.clock.now -= 1000
    assert client.get("/").text == "3:page"


def test_what_is_no_response_in_the_store_is_a_miss(at: Served, client: httpx.Client) -> None:
    """Bytes of others in the store are not served, and do not break a request."""
    at.site.pages["/"] = Page()
    for junk in (b"", b"junk", b"[1, 2]", b'{"stored": "x"}\n', b'["n", 5]', b"null", b"5"):
        bodies(client, "/", 3)
        for key in list(at.store):
            at.store[key] = junk
        assert client.get("/").status_code == 200


def test_many_at_once(at: Served) -> None:
    """Threads that ask for several pages while some are changed get the right page each time."""
    for number in range(5):
        at.site.pages[f"/{number}"] = Page(b"page %d" % number)
    wrong: list[object] = []

    def ask(seed: int) -> None:
        with httpx.Client(base_url=at.url) as client:
            for step in range(40):
                number = (seed + step) % 5
                method = "POST" if step % 13 == 12 else "GET"
                text = client.request(method, f"/{number}").text
                if not text.endswith(f":page {number}"):
                    wrong.append((number, text))

    threads = [threading.Thread(target=ask, args=[seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert at.middleware.info()["hits"] > 20
    assert wait_until(lambda: not at.middleware.info()["under_way"])
