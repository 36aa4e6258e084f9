// What is wrong with a page: text whose contrast with what is behind it is below WCAG AA (by the formula of WCAG 2),
// controls without a name, ids that are there twice, and what does not fit the screen.
() => {
  const parse = (text) => (text.match(/[\d.]+/g) || []).map(Number);
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
}
