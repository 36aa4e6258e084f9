// What every page has: the button of the theme, and logging out.

import {ask} from "./api.js";
import {at} from "./dom.js";

at("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  root.dataset.theme = (root.dataset.theme || system) === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", root.dataset.theme); } catch { /* a browser without storage */ }
});

at("logout")?.addEventListener("click", async () => {
  await ask("POST", "/ui/logout");
  location.assign("/ui/login");
});
