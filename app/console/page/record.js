// A record as the lists keep it: short, so that hundreds of large records fit into memory.

import { base64Size, bytesOf, visible } from "./format.js";

/** How many characters of a key or a value are kept. */
export const KEPT = 600;
const KEPT_HEADERS = 200;

function shortened(text) {
  // A slice keeps the whole text alive; a clone of it does not.
  return text.length > KEPT ? structuredClone(text.slice(0, KEPT)) : text;
}

function field(text, encoding) {
  if (text === null) return { kind: "null" };
  if (encoding === "base64") return { kind: "bytes", text: shortened(text), bytes: base64Size(text), cut: text.length > KEPT };
  const cut = text.length > KEPT;
  return { kind: "text", text: visible(shortened(text)), bytes: cut ? bytesOf(text) : 0, cut };
}

/** What is kept of a record of the API (`encoding=utf8`); null if it does not contain the text that is searched for. */
export function recordOf(read, search = "") {
  const { partition, offset, timestamp_ms, key, key_encoding, value, value_encoding, headers } = read;
  const told = headers.map(({ name, value: text }) => `${name}: ${text ?? "null"}`).join("\n");
  if (search && ![key, value, told].some((text) => text?.toLowerCase().includes(search))) return null;
  return {
    partition,
    offset,
    ms: timestamp_ms,
    key: field(key, key_encoding),
    value: field(value, value_encoding),
    headers: headers.length,
    headerText: structuredClone(told.slice(0, KEPT_HEADERS)),
  };
}

/** Whether what is kept of a record contains a text (in small letters). */
export function contains(record, search) {
  return [record.key.text, record.value.text, record.headerText].some((text) => text?.toLowerCase().includes(search));
}
