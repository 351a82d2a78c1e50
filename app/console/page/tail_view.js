// The live tail on the page: the last records, newest first, and what governs the stream.

import { path } from "./api.js";
import { debounced, h, say, sayOrHide, stamp } from "./dom.js";
import { clock, count, size } from "./format.js";
import { contains, recordOf } from "./record.js";
import { openRecord } from "./record_dialog.js";
import { Tail } from "./tail.js";

/** So many records are kept and shown; the log has the others. */
export const KEPT_RECORDS = 300;
// New rows come in groups: a thousand records a second shall not be a thousand layouts.
const DRAW_MS = 120;
// A page that nobody looks at gives its connection back, and goes on where it was when somebody does.
const OUT_OF_SIGHT_MS = 30_000;

const SAID = {
  connecting: "Connecting",
  reading: "Reading older records",
  live: "Live",
  paused: "Paused",
  reconnecting: "Reconnecting",
  failed: "Stopped",
};

/** Show the tail of a topic; gives `{ stop, revive }`. */
export function showTail(place, topic) {
  return new TailView(place, topic);
}

class TailView {
  #at;
  #topic;
  #tail = null;
  #fresh = [];
  #rows = [];
  #seen = 0;
  #timer = 0;
  #search = "";
  #sleep = 0;
  #asleep = false;
  #excused = false;
  #end = new AbortController();

  constructor(place, topic) {
    this.#topic = topic;
    const at = (this.#at = stamp("tail-part", place));
    say(at.curl, `curl -d 'hello' ${location.origin}${path("topics", topic, "records")}`);
    at.pause.addEventListener("click", () => this.#pauseOrGoOn());
    at.clear.addEventListener("click", () => this.#clear());
    at.filter.addEventListener("click", () => {
      at.form.hidden = !at.form.hidden;
      at.filter.setAttribute("aria-expanded", String(!at.form.hidden));
    });
    at.form.addEventListener("submit", (event) => (event.preventDefault(), this.restart()));
    at.form.addEventListener("reset", () => setTimeout(() => this.restart()));
    at.form.elements.from.addEventListener("change", () => this.#showTime());
    at.search.addEventListener("input", debounced(() => this.#lookFor(at.search.value), 150));
    at.list.addEventListener("keydown", (event) => this.#move(event));
    at.list.addEventListener("focusin", (event) => this.#makeCurrent(event.target.closest("button")));
    document.addEventListener("visibilitychange", () => this.#sleepOrWake(), { signal: this.#end.signal });
    this.restart();
  }

  /** Begin anew, as the form says. */
  restart() {
    this.#tail?.stop();
    this.#clear();
    this.#seen = 0;
    sayOrHide(this.#at.notice, null);
    this.#showTime();
    const query = queryOf(this.#at.form.elements);
    const filters = Object.keys(query).length - 1;
    say(this.#at.filter, filters ? `Filter (${filters})` : "Filter");
    this.#show("connecting");
    this.#tail = new Tail(this.#topic, query, {
      record: (data) => this.#take(data),
      notice: (text) => sayOrHide(this.#at.notice, text),
      state: (state, reason) => this.#show(state, reason),
    });
  }

  /** The topic is there (again): begin anew if the stream was refused. */
  revive() {
    if (this.#tail.state === "failed") this.restart();
  }

  stop() {
    this.#end.abort();
    this.#tail.stop();
    clearTimeout(this.#timer);
    clearTimeout(this.#sleep);
  }

  // --- what happens --------------------------------------------------------------------------------------

  #take(data) {
    this.#seen += 1;
    const record = recordOf(data, this.#search);
    if (record) this.#fresh.push(record);
    // Nobody sees more than the last ones, however long the page was out of sight.
    if (this.#fresh.length > 2 * KEPT_RECORDS) this.#fresh = this.#fresh.slice(-KEPT_RECORDS);
    this.#timer ||= setTimeout(() => this.#draw(), DRAW_MS);
  }

  #draw() {
    this.#timer = 0;
    const list = this.#at.list;
    const rows = this.#fresh.slice(-KEPT_RECORDS).map((record) => this.#row(record)).reverse();
    this.#fresh = [];
    list.prepend(...rows);
    this.#rows = [...rows, ...this.#rows];
    const surplus = this.#rows.splice(KEPT_RECORDS);
    const losesFocus = surplus.some((row) => row.contains(document.activeElement));
    for (const row of surplus) row.remove();
    if (losesFocus) this.#rows.at(-1)?.firstChild.focus();
    this.#settle();
  }

  #show(state, reason = "") {
    const { state: place, pause, notice } = this.#at;
    place.dataset.state = state;
    say(place, SAID[state]);
    say(pause, { paused: "Resume", failed: "Start again" }[state] ?? "Pause");
    // Why it is cut off is of interest until it goes on; what was lost (a notice) stays.
    if (reason || this.#excused) sayOrHide(notice, reason);
    this.#excused = Boolean(reason);
    this.#settle();
  }

  #pauseOrGoOn() {
    if (this.#tail.state === "failed") this.restart();
    else if (this.#tail.state === "paused") this.#tail.resume();
    else this.#tail.pause();
  }

  #sleepOrWake() {
    clearTimeout(this.#sleep);
    const sleep = () => {
      this.#asleep = this.#tail.state !== "paused" && this.#tail.state !== "failed";
      if (this.#asleep) this.#tail.pause();
    };
    if (document.hidden) this.#sleep = setTimeout(sleep, OUT_OF_SIGHT_MS);
    else if (this.#asleep) {
      this.#asleep = false;
      this.#tail.resume();
    }
  }

  #clear() {
    this.#fresh = [];
    for (const row of this.#rows) row.remove();
    this.#rows = [];
    this.#settle();
  }

  #lookFor(text) {
    this.#search = text.trim().toLowerCase();
    if (this.#search) {
      const stays = (row) => contains(row.record, this.#search) || (row.remove(), false);
      this.#rows = this.#rows.filter(stays);
    }
    this.#settle();
  }

  #showTime() {
    this.#at.time.hidden = this.#at.form.elements.from.value !== "time";
  }

  /** What follows from the rows that are there: the count, the empty text, the row that Tab reaches. */
  #settle() {
    const shown = this.#rows.length;
    const at = this.#at;
    at.empty.hidden = shown > 0 || this.#tail?.state === "failed";
    at.list.hidden = shown === 0;
    say(at.count, this.#seen ? `${count(this.#seen)} read, ${count(shown)} shown` : "");
    if (!at.list.querySelector("button[tabindex='0']")) this.#makeCurrent(this.#rows[0]?.firstChild);
  }

  // --- rows ----------------------------------------------------------------------------------------------

  #row(record) {
    const open = () => openRecord(this.#topic, record.partition, record.offset);
    const headers = `${record.headers} ${record.headers === 1 ? "header" : "headers"}`;
    const button = h(
      "button",
      { type: "button", class: "record", tabindex: "-1", click: open },
      h("span", { class: "when" }, clock(record.ms)),
      h("span", { class: "place", title: `partition ${record.partition}, offset ${record.offset}` },
        `${record.partition}`, h("span", { class: "dim" }, ":"), `${record.offset}`),
      h("span", { class: "key" }, shown(record.key, "no key")),
      h("span", { class: "text" }, shown(record.value, "tombstone")),
      h("span", { class: "notes" }, sizeOf(record.value), record.headers ? tag(headers, record.headerText) : null),
    );
    const row = h("li", {}, button);
    row.record = record;
    return row;
  }

  #makeCurrent(button) {
    if (!button) return;
    for (const other of this.#at.list.querySelectorAll("button[tabindex='0']")) other.tabIndex = -1;
    button.tabIndex = 0;
  }

  #move(event) {
    const at = this.#rows.findIndex((row) => row.contains(document.activeElement));
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: this.#rows.length - 1 }[event.key];
    if (to === undefined || !this.#rows[to]) return;
    event.preventDefault();
    this.#rows[to].firstChild.focus();
  }
}

function tag(text, title = null) {
  return h("span", { class: "tag", title }, text);
}

function shown(field, nullName) {
  if (field.kind === "null") return h("span", { class: "tag none" }, nullName);
  return field.text === "" ? h("span", { class: "tag none" }, "empty") : field.text + (field.cut ? "…" : "");
}

function sizeOf(field) {
  if (field.kind === "bytes") return tag(`base64, ${size(field.bytes)}`);
  return field.cut ? tag(size(field.bytes)) : null;
}

function queryOf({ from, time, partitions, key_mode, key_text, header_name, header_value }) {
  const query = { from: from.value };
  if (from.value === "time") query.from = time.value ? new Date(time.value).toISOString() : "latest";
  if (partitions.value.trim()) query.partitions = partitions.value.replaceAll(" ", "");
  if (key_text.value) query[key_mode.value] = key_text.value;
  if (header_name.value) query[`header.${header_name.value}`] = header_value.value;
  return query;
}
