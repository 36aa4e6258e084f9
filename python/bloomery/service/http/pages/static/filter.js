// One filter: its figures and charts, live; its memory made visible; keys; what can be done to all of it.

import {ask, poll} from "./api.js";
import {chart} from "./chart.js";
import {at, h, s, say} from "./dom.js";
import * as show from "./format.js";
import {pill} from "./states.js";

const root = at("filter");
const {at: path, name, kind} = root.dataset;
const target = root.dataset.target ? Number(root.dataset.target) : null;
const data = `/ui/data${path}`;
for (const element of document.querySelectorAll("time[data-epoch]")) {
  element.textContent = show.time(Number(element.dataset.epoch));
  element.dateTime = new Date(1000 * element.dataset.epoch).toISOString();
}

// Charts.

const empty = "No samples yet: the server takes one every few seconds.";
const time = {kind: "time"};
const charts = {
  rate: chart(at("chart-rate"), {title: "Error rate", x: time, y: {format: show.percent, min: 0}, series: [], marks: target ? [{y: target, name: `allowed: ${show.percent(target)}`}] : [], empty}),
  fill: chart(at("chart-fill"), {title: "Fill", x: time, y: {format: show.percent, min: 0}, series: [], empty}),
  traffic: chart(at("chart-traffic"), {title: "Traffic", x: time, y: {format: show.perSecond, min: 0}, series: [], empty}),
  memory: chart(at("chart-memory"), {title: "Memory", x: time, y: {format: show.bytes, min: 0, binary: true}, series: [], empty}),
};
const COLUMNS = ["at", "estimated_error_rate", "fill_ratio", "adds_per_second", "checks_per_second", "items", "nbytes", "observed_error_rate", "observed_low", "observed_high"];
let range = 900;
let columns = null;
let loaded = false; // the samples of before, from the registry

function draw() {
  const line = (column) => columns.at.map((t, i) => [t, columns[column][i]]);
  charts.rate.update({series: [
    {name: "observed", colour: 1, points: line("observed_error_rate"), band: columns.at.map((t, i) => [t, columns.observed_low[i], columns.observed_high[i]])},
    {name: "estimated", colour: 2, dashed: true, points: line("estimated_error_rate")},
  ]});
  charts.fill.update({series: [{name: "fill", points: line("fill_ratio")}]});
  charts.traffic.update({series: [{name: "adds", points: line("adds_per_second")}, {name: "checks", points: line("checks_per_second")}]});
  charts.memory.update({series: [{name: "memory", points: line("nbytes")}]});
}

async function loadCharts() {
  const told = await ask("GET", `${data}/series?seconds=${range}`);
  const live = columns; // samples that have come since, which the registry may not have yet
  [columns, loaded] = [told, true];
  if (live) live.at.forEach((t, i) => { if (t > (told.at.at(-1) ?? 0)) COLUMNS.forEach((c) => told[c].push(live[c][i])); });
  draw();
}

/** Go on with what comes from now on; the registry is asked again with the next figures. */
function withoutRegistry(problem) {
  if (problem.code !== "registry-unavailable") throw problem;
  columns ||= Object.fromEntries(COLUMNS.map((column) => [column, []]));
}

function take(sample) {
  if (!columns || !sample || sample.at <= (columns.at.at(-1) ?? 0)) return;
  COLUMNS.forEach((c) => columns[c].push(sample[c] ?? null));
  while (columns.at.length && columns.at[0] < sample.at - range) COLUMNS.forEach((c) => columns[c].shift());
  draw();
}

for (const button of document.querySelectorAll("#ranges button")) {
  button.addEventListener("click", async () => {
    for (const other of document.querySelectorAll("#ranges button")) other.setAttribute("aria-pressed", String(other === button));
    range = Number(button.dataset.seconds);
    [columns, loaded] = [null, false];
    look();
  });
}

// Figures.

function figures(told) {
  at("state").replaceChildren(pill(told.state, told.why));
  say("why", told.why[0].toUpperCase() + told.why.slice(1) + ".");
  say("items", told.limited && told.capacity ? `${show.count(told.items)} of ${show.count(told.capacity)}` : `${show.count(told.items)} keys`);
  say("fill", show.percent(told.fill));
  say("observed", told.observed === undefined || told.observed === null ? show.UNKNOWN : `${show.percent(told.observed)} (${show.percent(told.observed_low)} to ${show.percent(told.observed_high)})`);
  say("estimated", told.estimated ? `${show.percent(told.estimated)}, ${show.oneIn(told.estimated)}` : show.percent(told.estimated));
  say("nbytes", show.bytes(told.nbytes));
  say("adds", show.perSecond(told.adds));
  say("checks", show.perSecond(told.checks));
  say("forecast", told.forecast || show.UNKNOWN);
  if (told.rebuild) say("done", `The last rebuild: ${told.rebuild.state}${told.rebuild.problem ? `: ${told.rebuild.problem}` : ""}.`);
}

const look = poll(async () => {
  const told = await ask("GET", data);
  figures(told);
  if (!loaded) await loadCharts().catch(withoutRegistry);
  take(told.sample);
}, 2);

// The memory.

const WORDS = {bits: "bits that are set", counters: "counters that are not zero", slots: "slots that hold a fingerprint"};

async function inside() {
  const told = await ask("GET", `${data}/anatomy`);
  drawHeat(told);
  drawParts(told);
}

function drawHeat(told) {
  if (!told.cells.length) {
    say("heat-hint", "A bank has a small filter for each user: there is no one memory to show.");
    return;
  }
  const mean = told.cells.reduce((a, b) => a + b, 0) / told.cells.length;
  const part = told.sampled < 1 ? ` Each square stands for a stretch of the memory, of which a part was looked at (${show.percent(told.sampled)} of it all).` : "";
  say("heat-hint", `From the first byte to the last, left to right: the share of ${WORDS[told.of]}, from pale (none) to dark (all). An even shade is as it should be.${part}`);
  const wide = Math.ceil(Math.sqrt(told.cells.length * 2));
  const tall = Math.ceil(told.cells.length / wide);
  const text = `Heat map of ${told.cells.length} stretches: ${show.percent(mean)} on average, from ${show.percent(Math.min(...told.cells))} to ${show.percent(Math.max(...told.cells))}.`;
  at("heat").replaceChildren(
    s("svg", {viewBox: `0 0 ${wide * 10} ${tall * 10}`, class: "heat", role: "img", "aria-label": text},
      ...told.cells.map((share, i) => s("rect", {x: (i % wide) * 10, y: Math.floor(i / wide) * 10, width: 9, height: 9, "fill-opacity": (0.06 + 0.94 * share).toFixed(3)}))),
    h("p", {class: "hint"}, text),
  );
}

function drawParts(told) {
  at("parts-card").hidden = !told.parts.length;
  if (!told.parts.length) return;
  say("parts-title", told.named === "layers" ? "Layers" : "Generations");
  say("parts-hint", told.named === "layers"
    ? "When a layer is full a larger one is added behind it; a key is asked of all of them. The length is its memory, the shade its fill."
    : "New keys go into the current generation; the oldest is forgotten as a whole. The length is the share of the keys.");
  const most = Math.max(...told.parts.map((part) => part.share), 1e-9);
  at("parts").replaceChildren(h("ul", {class: "bars"}, ...told.parts.map((part) => h("li", {},
    h("span", {}, part.name),
    s("svg", {viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true"},
      s("rect", {class: "bar-ground", width: 100, height: 10}),
      s("rect", {class: "bar", width: (100 * part.share) / most, height: 10, "fill-opacity": part.fill === undefined ? 1 : (0.25 + 0.75 * part.fill).toFixed(2)})),
    h("span", {class: "hint"}, part.nbytes === undefined
      ? `${show.percent(part.share)} of the keys${part.since ? `, since ${show.time(part.since)}` : ""}`
      : `${show.bytes(part.nbytes)}, ${show.percent(part.fill)} full`),
  ))));
}

poll(inside, 20);

// Keys: in bodies of requests only, and forgotten by this page with the next one.

function keyOf(form) {
  const text = at(`${form}-key`).value;
  const type = at(`${form}-type`).value;
  if (type === "text") return text;
  if (type === "number" && !/^-?[0-9]+$/.test(text.trim())) throw new Error("That is no whole number.");
  try {
    const value = JSON.parse(text);
    if (typeof value === "number" && !Number.isSafeInteger(value)) throw new Error();
    return value;
  } catch {
    throw new Error(type === "number" ? "This page cannot send a number that large." : "That is no JSON that can be a key.");
  }
}

function keyForm(id, where, answer) {
  at(id)?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const place = at(`${id}-answer`);
    try {
      place.replaceChildren(...answer(await ask("POST", where, {key: keyOf(id)})));
    } catch (problem) {
      place.replaceChildren(h("p", {class: "notice bad"}, problem.message));
    }
    look();
  });
}

keyForm("test", `${data}/test`, (told) => {
  const {places, all, of} = told.evidence;
  const agree = places.filter((place) => place.agrees).length;
  let words = "The filter does not show single places of this kind.";
  if (places.length && all) words = told.maybe ? `All ${places.length} ${of} of the key are set: it was added, or other keys happen to have set them.` : `${places.length - agree} of its ${places.length} ${of} ${places.length - agree === 1 ? "is" : "are"} not set. Had the key been added, all of them would be.`;
  else if (places.length) words = told.maybe ? `${agree} of the ${places.length} slots in its two buckets ${agree === 1 ? "holds" : "hold"} the key's fingerprint: it is the key's, or one of another key that looks the same.` : `None of the ${places.length} slots in its two buckets holds the key's fingerprint. Had the key been added, one would.`;
  return [
    h("p", {class: `notice ${told.maybe ? "warn" : "good"}`}, h("strong", {}, told.maybe ? "Maybe" : "Definitely not"), told.maybe ? ", and these bits say so. " : ": that is certain. ", words),
    h("ul", {class: "places"}, ...places.map((place) => h("li", {class: place.agrees ? "set" : ""}, place.name, h("strong", {}, ` ${place.holds}`), h("span", {class: "unseen"}, place.agrees ? ": agrees" : ": does not agree")))),
  ];
});
keyForm("lookup", `${path}/lookup`, (told) => [
  h("p", {class: `notice ${told.found ? "warn" : "good"}`}, h("strong", {}, told.found === null ? "Not confirmed" : told.found ? "Found" : "Not found"), `. The answer is by the ${told.by}.`),
  ...(told.value === null ? [] : [h("pre", {}, JSON.stringify(told.value, null, 2))]),
]);
keyForm("add", `${path}/add`, (told) => [h("p", {class: "notice good"}, told.added ?? told.new ?? Object.values(told)[0] ? "Added: it was definitely new." : "Added: it, or something like it, was there already.")]);
keyForm("remove", `${path}/remove`, (told) => [Object.values(told)[0] ? h("p", {class: "notice good"}, "Removed.") : h("p", {class: "notice warn"}, "Nothing was removed: it was definitely not there, or cannot be taken out.")]);

// The whole filter.

const dialog = at("confirm");
const DO = {
  snapshot: {run: () => ask("POST", "/snapshot"), done: (told) => `Snapshot ${told.generation} was made in ${show.duration(told.seconds)}.`},
  rotate: {run: () => ask("POST", `${path}/rotate`), done: () => "A new generation has begun."},
  rebuild: {run: () => ask("POST", `${path}/rebuild`, {}), done: () => "It is being built anew; it answers meanwhile."},
  clear: {run: () => ask("POST", `${path}/clear`), done: () => "It is empty now.", title: "Clear this filter?", text: "Every key of it is forgotten. It cannot be undone.", word: "Clear"},
  delete: {run: () => ask("DELETE", path), done: () => { location.assign("/ui/filters"); return "It is gone."; }, title: "Delete this filter?", text: "The filter and all of its keys are forgotten. It cannot be undone.", word: "Delete"},
};

async function act(what) {
  try {
    say("done", what.done(await what.run()) ?? "");
    look();
    inside().catch(() => {});
  } catch (problem) {
    say("done", problem.message);
  }
}

let confirmed = null;
for (const button of document.querySelectorAll("[data-do]")) {
  button.addEventListener("click", () => {
    const what = DO[button.dataset.do];
    if (!what.title) { act(what); return; }
    confirmed = what;
    say("confirm-title", what.title);
    say("confirm-text", `${name}: ${what.text}`);
    say("confirm-do", what.word);
    at("confirm-name").value = "";
    at("confirm-do").disabled = true;
    dialog.showModal();
  });
}
at("confirm-name").addEventListener("input", (event) => { at("confirm-do").disabled = event.target.value !== name; });
at("confirm-cancel").addEventListener("click", () => dialog.close());
dialog.querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (at("confirm-name").value !== name) return;
  dialog.close();
  act(confirmed);
});

at("policy")?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const changes = {on_full: at("on_full").value || null};
  for (const share of ["full_at", "warn_at"]) if (at(share)) changes[share] = at(share).value === "" ? null : Number(at(share).value) / 100;
  for (const span of ["warn_within", "grace"]) if (at(span)) changes[span] = at(span).value === "" ? null : /^[0-9.]+$/.test(at(span).value) ? Number(at(span).value) : at(span).value;
  const before = at("on_full").querySelector("option[selected]")?.value;
  if (before !== undefined && before !== changes.on_full) for (const other of ["full_at", "warn_at", "warn_within", "grace"]) delete changes[other];
  if (at("source")) changes.source = at("source").value || null;
  try {
    await ask("PATCH", path, changes);
    say("policy-answer", "The policy was changed.");
    if (before !== changes.on_full) location.reload();
  } catch (problem) {
    say("policy-answer", problem.message);
  }
  look();
});
