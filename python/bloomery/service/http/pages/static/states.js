// The state of a filter in a word and a colour.

import {h} from "./dom.js";

const COLOURS = {healthy: "good", filling: "warn", saturated: "bad", lagging: "bad", loading: ""};

/** A state, with why it is so for who points at it or listens. */
export const pill = (state, why) =>
  h("span", {class: `state ${COLOURS[state] || ""}`, title: why}, state, h("span", {class: "unseen"}, `: ${why}`));
