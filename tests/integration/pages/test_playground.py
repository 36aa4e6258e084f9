"""The playground in a browser: real bits, a real false positive, and keys in no address."""

from typing import Any

from bloomery import BloomFilter
from conftest import require
from integration.http.asking import Http
from integration.pages.conftest import OpenPage
from integration.servers import BloomeryServer

require("playwright.sync_api")
FRUIT = ["apple", "banana", "cherry"]


def shown_bits(page: Any) -> list[int]:
    """The bits of the array on the page."""
    return [int(bit) for bit in page.locator("#array .bit").all_inner_texts()]


def real(*keys: str) -> BloomFilter:
    """The filter that the page says it shows."""
    filter = BloomFilter.with_shape(10, 3)
    filter.update(keys)
    return filter


def bits_of(filter: BloomFilter, *keys: str) -> list[int]:
    """The bits that these keys set."""
    places = {at for key in keys for at in filter.positions(key)}
    return [int(at in places) for at in range(10)]


def played(page: Any, number: int) -> None:
    """Wait until the answer to so many steps is shown."""
    # A function, which the page's Content-Security-Policy does not forbid as it does text.
    page.wait_for_function(
        "(least) => Number(document.documentElement.dataset.played) >= least", arg=number
    )


def test_bits_are_those_of_the_real_filter(visit: OpenPage, server: BloomeryServer) -> None:
    """Keys that are typed set the bits that the library sets; what is asked is answered as it
    answers; no key is in an address."""
    page = visit(server, "/ui/playground")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    played(page, 1)
    assert shown_bits(page) == bits_of(real(), *FRUIT)
    page.get_by_label("Key", exact=True).fill("mirabelle")
    page.keyboard.press("Enter")
    played(page, 2)
    filter = real(*FRUIT, "mirabelle")
    assert shown_bits(page) == bits_of(filter, *FRUIT, "mirabelle")
    for number, key in enumerate(("mirabelle", "kiwi", "lychee"), 3):
        page.get_by_label("Key", exact=True).fill(key)
        page.get_by_role("button", name="Ask", exact=True).click()
        played(page, number)
        said = page.locator("#verdict").inner_text()
        assert said.startswith("Maybe" if key in filter else "Definitely not")
        marked = page.locator("#array .asked").evaluate_all("all => all.map((o) => o.dataset.at)")
        assert set(map(int, marked)) == set(filter.positions(key))
    assert asked
    assert not [url for url in asked if "mirabelle" in url or "kiwi" in url]
    assert "mirabelle" not in server.printed()
    assert page.url.endswith("/ui/playground")


def test_the_false_positive_is_real(visit: OpenPage, server: BloomeryServer) -> None:
    """The word that the page found was never added, and the library, asked here, says maybe."""
    page = visit(server, "/ui/playground")
    played(page, 1)
    word = page.locator("#wrong").inner_text().partition("“")[2].partition("”")[0]
    assert word not in FRUIT
    assert word in real(*FRUIT)
    page.get_by_role("button", name="Ask for it").click()
    played(page, 2)
    assert page.locator("#verdict").inner_text().startswith("Maybe, and wrong")
    page.get_by_label("Bits", exact=True).fill("128")
    page.get_by_label("Hashes").fill("8")
    page.get_by_label("Hashes").press("Tab")
    page.locator("#wrong", has_text="None among").wait_for()


def test_four_kinds_and_removal(visit: OpenPage, server: BloomeryServer) -> None:
    """Side by side: what is removed is gone from the counting and the deletable filter alone."""
    page = visit(server, "/ui/playground")
    played(page, 1)
    page.get_by_label("Key", exact=True).fill("cherry")
    page.get_by_role("button", name="Remove").click()
    played(page, 2)
    page.get_by_label("Key", exact=True).fill("cherry")
    page.get_by_role("button", name="Ask", exact=True).click()
    played(page, 3)
    answers = {
        name: page.locator("#four section").filter(has=page.locator(f"#kind-{name}")).inner_text()
        for name in ("classic", "counting", "deletable", "blocked")
    }
    for name in ("counting", "deletable"):
        assert "was removed" not in answers[name] or "definitely not" in answers[name]
        assert "definitely not" in answers[name]
    for name in ("classic", "blocked"):
        assert "cannot be removed" in answers[name]
        assert "maybe, and wrong" in answers[name]


def test_a_read_through_three_tables(visit: OpenPage, server: BloomeryServer) -> None:
    """Each example does what it says: found, skipped, or read in vain, and the answer is right."""
    page = visit(server, "/ui/playground")
    page.wait_for_selector("html[data-read]")
    expected = {
        "in the newest": "1 of 3 tables was opened, 0 skipped",
        "in the oldest": "1 of 3 tables was opened, 2 skipped",
        "no table is read": "is nowhere: 0 of 3 tables were opened, 3 skipped",
        "but a filter errs": "opened in vain",
    }
    for what, said in expected.items():
        page.get_by_role("button", name=what).click()
        page.locator("#read-verdict", has_text=said).wait_for()


def test_what_is_refused(server: BloomeryServer) -> None:
    """Bodies that are too much, and pages of others."""
    path = "/ui/data/playground"
    step = {"action": "add", "key": "x"}
    with Http(server) as http:
        assert http.ask("POST", path, {"steps": [step]})["present"] == ["x"]
        for body in (
            {"steps": [step] * 101},
            {"steps": [{"action": "add", "key": "x" * 101}]},
            {"steps": [{"action": "drop", "key": "x"}]},
            {"steps": [], "bits": 10**9},
            {"steps": [], "asked": ""},
            {},
        ):
            http.ask("POST", path, body, 422)
        foreign = {"Origin": "http://evil.example"}
        http.ask("POST", path, {"steps": []}, 403, headers=foreign)
        http.ask("POST", f"{path}/read", {"key": ""}, 422)
