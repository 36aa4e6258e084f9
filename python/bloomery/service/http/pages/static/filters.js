// The table of all filters: sorted, searched and cut into pages by the server, live.

import {ask, poll} from "./api.js";
import {at, h, say} from "./dom.js";
import * as show from "./format.js";
import {pill} from "./states.js";

const body = document.querySelector("#filters tbody");
const view = {search: "", sort: "name", order: "up", page: 1};
const rows = new Map(); // by name, so that a row that stays is only changed

// What is looked at is in the address, behind #: a reload and a link keep it, and no server sees it.
new URLSearchParams(location.hash.slice(1)).forEach((value, name) => { if (name in view) view[name] = name === "page" ? Number(value) || 1 : value; });
at("search").value = view.search;

const look = poll(async () => {
  const asked = String(new URLSearchParams(view));
  const told = await ask("GET", `/ui/data/filters?${asked}`);
  if (asked !== String(new URLSearchParams(view))) return; // something else is looked at by now
  view.page = told.page;
  draw(told);
}, 2);

function change(changes) {
  Object.assign(view, changes);
  history.replaceState(null, "", `#${new URLSearchParams(view)}`);
  look();
}

function draw(told) {
  const shown = told.rows.map((row) => {
    const made = rows.get(row.name) || makeRow(row.name);
    rows.set(row.name, made);
    update(made, row);
    return made.element;
  });
  if (shown.length !== body.children.length || shown.some((element, i) => body.children[i] !== element)) body.replaceChildren(...shown);
  say("number", told.number === 1 ? "1 filter" : `${show.count(told.number)} filters`);
  at("nothing").hidden = told.number > 0;
  say("nothing", view.search ? "No filter has such a name." : "There is no filter yet. The first BF.ADD makes one, or the button above.");
  at("pages").hidden = told.pages < 2;
  say("page", `page ${told.page} of ${told.pages}`);
  at("before").disabled = told.page <= 1;
  at("next").disabled = told.page >= told.pages;
  for (const th of document.querySelectorAll("th[data-sort]")) {
    if (th.dataset.sort === view.sort) th.setAttribute("aria-sort", view.order === "up" ? "ascending" : "descending");
    else th.removeAttribute("aria-sort");
  }
}

function makeRow(name) {
  const cell = (label, number = true) => h("td", {class: number ? "number" : null, "data-label": label});
  const cells = {
    state: cell("State", false), kind: cell("Kind", false), items: cell("Keys"), fill: cell("Fill"), rate: cell("Error rate"),
    nbytes: cell("Memory"), adds: cell("Adds"), checks: cell("Checks"), forecast: cell("Forecast", false),
  };
  const link = h("a", {href: `/ui/filters/${address(name)}`}, name);
  return {cells, element: h("tr", {}, h("th", {scope: "row"}, link), ...Object.values(cells)), last: ""};
}

/** A printed name, with \xNN for what is no text, as a path has it. */
const address = (name) => name.replace(/\\(?:\\|x([0-9a-f]{2}))|[^\\]+/g, (part, byte) => (byte ? `%${byte}` : encodeURIComponent(part === "\\\\" ? "\\" : part)));

function update(made, row) {
  const text = JSON.stringify(row);
  if (made.last === text) return;
  made.last = text;
  const {cells} = made;
  const two = (cell, first, ...more) => cell.replaceChildren(first, ...more.filter(Boolean).map((one) => h("small", {}, one)));
  cells.state.replaceChildren(pill(row.state, row.why));
  cells.kind.textContent = row.kind || show.UNKNOWN;
  two(cells.items, show.count(row.items), row.limited && row.capacity ? `${show.percent(row.items / row.capacity)} of ${show.short(row.capacity)}` : "grows");
  if (!row.limited && row.kind && (row.kind === "bank" || row.capacity === null)) cells.items.replaceChildren(show.count(row.items));
  cells.fill.replaceChildren(row.fill === undefined || row.fill === null ? show.UNKNOWN : meter(row.fill), row.fill === undefined || row.fill === null ? "" : show.percent(row.fill));
  const allowed = row.target ? `allowed ${show.percent(row.target)}` : "";
  const estimated = row.estimated === undefined || row.estimated === null ? "" : `estimated ${show.percent(row.estimated)}`;
  two(cells.rate, row.observed === undefined || row.observed === null ? show.UNKNOWN : show.percent(row.observed), estimated, allowed);
  cells.nbytes.textContent = show.bytes(row.nbytes);
  cells.adds.textContent = show.perSecond(row.adds);
  cells.checks.textContent = show.perSecond(row.checks);
  cells.forecast.textContent = row.forecast ? row.forecast.replace(" at this rate", "") : show.UNKNOWN;
}

const meter = (share) => h("meter", {min: 0, max: 1, value: share, "aria-hidden": "true"});

// What the viewer does.

let typing = 0;
at("search").addEventListener("input", (event) => {
  clearTimeout(typing);
  typing = setTimeout(() => change({search: event.target.value, page: 1}), 200);
});
at("find").addEventListener("submit", (event) => event.preventDefault());
at("before").addEventListener("click", () => change({page: view.page - 1}));
at("next").addEventListener("click", () => change({page: view.page + 1}));
for (const th of document.querySelectorAll("th[data-sort]")) {
  th.querySelector("button").addEventListener("click", () => {
    const sort = th.dataset.sort;
    const words = ["name", "kind", "state", "full_in"].includes(sort);
    const order = view.sort === sort ? (view.order === "up" ? "down" : "up") : words ? "up" : "down";
    change({sort, order, page: 1});
  });
}

at("sort").value = view.sort;
at("sort").addEventListener("change", (event) => {
  const sort = event.target.value;
  change({sort, order: ["name", "state", "full_in"].includes(sort) ? "up" : "down", page: 1});
});

// A new filter.

const dialog = at("create");
at("new")?.addEventListener("click", () => { say("create-refusal", ""); dialog.showModal(); });
at("cancel")?.addEventListener("click", () => dialog.close());
at("new-kind")?.addEventListener("change", () => { at("of-rotating").hidden = at("new-kind").value !== "rotating"; });
dialog?.querySelector("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const kind = at("new-kind").value;
  const wanted = {name: at("new-name").value.replaceAll("\\", "\\\\"), kind, capacity: Number(at("new-capacity").value)};
  if (kind !== "rediscuckoo") wanted.error_rate = Number(at("new-rate").value) / 100;
  if (kind === "rotating") wanted.window = at("new-window").value;
  at("make").disabled = true;
  try {
    await ask("POST", "/filters", wanted);
    location.assign(`/ui/filters/${encodeURIComponent(at("new-name").value)}`);
  } catch (problem) {
    say("create-refusal", problem.message);
  }
  at("make").disabled = false;
});
