// Numbers, sizes, times and the bytes of records, as people read them.

const whole = new Intl.NumberFormat("en");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** 1234567 → "1,234,567"; nothing known → "–". */
export function count(number) {
  return number === null || number === undefined ? "–" : whole.format(number);
}

/** Bytes with three digits that matter: 1536 → "1.5 KiB". */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  let unit = 0;
  let left = bytes;
  while (left >= 1024 && unit < UNITS.length - 1) {
    left /= 1024;
    unit += 1;
  }
  return `${unit && left < 100 ? left.toFixed(1) : Math.round(left)} ${UNITS[unit]}`;
}

/** A rate: null → "–", small ones with one decimal. */
export function rate(perSecond) {
  if (perSecond === null) return "–";
  if (perSecond === 0) return "0";
  return perSecond < 10 ? perSecond.toFixed(1) : count(Math.round(perSecond));
}

const two = (number) => String(number).padStart(2, "0");

const day = new Intl.DateTimeFormat("en", { month: "short", day: "numeric" });

/** A time in the reader's zone, short: today with milliseconds, this year with the day, else the date. */
export function clock(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const at = new Date(ms);
  const now = new Date();
  const minutes = `${two(at.getHours())}:${two(at.getMinutes())}`;
  if (at.toDateString() === now.toDateString()) {
    return `${minutes}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
  }
  if (at.getFullYear() === now.getFullYear()) return `${day.format(at)} ${minutes}`;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

const DURATIONS = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1000]];

/** Milliseconds in their largest unit: 604800000 → "7 d", 5400000 → "1.5 h". */
export function duration(ms) {
  const [unit, length] = DURATIONS.find(([, length]) => ms >= length) ?? ["ms", 1];
  return `${Number((ms / length).toFixed(1))} ${unit}`;
}

/**
 * A text on one line, with control characters made visible: a value of line ends is no empty line, and a character
 * that reverses the direction of writing does not reverse what follows on the page.
 */
export function visible(text) {
  return text.replace(/\r?\n/g, "↵").replace(/\t/g, "⇥").replace(/[\x00-\x1f\x7f\u202a-\u202e\u2066-\u2069]/g, "·");
}

/** The number of bytes that a text takes in UTF-8. */
export function bytesOf(text) {
  return new Blob([text]).size;
}

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

/**
 * JSON laid out over lines, token by token: its numbers and escapes stay as they were written (a parse and a
 * new text would round 64-bit numbers). The text itself when it is not JSON.
 */
export function pretty(text) {
  try {
    if (typeof JSON.parse(text) !== "object") return text;
  } catch {
    return text;
  }
  const out = [];
  let depth = 0;
  let before = "";
  const line = () => out.push("\n", "  ".repeat(depth));
  for (const [token] of text.matchAll(TOKEN)) {
    const closes = token === "}" || token === "]";
    const opened = before === "{" || before === "[";
    if (closes) depth -= 1;
    if (opened !== closes || before === ",") line();
    out.push(token);
    if (token === "{" || token === "[") depth += 1;
    if (token === ":") out.push(" ");
    before = token;
  }
  return out.join("");
}

/** The first bytes of base64 as hexadecimal lines with what can be read of them. */
export function hexLines(base64, limit) {
  const bytes = Uint8Array.from(atob(base64.slice(0, Math.ceil(limit / 3) * 4)), (c) => c.charCodeAt(0)).slice(0, limit);
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const part = [...bytes.slice(at, at + 16)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = part.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}

/** The number of bytes that a base64 text encodes. */
export function base64Size(text) {
  return (text.length / 4) * 3 - (text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0);
}
