// Line charts as SVG: over time or over a number, linear or logarithmic, read by pointer and by arrow keys.
//
//   const drawn = chart(at("fill"), {
//     title: "Fill", x: {kind: "time"}, y: {format: percent, min: 0},
//     series: [{name: "fill", points: [[1700000000, 0.25], …]}], marks: [{y: 0.5, name: "full"}],
//   });
//   drawn.update({series: …});                         // some of the options anew
//
// x, y: {kind: "time" | "number", log: false, format: count, label: "", min, max, binary: false}. A series has points [x, y], y null
// for a gap; `band` [x, low, high]; `dashed`; `colour` 1 to 6. A mark is a horizontal line with a name; with x, a
// vertical one. `empty` is said while there is nothing to draw. The same figures are in a table below it.

import {h, s} from "./dom.js";
import {short, time, timeTick} from "./format.js";

const MARGIN = {top: 12, right: 14, bottom: 34, left: 64};
const STEPS = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000];
const MOST_ROWS = 200;
let charts = 0;

/** Draw a chart in an element, and again whenever its width changes. */
export function chart(place, options) {
  const state = {height: 220, empty: "Nothing yet.", marks: [], ...options, number: ++charts, at: null};
  const legend = h("ul", {class: "legend"});
  const drawing = h("div", {class: "drawing"});
  const readout = h("p", {class: "readout", role: "status", "aria-live": "polite"});
  const table = h("details", {class: "figures"}, h("summary", {}, "The same as a table"));
  place.replaceChildren(legend, drawing, readout, table);
  table.addEventListener("toggle", () => fillTable(table, state));
  const draw = () => render(drawing, legend, readout, table, state);
  new ResizeObserver(() => { if (drawing.clientWidth !== state.width) draw(); }).observe(drawing);
  draw();
  return {
    update(changes) { Object.assign(state, changes); draw(); },
  };
}

// Scales and ticks.

function scale(axis, from, to, [low, high]) {
  const value = axis.log ? Math.log10 : (v) => v;
  const [a, b] = [value(low), value(high)];
  return (v) => from + ((value(v) - a) / (b - a || 1)) * (to - from);
}

function extent(axis, values) {
  const usable = values.filter((v) => v !== null && Number.isFinite(v) && (!axis.log || v > 0));
  if (!usable.length) return null;
  let low = axis.min ?? usable.reduce((a, b) => Math.min(a, b));
  let high = axis.max ?? usable.reduce((a, b) => Math.max(a, b));
  if (low === high && axis.kind === "time") return [low - 30, high + 30];
  if (low === high) [low, high] = axis.log ? [low / 2, high * 2] : low === 0 ? [0, 1] : [Math.min(low, 0), high * 1.1];
  if (axis.log) return [low, high];
  if (axis.kind === "time" || axis.kind === "number" && axis.tight) return [low, high];
  return [low, axis.max ?? high + (high - low) * 0.05];
}

function ticks(axis, [low, high], most) {
  if (axis.kind === "time") return timeTicks(low, high, most);
  if (axis.log) {
    const found = [];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) found.push(10 ** e);
    const inside = found.filter((v) => v >= low * 0.999 && v <= high * 1.001);
    const every = Math.ceil(inside.length / most);
    if (inside.length >= 2) return inside.filter((_, i) => i % every === 0);
  }
  const rough = (high - low) / most;
  // Bytes have powers of 1024 as their round numbers.
  const unit = axis.binary ? 1024 ** Math.max(0, Math.floor(Math.log(rough) / Math.log(1024))) : 1;
  const size = unit * 10 ** Math.floor(Math.log10(rough / unit));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * size).find((one) => one >= rough) || rough;
  const found = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) found.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return found;
}

function timeTicks(low, high, most) {
  const step = STEPS.find((one) => (high - low) / one <= most) || Math.ceil((high - low) / most / 2592000) * 2592000;
  const zone = -60 * new Date(1000 * low).getTimezoneOffset(); // whole hours and days of the viewer's
  const found = [];
  for (let t = Math.ceil((low + zone) / step) * step - zone; t <= high; t += step) found.push(t);
  found.step = step;
  return found;
}

// Drawing.

function render(drawing, legend, readout, table, state) {
  const {series, marks} = state;
  const x = {kind: "number", format: short, ...state.x};
  const y = {kind: "number", format: short, ...state.y};
  state.width = drawing.clientWidth || 600;
  const points = series.flatMap((one) => one.points);
  const bands = series.flatMap((one) => one.band || []);
  const across = extent({...x, tight: true}, points.map((p) => p[0]));
  const marked = marks.filter((m) => m.y !== undefined && m.y !== null).map((m) => m.y);
  const upright = extent(y, [...points.map((p) => p[1]), ...bands.map((b) => b[2]), ...(y.log ? bands.map((b) => b[1]) : []), ...marked]);
  legend.replaceChildren(...entries(series, marks));
  if (!across || !upright) {
    drawing.replaceChildren(h("p", {class: "empty"}, state.empty));
    readout.textContent = "";
    return;
  }
  const {width, height} = state;
  const box = {left: MARGIN.left, right: width - MARGIN.right, top: MARGIN.top, bottom: height - MARGIN.bottom};
  const toX = scale(x, box.left, box.right, across);
  const toY = scale(y, box.bottom, box.top, upright);
  const svg = s("svg", {
    viewBox: `0 0 ${width} ${height}`, width, height, tabindex: 0, role: "img",
    "aria-label": `${state.title}. ${series.map((one) => one.name).join(", ")}. Arrow keys read single values.`,
  });
  const id = `clip-${state.number}`;
  svg.append(
    s("clipPath", {id}, s("rect", {x: box.left, y: box.top - 4, width: Math.max(0, box.right - box.left), height: box.bottom - box.top + 8})),
    ...axes(x, y, across, upright, toX, toY, box, state),
  );
  const inside = s("g", {"clip-path": `url(#${id})`});
  series.forEach((one, i) => inside.append(...lines(one, one.colour || i + 1, toX, toY, y)));
  for (const mark of marks) {
    if (mark.x !== undefined && mark.x !== null) {
      inside.append(s("line", {class: "mark", x1: toX(mark.x), x2: toX(mark.x), y1: box.top, y2: box.bottom}));
    } else if (mark.y !== undefined && mark.y !== null && !(y.log && mark.y <= 0)) {
      inside.append(s("line", {class: "mark", x1: box.left, x2: box.right, y1: toY(mark.y), y2: toY(mark.y)}));
    }
  }
  const pointer = s("g", {class: "pointer"});
  svg.append(inside, pointer);
  const focused = document.activeElement?.parentNode === drawing;
  drawing.replaceChildren(svg);
  if (focused) svg.focus();
  reading(svg, pointer, readout, state, x, y, toX, toY, box);
  if (table.open) fillTable(table, state);
}

function entries(series, marks) {
  const line = (name, kind) => h("li", {}, s("svg", {width: 22, height: 10, "aria-hidden": "true"}, s("line", {class: kind, x1: 1, x2: 21, y1: 5, y2: 5})), ` ${name}`);
  return [
    ...series.map((one, i) => line(one.name, `line c${one.colour || i + 1}${one.dashed ? " dashed" : ""}`)),
    ...marks.filter((m) => m.name).map((m) => line(m.name, "mark")),
  ];
}

function axes(x, y, across, upright, toX, toY, box, state) {
  const parts = [];
  const down = ticks(y, upright, Math.max(2, Math.floor((box.bottom - box.top) / 36)));
  for (const v of down) {
    parts.push(s("line", {class: "grid", x1: box.left, x2: box.right, y1: toY(v), y2: toY(v)}));
    parts.push(s("text", {x: box.left - 8, y: toY(v) + 4, "text-anchor": "end"}, y.format(v)));
  }
  const along = ticks(x, across, Math.max(2, Math.floor((box.right - box.left) / 84)));
  for (const v of along) {
    const label = x.kind === "time" ? timeTick(v, along.step) : x.format(v);
    parts.push(s("line", {class: "tick", x1: toX(v), x2: toX(v), y1: box.bottom, y2: box.bottom + 5}));
    const last = toX(v) > box.right - 28; // or the text would be cut off
    parts.push(s("text", {x: last ? box.right + 12 : toX(v), y: box.bottom + 18, "text-anchor": last ? "end" : "middle"}, label));
  }
  parts.push(s("line", {class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom}));
  if (x.label) parts.push(s("text", {class: "label", x: box.right, y: state.height - 3, "text-anchor": "end"}, x.label));
  return parts;
}

function lines(one, colour, toX, toY, y) {
  const drawable = (v) => v !== null && v !== undefined && Number.isFinite(v) && (!y.log || v > 0);
  const parts = [];
  if (one.band?.length) {
    const usable = one.band.filter((b) => drawable(b[1]) && drawable(b[2]));
    const top = usable.map((b) => `${toX(b[0])},${toY(b[2])}`);
    const under = usable.map((b) => `${toX(b[0])},${toY(b[1])}`).reverse();
    if (usable.length > 1) parts.push(s("polygon", {class: `band c${colour}`, points: [...top, ...under].join(" ")}));
  }
  let path = "";
  let open = false;
  for (const [px, py] of one.points) {
    if (!drawable(py)) { open = false; continue; }
    path += `${open ? "L" : "M"}${toX(px).toFixed(1)},${toY(py).toFixed(1)}`;
    open = true;
  }
  if (path) parts.push(s("path", {class: `line c${colour}${one.dashed ? " dashed" : ""}`, d: path}));
  const shown = one.points.filter((p) => drawable(p[1]));
  if (shown.length === 1) parts.push(s("circle", {class: `dot c${colour}`, cx: toX(shown[0][0]), cy: toY(shown[0][1]), r: 3}));
  return parts;
}

// Reading values.

function reading(svg, pointer, readout, state, x, y, toX, toY, box) {
  const all = [...new Set(state.series.flatMap((one) => one.points.map((p) => p[0])))].sort((a, b) => a - b);
  const told = x.kind === "time" ? time : x.format;
  const show = (value) => {
    state.at = value;
    pointer.replaceChildren(s("line", {x1: toX(value), x2: toX(value), y1: box.top, y2: box.bottom}));
    const words = [];
    state.series.forEach((one, i) => {
      const near = nearest(one.points, value);
      if (!near || near[1] === null) return;
      words.push(`${one.name} ${y.format(near[1])}`);
      pointer.append(s("circle", {class: `dot c${one.colour || i + 1}`, cx: toX(near[0]), cy: toY(near[1]), r: 3.5}));
    });
    readout.textContent = `${told(value)}: ${words.join(", ")}`;
  };
  const hide = () => { state.at = null; pointer.replaceChildren(); readout.textContent = ""; };
  svg.addEventListener("pointermove", (event) => {
    const left = event.clientX - svg.getBoundingClientRect().left;
    show(all.reduce((best, v) => (Math.abs(toX(v) - left) < Math.abs(toX(best) - left) ? v : best), all[0]));
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("keydown", (event) => {
    const now = state.at === null ? all.length - 1 : all.indexOf(state.at);
    const next = {ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: all.length - 1}[event.key];
    if (event.key === "Escape") hide();
    if (next === undefined) return;
    event.preventDefault();
    show(all[Math.max(0, Math.min(all.length - 1, next))]);
  });
  if (state.at !== null && all.includes(state.at)) show(state.at);
}

function nearest(points, value) {
  let best = null;
  for (const point of points) {
    if (point[1] !== null && (!best || Math.abs(point[0] - value) < Math.abs(best[0] - value))) best = point;
  }
  return best;
}

function fillTable(table, state) {
  const summary = table.querySelector("summary");
  if (!table.open) { table.replaceChildren(summary); return; }
  const x = {format: short, ...state.x};
  const y = {format: short, ...state.y};
  const told = x.kind === "time" ? time : x.format;
  const all = [...new Set(state.series.flatMap((one) => one.points.map((p) => p[0])))].sort((a, b) => a - b).slice(-MOST_ROWS);
  const values = state.series.map((one) => new Map(one.points));
  const cell = (v) => (v === null || v === undefined ? "–" : y.format(v));
  table.replaceChildren(summary, h("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": `${state.title}, as a table`}, h("table", {},
    h("thead", {}, h("tr", {}, h("th", {scope: "col"}, x.label || (x.kind === "time" ? "time" : "")), ...state.series.map((one) => h("th", {scope: "col"}, one.name)))),
    h("tbody", {}, ...all.map((v) => h("tr", {}, h("th", {scope: "row"}, told(v)), ...values.map((map) => h("td", {}, cell(map.get(v))))))),
  )));
}
