// The form to log in. Who followed a link from elsewhere may have a session: the browser did not send it then.

import {ask, fetched} from "./api.js";
import {at, say} from "./dom.js";

const form = at("login");
const go = () => location.replace(form.dataset.to);

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = form.querySelector("button");
  button.disabled = true;
  say("refusal", "");
  try {
    await ask("POST", "/ui/login", {name: at("name").value, password: form.password.value}, {login: true});
    go();
  } catch (problem) {
    say("refusal", problem.message);
    form.password.value = "";
    form.password.focus();
  }
  button.disabled = false;
});

if ((await fetched("GET", "/ui/session", undefined, {login: true})).ok) go();
