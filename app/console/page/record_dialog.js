// One record, whole: asked for again as the resource that it is, because the tail keeps only its beginning.

import { get, getBytes, path, Refusal } from "./api.js";
import { h, parts, say } from "./dom.js";
import { base64Size, bytesOf, count, hexLines, pretty, size } from "./format.js";
import { showDone, showProblem } from "./problem.js";

// More text than this makes a browser slow; the rest comes when it is asked for.
const SHOWN = 100_000;
const HEX_BYTES = 4096;
const UNREACHABLE = "The gateway cannot be reached. Try again.";

const dialog = document.getElementById("record");
const at = parts(dialog);
let current = null;

at.close.addEventListener("click", () => dialog.close());
// A click beside the dialog lands on the dialog itself, not on its content.
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close();
});
dialog.addEventListener("close", () => (current = null));
at.raw.addEventListener("click", () => {
  at.raw.setAttribute("aria-pressed", String(at.raw.getAttribute("aria-pressed") !== "true"));
  showValue(false);
});
at.more.addEventListener("click", () => showValue(true));
at.copy.addEventListener("click", copy);
at.download.addEventListener("click", download);

/** Open the dialog for one record; `uncommitted`: its transaction may be open, or aborted. */
export async function openRecord(topic, partition, offset, uncommitted) {
  const records = path("topics", topic, "partitions", String(partition), "records");
  const mine = (current = { url: `${records}/${offset}`, uncommitted });
  mine.name = `${topic}-${partition}-${offset}`;
  say(document.getElementById("record-title"), `${topic}, partition ${partition}, offset ${offset}`);
  for (const part of [at.facts, at.key, at.headers, at.value]) part.replaceChildren();
  for (const part of [at.raw, at.copy, at.download, at.more, at["header-part"]]) part.hidden = true;
  at.raw.setAttribute("aria-pressed", "false");
  say(at.size, "");
  say(at.outcome, "");
  if (!dialog.open) dialog.showModal();
  try {
    const record = uncommitted ? await anyRecord(records, offset) : await get(mine.url, { query: { encoding: "utf8" } });
    if (mine !== current) return;
    mine.record = record;
    show(record);
  } catch (error) {
    if (mine === current) showProblem(at.outcome, error, UNREACHABLE);
  }
}

/** A record that need not be committed, and so is no resource of its own. */
async function anyRecord(records, offset) {
  const query = { offset, limit: 1, encoding: "utf8", isolation_level: "read_uncommitted" };
  const [record] = (await get(records, { query })).records;
  if (record?.offset !== offset) throw new Refusal(404, { detail: `There is no record at offset ${offset}.` });
  return record;
}

/** The bytes of a value as the dialog has it. */
function bytesOfRecord({ value, value_encoding }) {
  return new Blob([value_encoding === "base64" ? Uint8Array.from(atob(value), (c) => c.charCodeAt(0)) : value]);
}

function pair(name, ...value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, ...value));
}

function none(text) {
  return h("span", { class: "tag none" }, text);
}

function textOf(text, encoding) {
  if (text === null) return none("null");
  if (text === "") return none("empty");
  return encoding === "base64" ? hexLines(text, HEX_BYTES) : text.slice(0, SHOWN);
}

function show(record) {
  const { timestamp, timestamp_type, key, key_encoding, headers, value, value_encoding } = record;
  const local = timestamp ? ` (${new Date(timestamp).toLocaleString()} here)` : "";
  at.facts.replaceChildren(
    pair("Time", timestamp ? h("span", { class: "code" }, timestamp) : none("none"), local),
    pair("Set by", timestamp_type === "LogAppendTime" ? "the broker, when it was written" : "the producer"),
  );
  at.key.replaceChildren(textOf(key, key_encoding));
  at["header-part"].hidden = !headers.length;
  at.headers.replaceChildren(...headers.map((one) => pair(one.name || none("empty"), textOf(one.value, one.encoding))));
  const isText = value !== null && value_encoding === "utf8";
  const bytes = value === null ? null : isText ? bytesOf(value) : base64Size(value);
  say(at.size, value === null ? "" : `${isText ? "text" : "bytes"}, ${size(bytes)}`);
  at.copy.hidden = !isText;
  at.download.hidden = value === null;
  showValue(false);
}

function showValue(all) {
  const { value, value_encoding } = current.record;
  at.more.hidden = true;
  if (value === null) {
    at.value.replaceChildren(none("tombstone"), " The value is null: with compaction, this key is deleted.");
    return;
  }
  if (value === "" || value_encoding === "base64") {
    const lines = textOf(value, value_encoding);
    const left = value ? base64Size(value) - HEX_BYTES : 0;
    at.value.replaceChildren(lines, left > 0 ? `\n… ${count(left)} bytes more` : "");
    return;
  }
  const raw = at.raw.getAttribute("aria-pressed") === "true";
  const laidOut = raw || value.length > 10 * SHOWN ? value : pretty(value);
  at.raw.hidden = !raw && laidOut === value;
  at.value.replaceChildren(all ? laidOut : laidOut.slice(0, SHOWN));
  at.more.hidden = all || laidOut.length <= SHOWN;
}

async function copy() {
  try {
    await navigator.clipboard.writeText(current.record.value);
    showDone(at.outcome, "Copied.");
  } catch {
    showDone(at.outcome, "The browser does not let the page write to the clipboard.", "bad");
  }
}

async function download() {
  const { url, name, record, uncommitted } = current;
  try {
    const bytes = uncommitted ? bytesOfRecord(record) : await getBytes(url);
    const link = h("a", { href: URL.createObjectURL(bytes), download: name });
    link.click();
    // The download has its own hold on the bytes once it has begun.
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  } catch (error) {
    showProblem(at.outcome, error, UNREACHABLE);
  }
}
