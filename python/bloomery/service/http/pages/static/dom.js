// Elements made of parts. Text is only ever text: no string of a filter or a user becomes markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** An element of HTML: h("a", {href: "/"}, "Home"). `onclick` and the like are listeners. */
export const h = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);

/** An element of SVG. */
export const s = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

/** The element of an id. */
export const at = (id) => document.getElementById(id);

/** Put text into the element of an id, if it is there and has another. */
export function say(id, text) {
  const element = at(id);
  if (element && element.textContent !== text) element.textContent = text;
}
