// Asks the server, by JSON both ways; says so when it does not answer, and when it does again.

import {at} from "./dom.js";

let csrf = document.documentElement.dataset.csrf;

/** What the server answered that it cannot do: `detail` is for people, `code` for programs. */
export class Problem extends Error {
  constructor(status, document) {
    super(document.detail || `the server answered ${status}`);
    Object.assign(this, {status, code: document.code, document});
  }
}

/** Ask for something; the answer's JSON, or null. `options.body` is sent as it is, `options.type` says what it is. */
export async function ask(method, path, value, options = {}) {
  return read(await fetched(method, path, value, options));
}

/** The same, as the Response itself, whatever its status. */
export async function fetched(method, path, value, options = {}) {
  let answer = await send(method, path, value, options);
  // The server may have been started anew since this page was loaded: with another token.
  if (answer.status === 403 && method !== "GET" && (await renewed())) answer = await send(method, path, value, options);
  if (answer.status === 401 && !options.login) sessionOver();
  return answer;
}

async function send(method, path, value, options) {
  const request = {method, headers: {"X-CSRF-Token": csrf, ...options.headers}, redirect: "error", cache: "no-store"};
  if (value !== undefined) {
    request.body = JSON.stringify(value);
    request.headers["Content-Type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(path, request);
  } catch {
    lost("The server does not answer. This page tries again by itself.");
    throw new Problem(0, {detail: "The server does not answer.", code: "no-answer"});
  }
  if (answer.status === 503 && (await answer.clone().text()).includes("server-unavailable")) lost("The server is not ready yet. This page tries again by itself.");
  else found();
  return answer;
}

async function read(answer) {
  const text = await answer.text();
  let value = null;
  try { value = text ? JSON.parse(text) : null; } catch { value = {detail: text.slice(0, 200)}; }
  if (!answer.ok) throw new Problem(answer.status, value || {});
  return value;
}

async function renewed() {
  const answer = await fetch("/ui/session", {cache: "no-store"}).catch(() => null);
  if (!answer || !answer.ok) return false;
  const told = (await answer.json()).csrf;
  const changed = told !== csrf;
  csrf = told;
  return changed;
}

// Its state, on top of the page.

let over = false;

function banner(text, ...more) {
  const place = at("connection");
  place.hidden = !text;
  if (place.dataset.text !== text) place.replaceChildren(text, ...more);
  place.dataset.text = text;
}

function lost(text) {
  if (!over) banner(text);
}

function found() {
  if (!over) banner("");
}

function sessionOver() {
  if (over) return;
  over = true;
  const link = document.createElement("a");
  link.href = `/ui/login?to=${encodeURIComponent(location.pathname + location.search)}`;
  link.textContent = "Log in again";
  banner("Your session is over. ", link);
}

/** Do something now and every so many seconds, as long as the page is looked at and the session lasts. */
export function poll(work, seconds) {
  let timer = 0;
  let wait = seconds;
  let running = false;
  let wanted = false; // once more, as soon as it is done
  const again = async () => {
    clearTimeout(timer);
    wanted = running;
    if (over || running || document.hidden) return;
    running = true;
    try {
      await work();
      wait = seconds;
    } catch (problem) {
      if (!(problem instanceof Problem)) console.error(problem);
      wait = problem.status === 0 || problem.status === 503 ? Math.min(2 * seconds, 5) : Math.max(seconds, 5);
    }
    running = false;
    timer = setTimeout(again, wanted ? 0 : 1000 * wait);
  };
  document.addEventListener("visibilitychange", again);
  again();
  return again;
}
