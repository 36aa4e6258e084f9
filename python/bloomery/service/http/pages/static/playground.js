// The playground: every step is sent to the server, whose real filters say which bits are set and what they answer.

import {ask, Problem} from "./api.js";
import {at, h, s, say} from "./dom.js";

const FIRST = ["apple", "banana", "cherry"].map((key) => ({action: "add", key}));
const COLOURS = 6;
let steps = [...FIRST];
let asked = null;
let wrong = null;
let last = 0;

const letter = (number) => String.fromCharCode(65 + (number % 26));
const colour = (number) => `c${(number % COLOURS) + 1}`;
const listed = (words) => (words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`);

async function play() {
  const number = ++last;
  let found;
  try {
    found = await ask("POST", "/ui/data/playground", {steps, asked, bits: Number(at("bits").value) || 10, hashes: Number(at("hashes").value) || 3});
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    at("refusal").hidden = false;
    say("refusal", problem.message);
    return;
  }
  if (number !== last) return;
  at("refusal").hidden = true;
  const [classic] = found.filters;
  array(classic);
  chips(found, classic);
  verdict(classic, found);
  explain(found.false_positive);
  at("four").replaceChildren(...found.filters.map((one) => panel(one, found)));
  document.documentElement.dataset.played = number;
}

// The bits of the classic filter.

function array(classic) {
  const own = classic.keys.map((one) => new Set(one.places));
  const looked = new Set(classic.answer ? classic.answer.places : []);
  at("array").replaceChildren(...classic.cells.map((bit, place) => {
    const keys = classic.keys.map((one, i) => [one.key, i]).filter(([, i]) => bit && own[i].has(place));
    const names = keys.length ? `, set by ${listed(keys.map(([key]) => key))}` : "";
    return h(
      "li", {class: `${bit ? "set" : ""} ${looked.has(place) ? "asked" : ""}`, "data-at": place},
      h("span", {class: "at"}, String(place)), h("span", {class: "bit"}, String(bit)),
      h("span", {class: "by", "aria-hidden": "true"}, keys.map(([, i]) => h("span", {class: `dot-letter ${colour(i)}`}, letter(i)))),
      h("span", {class: "unseen"}, `${names}${looked.has(place) ? ", asked for" : ""}`),
    );
  }));
}

function chips(found, classic) {
  const present = new Set(found.present);
  at("added").replaceChildren(...classic.keys.map((one, i) => h(
    "li", {}, h("span", {class: `dot-letter ${colour(i)}`, "aria-hidden": "true"}, letter(i)), ` ${one.key} `,
    h("small", {}, `bits ${listed(one.places.map(String))}${present.has(one.key) ? "" : "; removed where that is possible"}`),
  )));
  if (!classic.keys.length) at("added").replaceChildren(h("li", {class: "hint"}, "None yet: the filter is empty, and every answer is no."));
}

function verdict(classic, found) {
  const place = at("verdict");
  place.className = "notice";
  const done = steps.at(-1);
  if (!classic.answer) {
    const result = classic.results.at(-1);
    if (!done) place.textContent = "Add a key, or ask for one.";
    else if (done.action === "add") place.textContent = result === "new" ? `“${done.key}” is new: at least one of its bits was not set before.` : `“${done.key}” may have been there before: all of its bits were set already.`;
    else place.textContent = `From a classic filter nothing can be removed: bits do not know who set them, and to clear one would make other keys a wrong no.`;
    return;
  }
  const {maybe, places, holds} = classic.answer;
  const clear = places.filter((_, i) => !holds[i]);
  const really = found.present.includes(asked);
  if (!maybe) {
    place.classList.add("good");
    place.textContent = `Definitely not: “${asked}” would have set ${bitsOf(places)}, and ${bitsOf(clear)} ${clear.length === 1 ? "is" : "are"} 0. A no is certain.`;
  } else if (really) {
    place.classList.add("good");
    place.textContent = `Maybe: ${bitsOf(places)} ${places.length === 1 ? "is" : "are all"} 1. And it is right: “${asked}” was added.`;
  } else {
    place.classList.add("warn");
    place.textContent = `Maybe, and wrong: ${bitsOf(places)} ${places.length === 1 ? "is" : "are all"} 1, but other keys set them. “${asked}” was not added.`;
  }
}

const bitsOf = (places) => `bit${places.length === 1 ? "" : "s"} ${listed(places.map(String))}`;

function explain(found) {
  wrong = found;
  at("show-wrong").hidden = !found;
  if (!found) {
    say("wrong", steps.length ? "None among thousands of words: this filter has room enough. Take fewer bits, or add more keys." : "An empty filter never errs. Add some keys.");
    return;
  }
  const parts = found.places.map((place, i) => `bit ${place} by ${listed(found.owners[i])}`);
  say("wrong", `Nobody added “${found.key}”. But its bits are set: ${listed(parts)}. So the filter says maybe, and is wrong. That is all that can go wrong: what was added is never answered no.`);
}

// Four kinds.

const ABOUT = {
  classic: "Bits anywhere. Smallest for its error rate; up to as many memory accesses as it has hashes.",
  counting: "Counters of 4 bits: a key adds one to each of its counters, and takes one away when it is removed.",
  deletable: "Bits in regions of 7, each with a flag that says whether keys met there: bits in a region without one can be cleared.",
  blocked: "Bits in one line of 64 bytes, half of them in each half: one memory access a key.",
};
const RESULTS = {
  new: "was new", "maybe there": "may have been there before", removed: "was removed", absent: "was not there to be removed",
  stuck: "cannot be removed: all of its regions are shared", cannot: "cannot be removed: bits do not know who set them",
};

function panel(one, found) {
  const {answer} = one;
  const done = steps.at(-1);
  const told = done ? `“${done.key}” ${RESULTS[one.results.at(-1)]}.` : "Empty.";
  const set = one.cells.filter(Boolean).length;
  const verdict = !answer ? null : h(
    "p", {class: `notice ${!answer.maybe || found.present.includes(asked) ? "good" : "warn"}`},
    answer.maybe ? `“${asked}”: maybe${found.present.includes(asked) ? "" : ", and wrong"}.` : `“${asked}”: definitely not.`,
  );
  return h(
    "section", {class: "card", "aria-labelledby": `kind-${one.name}`},
    h("h3", {id: `kind-${one.name}`}, one.name), h("p", {class: "hint"}, ABOUT[one.name]),
    grid(one), h("p", {class: "hint"}, `${set} of ${one.cells.length} ${one.name === "counting" ? "counters are not 0" : "bits are set"}; ${one.hashes} hashes a key${one.flags.length ? `; ${one.flags.filter(Boolean).length} of ${one.flags.length} regions are shared` : ""}.`),
    h("p", {}, told), verdict,
  );
}

/** All cells as a picture; its text says what is in it. */
function grid(one) {
  const across = one.cells.length <= 128 ? Math.min(one.cells.length, 16) : one.name === "deletable" ? 56 : 64;
  const size = across <= 16 ? 20 : 8;
  const rows = Math.ceil(one.cells.length / across);
  const looked = new Set(one.answer ? one.answer.places : []);
  const owner = new Map();
  one.keys.forEach((key, i) => key.places.forEach((place) => { if (!owner.has(place)) owner.set(place, i); }));
  const gap = (column) => (one.name === "deletable" ? 3 * Math.floor(column / 7) : one.name === "blocked" ? 6 * Math.floor(column / 32) : 0);
  // The halves of a blocked line stand side by side.
  const spot = (place) => (one.name === "blocked" ? [32 * (place >> 8) + (place & 31), (place & 255) >> 5] : [place % across, Math.floor(place / across)]);
  const width = across * size + gap(across - 1) + 2;
  const parts = one.cells.map((value, place) => {
    const [column, row] = spot(place);
    const [x, y] = [column * size + gap(column) + 1, row * size + 1];
    const shared = one.flags.length && one.flags[Math.floor(place / 7)];
    const box = s("rect", {x, y, width: size - 1, height: size - 1, class: `cell ${size >= 20 ? "lettered" : ""} ${value ? `taken ${colour(owner.get(place) ?? 5)}` : ""} ${looked.has(place) ? "asked" : ""} ${shared ? "shared" : ""}`});
    const text = size >= 20 && value ? s("text", {x: x + size / 2 - 0.5, y: y + size / 2 + 4, "text-anchor": "middle"}, String(value)) : null;
    return [box, text];
  });
  const taken = one.keys.map((key) => `${key.key}: ${listed(key.places.map(String))}`).join("; ");
  const label = `${one.cells.length} cells. Cells of each key: ${taken || "no keys"}.`;
  return h("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": `Cells of the ${one.name} filter`},
    s("svg", {class: "cells", role: "img", "aria-label": label, viewBox: `0 0 ${width} ${rows * size + 2}`, width: Math.min(width, 560)}, parts.flat()));
}

// SSTables.

const OUTCOMES = {
  skipped: ["filter says no: not opened", "good"], found: ["opened: found", "good"],
  "read in vain": ["opened in vain: the filter erred", "warn"], "not asked": ["not asked any more", ""],
};

async function read() {
  const key = at("read-key").value;
  if (!key) return;
  let found;
  try {
    found = await ask("POST", "/ui/data/playground/read", {key});
  } catch (problem) {
    if (problem instanceof Problem) say("read-verdict", problem.message);
    return;
  }
  for (const step of found.steps) {
    const table = document.querySelector(`[data-table="${step.table}"]`);
    const [words, state] = OUTCOMES[step.outcome];
    const told = table.querySelector("[data-outcome]");
    told.textContent = words;
    told.className = `state ${state}`;
    const places = new Set(step.outcome === "not asked" ? [] : step.places);
    for (const bit of table.querySelectorAll("[data-at]")) bit.classList.toggle("asked", places.has(Number(bit.dataset.at)));
    for (const row of table.querySelectorAll("tr")) row.classList.toggle("own", step.outcome === "found" && row.dataset.key === found.key);
  }
  const vain = found.steps.filter((step) => step.outcome === "read in vain").length;
  const opened = `${found.reads} of 3 tables ${found.reads === 1 ? "was" : "were"} opened`;
  const saved = found.steps.filter((step) => step.outcome === "skipped").length;
  at("read-verdict").className = `notice ${vain ? "warn" : "good"}`;
  say("read-verdict", `${found.value === null ? `“${found.key}” is nowhere` : `“${found.key}” is ${found.value}`}: ${opened}, ${saved} skipped because a filter said no${vain ? `, and ${vain} opened in vain because a filter was wrong; the answer is right all the same` : ""}.`);
  document.documentElement.dataset.read = found.key;
}

// Events.

function act(action) {
  const key = at("key").value;
  if (!key) { at("key").focus(); return; }
  if (action === "ask") asked = key;
  else {
    steps.push({action, key});
    asked = null;
    at("key").value = "";
  }
  play();
  at("key").focus();
}

at("keys").addEventListener("submit", (event) => { event.preventDefault(); act("add"); });
at("ask").addEventListener("click", () => act("ask"));
at("remove").addEventListener("click", () => act("remove"));
at("again").addEventListener("click", () => {
  steps = [...FIRST];
  asked = null;
  at("bits").value = 10;
  at("hashes").value = 3;
  play();
});
for (const id of ["bits", "hashes"]) at(id).addEventListener("change", play);
at("show-wrong").addEventListener("click", () => {
  at("key").value = wrong.key;
  act("ask");
});
at("reading").addEventListener("submit", (event) => { event.preventDefault(); read(); });
for (const button of document.querySelectorAll("button.example")) {
  button.addEventListener("click", () => {
    at("read-key").value = button.dataset.key;
    read();
  });
}
play();
read();
