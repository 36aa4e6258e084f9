// The planner: what is entered goes into the address and to the server, which computes every number.

import {ask, Problem} from "./api.js";
import {chart} from "./chart.js";
import {at, h, say} from "./dom.js";
import {count, percent, short} from "./format.js";

const FIELDS = [
  "kind", "capacity", "error_rate", "memory", "hashes", "layout", "counter_bits", "regions", "grow", "generations",
  "window", "keys_per_filter", "bucket_size", "price", "checks", "writes", "batch",
];
const QUESTIONS = ["q_grow", "q_remove", "q_forget", "q_known", "q_users", "q_wrong"];
const SIZES = ["capacity", "error_rate", "memory", "hashes"];
const DEFAULTS = {capacity: "1000000", error_rate: "1%"}; // if none of these is given
const USUAL = {kind: "bloom", q_wrong: "little"}; // what is not written into the address
const WAIT = 200; // milliseconds after the last key

const few = new Intl.NumberFormat(undefined, {maximumSignificantDigits: 4});
const money = new Intl.NumberFormat(undefined, {maximumFractionDigits: 2, minimumFractionDigits: 2});
const charts = {};
let chosen = null;
let last = 0;

/** 1.24 GB: powers of ten, as `bloomery plan` prints them and memory is sold. */
function size(value) {
  if (value === null || value === undefined) return "–";
  for (const [unit, scale] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (value >= 0.9995 * scale) return `${few.format(Number((value / scale).toPrecision(3)))} ${unit}`;
  }
  return `${few.format(value)} bytes`;
}

// The address and the fields.

function fill(search) {
  const given = new URLSearchParams(search);
  const sized = SIZES.some((name) => given.has(name));
  for (const name of FIELDS) at(name).value = given.get(name) || USUAL[name] || (!sized && DEFAULTS[name]) || "";
  for (const name of QUESTIONS) {
    const value = given.get(name) || USUAL[name] || "no";
    for (const radio of document.getElementsByName(name)) radio.checked = radio.value === value;
  }
  if (QUESTIONS.some((name) => given.has(name))) at("questions").open = true;
}

function entered() {
  const values = new URLSearchParams();
  for (const name of FIELDS) {
    const value = at(name).value.trim();
    if (value && value !== USUAL[name]) values.set(name, value);
  }
  for (const name of QUESTIONS) {
    const value = answered(name);
    if (value !== (USUAL[name] || "no")) values.set(name, value);
  }
  return values;
}

const answered = (name) => document.querySelector(`input[name="${name}"]:checked`).value;

function changed() {
  const values = entered();
  const address = `${location.pathname}?${values}`;
  if (location.pathname + location.search !== address) history.replaceState(null, "", address);
  for (const part of document.querySelectorAll("[data-for]")) part.hidden = part.dataset.for !== at("kind").value;
  clearTimeout(changed.timer);
  changed.timer = setTimeout(compute, WAIT);
}

// What the server says.

async function compute() {
  const values = entered();
  const number = ++last;
  for (const name of QUESTIONS) values.delete(name);
  let found;
  try {
    found = await ask("GET", `/ui/data/planner?${values}`);
  } catch (problem) {
    if (!(problem instanceof Problem) || number !== last) return;
    at("refusal").hidden = false;
    say("refusal", sentence(problem.message));
    at("answer").classList.add("stale");
    return;
  }
  if (number !== last) return; // an older question's
  at("refusal").hidden = true;
  at("answer").classList.remove("stale");
  show(found);
  document.documentElement.dataset.planned = values;
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

function show(found) {
  const {plan} = found;
  const about = plan.estimate ? "about " : "";
  const given = (name) => (at(name).value.trim() ? "" : " (found)");
  say("is-capacity", `${count(plan.capacity)} keys${given("capacity")}`);
  say("is-rate", `${percent(plan.error_rate)}${given("error_rate")}`);
  say("is-memory", `${about}${size(plan.nbytes)} (${count(plan.nbytes)} bytes)`);
  say("is-hashes", plan.num_hashes === null ? "a fingerprint instead" : hashes(plan));
  say("is-bits", `${few.format(plan.bits_per_key)} bits (${signed(plan.overhead)})`);
  say("is-expected", percent(plan.expected_error_rate));
  say("is-over", over(plan));
  draw(plan, found.curves);
  make(found.create, plan);
  kinds(found.kinds, plan);
  others(found.compared);
  say("measured", `Measured for ten million URLs (${found.measured}), scaled to these keys: docs/compare.md.`);
  say("is-cost", found.cost === null ? "Enter a price." : `${money.format(found.cost)} a month for the memory of one copy.`);
  nodes(found.nodes, plan);
}

function hashes(plan) {
  if (plan.lines_per_key === 2 && plan.num_hashes) return `${plan.num_hashes}, in two lines of 64 bytes`;
  return plan.lines_per_key === 1 ? `${plan.num_hashes}, in one line of 64 bytes` : String(plan.num_hashes);
}

const signed = (share) => `${share >= 0 ? "+" : "−"}${few.format(Math.abs(Number((100 * share).toPrecision(3))))}%`;

function over(plan) {
  if (plan.kind === "static") return "none can be added";
  if (plan.full_at !== null) return "it refuses keys";
  return plan.grows ? "it grows" : "it errs more often";
}

function draw(plan, curves) {
  const memory = {
    title: "Memory by error rate",
    x: {kind: "number", log: true, format: percent, label: "error rate"},
    y: {log: true, format: size},
    series: [{name: plan.kind, points: [...curves.memory].reverse()}],
    marks: [{x: plan.error_rate, name: "this plan"}, {y: plan.nbytes}],
  };
  const rates = {
    title: "Error rate as it fills",
    x: {kind: "number", format: short, label: "keys"},
    y: {format: percent, min: 0},
    series: [{name: plan.grows ? "error rate; at most this, once it grows" : "error rate", points: curves.rates}],
    marks: [{y: plan.error_rate, name: `allowed: ${percent(plan.error_rate)}`}, {x: plan.capacity, name: "capacity"}],
  };
  for (const [id, options] of Object.entries({"memory-curve": memory, "rate-curve": rates})) {
    if (charts[id]) charts[id].update(options);
    else charts[id] = chart(at(id), options);
  }
}

// How to make it.

const WAYS = [["python", "Python"], ["command", "Command"], ["http", "A server's, over HTTP"], ["redis", "A server's, over the Redis protocol"]];

function make(ways, plan) {
  const parts = WAYS.filter(([way]) => ways[way]).map(([way, name]) => {
    const told = h("span", {class: "hint", role: "status"});
    const copy = h("button", {type: "button", onclick: () => copied(ways[way], told)}, "Copy", h("span", {class: "unseen"}, ` ${name}`));
    return h("div", {class: "way"}, h("p", {class: "row spread"}, h("strong", {}, name), h("span", {}, told, " ", copy)), h("pre", {id: `way-${way}`, tabindex: 0}, ways[way].trim()));
  });
  if (plan.by_shape) parts.unshift(h("p", {class: "hint"}, "Its bits and hashes are given, since capacity and error rate alone would make another."));
  at("make").replaceChildren(...parts);
}

async function copied(text, place) {
  try {
    await navigator.clipboard.writeText(text);
    place.textContent = "copied";
  } catch {
    place.textContent = "select it, and copy by hand";
  }
  setTimeout(() => { place.textContent = ""; }, 3000);
}

// Tables.

const number = (text) => h("td", {class: "number"}, text);

function kinds(rows, plan) {
  at("kinds").tBodies[0].replaceChildren(...rows.map((row) => {
    const options = Object.entries(row.options).map(([name, value]) => (value === true ? "growing" : name === "layout" ? value : `${name} ${value}`));
    const same = row.kind === plan.kind && Object.entries(row.options).every(([name, value]) => plan.options[name] === value);
    const values = new URLSearchParams(entered());
    values.set("kind", row.kind);
    values.delete("memory");
    values.delete("hashes");
    values.set("capacity", plan.capacity);
    values.set("error_rate", plan.error_rate);
    for (const name of ["layout", "grow"]) values.delete(name);
    if (row.options.layout === "classic") values.set("layout", "classic");
    if (row.options.grow) values.set("grow", "yes");
    const link = h("a", {href: `?${values}`}, [row.kind, ...options].join(", "));
    const head = h("th", {scope: "row"}, link, same ? h("small", {}, " this plan") : null);
    if (row.nbytes === null) return h("tr", {}, head, h("td", {colspan: 4, class: "hint"}, sentence(row.problem)), ...traits(row));
    return h(
      "tr", {class: same ? "own" : null}, head, number(`${row.estimate ? "about " : ""}${size(row.nbytes)}`), number(few.format(row.bits_per_key)),
      number(percent(row.expected_error_rate)), number(row.cost === null ? "–" : money.format(row.cost)), ...traits(row),
    );
  }));
}

const traits = (row) => [h("td", {}, row.grows), h("td", {}, row.removes), h("td", {class: "hint"}, row.note)];

function others(rows) {
  const time = (us) => (us === undefined ? "–" : us >= 1 ? `${few.format(us)} µs` : `${few.format(1000 * us)} ns`);
  at("others").tBodies[0].replaceChildren(...rows.map((row) => h(
    "tr", {class: row.runs ? null : "own"}, h("th", {scope: "row"}, row.what), number(size(row.nbytes)), number(few.format(row.bytes_a_key)),
    number(time(row.insert_us)), number(time(row.ask_us)), number(row.wrong_maybes ? percent(row.wrong_maybes) : "none"),
    h("td", {}, row.removes || "–"), h("td", {}, row.survives || "–"), h("td", {}, row.runs || "–"),
  )));
}

function nodes(found, plan) {
  const place = at("is-nodes");
  if (!found) {
    place.replaceChildren(h("p", {class: "hint"}, "Enter how many keys are checked or added in a second."));
    return;
  }
  const plural = (many, word) => `${count(many)} ${word}${many === 1 ? "" : "s"}`;
  const worst = [...found.limits].sort((a, b) => b.share - a.share)[0];
  place.replaceChildren(
    h("p", {class: "big"}, `${plural(found.all_nodes, "node")} of a core each, one of them to spare`),
    h("ul", {},
      h("li", {}, `${size(found.node_nbytes)} of memory a node, in ${plural(found.groups, "group")}`),
      h("li", {}, `Redis: ${plural(found.all_masters, "master")}, ${size(found.redis_nbytes)}`),
      h("li", {}, `HAProxy: ${few.format(Number(found.balancer_cores.toPrecision(2)))} cores`),
      h("li", {}, `What runs out first: ${worst.what}, ${percent(worst.share)} used; then ${worst.then}`),
    ),
    plan.kind === "bloom" ? "" : h("p", {class: "hint"}, "Nodes share filters of kind bloom: this is for one of the same capacity and error rate."),
  );
}

// The choice of a kind.

async function choose() {
  const values = new URLSearchParams(QUESTIONS.map((name) => [name.slice(2), answered(name)]));
  try {
    chosen = await ask("GET", `/ui/data/planner/kind?${values}`);
  } catch (problem) {
    if (problem instanceof Problem) say("chosen", sentence(problem.message));
    return;
  }
  const grows = chosen.options.grow ? ", which grows" : "";
  at("chosen").replaceChildren("Take ", h("strong", {}, chosen.kind), `${grows}, at an error rate of ${percent(chosen.error_rate)}.`);
  at("reasons").replaceChildren(...chosen.why.map((why) => h("li", {}, sentence(why))), ...chosen.beware.map((why) => h("li", {class: "warn"}, sentence(why))));
}

function take() {
  if (!chosen) return;
  at("kind").value = chosen.kind;
  at("grow").value = chosen.options.grow ? "yes" : "";
  at("error_rate").value = chosen.error_rate < 1e-4 ? chosen.error_rate.toExponential() : `${Number((100 * chosen.error_rate).toPrecision(6))}%`;
  if (at("capacity").value.trim()) at("memory").value = "";
  at("hashes").value = "";
  changed();
  at("kind").focus();
}

// Events.

for (const name of FIELDS) at(name).addEventListener("input", changed);
at("plan").addEventListener("submit", (event) => { event.preventDefault(); changed(); });
at("plan").addEventListener("reset", (event) => {
  event.preventDefault();
  fill("");
  changed();
});
at("ask").addEventListener("change", () => { changed(); choose(); });
at("take").addEventListener("click", take);
at("share").addEventListener("click", () => copied(location.href, at("shared")));
addEventListener("popstate", () => { fill(location.search); changed(); });
fill(location.search);
changed();
choose();
