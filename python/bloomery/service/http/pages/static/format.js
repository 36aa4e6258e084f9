// Numbers with their units, and times in the viewer's zone.

const plain = new Intl.NumberFormat();
const few = new Intl.NumberFormat(undefined, {maximumSignificantDigits: 3});
const UNITS = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
export const UNKNOWN = "–";

const unknown = (value) => value === null || value === undefined || Number.isNaN(value);

/** 1,234,567 */
export const count = (value) => (unknown(value) ? UNKNOWN : plain.format(value));

/** 1.23 million, for narrow places: 950, 12.3k, 1.23M, 4G */
export function short(value) {
  if (unknown(value)) return UNKNOWN;
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= size) return few.format(value / size) + unit;
  }
  return few.format(value);
}

/** 1.5 MiB */
export function bytes(value) {
  if (unknown(value)) return UNKNOWN;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${few.format(value)} ${UNITS[unit]}`;
}

/** 0.0103 is 1.03%; what is tiny keeps its power of ten: 1.2×10⁻⁷ */
export function percent(share) {
  if (unknown(share)) return UNKNOWN;
  if (share !== 0 && share < 1e-6) return power(share);
  return `${few.format(100 * share)}%`;
}

/** 1.2×10⁻⁷ */
export function power(value) {
  const exponent = Math.floor(Math.log10(value));
  const digits = String(exponent).replace(/[-0-9]/g, (c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);
  return `${few.format(value / 10 ** exponent)}×10${digits}`;
}

/** 0.01 is 1 in 100 */
export const oneIn = (share) => (share > 0 ? `1 in ${short(1 / share)}` : "none seen");

/** 12.3k/s */
export const perSecond = (value) => (unknown(value) ? UNKNOWN : `${short(value)}/s`);

/** 3 h 20 min: the two largest units */
export function duration(seconds) {
  if (unknown(seconds)) return UNKNOWN;
  if (seconds > 0 && seconds < 1) return `${few.format(1000 * seconds)} ms`;
  let left = Math.floor(seconds);
  const parts = [];
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    const many = Math.floor(left / size);
    left -= many * size;
    if (many || parts.length) parts.push(many ? `${many} ${unit}` : "");
    if (parts.length === 2) break;
  }
  return parts.filter(Boolean).join(" ") || "0 s";
}

const clock = new Intl.DateTimeFormat(undefined, {dateStyle: "medium", timeStyle: "medium"});
const hours = new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit"});
const seconds = new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit", second: "2-digit"});
const days = new Intl.DateTimeFormat(undefined, {month: "short", day: "numeric"});

/** A Unix time as the viewer's clock has it. */
export const time = (epoch) => (unknown(epoch) ? UNKNOWN : clock.format(new Date(1000 * epoch)));

/** The same for an axis, as short as a step of so many seconds allows. */
export function timeTick(epoch, step) {
  const date = new Date(1000 * epoch);
  if (step >= 86400) return days.format(date);
  return (step < 60 ? seconds : hours).format(date);
}
