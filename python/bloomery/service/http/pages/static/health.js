// Nodes and health, live.

import {ask, poll} from "./api.js";
import {chart} from "./chart.js";
import {at, h, say} from "./dom.js";
import * as show from "./format.js";

const LEVELS = {error: "bad", warning: "warn", info: ""};
const STORE = {
  up: ["Redis answers", "Whether the Redis of this node answers.", (v) => (v ? "yes" : "no")],
  outage_seconds: ["Outage", "For how long it has not answered.", show.duration],
  behind_seconds: ["Behind", "Since this node last knew that it had all that others added.", show.duration],
  lag_seconds: ["Lag", "That the last entry took to get here.", show.duration],
  loads: ["Loads", "How often all bits were loaded.", show.count],
  restores: ["Restores", "How often Redis was given back what it may have lost.", show.count],
  written_keys: ["Written", "Keys that went through to Redis.", show.count],
  waiting_keys: ["Waiting", "Keys that were added and are not acknowledged, for want of Redis.", show.count],
  queued_keys: ["Queued", "Keys that were acknowledged and wait for Redis on this disk.", show.count],
};
const state = (good, words) => h("span", {class: `state ${good}`}, words);
const within = (told) => (told.half === null ? show.UNKNOWN : `${show.duration(told.half)} and ${told.most === null ? "longer" : show.duration(told.most)}`);

const commands = chart(at("chart-commands"), {title: "Commands a second", x: {kind: "time"}, y: {format: show.perSecond, min: 0}, series: [{name: "commands", points: []}], empty: "A moment…"});
const points = [];
let before = null;

poll(async () => {
  const told = await ask("GET", "/ui/data/health");
  drawServer(told.server);
  drawDurability(told.durability);
  drawStore(told.store);
  alerts("alerts", told.alerts, "Nothing is wrong.");
  alerts("recent", told.recent.reverse(), "Nothing yet.");
  await nodes(told);
}, 2);
// Not again and again: who reads the audit log is written to it.
if (at("audit")) audit().catch(() => {});
at("audit-again")?.addEventListener("click", () => audit().catch(() => {}));

function drawServer(server) {
  at("ready").replaceChildren(server.not_ready ? state("bad", server.not_ready) : state("good", "ready"));
  say("uptime", show.duration(server.now - server.started));
  say("filters", show.count(server.filters));
  say("memory", server.memory_limit ? `${show.bytes(server.memory)} of ${show.bytes(server.memory_limit)}` : show.bytes(server.memory));
  say("connections", `${show.count(server.connections.resp)} and ${show.count(server.connections.http)}`);
  say("latency-resp", within(server.latency.resp));
  say("latency-http", within(server.latency.http));
  say("tls", server.tls_expires ? show.time(server.tls_expires) : "no TLS");
  if (before && server.now > before.now) points.push([server.now, Math.max(0, server.commands - before.commands) / (server.now - before.now)]);
  if (points.length > 450) points.shift();
  before = server;
  commands.update({series: [{name: "commands", points}]});
}

function drawDurability(told) {
  const word = told.refusing ? ["bad", "writes are refused"] : told.late ? ["warn", "the disk is slow"] : told.snapshot.problem ? ["warn", "the last snapshot failed"] : ["good", "all is well"];
  at("durable").replaceChildren(state(...word));
  say("fsync", {always: "at once, before the reply", everysec: "within a second", never: "when the system likes"}[told.fsync] || told.fsync);
  say("unsynced", told.unsynced ? show.duration(told.unsynced) : "nothing waits");
  say("commit", within(told.commit));
  say("rows", show.count(told.rows));
  say("snapshot", told.snapshot.running ? "being made now" : told.snapshot.number ? `number ${told.snapshot.number}, ${show.time(told.snapshot.at)}` : "none yet");
  say("recovery", told.recovery_problems ? `${told.recovery_problems} problems: see the log` : "nothing was wrong");
  say("registry", told.registry.healthy ? (told.registry.behind > 5 ? `${show.duration(told.registry.behind)} behind` : "up to date") : "does not answer");
}

function drawStore(store) {
  const known = Object.entries(store || {}).filter(([name, value]) => name in STORE && value !== null);
  at("store-section").hidden = !known.length;
  if (!known.length) return;
  at("store-state").replaceChildren(store.up ? state("good", "answers") : state("bad", "does not answer"));
  at("store").replaceChildren(...known.map(([name, value]) => h("div", {class: "figure"}, h("dt", {}, STORE[name][0]), h("dd", {}, STORE[name][2](value)), h("dd", {class: "hint"}, STORE[name][1]))));
}

async function nodes(told) {
  const table = at("nodes");
  let rows = [];
  if (table.dataset.listed) {
    const answer = await ask("GET", "/nodes").catch(() => null);
    rows = Array.isArray(answer) ? answer : answer?.nodes || [];
  }
  if (!rows.length) {
    rows = [{id: "this server", address: location.host, version: told.server.version, position: told.durability.rows, lag: told.store?.lag_seconds ?? null, requests: points.at(-1)?.[1] ?? null, since: told.server.started, alone: true}];
  }
  const rate = (row) => row.requests ?? row.requests_per_second ?? row.requests_a_second ?? null;
  table.tBodies[0].replaceChildren(...rows.map((row) => h("tr", {},
    h("th", {scope: "row"}, String(row.id)), h("td", {}, row.address || show.UNKNOWN), h("td", {}, row.version || show.UNKNOWN),
    h("td", {class: "number"}, typeof row.position === "number" ? show.count(row.position) : String(row.position ?? show.UNKNOWN)),
    h("td", {class: "number"}, row.alone && row.lag === null ? "none: it is alone" : show.duration(row.lag)),
    h("td", {class: "number"}, show.perSecond(rate(row))),
    h("td", {}, show.time(row.since)))));
}

function alerts(id, rows, none) {
  const text = JSON.stringify(rows);
  if (at(id).dataset.text === text) return;
  at(id).dataset.text = text;
  at(id).replaceChildren(...(rows.length ? rows.map((row) => h("li", {},
    state(row.state === "cleared" ? "good" : LEVELS[row.level] || "", row.state === "cleared" ? "over" : row.level), ` ${row.text} `,
    h("small", {}, `${row.kind}, ${show.time(row.at)}`))) : [h("li", {class: "hint"}, none)]));
}

async function audit() {
  const {lines} = await ask("GET", "/ui/data/audit?limit=100");
  at("audit").tBodies[0].replaceChildren(...lines.map((line) => h("tr", {},
    h("td", {}, show.time(Date.parse(line.at) / 1000)), h("td", {}, line.user || "nobody known"), h("td", {}, [line.address, line.door].filter(Boolean).join(", ")),
    h("td", {}, line.operation, h("small", {}, line.command || "")), h("td", {}, (line.names || []).join(", ")), h("td", {}, state({done: "good", refused: "warn", failed: "bad"}[line.outcome] || "", line.outcome), h("small", {}, line.note || "")))));
}
