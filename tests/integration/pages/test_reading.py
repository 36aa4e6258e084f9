"""All pages are for everybody: labels, contrast, keyboard, narrow screens, and little to load."""

from typing import Any

import pytest

from bloomery import Client
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
    "/ui/login": "#login",
}

# The text nodes whose contrast with what is behind them is below WCAG AA, and the controls without
# a name: computed in the page, by the formula of WCAG 2.
AUDIT = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const ground = parse(getComputedStyle(one).backgroundColor);
      if (ground.length === 3 || ground[3] > 0.99) return ground;
    }
    return [255, 255, 255];
  };
  const shown = (element) => element.checkVisibility({opacityProperty: true, visibilityProperty: true});
  const wrong = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !shown(element) || element.closest("[disabled], noscript")) continue;
    const style = getComputedStyle(element);
    const colour = parse(element.namespaceURI.endsWith("svg") ? style.fill : style.color);
    const [a, b] = [light(colour), light(behind(element))].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (large ? 3 : 4.5)) wrong.push(`contrast ${ratio.toFixed(2)}: ${texts.currentNode.data.trim().slice(0, 40)}`);
  }
  const named = (element) => (element.labels?.length && [...element.labels].some((one) => one.textContent.trim()))
    || element.getAttribute("aria-label") || element.textContent.trim() || element.title
    || document.getElementById(element.getAttribute("aria-labelledby") || "?");
  for (const element of document.querySelectorAll("input, select, textarea, button, a[href], dialog, [role=region], [role=img], nav")) {
    if (!named(element)) wrong.push(`no name: ${element.outerHTML.slice(0, 80)}`);
  }
  for (const image of document.querySelectorAll("img")) if (!image.hasAttribute("alt")) wrong.push("no alt");
  for (const id of [...document.querySelectorAll("[aria-describedby]")].map((one) => one.getAttribute("aria-describedby"))) {
    if (!document.getElementById(id)) wrong.push(`described by nothing: ${id}`);
  }
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) wrong.push(`twice: #${id}`);
  if (document.querySelectorAll("h1").length !== 1) wrong.push("not one h1");
  if (!document.documentElement.lang) wrong.push("no language");
  if (document.querySelector("[style], style, script:not([src])")) wrong.push("style or script in the text");
  if (document.documentElement.scrollWidth > innerWidth) wrong.push(`wider than the screen: ${document.documentElement.scrollWidth}`);
  return wrong;
}"""


@pytest.fixture
def filled(server: BloomeryServer) -> BloomeryServer:
    """A server with a filter named read."""
    with Client(server.url) as client:
        if "read" not in [one.name for one in client.filters()]:
            client.create("read", 1000, kind="rotating", window="1h").add_many(range(500))
    return server


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_can_be_read(visit: OpenPage, filled: BloomeryServer, theme: str) -> None:
    """Contrast and names of every page, in both themes, wide and narrow."""
    page = visit(filled, "/ui/login", color_scheme=theme)
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        for path, drawn in PAGES.items():
            page.goto(
                f"{filled.url}{path}", wait_until="networkidle" if path == "/docs" else "load"
            )
            if path != "/ui/login":  # which leads on where nobody has to log in
                page.locator(drawn).first.wait_for(state="attached")
            assert page.evaluate(AUDIT) == [], (path, theme, width)


def test_every_page_is_light(visit: OpenPage, filled: BloomeryServer) -> None:
    """Whatever a page loads the first time is at most 1.5 MB, charts included, and comes from this
    server; the second time only its own text does."""
    for path, drawn in PAGES.items():
        if path == "/ui/login":
            continue
        page = visit(filled, "/docs" if path != "/docs" else "/ui/filters")
        page.context.clear_cookies()
        loaded: list[Any] = []
        page.on("response", lambda answer, loaded=loaded: loaded.append(answer))
        session = page.context.new_cdp_session(page)
        session.send("Network.clearBrowserCache")
        page.goto(f"{filled.url}{path}")
        page.locator(drawn).first.wait_for(state="attached")
        weight = sum(len(one.body()) for one in loaded if one.status == 200)
        assert weight <= 1_500_000, path
        assert {one.url.startswith(filled.url) for one in loaded} == {True}
        kept = {one.headers["cache-control"] for one in loaded if "/static/" in one.url}
        assert kept == {"public, max-age=31536000, immutable"}
        page.close()


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


def test_the_examples_of_the_api_run(visit: OpenPage, filled: BloomeryServer) -> None:
    """From the first to the last example on the page of the API, each is answered as it should be,
    but for two that need a rotating filter, or one with a source."""
    page = visit(filled, "/docs")
    expected = {"rotate": 409, "rebuild": 422, "lookup": 422}
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


def run(operation: Any) -> int:
    """Run an example; the status of its answer."""
    operation.locator(".run").click()
    told = operation.locator(".result .notice strong")
    told.wait_for()
    return int(told.inner_text().split()[0])
