// The examples of the API page: asked of this server, and shown as it answered.

import {fetched} from "./api.js";
import {h} from "./dom.js";
import * as show from "./format.js";

const MOST = 20000; // characters that are shown

for (const operation of document.querySelectorAll(".operation")) {
  operation.querySelector(".run")?.addEventListener("click", () => run(operation));
}

async function run(operation) {
  const place = operation.querySelector(".result");
  const {method, path} = operation.dataset;
  const body = operation.querySelector(".body");
  try {
    const value = body && body.value.trim() ? JSON.parse(body.value) : undefined;
    const began = performance.now();
    const answer = await fetched(method, address(operation, path), value);
    const type = answer.headers.get("content-type") || "";
    const raw = method === "HEAD" || answer.status === 204 ? new ArrayBuffer(0) : await answer.arrayBuffer();
    const took = show.duration((performance.now() - began) / 1000);
    place.replaceChildren(
      h("p", {class: `notice ${answer.ok ? "good" : "bad"}`}, h("strong", {}, `${answer.status} ${answer.statusText}`), ` in ${took}${type ? `, ${type}` : ""}`),
      ...(raw.byteLength ? [h("pre", {tabindex: 0}, text(raw, type))] : []),
    );
  } catch (problem) {
    place.replaceChildren(h("p", {class: "notice bad"}, problem instanceof SyntaxError ? `The body is no JSON: ${problem.message}` : problem.message));
  }
}

function address(operation, path) {
  const query = new URLSearchParams();
  for (const input of operation.querySelectorAll("input[data-name]")) {
    const {name, where} = input.dataset;
    if (where === "path") path = path.replace(`{${name}}`, encodeURIComponent(input.value));
    else if (input.value !== "") query.set(name, input.value);
  }
  return query.size ? `${path}?${query}` : path;
}

function text(raw, type) {
  if (/octet-stream|x-tar|arrow/.test(type)) return show.bytes(raw.byteLength);
  const decoded = new TextDecoder().decode(raw);
  if (!type.includes("json")) return decoded.slice(0, MOST);
  try { return JSON.stringify(JSON.parse(decoded), null, 2).slice(0, MOST); } catch { return decoded.slice(0, MOST); }
}
