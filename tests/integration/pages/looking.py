"""What a person with a screen reader or poor sight would miss on a page, found by script."""

from typing import Any

# Fields without a name; ids that are there twice; pictures and regions without one.
_UNNAMED = """() => {
  const wrong = [];
  const named = (one) => one.getAttribute("aria-label") || one.getAttribute("aria-labelledby")
    || one.labels?.length || one.textContent.trim() || one.title;
  for (const one of document.querySelectorAll("input, select, textarea, button, a[href], dialog"))
    if (!named(one)) wrong.push(one.outerHTML.slice(0, 120));
  for (const one of document.querySelectorAll("[role=img], [role=region], nav, svg[tabindex]"))
    if (!one.getAttribute("aria-label") && !one.getAttribute("aria-labelledby"))
      wrong.push(one.outerHTML.slice(0, 120));
  for (const one of document.querySelectorAll("[aria-labelledby], [aria-describedby]"))
    for (const name of ["aria-labelledby", "aria-describedby"])
      for (const id of (one.getAttribute(name) || "").split(" ").filter(Boolean))
        if (!document.getElementById(id)) wrong.push(`nothing has the id ${id}`);
  for (const one of document.querySelectorAll("img:not([alt])")) wrong.push(one.outerHTML);
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  for (const id of new Set(ids))
    if (ids.filter((other) => other === id).length > 1) wrong.push(`two have the id ${id}`);
  return wrong;
}"""

# Text whose contrast with what is behind it is below that of WCAG AA.
_FAINT = """() => {
  const parse = (text) => {
    const [r, g, b, a] = text.match(/[0-9.]+/g).map(Number);
    return {r, g, b, a: a === undefined ? 1 : a};
  };
  const over = (top, under) => ({
    r: top.r * top.a + under.r * (1 - top.a), g: top.g * top.a + under.g * (1 - top.a),
    b: top.b * top.a + under.b * (1 - top.a), a: 1,
  });
  const ground = (one) => {
    const layers = [];
    for (let at = one; at; at = at.parentElement)
      layers.push(parse(getComputedStyle(at).backgroundColor));
    const white = {r: 255, g: 255, b: 255, a: 1};
    return layers.reverse().reduce((under, top) => over(top, under), white);
  };
  const light = ({r, g, b}) => {
    const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const [x, y, z] = [r, g, b].map((v) => linear(v / 255));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const wrong = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim();
    const one = walker.currentNode.parentElement;
    if (!text || !one.checkVisibility()) continue;
    if (one.closest(".unseen, .skip, noscript, svg, option")) continue;
    const style = getComputedStyle(one);
    const under = ground(one);
    const [a, b] = [light(over(parse(style.color), under)), light(under)];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (contrast < (large ? 3 : 4.5)) wrong.push(`${contrast.toFixed(2)}: ${text.slice(0, 60)}`);
  }
  return wrong;
}"""


def unnamed(page: Any) -> list[str]:
    """What a screen reader has no name for."""
    found: list[str] = page.evaluate(_UNNAMED)
    return found


def faint(page: Any) -> list[str]:
    """Text that is hard to read."""
    found: list[str] = page.evaluate(_FAINT)
    return found


def too_wide(page: Any) -> bool:
    """Whether the page has to be moved sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth > innerWidth"))
