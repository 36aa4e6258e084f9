/*
 * bloomery in a browser: reads saved filters, exact sets and signed feeds, and answers as Python does.
 *
 *     import { Filter, Feed } from "./bloomery.js";
 *
 *     const revoked = Filter.open(await (await fetch("revoked.exact")).arrayBuffer());
 *     revoked.contains("token-17");           // false: definitely not; true: maybe (of an exact set: it is)
 *
 *     const feed = new Feed("https://example.org/revoked/", "ed25519:…");
 *     await feed.update();                    // checks signature, version and expiry
 *     feed.contains("token-17");
 *
 * One file, no dependencies, nothing is built. docs/browser.md is its page, docs/format.md and docs/feeds.md
 * have the formats. Every byte that is read is hostile until it was checked.
 *
 * Numbers of 64 bits are two of 32, high and low: BigInt would take ten times as long for a key. Functions that
 * make such a number leave it in R[0] and R[1], where no object is made for it.
 */

/** Bytes that are no filter or feed, or none that this module reads. `code` is for programs. */
export class BloomeryError extends Error {
  constructor(message, code) {
    super(message);
    this.name = new.target.name;
    this.code = code;
  }
}

/** A feed that was refused, and why: `reason` is a word for programs, the one that Python has. */
export class FeedRefused extends BloomeryError {
  constructor(message, reason = "malformed") {
    super(message, "feed-refused");
    this.reason = reason;
  }
}

/** A feed that cannot be had, or not yet. */
export class FeedUnavailable extends BloomeryError {
  constructor(message) {
    super(message, "feed-unavailable");
  }
}

const corrupt = (message) => new BloomeryError(message, "corrupt-data");

// ---- 64-bit arithmetic

const R = new Int32Array(2);

/** The high half of a product of two numbers of 32 bits. */
function high32(a, b) {
  const a0 = a & 0xffff, a1 = a >>> 16, b0 = b & 0xffff, b1 = b >>> 16;
  const middle = (Math.imul(a1, b0) + (Math.imul(a0, b0) >>> 16)) | 0;
  const other = (Math.imul(a0, b1) + (middle & 0xffff)) | 0;
  return (Math.imul(a1, b1) + (middle >>> 16) + (other >>> 16)) | 0;
}

/** a · b mod 2^64. */
function mul(ah, al, bh, bl) {
  R[0] = high32(al, bl) + Math.imul(ah, bl) + Math.imul(al, bh);
  R[1] = Math.imul(al, bl);
}

/** a + b mod 2^64. */
function add(ah, al, bh, bl) {
  const low = (al + bl) | 0;
  R[0] = ah + bh + (low >>> 0 < al >>> 0 ? 1 : 0);
  R[1] = low;
}

/** a − b mod 2^64. */
function subtract(ah, al, bh, bl) {
  R[0] = ah - bh - (al >>> 0 < bl >>> 0 ? 1 : 0);
  R[1] = al - bl;
}

/** Both halves of the 128 bits of a · b, XORed. */
function fold(ah, al, bh, bl) {
  const middle = (high32(al, bl) >>> 0) + (Math.imul(al, bh) >>> 0) + (Math.imul(ah, bl) >>> 0);
  const upper =
    (high32(al, bh) >>> 0) + (high32(ah, bl) >>> 0) + (Math.imul(ah, bh) >>> 0) + Math.floor(middle / 4294967296);
  R[0] = (high32(ah, bh) + Math.floor(upper / 4294967296)) ^ middle;
  R[1] = upper ^ Math.imul(al, bl);
}

/** h · n >> 64 for an n of 32 bits: scales a hash to 0 … n − 1. */
function scale(h, l, n) {
  const carried = (Math.imul(h, n) >>> 0) + (high32(l, n) >>> 0) > 0xffffffff ? 1 : 0;
  return (high32(h, n) + carried) >>> 0;
}

/** MurmurHash3's finaliser. */
function remix(h, l) {
  l ^= h >>> 1; // h ^= h >> 33
  mul(h, l, 0xff51afd7, 0xed558ccd);
  h = R[0];
  l = R[1] ^ (h >>> 1);
  mul(h, l, 0xc4ceb9fe, 0x1a85ec53);
  R[1] ^= R[0] >>> 1;
}

/** Another hash of the same key. */
function second(h, l) {
  remix(h ^ 0x9e6c63d0, l ^ 0x876a3f6b);
}

// ---- Hashes: of the first `length` bytes of a view, with a seed of 64 bits (siphash: and 64 more)

const pairs = (text) => Uint8Array.from(text.match(/../g) ?? [], (two) => parseInt(two, 16));
const SECRET = pairs(
  "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221" +
  "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8" +
  "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb" +
  "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e",
);
const K = new DataView(SECRET.buffer);
const BLOCK = 1024, STRIPE = 64, LAST = 192 - STRIPE;

function avalanche64(h, l) { // XXH64's
  l ^= h >>> 1;
  mul(h, l, 0xc2b2ae3d, 0x27d4eb4f);
  h = R[0];
  l = R[1] ^ ((h << 3) | (R[1] >>> 29));
  h ^= h >>> 29;
  mul(h, l, 0x165667b1, 0x9e3779f9);
  R[1] ^= R[0];
}

function avalanche(h, l) { // XXH3's
  l ^= h >>> 5;
  mul(h, l, 0x16566791, 0x9e3779f9);
  R[1] ^= R[0];
}

/** Sixteen bytes at `at`, with sixteen of the secret, added to a sum. */
function mix(view, at, k, sh, sl, sumh, suml) {
  add(K.getInt32(k + 4, true), K.getInt32(k, true), sh, sl);
  const ah = R[0] ^ view.getInt32(at + 4, true), al = R[1] ^ view.getInt32(at, true);
  subtract(K.getInt32(k + 12, true), K.getInt32(k + 8, true), sh, sl);
  fold(ah, al, R[0] ^ view.getInt32(at + 12, true), R[1] ^ view.getInt32(at + 8, true));
  add(R[0], R[1], sumh, suml);
}

/** The same by the secret of a seed, which has what `mix` computes at each multiple of sixteen bytes. */
function mixSeeded(view, at, words, k, sumh, suml) {
  fold(
    words[k + 1] ^ view.getInt32(at + 4, true), words[k] ^ view.getInt32(at, true),
    words[k + 3] ^ view.getInt32(at + 12, true), words[k + 2] ^ view.getInt32(at + 8, true),
  );
  add(R[0], R[1], sumh, suml);
}

const swap = (n) => ((n & 0xff) << 24) | ((n & 0xff00) << 8) | ((n >>> 8) & 0xff00) | (n >>> 24);

function xxh3(view, length, sh, sl) {
  if (length <= 16) return xxh3Short(view, length, sh, sl);
  if (length > 240) return xxh3Long(view, length, sh, sl);
  mul(0x9e3779b1, 0x85ebca87, 0, length);
  if (length <= 128) {
    const sumh = R[0], suml = R[1], words = secretOf(sh, sl).words;
    R[0] = sumh;
    R[1] = suml;
    for (let i = ((length - 1) >>> 5); i >= 0; i--) { // pairs from the middle to both ends
      mixSeeded(view, 16 * i, words, 8 * i, R[0], R[1]);
      mixSeeded(view, length - 16 * (i + 1), words, 8 * i + 4, R[0], R[1]);
    }
    return avalanche(R[0], R[1]);
  }
  for (let i = 0; i < 8; i++) mix(view, 16 * i, 16 * i, sh, sl, R[0], R[1]);
  avalanche(R[0], R[1]);
  for (let i = 8; i < length >>> 4; i++) mix(view, 16 * i, 16 * (i - 8) + 3, sh, sl, R[0], R[1]);
  mix(view, length - 16, 136 - 17, sh, sl, R[0], R[1]);
  avalanche(R[0], R[1]);
}

function xxh3Short(view, length, sh, sl) {
  if (length > 8) {
    add(K.getInt32(28, true) ^ K.getInt32(36, true), K.getInt32(24, true) ^ K.getInt32(32, true), sh, sl);
    const ah = R[0] ^ view.getInt32(4, true), al = R[1] ^ view.getInt32(0, true);
    subtract(K.getInt32(44, true) ^ K.getInt32(52, true), K.getInt32(40, true) ^ K.getInt32(48, true), sh, sl);
    const bh = R[0] ^ view.getInt32(length - 4, true), bl = R[1] ^ view.getInt32(length - 8, true);
    fold(ah, al, bh, bl);
    add(R[0], R[1], swap(al), swap(ah));
    add(R[0], R[1], bh, bl);
    add(R[0], R[1], 0, length);
    return avalanche(R[0], R[1]);
  }
  if (length >= 4) {
    subtract(
      K.getInt32(12, true) ^ K.getInt32(20, true), K.getInt32(8, true) ^ K.getInt32(16, true), sh ^ swap(sl), sl,
    );
    const h = R[0] ^ view.getInt32(0, true), l = R[1] ^ view.getInt32(length - 4, true);
    // h ^= rotl(h, 49) ^ rotl(h, 24)
    mul(
      h ^ ((l << 17) | (h >>> 15)) ^ ((h << 24) | (l >>> 8)),
      l ^ ((h << 17) | (l >>> 15)) ^ ((l << 24) | (h >>> 8)),
      0x9fb21c65, 0x1e98df25,
    );
    const high = R[0];
    mul(high, R[1] ^ ((high >>> 3) + length), 0x9fb21c65, 0x1e98df25); // (h >> 35) + length has 32 bits
    const top = R[0];
    R[0] = top ^ (top >>> 28);
    R[1] ^= (top << 4) | (R[1] >>> 28);
    return;
  }
  if (length > 0) {
    const first = view.getUint8(0), middle = view.getUint8(length >> 1), last = view.getUint8(length - 1);
    add(0, K.getInt32(0, true) ^ K.getInt32(4, true), sh, sl);
    return avalanche64(R[0], R[1] ^ ((first << 16) | (middle << 24) | last | (length << 8)));
  }
  avalanche64(
    sh ^ K.getInt32(60, true) ^ K.getInt32(68, true), sl ^ K.getInt32(56, true) ^ K.getInt32(64, true),
  );
}

/** The secret that a seed makes of the published one, and its seed. */
class SeededSecret {
  constructor(sh, sl) {
    this.high = sh;
    this.low = sl;
    this.view = new DataView(new ArrayBuffer(192));
    this.words = new Int32Array(this.view.buffer); // every browser is little-endian
    for (let at = 0; at < 192; at += 16) {
      add(K.getInt32(at + 4, true), K.getInt32(at, true), sh, sl);
      this.view.setInt32(at + 4, R[0], true);
      this.view.setInt32(at, R[1], true);
      subtract(K.getInt32(at + 12, true), K.getInt32(at + 8, true), sh, sl);
      this.view.setInt32(at + 12, R[0], true);
      this.view.setInt32(at + 8, R[1], true);
    }
  }
}

let secret = new SeededSecret(0, 0); // of the seed that was used last

function secretOf(sh, sl) {
  if (sh !== secret.high || sl !== secret.low) secret = new SeededSecret(sh, sl);
  return secret;
}

function xxh3Long(view, length, sh, sl) {
  const secret = secretOf(sh, sl).view;
  const high = Int32Array.of(0, 0x9e3779b1, 0xc2b2ae3d, 0x165667b1, 0x85ebca77, 0, 0x27d4eb2f, 0);
  const low = Int32Array.of(
    0xc2b2ae3d, 0x85ebca87, 0x27d4eb4f, 0x9e3779f9, 0xc2b2ae63, 0x85ebca77, 0x165667c5, 0x9e3779b1,
  );
  const stripe = (at, k) => {
    for (let i = 0; i < 8; i++) {
      const vh = view.getInt32(at + 8 * i + 4, true), vl = view.getInt32(at + 8 * i, true);
      const kh = vh ^ secret.getInt32(k + 8 * i + 4, true), kl = vl ^ secret.getInt32(k + 8 * i, true);
      add(high[i ^ 1], low[i ^ 1], vh, vl);
      high[i ^ 1] = R[0];
      low[i ^ 1] = R[1];
      add(high[i], low[i], high32(kh, kl), Math.imul(kh, kl));
      high[i] = R[0];
      low[i] = R[1];
    }
  };
  let at = 0;
  for (; at + BLOCK < length; at += BLOCK) {
    for (let i = 0; i < 16; i++) stripe(at + STRIPE * i, 8 * i);
    for (let i = 0; i < 8; i++) {
      const h = high[i], l = low[i] ^ (h >>> 15); // acc ^= acc >> 47
      mul(h ^ secret.getInt32(LAST + 8 * i + 4, true), l ^ secret.getInt32(LAST + 8 * i, true), 0, 0x9e3779b1);
      high[i] = R[0];
      low[i] = R[1];
    }
  }
  const stripes = Math.floor((length - 1 - at) / STRIPE);
  for (let i = 0; i < stripes; i++) stripe(at + STRIPE * i, 8 * i);
  stripe(length - STRIPE, LAST - 7);
  mul(0x9e3779b1, 0x85ebca87, Math.floor(length / 4294967296), length);
  for (let i = 0; i < 4; i++) {
    const sumh = R[0], suml = R[1], k = 11 + 16 * i;
    fold(
      high[2 * i] ^ secret.getInt32(k + 4, true), low[2 * i] ^ secret.getInt32(k, true),
      high[2 * i + 1] ^ secret.getInt32(k + 12, true), low[2 * i + 1] ^ secret.getInt32(k + 8, true),
    );
    add(R[0], R[1], sumh, suml);
  }
  avalanche(R[0], R[1]);
}

/** MurmurHash3 x64 128, its first half. */
function murmur3(view, length, sh, sl) {
  let ah = sh, al = sl, bh = sh, bl = sl;
  const one = (h, l) => { // k1
    mul(h, l, 0x87c37b91, 0x114253d5);
    mul((R[0] << 31) | (R[1] >>> 1), (R[1] << 31) | (R[0] >>> 1), 0x4cf5ad43, 0x2745937f);
    ah ^= R[0];
    al ^= R[1];
  };
  const two = (h, l) => { // k2
    mul(h, l, 0x4cf5ad43, 0x2745937f);
    mul((R[1] << 1) | (R[0] >>> 31), (R[0] << 1) | (R[1] >>> 31), 0x87c37b91, 0x114253d5);
    bh ^= R[0];
    bl ^= R[1];
  };
  const whole = length & ~15;
  for (let at = 0; at < whole; at += 16) {
    one(view.getInt32(at + 4, true), view.getInt32(at, true));
    add((ah << 27) | (al >>> 5), (al << 27) | (ah >>> 5), bh, bl);
    mul(R[0], R[1], 0, 5);
    add(R[0], R[1], 0, 0x52dce729);
    ah = R[0];
    al = R[1];
    two(view.getInt32(at + 12, true), view.getInt32(at + 8, true));
    add((bh << 31) | (bl >>> 1), (bl << 31) | (bh >>> 1), ah, al);
    mul(R[0], R[1], 0, 5);
    add(R[0], R[1], 0, 0x38495ab5);
    bh = R[0];
    bl = R[1];
  }
  if (length > whole) {
    const words = [0, 0, 0, 0];
    for (let i = whole; i < length; i++) words[(i - whole) >> 2] |= view.getUint8(i) << (8 * ((i - whole) & 3));
    two(words[3], words[2]);
    one(words[1], words[0]);
  }
  al ^= length;
  bl ^= length;
  add(ah, al, bh, bl);
  ah = R[0];
  al = R[1];
  add(bh, bl, ah, al);
  remix(R[0], R[1]);
  bh = R[0];
  bl = R[1];
  remix(ah, al);
  add(R[0], R[1], bh, bl);
}

/** FNV-1a, and a remix. */
function fnv1a(view, length, sh, sl) {
  let h = 0xcbf29ce4 ^ sh, l = 0x84222325 ^ sl;
  for (let i = 0; i < length; i++) {
    mul(h, l ^ view.getUint8(i), 0x100, 0x1b3);
    h = R[0];
    l = R[1];
  }
  remix(h, l);
}

/** SipHash-1-3. */
function siphash(view, length, sh, sl, th, tl) {
  const v = Int32Array.of(
    sh ^ 0x736f6d65, sl ^ 0x70736575, th ^ 0x646f7261, tl ^ 0x6e646f6d,
    sh ^ 0x6c796765, sl ^ 0x6e657261, th ^ 0x74656462, tl ^ 0x79746573,
  );
  const sum = (a, b) => {
    add(v[a], v[a + 1], v[b], v[b + 1]);
    v[a] = R[0];
    v[a + 1] = R[1];
  };
  const turn = (a, bits, b) => { // rotate by fewer than 32, and XOR
    const h = v[a], l = v[a + 1];
    v[a] = ((h << bits) | (l >>> (32 - bits))) ^ v[b];
    v[a + 1] = ((l << bits) | (h >>> (32 - bits))) ^ v[b + 1];
  };
  const half = (a) => { // rotate by 32
    const h = v[a];
    v[a] = v[a + 1];
    v[a + 1] = h;
  };
  const round = () => {
    sum(0, 2); turn(2, 13, 0); half(0);
    sum(4, 6); turn(6, 16, 4);
    sum(0, 6); turn(6, 21, 0);
    sum(4, 2); turn(2, 17, 4); half(4);
  };
  const take = (h, l) => {
    v[6] ^= h;
    v[7] ^= l;
    round();
    v[0] ^= h;
    v[1] ^= l;
  };
  const whole = length & ~7;
  for (let at = 0; at < whole; at += 8) take(view.getInt32(at + 4, true), view.getInt32(at, true));
  const rest = [0, length << 24];
  for (let i = whole; i < length; i++) rest[(i - whole) >> 2] |= view.getUint8(i) << (8 * ((i - whole) & 3));
  take(rest[1], rest[0]);
  v[5] ^= 0xff;
  round();
  round();
  round();
  R[0] = v[0] ^ v[2] ^ v[4] ^ v[6];
  R[1] = v[1] ^ v[3] ^ v[5] ^ v[7];
}

const HASHERS = [undefined, ["xxh3", xxh3], ["murmur3", murmur3], ["fnv1a", fnv1a], ["siphash", siphash]];

// ---- Keys: what they are as bytes, and in which domain

const BYTES = 0, INT = 1, TUPLE = 2, UUID = 3, INSTANT = 4, CLOCK_TIME = 5;
const encoder = new TextEncoder();
let buffer = new Uint8Array(1 << 12), view = new DataView(buffer.buffer), size = 0;

function room(bytes) {
  if (bytes <= buffer.length) return;
  if (bytes > 1 << 30) throw new TypeError("a key of more than 2^30 bytes");
  buffer = new Uint8Array(2 ** Math.ceil(Math.log2(bytes)));
  view = new DataView(buffer.buffer);
}

/** A key of a sort that JavaScript has no type for. */
class Special {
  constructor(domain, bytes) {
    this.domain = domain;
    this.bytes = bytes;
  }
}

/** A UUID as a key, from its text. */
export function uuid(text) {
  const digits = String(text).replace(/[-{}]|^urn:uuid:/gi, "");
  if (!/^[0-9a-f]{32}$/i.test(digits)) throw new TypeError(`${text} is no UUID`);
  return new Special(UUID, pairs(digits));
}

const microseconds = (count) => {
  if (BigInt.asIntN(64, count) !== count) throw new TypeError("a time beyond 64 bits");
  const bytes = new DataView(new ArrayBuffer(8));
  bytes.setBigInt64(0, count, true);
  return new Uint8Array(bytes.buffer);
};

/** An instant as a key, in microseconds since 1970-01-01 UTC, a BigInt; a Date is one too, to its millisecond. */
export const instant = (count) => new Special(INSTANT, microseconds(BigInt(count)));

/** A date and time without a time zone as a key, in microseconds since 1970-01-01 on its own clock. */
export const clockTime = (count) => new Special(CLOCK_TIME, microseconds(BigInt(count)));

/** Writes a key's bytes into `buffer`, and their number into `size`; its domain. */
function encode(key, depth = 0) {
  switch (typeof key) {
    case "string": {
      const length = key.length;
      if (3 * length > buffer.length) room(3 * length);
      const out = buffer;
      for (let i = 0; i < length; i++) {
        const code = key.charCodeAt(i);
        if (code > 127) return encodeText(key);
        out[i] = code;
      }
      size = length;
      return BYTES;
    }
    case "number":
      if (!Number.isSafeInteger(key)) throw new TypeError(`${key} is no key: give a BigInt, or a text`);
      view.setInt32(0, key, true);
      view.setInt32(4, Math.floor(key / 4294967296), true);
      size = 8;
      return INT;
    case "bigint":
      return encodeInt(key);
    case "boolean":
      return encode(Number(key)); // as Python has it
  }
  if (key instanceof Uint8Array || key instanceof ArrayBuffer) {
    const bytes = key instanceof ArrayBuffer ? new Uint8Array(key) : key;
    room(bytes.length);
    buffer.set(bytes);
    size = bytes.length;
    return BYTES;
  }
  if (key instanceof Special) {
    buffer.set(key.bytes);
    size = key.bytes.length;
    return key.domain;
  }
  if (key instanceof Date) return encode(instant(BigInt(key.getTime()) * 1000n));
  if (Array.isArray(key)) return encodeTuple(key, depth);
  const type = key === null ? "null" : key?.constructor?.name ?? typeof key;
  throw new TypeError(`${type} is no key: give a string, Uint8Array, integer, BigInt, Date or an array of these`);
}

function encodeText(text) {
  const { written } = encoder.encodeInto(text, buffer);
  // The encoder writes U+FFFD for what is no character: then look whether there is such.
  for (let i = 0; i + 2 < written; i++) {
    if (buffer[i] === 0xef && buffer[i + 1] === 0xbf && buffer[i + 2] === 0xbd) {
      if (/\p{Surrogate}/u.test(text)) throw new TypeError("a text with a lone surrogate has no UTF-8");
      break;
    }
  }
  size = written;
  return BYTES;
}

function encodeInt(value) {
  if (BigInt.asIntN(64, value) === value) {
    view.setBigInt64(0, value, true);
    size = 8;
    return INT;
  }
  const magnitude = (value < 0n ? -value : value).toString(16);
  const bits = 4 * magnitude.length - Math.clz32(parseInt(magnitude[0], 16)) + 28;
  size = Math.floor(bits / 8) + 1;
  room(size);
  const digits = BigInt.asUintN(8 * size, value).toString(16).padStart(2 * size, "0");
  for (let i = 0; i < size; i++) buffer[size - 1 - i] = parseInt(digits.slice(2 * i, 2 * i + 2), 16);
  return INT;
}

function encodeTuple(parts, depth) {
  if (depth >= 64) throw new TypeError("a key of more than 64 arrays in each other");
  const pieces = [];
  let total = 0;
  for (const part of parts) {
    const piece = new Uint8Array(5 + (encodePart(part, depth + 1), size));
    piece[0] = lastDomain;
    new DataView(piece.buffer).setUint32(1, size, true);
    piece.set(buffer.subarray(0, size), 5);
    pieces.push(piece);
    total += piece.length;
  }
  room(total);
  size = 0;
  for (const piece of pieces) {
    buffer.set(piece, size);
    size += piece.length;
  }
  return TUPLE;
}

let lastDomain = 0;
const encodePart = (part, depth) => (lastDomain = encode(part, depth));

const TAG = [0, 1, 2, 3, 4, 5].map((domain) => BigInt.asUintN(64, BigInt(domain) * 0x9e3779b97f4a7c15n));
const TAG_HIGH = Int32Array.from(TAG, (tag) => Number(BigInt.asIntN(32, tag >> 32n)));
const TAG_LOW = Int32Array.from(TAG, (tag) => Number(BigInt.asIntN(32, tag)));

// ---- Files

const HEADER = 128, CHUNK = 1 << 20;
const MAX_BYTES = 2 ** 29 - 64; // so that bits have numbers of 32 bits
const KINDS = [
  undefined, "bloom", "scalable", "counting", "deletable", "cuckoo", "rotating", "static", "bank", "redisbloom",
  "rediscuckoo", "signatures", "exact",
];

const ones = (low) => low === -1 || low === 0xffffffff;

/** The checksum of a body: of chunks, each seeded with the sum before it. */
function checksum(bytes) {
  R[0] = R[1] = 0;
  for (let at = 0; at < bytes.byteLength; at += CHUNK) {
    const length = Math.min(CHUNK, bytes.byteLength - at);
    xxh3(new DataView(bytes.buffer, bytes.byteOffset + at, length), length, R[0], R[1]);
    if (ones(R[0]) && ones(R[1])) R[1] = -2;
  }
}

/** A header, as far as it is the same for all kinds, checked. */
function readHeader(bytes) {
  const magic = String.fromCharCode(...bytes.subarray(0, 8));
  if (bytes.length >= 8 && magic !== "BLOOMERY") {
    throw corrupt(`not a bloomery file: it begins with ${JSON.stringify(magic)}, expected "BLOOMERY"`);
  }
  if (bytes.length < HEADER) {
    throw corrupt(`too short: ${bytes.length} bytes, a saved filter has at least ${HEADER}`);
  }
  const head = new DataView(bytes.buffer, bytes.byteOffset, HEADER);
  const newer = (message) => new BloomeryError(message, "unsupported-version");
  if (head.getUint16(8, true) !== 1) {
    throw newer(`format version ${head.getUint16(8, true)}, this module reads version 1`);
  }
  xxh3(head, 112, 0, 0);
  if (R[0] !== head.getInt32(116, true) || R[1] !== head.getInt32(112, true)) throw corrupt("damaged header");
  const kind = KINDS[head.getUint8(10)], hasher = HASHERS[head.getUint8(12)];
  if (kind === undefined) throw newer(`filter kind ${head.getUint8(10)}, this module knows kinds 1 to 12`);
  if (hasher === undefined) throw newer(`unknown hasher ${head.getUint8(12)}`);
  const word = (at) => Number(head.getBigUint64(at, true)); // exact below 2^53; above it, beyond every limit
  const header = {
    kind,
    hasher: hasher[0],
    hash: hasher[1],
    layout: head.getUint8(11),
    linesPerKey: head.getUint8(13),
    numHashes: head.getUint16(14, true),
    numBits: word(16),
    capacity: word(24),
    errorRate: head.getFloat64(32, true),
    seed: [44, 40, 52, 48].map((at) => head.getInt32(at, true)), // high and low of each half
    nbytes: word(56),
    extra: [0, 1, 2, 3, 4, 5].map((i) => word(64 + 8 * i)),
    words: [0, 1, 2, 3, 4, 5].map((i) => head.getBigUint64(64 + 8 * i, true)),
    live: ones(head.getInt32(120, true)) && ones(head.getInt32(124, true)),
    sum: [head.getInt32(124, true), head.getInt32(120, true)],
  };
  if (header.hasher !== "siphash" && (header.seed[2] || header.seed[3])) throw corrupt("a seed of more than 64 bits");
  if (header.capacity < 1) throw corrupt("capacity is 0, must be at least 1");
  if (!(header.errorRate > 0 && header.errorRate < 1)) throw corrupt(`error_rate is ${header.errorRate}`);
  return header;
}

const check = (right, what) => {
  if (!right) throw corrupt(what);
};
const lines = (bytes) => Math.ceil(bytes / 64) * 64;

/** Whether all bits of some 32-bit words from one on are 0. */
function clearFrom(words, bit) {
  if (bit & 31 && words[bit >>> 5] >>> (bit & 31)) return false;
  for (let i = (bit + 31) >>> 5; i < words.length; i++) if (words[i]) return false;
  return true;
}

/** Plain, in the blocked layout: all bits of a key in one line of 64 bytes, or two. */
class Blocked {
  constructor(header, words) {
    const { linesPerKey, numHashes, numBits, nbytes } = header;
    check(numBits % 512 === 0 && numBits >= 512 && nbytes === numBits / 8, `${numBits} bits in ${nbytes} bytes`);
    check(linesPerKey === 1 || linesPerKey === 2, `${linesPerKey} lines a key, must be 1 or 2`);
    this.draws = numHashes / linesPerKey / 2; // in each half of a line
    check(Number.isInteger(this.draws) && this.draws >= 1 && this.draws <= 8, `${numHashes} hashes`);
    Object.assign(this, { words, lines: numBits / 512, twice: linesPerKey === 2 });
  }

  contains(h, l) {
    if (!this.line(h, l)) return false;
    if (!this.twice) return true;
    second(h, l);
    return this.line(R[0], R[1]);
  }

  line(h, l) {
    const { words } = this, at = scale(h, l, this.lines) * 16;
    mul(h, l, 0xd6e8feb8, 0x6659fd93);
    add(R[0], R[1], 0x9e6c63d0, 0x876a3f6b);
    let high = R[0], low = R[1];
    for (let i = 0; i < this.draws; i++) {
      if (i === 4) {
        mul(high, low ^ high, 0xa0761d64, 0x78bd642f);
        high = R[0];
        low = R[1];
      }
      const shift = 24 - 8 * (i & 3), one = (low >>> shift) & 255, other = (high >>> shift) & 255;
      if (!((words[at + (one & 7)] >>> (one >>> 3)) & 1)) return false;
      if (!((words[at + 8 + (other & 7)] >>> (other >>> 3)) & 1)) return false;
    }
    return true;
  }
}

/** Plain, in the classic layout: bits anywhere. */
class Classic {
  constructor(header, words) {
    const { linesPerKey, numHashes, numBits, nbytes } = header;
    check(numBits >= 1 && nbytes === Math.ceil(numBits / 512) * 64, `${numBits} bits in ${nbytes} bytes`);
    check(linesPerKey === 0 && numHashes >= 1 && numHashes <= 64, `${numHashes} hashes, ${linesPerKey} lines`);
    check(clearFrom(words, numBits), "bits are set after the last one");
    Object.assign(this, { words, numBits, numHashes });
  }

  contains(h, l) {
    second(h, l);
    let stepHigh = R[0], stepLow = R[1] | 1;
    for (let i = 1; i <= this.numHashes; i++) {
      const position = scale(h, l, this.numBits);
      if (!((this.words[position >>> 5] >>> (position & 31)) & 1)) return false;
      add(h, l, stepHigh, stepLow);
      h = R[0];
      l = R[1];
      mul(0x9e3779b9, 0x7f4a7c14, 0, i);
      add(R[0], R[1], stepHigh, stepLow);
      stepHigh = R[0];
      stepLow = R[1];
    }
    return true;
  }
}

/** One level of a static filter or an exact set: three cells of a key, which come to its fingerprint. */
class Level {
  constructor(words, cells, width, reach, attempt) {
    check(width >= 1 && width <= 40, `fingerprints of ${width} bits, must be 1 to 40`);
    check(reach >= 1 && reach <= 2 ** 18 && Number.isInteger(Math.log2(reach)), `a reach of ${reach}`);
    check(cells > 3 * reach && Number.isInteger(cells), `${cells} cells, must be more than 3 times ${reach}`);
    check(words.length * 4 === lines(Math.floor((cells * width) / 8) + 8), `${cells} cells of ${width} bits`);
    check(clearFrom(words, cells * width), "bits are set after the last cell");
    const high = Number(BigInt.asIntN(32, attempt >> 32n)), low = Number(BigInt.asIntN(32, attempt));
    Object.assign(this, { words, cells, width, reach, starts: cells - 3 * reach, mixed: attempt !== 0n, high, low });
    this.mask = width >= 32 ? -1 : 2 ** width - 1;
  }

  passes(h, l) {
    if (this.mixed) {
      remix(h ^ this.high, l ^ this.low);
      h = R[0];
      l = R[1];
    }
    const { reach, width } = this, near = reach - 1, first = scale(h, l, this.starts);
    const middle = first + reach + (l & near);
    const last = first + 2 * reach + (((l >>> 18) | (h << 14)) & near);
    const sum = this.low32(first * width) ^ this.low32(middle * width) ^ this.low32(last * width) ^ l ^ h;
    if (sum & this.mask) return false;
    if (width <= 32) return true;
    // The fingerprint is x ^ (x >> 32): its high half is that of x.
    const upper = this.low32(first * width + 32) ^ this.low32(middle * width + 32) ^ this.low32(last * width + 32);
    return ((upper ^ h) & (2 ** (width - 32) - 1)) === 0;
  }

  /** 32 bits from a bit on. */
  low32(bit) {
    const at = Math.floor(bit / 32), shift = bit & 31;
    return shift ? (this.words[at] >>> shift) | (this.words[at + 1] << (32 - shift)) : this.words[at];
  }
}

class Static {
  constructor(header, words) {
    const { layout, linesPerKey, numHashes, numBits, extra, capacity } = header;
    const [count, , width, reach, ...spare] = extra;
    check(!layout && !linesPerKey && numHashes === 3 && !spare[0] && !spare[1], "not as a static filter is");
    this.level = new Level(words, numBits / width, width, reach, header.words[1]);
    check(count <= this.level.cells && capacity === Math.max(1, count), `${count} keys, a capacity of ${capacity}`);
    this.count = count;
  }

  contains(h, l) {
    return this.count > 0 && this.level.passes(h, l);
  }
}

class Exact {
  constructor(header, words) {
    const { layout, linesPerKey, numHashes, numBits, extra, capacity } = header;
    const [members, nonMembers, shape, , , cells] = extra;
    check(layout <= 1 && linesPerKey === 0 && numHashes === 3 && shape < 2 ** 32, "not as an exact set is");
    const width = shape & 255, reach = (shape >>> 8) & 255, secondReach = (shape >>> 16) & 255;
    check(reach <= 18 && secondReach <= 18, "a reach of more than 2^18");
    check(capacity === Math.max(1, members), `${members} members and a capacity of ${capacity}`);
    const bits = cells * width, bytes = width ? lines(Math.floor(bits / 8) + 8) : 0;
    check(bits <= numBits && bytes <= words.length * 4, `${cells} cells of ${width} bits`);
    this.first = null;
    if (width) this.first = new Level(words.subarray(0, bytes / 4), cells, width, 2 ** reach, header.words[3]);
    else check(reach === 0 && cells === 0 && header.words[3] === 0n, "a first level without fingerprints");
    this.second = new Level(words.subarray(bytes / 4), numBits - bits, 1, 2 ** secondReach, header.words[4]);
    this.inverted = layout === 1;
    this.held = this.inverted ? nonMembers : members;
    check(this.held <= this.second.cells && (!width || this.held <= cells), `${this.held} keys are too many`);
    Object.assign(this, { members, nonMembers });
  }

  contains(h, l) {
    const held = this.held > 0 && (this.first === null || this.first.passes(h, l)) && this.second.passes(h, l);
    return held !== this.inverted;
  }
}

/** Lines of cells: counters, or bits in regions. */
class Cells {
  constructor(header, words) {
    const { layout, linesPerKey, numHashes, numBits, nbytes, extra, kind } = header;
    const [size] = extra;
    check(layout === 0 && nbytes >= 64 && numBits === 8 * nbytes, `${numBits} bits in ${nbytes} bytes`);
    check(linesPerKey === 1 || linesPerKey === 2, `${linesPerKey} lines a key, must be 1 or 2`);
    this.draws = numHashes / linesPerKey;
    check(Number.isInteger(this.draws) && this.draws >= 1 && this.draws <= 16, `${numHashes} hashes`);
    check((kind === "counting" ? [4, 8] : [16, 32, 64, 128]).includes(size), `cells or regions of ${size}`);
    check(extra.slice(1).every((word) => word === 0), "numbers that have no meaning");
    Object.assign(this, { words, lines: nbytes / 64, twice: linesPerKey === 2, counters: kind === "counting", size });
    this.cells = this.counters ? 512 / size : 512 - size;
  }

  contains(h, l) {
    if (!this.line(h, l)) return false;
    if (!this.twice) return true;
    second(h, l);
    return this.line(R[0], R[1]);
  }

  line(h, l) {
    const { words, size } = this, at = scale(h, l, this.lines) * 16;
    mul(h, l, 0xd6e8feb8, 0x6659fd93);
    add(R[0], R[1], 0x9e6c63d0, 0x876a3f6b);
    let high = R[0], low = R[1];
    for (let i = 0; i < this.draws; i++) {
      if (i && !(i & 3)) {
        mul(high, low ^ high, 0xa0761d64, 0x78bd642f);
        high = R[0];
        low = R[1];
      }
      const draw = [high >>> 16, high & 0xffff, low >>> 16, low & 0xffff][i & 3];
      const cell = Math.floor((draw * this.cells) / 65536);
      let bit = cell * size, mask = 2 ** size - 1;
      if (!this.counters) [bit, mask] = [cell + Math.floor(cell / (512 / size - 1)), 1];
      if (!((words[at + (bit >>> 5)] >>> (bit & 31)) & mask)) return false;
    }
    return true;
  }
}

/** A table of fingerprints: scalable, cuckoo and rotating filters. By BigInt: there is no hurry here. */
class Table {
  constructor(header, words) {
    const { kind, layout: perPair, linesPerKey, numHashes, numBits, nbytes } = header;
    const word = header.words[0], M = (bits) => (1n << bits) - 1n;
    const buckets = word & M(48n), tag = (word >> 48n) & M(6n), stream = (word >> 54n) & M(5n), mark = word >> 59n;
    const grows = perPair !== 8, width = grows ? mark + tag + stream + 1n : tag;
    check(perPair >= 8 && perPair <= 16 && linesPerKey === 2 && numHashes === 2, "not as a table is");
    check(buckets >= 2n && buckets % 2n === 0n && buckets <= 2n ** 40n, `${buckets} buckets`);
    check(grows ? !(buckets & (buckets - 1n)) : !stream && !mark, "not as a table is");
    check(grows ? tag >= 4n && tag <= 28n && stream >= 1n && stream <= 24n : tag >= 2n && tag <= 50n, `tags of ${tag}`);
    check(width <= 56n && (kind === "cuckoo" || grows) && (kind === "rotating" || !mark), "not as this kind is");
    const slots = (buckets / 2n) * BigInt(perPair);
    check(BigInt(numBits) === slots * width, `${numBits} bits for ${slots} slots`);
    check(nbytes === lines(Math.ceil(numBits / 8) + 8), `${numBits} bits in ${nbytes} bytes`);
    check(header.extra[1] <= slots, "more entries than slots");
    Object.assign(this, { buckets, tag, stream, mark, width, grows, perPair });
    this.bytes = new DataView(words.buffer, words.byteOffset, words.byteLength);
    this.level = BigInt(buckets.toString(2).length - 1);
    if (kind === "rotating") this.rotate(header);
  }

  rotate(header) {
    const last = header.words[5], generations = Number(last & 255n), current = (last >> 8n) & 255n;
    const doubles = new DataView(new ArrayBuffer(16));
    doubles.setBigUint64(0, header.words[3], true);
    doubles.setBigUint64(8, header.words[4], true);
    const window = doubles.getFloat64(0, true), start = doubles.getFloat64(8, true);
    check(generations >= 1 && generations <= 254, `${generations} generations`);
    check(this.mark === BigInt(generations.toString(2).length), `marks of ${this.mark} bits for ${generations}`);
    check(current < 1n << this.mark, "a mark that is none");
    check(window === 0 || (window >= 1e-3 && window <= 1e12), `a window of ${window} seconds`);
    check(Math.abs(start) <= 1e12, "a start beyond the years");
    Object.assign(this, { generations, current, window, start });
  }

  contains(h, l, now) {
    const hash = (BigInt(h >>> 0) << 32n) | BigInt(l >>> 0);
    return this.grows ? this.finds(hash, now) : this.holds(hash);
  }

  slot(i) {
    const bit = i * this.width, at = Number(bit >> 3n);
    return (this.bytes.getBigUint64(at, true) >> (bit & 7n)) & ((1n << this.width) - 1n);
  }

  /** The slots of a bucket. */
  *slots(bucket) {
    const odd = bucket & 1n, half = BigInt(Math.ceil(this.perPair / 2));
    const first = (bucket / 2n) * BigInt(this.perPair) + odd * half;
    const count = odd ? BigInt(this.perPair) - half : half;
    for (let i = first; i < first + count; i++) yield this.slot(i);
  }

  holds(hash) {
    const { buckets, tag: t } = this, tag = hash >> (64n - t) || 1n;
    const one = (((hash << t) | (hash >> (64n - t))) & (2n ** 64n - 1n)) * buckets >> 64n;
    const turned = ((BigInt.asUintN(64, tag * 0x9e3779b97f4a7c15n) * buckets) >> 64n) | 1n;
    const other = (((turned - one) % buckets) + buckets) % buckets;
    for (const bucket of [one, other]) for (const slot of this.slots(bucket)) if (slot === tag) return true;
    return false;
  }

  finds(hash, now) {
    const { tag: t, stream: s, level } = this, tag = hash & ((1n << t) - 1n);
    const other = hash ^ (BigInt.asUintN(64, (tag + 1n) * 0x9e3779b97f4a7c15n) | (1n << 63n));
    for (const bits of [hash, other]) {
      const rest = BigInt.asUintN(64, bits << level); // what follows the bucket's number
      for (const slot of this.slots(bits >> (64n - level))) {
        const field = slot & ((1n << (s + 1n)) - 1n);
        if (!field || ((slot >> (s + 1n)) & ((1n << t) - 1n)) !== tag) continue;
        const known = s - BigInt((field & -field).toString(2).length - 1);
        if (field >> (s + 1n - known) === rest >> (64n - known) && !this.forgotten(slot, now)) return true;
      }
    }
    return false;
  }

  forgotten(slot, now) {
    if (!this.mark) return false;
    const passed = this.window ? Math.floor(((now - this.start) * this.generations) / this.window) : 0;
    const age = BigInt.asUintN(Number(this.mark), this.current - (slot >> (this.width - this.mark)));
    return Number(age) + Math.max(0, passed) > this.generations;
  }
}

const READERS = {
  bloom: (header, words) => {
    if (header.layout === 1) return new Blocked(header, words);
    if (header.layout === 2) return new Classic(header, words);
    throw new BloomeryError(`unknown layout ${header.layout}`, "unsupported-version");
  },
  static: (header, words) => new Static(header, words),
  exact: (header, words) => new Exact(header, words),
  counting: (header, words) => new Cells(header, words),
  deletable: (header, words) => new Cells(header, words),
  scalable: (header, words) => new Table(header, words),
  cuckoo: (header, words) => new Table(header, words),
  rotating: (header, words) => new Table(header, words),
};

/** A saved filter or exact set. `contains(key)` is false: definitely not; true: maybe, or, of an exact set, it is. */
export class Filter {
  #reader;
  #header;
  #clock;

  /** Of the bytes of a file, an ArrayBuffer or Uint8Array; they are copied. `clock` tells Unix time, in seconds. */
  static open(bytes, { clock = () => Date.now() / 1000 } = {}) {
    const given = bytes instanceof Uint8Array ? bytes : new Uint8Array(bytes);
    const header = readHeader(given);
    if (!(header.kind in READERS)) {
      const message = `a file of kind ${header.kind} is not read in browsers: ask the server that has it`;
      throw new BloomeryError(message, "unsupported-kind");
    }
    if (header.nbytes > MAX_BYTES) {
      throw new BloomeryError(`${header.nbytes} bytes, more than the ${MAX_BYTES} that browsers are given`, "too-large");
    }
    if (given.length !== HEADER + header.nbytes || header.nbytes % 64) {
      throw corrupt(`${given.length} bytes in all, expected ${HEADER + header.nbytes}: cut off or overgrown`);
    }
    const body = new Uint8Array(given.subarray(HEADER)); // a copy, which is aligned and nobody else's
    if (header.live) check(header.kind === "bloom", `no checksum: a ${header.kind} filter always has one`);
    else {
      checksum(body);
      check(R[0] === header.sum[0] && R[1] === header.sum[1], "damaged bits: their checksum is another");
    }
    const filter = new Filter();
    filter.#header = header;
    filter.#clock = clock;
    filter.#reader = READERS[header.kind](header, new Uint32Array(body.buffer));
    return filter;
  }

  get kind() { return this.#header.kind; }
  get capacity() { return this.#header.capacity; }
  get errorRate() { return this.#header.errorRate; }
  get hasher() { return this.#header.hasher; }
  get nbytes() { return this.#header.nbytes; }
  /** Of an exact set: how many keys of each side it was built with. */
  get memberCount() { return this.#reader.members; }
  get nonMemberCount() { return this.#reader.nonMembers; }

  #hash(key) {
    const domain = encode(key), { seed, hash } = this.#header;
    hash(view, size, seed[0] ^ TAG_HIGH[domain], seed[1] ^ TAG_LOW[domain], seed[2], seed[3]);
  }

  /** False: the key is definitely not there. True: maybe; of an exact set and a key that it knows, certainly. */
  contains(key) {
    this.#hash(key);
    return this.#reader.contains(R[0], R[1], this.kind === "rotating" ? this.#clock() : 0);
  }

  /** The same for each of many keys. */
  containsMany(keys) {
    const answers = [];
    for (const key of keys) answers.push(this.contains(key));
    return answers;
  }

  /** The key's 64-bit hash, a BigInt. */
  hashOf(key) {
    this.#hash(key);
    return (BigInt(R[0] >>> 0) << 32n) | BigInt(R[1] >>> 0);
  }
}

// ---- Feeds

const MANIFEST = "feed.manifest", MANIFEST_BYTES = 1 << 20;
const PLAIN_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/, SHA256 = /^[0-9a-f]{64}$/;
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const sha256 = async (bytes) => hex(new Uint8Array(await subtle().digest("SHA-256", bytes)));
const fromBase64 = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
const equal = (a, b) => a.length === b.length && a.every((byte, i) => byte === b[i]);

function subtle() {
  const crypto = globalThis.crypto?.subtle;
  if (!crypto) throw new BloomeryError("signatures need a page of https, or of localhost", "insecure-context");
  return crypto;
}

/** A public key, from its text: `ed25519:` and 44 characters of base64. */
async function publicKey(text) {
  const match = /^ed25519:([A-Za-z0-9+/]{43}=)$/.exec(String(text).trim());
  if (!match) throw new BloomeryError(`${text} is no public key: must be ed25519: and base64`, "invalid-parameter");
  const raw = fromBase64(match[1]);
  const key = await subtle().importKey("raw", raw, { name: "Ed25519" }, false, ["verify"]);
  return { id: (await sha256(raw)).slice(0, 16), key };
}

/** What a manifest's bytes say, if one of these keys has signed them; else FeedRefused. */
async function unseal(data, keys) {
  if (data.length > MANIFEST_BYTES) throw new FeedRefused("the manifest has more than a mebibyte", "too-large");
  const end = data.findIndex((byte, i) => byte === 10 && data[i + 1] === 10);
  const [first, ...lines] = String.fromCharCode(...data.subarray(0, Math.min(Math.max(0, end), 4096))).split("\n");
  if (first !== "bloomery-feed 1" || lines.length < 1 || lines.length > 8) {
    throw new FeedRefused("no manifest of a feed: it must begin with 'bloomery-feed 1', signatures, an empty line");
  }
  const body = data.slice(end + 2), signers = [];
  for (const line of lines) {
    const match = /^signature ([0-9a-f]{16}) ([A-Za-z0-9+/]{86}==)$/.exec(line);
    if (!match) throw new FeedRefused(`a line of the manifest is no signature: ${line.slice(0, 32)}`);
    const signature = fromBase64(match[2]);
    signers.push(match[1]);
    if (btoa(String.fromCharCode(...signature)) !== match[2]) continue; // bits to spare that are set
    for (const { id, key } of keys) {
      if (id === match[1] && (await subtle().verify("Ed25519", key, signature, body))) return parseManifest(body);
    }
  }
  const known = keys.some(({ id }) => signers.includes(id));
  const why = known ? "the signature does not fit: forged, or damaged" : `signed by ${signers}, not trusted here`;
  throw new FeedRefused(why, "signature");
}

/** JSON in which no object has a member twice. */
function parseOnce(text) {
  const value = JSON.parse(text), open = [];
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"(?:\s*:)?|[{}[\]]/g)) {
    if (token === "{" || token === "[") open.push(new Set());
    else if (token === "}" || token === "]") open.pop();
    else if (token.endsWith(":")) {
      const name = JSON.parse(token.slice(0, -1)), names = open.at(-1);
      if (names.has(name)) throw new SyntaxError(`${name} is there twice`);
      names.add(name);
    }
  }
  return value;
}

function parseManifest(body) {
  let members;
  try {
    members = parseOnce(utf8.decode(body));
  } catch (problem) {
    throw new FeedRefused(`the manifest's body is not JSON: ${problem.message.slice(0, 100)}`);
  }
  const need = (right, what) => {
    if (!right) throw new FeedRefused(`the manifest's ${what} is not as it must be`);
  };
  const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
  const file = (of, names = []) => {
    need(isObject(of), "file");
    need(PLAIN_NAME.test(of.name) && typeof of.name === "string", "file name");
    need(Number.isSafeInteger(of.size) && of.size >= 1, "file size");
    for (const name of ["sha256", ...names]) need(typeof of[name] === "string" && SHA256.test(of[name]), name);
    return of;
  };
  need(isObject(members) && members.format === "bloomery-feed/1", "format");
  const { feed, version, published, expires, kind, full, deltas } = members;
  need(typeof feed === "string" && PLAIN_NAME.test(feed), "feed");
  need(typeof kind === "string" && PLAIN_NAME.test(kind), "kind");
  need(Number.isSafeInteger(version) && version >= 1, "version");
  need(Number.isSafeInteger(published) && published >= 0, "published");
  need(Number.isSafeInteger(expires) && expires > published, "expires");
  need(Array.isArray(deltas) && deltas.length <= 64, "deltas");
  file(full);
  deltas.forEach((delta, i) => {
    file(delta, ["base", "result"]);
    need(Number.isSafeInteger(delta.result_size) && delta.result_size >= 1, "result_size");
    need(delta.result === (i + 1 < deltas.length ? deltas[i + 1].base : full.sha256), "chain of deltas");
  });
  return { feed, version, published, expires, kind, full, deltas, body };
}

/** The deltas that lead from a file to the full one, if they are smaller than that. */
function chainFrom(manifest, hash) {
  const start = manifest.deltas.findLastIndex((delta) => delta.base === hash);
  const chain = start < 0 ? [] : manifest.deltas.slice(start);
  return chain.reduce((sum, delta) => sum + delta.size, 0) < manifest.full.size ? chain : [];
}

const damaged = (message) => new FeedRefused(message, "damaged");

/** All bytes of a stream, if there are no more than so many; null if there are. */
async function readAtMost(stream, most) {
  const reader = stream.getReader(), pieces = [];
  let total = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    total += value.length;
    if (total > most) {
      reader.cancel().catch(() => {});
      return null;
    }
    pieces.push(value);
  }
  const all = new Uint8Array(total);
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

/** What a delta makes of a file. */
async function applyDelta(data, base, expected) {
  const head = new DataView(data.buffer, data.byteOffset, data.length);
  if (data.length < 40 || String.fromCharCode(...data.subarray(0, 8)) !== "BLOOMDLT") throw damaged("no delta");
  const word = (at) => Number(head.getBigUint64(at, true)), planes = head.getUint32(12, true);
  const [baseSize, resultSize, count] = [word(16), word(24), word(32)];
  if (head.getUint32(8, true) !== 1 || planes < 1 || planes > 7) throw damaged("a delta of another version");
  let at = 40 + 8 * planes;
  if (data.length < at || count > resultSize) throw damaged("a delta that is cut off, or says more than it can");
  if (baseSize !== base.length || resultSize !== expected) throw damaged("a delta that is not for this file");
  const gaps = new Float64Array(count);
  for (let plane = 0; plane < planes; plane++) {
    const size = word(40 + 8 * plane);
    if (size > data.length - at) throw damaged("a delta that is cut off");
    const packed = new Blob([data.subarray(at, at + size)]).stream();
    let bytes;
    try {
      bytes = await readAtMost(packed.pipeThrough(new DecompressionStream("deflate")), count);
    } catch {
      throw damaged("a plane of a delta cannot be inflated");
    }
    if (bytes === null || bytes.length !== count) throw damaged("a plane of a delta is of another length");
    for (let i = 0; i < count; i++) gaps[i] += bytes[i] * 256 ** plane;
    at += size;
  }
  if (at !== data.length) throw damaged("a delta that is longer than its planes");
  const result = new Uint8Array(resultSize);
  result.set(base.subarray(0, resultSize));
  let position = -1;
  for (const gap of gaps) {
    position += gap + 1;
    if (!(position < 8 * resultSize)) throw damaged("a delta flips a bit that is not there");
    result[Math.floor(position / 8)] ^= 1 << (position & 7);
  }
  return result;
}

/**
 * Where a copy of a feed is kept between visits: in the browser's IndexedDB, a record for each address. Any object
 * with such a `get` and `put` will do; `put` must replace a record as a whole, or not at all.
 */
export class IndexedStore {
  #opened;
  #name;

  constructor(name) {
    this.#name = name;
  }

  #database() {
    this.#opened ??= settled(Object.assign(indexedDB.open("bloomery-feeds", 1), {
      onupgradeneeded() {
        this.result.createObjectStore("copies");
      },
    }));
    return this.#opened;
  }

  async get() {
    const copies = (await this.#database()).transaction("copies").objectStore("copies");
    return settled(copies.get(this.#name));
  }

  async put(record) {
    const transaction = (await this.#database()).transaction("copies", "readwrite", { durability: "strict" });
    const done = new Promise((resolve, reject) => {
      transaction.oncomplete = () => resolve();
      transaction.onabort = transaction.onerror = () => reject(transaction.error);
    });
    transaction.objectStore("copies").put(record, this.#name);
    return done;
  }
}

const settled = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

/** What forgets with the page: for where there is no IndexedDB. */
class MemoryStore {
  get() { return this.record; }
  put(record) { this.record = record; }
}

/**
 * A feed's filter, from a copy in this browser that `update` keeps current.
 *
 * `trust` is the publisher's public key, or several. A feed that is forged, damaged, expired or older than one that
 * was seen is refused with a FeedRefused, and the copy that is there goes on answering; `stale` says whether it is
 * past its time.
 */
export class Feed {
  #url;
  #keys;
  #options;
  #store;
  #held = null; // { manifest, data, filter }
  #seen = null;
  #loaded = null;
  #updating = Promise.resolve();

  constructor(url, trust, { name, store, clock = () => Date.now() / 1000, maxBytes = MAX_BYTES, fetch } = {}) {
    this.#url = new URL(url, globalThis.location?.href);
    if (!this.#url.pathname.endsWith("/")) this.#url.pathname += "/";
    this.#keys = Promise.all([trust].flat().map(publicKey));
    this.#keys.catch(() => {}); // told by whoever waits for them
    this.#options = { name, clock, maxBytes, fetch: fetch ?? ((...given) => globalThis.fetch(...given)) };
    this.#store = store ?? (globalThis.indexedDB ? new IndexedStore(this.#url.href) : new MemoryStore());
  }

  /** The version of the copy that answers; 0 if there is none. */
  get version() { return this.#held?.manifest.version ?? 0; }
  /** When the copy is past its time, in Unix seconds; undefined without one. */
  get expires() { return this.#held?.manifest.expires; }
  /** Whether the copy is past its time, or there is none. */
  get stale() { return !this.#held || this.#options.clock() >= this.#held.manifest.expires; }
  /** The filter of the copy. */
  get filter() {
    if (!this.#held) throw new FeedUnavailable("there is no copy of the feed yet: await load() or update()");
    return this.#held.filter;
  }

  contains(key) { return this.filter.contains(key); }
  containsMany(keys) { return this.filter.containsMany(keys); }

  /** Take up the copy that an earlier visit left; whether there is one. Nothing is fetched. */
  async load() {
    this.#loaded ??= this.#takeUp();
    await this.#loaded;
    return this.#held !== null;
  }

  async #takeUp() {
    const record = await this.#store.get(), keys = await this.#keys;
    this.#seen = record?.seen ?? null;
    if (!record?.data) return;
    try { // all is checked anew: a key may be trusted no longer
      const manifest = await unseal(record.manifest, keys);
      this.#checkName(manifest);
      this.#held = await this.#whole(manifest, record.data);
    } catch (problem) {
      if (!(problem instanceof BloomeryError)) throw problem;
    }
  }

  /** Make the copy what the source has, if that may be: what it did, `{ version, by, fetched }`. */
  update() {
    const next = this.#updating.then(() => this.#update());
    this.#updating = next.catch(() => {});
    return next;
  }

  async #update() {
    await this.load();
    // Not by way of the cache: it asks by the second of the last change, and two versions may share that.
    const data = await this.#get(MANIFEST, MANIFEST_BYTES, "no-store");
    const manifest = await unseal(data, await this.#keys);
    await this.#check(manifest);
    const held = this.#held, version = manifest.version;
    if (held && equal(held.manifest.body, manifest.body)) return { version, by: "nothing", fetched: 0 };
    const record = { seen: this.#seen, manifest: held?.raw, data: held?.data };
    await this.#store.put(record); // that this version was seen, before its files are fetched
    const { by, fetched, whole } = await this.#fetch(manifest);
    whole.raw = data;
    await this.#store.put({ seen: this.#seen, manifest: data, data: whole.data });
    this.#held = whole;
    return { version, by, fetched };
  }

  #checkName(manifest) {
    const expected = this.#options.name ?? this.#seen?.feed;
    if (expected !== undefined && manifest.feed !== expected) {
      throw new FeedRefused(`this is the feed ${manifest.feed}, ${expected} was expected`, "other-feed");
    }
  }

  /** Refuse a manifest that is of another feed, expired, too large or older than another. */
  async #check(manifest) {
    this.#checkName(manifest);
    const { feed, version, expires, full, deltas } = manifest, seen = this.#seen;
    if (this.#options.clock() >= expires) throw new FeedRefused(`expired: version ${version}`, "expired");
    const body = await sha256(manifest.body);
    if (seen && version < seen.version) {
      throw new FeedRefused(`rolled back: version ${version}, though ${seen.version} was seen before`, "rolled-back");
    }
    if (seen && version === seen.version && body !== seen.body) {
      throw new FeedRefused(`forked: another version ${version} was seen before`, "forked");
    }
    if (Math.max(full.size, ...deltas.map((delta) => delta.result_size)) > this.#options.maxBytes) {
      throw new FeedRefused(`a file of more than maxBytes (${this.#options.maxBytes})`, "too-large");
    }
    this.#seen = { feed, version, body };
  }

  /** A file of the feed, of at most so many bytes. */
  async #get(name, most, cache) {
    let response, data;
    try {
      response = await this.#options.fetch(new URL(name, this.#url).href, { cache, credentials: "same-origin" });
      if (!response.ok) throw new Error(`status ${response.status}`);
      data = await readAtMost(response.body, most);
    } catch (problem) {
      throw new FeedUnavailable(`${name} could not be fetched: ${problem.message}`);
    }
    if (data === null && name === MANIFEST) throw new FeedRefused("the manifest has more than a mebibyte", "too-large");
    return data ?? new Uint8Array(0);
  }

  /** A file that a manifest names: exactly the bytes that were signed. */
  async #file({ name, size, sha256: expected }) {
    for (const cache of ["default", "reload"]) { // what was damaged may lie in the browser's own cache
      const data = await this.#get(name, size, cache);
      if (data.length === size && (await sha256(data)) === expected) return data;
    }
    throw damaged(`${name}: not the bytes that were signed`);
  }

  /** The new file: by deltas if that works, else whole. */
  async #fetch(manifest) {
    const { full } = manifest, held = this.#held;
    if (held && held.manifest.full.sha256 === full.sha256) {
      return { by: "manifest", fetched: 0, whole: { ...held, manifest } };
    }
    const chain = held ? chainFrom(manifest, held.manifest.full.sha256) : [];
    if (chain.length) {
      try {
        let data = held.data;
        for (const delta of chain) data = await applyDelta(await this.#file(delta), data, delta.result_size);
        const fetched = chain.reduce((sum, delta) => sum + delta.size, 0);
        return { by: "deltas", fetched, whole: await this.#whole(manifest, data) };
      } catch (problem) {
        if (!(problem instanceof BloomeryError)) throw problem; // then the full file
      }
    }
    return { by: "full", fetched: full.size, whole: await this.#whole(manifest, await this.#file(full)) };
  }

  /** A copy, if its bytes are those that were signed, and a filter. */
  async #whole(manifest, data) {
    if ((await sha256(data)) !== manifest.full.sha256) throw damaged("not the bytes that were signed");
    try {
      return { manifest, data, filter: Filter.open(data, { clock: this.#options.clock }) };
    } catch (problem) {
      if (problem instanceof BloomeryError) throw damaged(problem.message);
      throw problem;
    }
  }
}
