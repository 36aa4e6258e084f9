"""All pages are for everybody: labels, contrast, keyboard, narrow screens, and little to load."""

import contextlib
from pathlib import Path
from typing import Any

import httpx
import pytest

from bloomery import Client, errors
from conftest import require
from integration.pages.conftest import OpenPage
from integration.servers import BloomeryServer

expect = require("playwright.sync_api").expect

# Every page, and what shows that it is drawn.
PAGES = {
    "/ui/filters": "#filters tbody tr",
    "/ui/filters/read": "#heat svg",
    "/ui/planner?price=3&checks=1M&q_grow=yes": "html[data-planned]",
    "/ui/playground": "html[data-played]",
    "/ui/nodes": "#audit tbody tr",
    "/docs": ".operation",
}

# What was loaded, the page's text first: addresses, and bytes without compression.
_LOADED = """["navigation", "resource"].flatMap((type) => performance.getEntriesByType(type))
    .map(({name, decodedBodySize}) => ({name, size: decodedBodySize}))"""
AUDIT = Path(__file__).with_name("audit.js").read_text()


@pytest.fixture
def filled(server: BloomeryServer) -> BloomeryServer:
    """A server with a filter named read."""
    with Client(server.url) as client, contextlib.suppress(errors.FilterExists):
        client.create("read", 1000, kind="rotating", window="1h").add_many(range(500))
    return server


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_can_be_read(visit: OpenPage, filled: BloomeryServer, theme: str) -> None:
    """Contrast and names of every page, in both themes, wide and narrow."""
    page = visit(filled, "/ui/filters", color_scheme=theme)
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        for path, drawn in PAGES.items():
            page.goto(
                f"{filled.url}{path}", wait_until="networkidle" if path == "/docs" else "load"
            )
            page.locator(drawn).first.wait_for(state="attached")
            assert page.evaluate(AUDIT) == [], (path, theme, width)


def test_every_page_is_light(visit: OpenPage, filled: BloomeryServer) -> None:
    """Whatever a page loads the first time is at most 1.5 MB, charts included, and comes from this
    server; the second time only its own text does."""
    for path, drawn in PAGES.items():
        page = visit(filled, path)  # in a window of its own, without files
        page.locator(drawn).first.wait_for(state="attached")
        text, *loaded = page.evaluate(_LOADED)
        assert text["size"] + sum(one["size"] for one in loaded) <= 1_500_000, (path, loaded)
        assert {one["name"].startswith(filled.url) for one in loaded} == {True}
        kept = httpx.get(next(one["name"] for one in loaded if one["name"].endswith(".css")))
        assert kept.headers["cache-control"] == "public, max-age=31536000, immutable"
        page.context.close()


def test_the_keyboard_is_enough(visit: OpenPage, filled: BloomeryServer) -> None:
    """The first tab skips to the content; a chart is read by arrow keys; a dialog keeps the focus
    and closes by Escape."""
    page = visit(filled, "/ui/filters")
    page.locator("#filters tbody tr").first.wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.get_by_role("button", name="New filter").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert page.evaluate("document.activeElement.id") == "new-name"
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.goto(f"{filled.url}/ui/filters/read")
    drawing = page.locator("#chart-fill svg").last
    drawing.focus()
    page.keyboard.press("ArrowLeft")
    assert "fill" in page.locator("#chart-fill .readout").inner_text()


def test_a_theme_that_was_chosen_stays(visit: OpenPage, filled: BloomeryServer) -> None:
    """The button turns light to dark, also against the system, and a reload keeps it."""
    page = visit(filled, "/ui/filters", color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(ground)
    page.get_by_role("button", name="Change between light and dark").click()
    assert page.evaluate(ground) != before
    page.reload()
    assert page.evaluate(ground) != before


def test_the_examples_of_the_api_run(
    visit: OpenPage, filled: BloomeryServer, complaints: list[str]
) -> None:
    """From the first to the last example on the page of the API, each is answered as it should be,
    but for those that need a rotating filter, one with a source, or a node."""
    page = visit(filled, "/docs")
    expected = {"rotate": 409, "rebuild": 422, "lookup": 422, "forget": 422, "recover": 409}
    outcomes = {}
    for operation in page.locator(".operation").all():
        name = str(operation.get_attribute("id"))
        if operation.locator(".run").count() and name not in ("drop", "backup"):
            outcomes[name] = run(operation)
    outcomes["drop"] = run(page.locator("#drop"))
    wrong = {
        name: code for name, code in outcomes.items() if code >= 300 and expected.get(name) != code
    }
    assert wrong == {}
    assert {"create", "add", "contains", "remove", "info", "clear", "figures"} <= outcomes.keys()
    assert len(complaints) == len(expected)  # the browser's, of each that is refused
    complaints.clear()


def run(operation: Any) -> int:
    """Run an example; the status of its answer."""
    operation.locator(".run").click()
    told = operation.locator(".result .notice strong")
    told.wait_for()
    return int(told.inner_text().split()[0])
