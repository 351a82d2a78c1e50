// The rows of records, in the live tail and in the browser: what a row shows, and the keyboard in the list.

import { h } from "./dom.js";
import { clock, size } from "./format.js";
import { openRecord } from "./record_dialog.js";

const OPEN = "Readers of committed records do not get it yet: a transaction of this partition is open.";

export class RecordList {
  /** Whether records are shown that are not committed. */
  uncommitted = false;
  /** Partition → its last stable offset, for partitions with an open transaction. */
  #stable = new Map();
  #place;
  #topic;
  #rows = [];
  #changed;

  /** `place`: the list element. `changed()` is called after each change. */
  constructor(place, topic, changed) {
    this.#place = place;
    this.#topic = topic;
    this.#changed = changed;
    place.addEventListener("keydown", (event) => this.#move(event));
    place.addEventListener("focusin", (event) => this.#makeCurrent(event.target.closest("button")));
  }

  /** How many rows there are. */
  get length() {
    return this.#rows.length;
  }

  /** Add records at the top, the last one first, and keep at most `most` rows. */
  prepend(records, most) {
    const rows = records.slice(-most).map((record) => this.#row(record)).reverse();
    this.#place.prepend(...rows);
    this.#rows = [...rows, ...this.#rows];
    const surplus = this.#rows.splice(most);
    const losesFocus = surplus.some((row) => row.contains(document.activeElement));
    for (const row of surplus) row.remove();
    if (losesFocus) this.#rows.at(-1)?.firstChild.focus();
    this.#settle();
  }

  /** Show these records, in this order. */
  replace(records) {
    this.#rows = records.map((record) => this.#row(record));
    this.#place.replaceChildren(...this.#rows);
    this.#place.scrollTop = 0;
    this.#settle();
  }

  /** Remove the rows whose record does not pass `test(record)`. */
  keep(test) {
    this.#rows = this.#rows.filter((row) => test(row.record) || (row.remove(), false));
    this.#settle();
  }

  /** Mark the records that are not committed yet; `details` are the partitions of the topic. */
  mark(details) {
    const unstable = details.filter(({ latest, high_watermark }) => latest < high_watermark);
    this.#stable = new Map(unstable.map(({ partition, latest }) => [partition, latest]));
    for (const row of this.#rows) this.#markRow(row);
  }

  #markRow(row) {
    const { partition, offset } = row.record;
    const open = this.uncommitted && offset >= (this.#stable.get(partition) ?? Infinity);
    const notes = row.querySelector(".notes");
    const mark = notes.querySelector(".open");
    if (open && !mark) notes.prepend(h("span", { class: "tag open", title: OPEN }, "open"));
    if (!open) mark?.remove();
  }

  #settle() {
    if (!this.#place.querySelector("button[tabindex='0']")) this.#makeCurrent(this.#rows[0]?.firstChild);
    this.#changed();
  }

  #row(record) {
    const open = () => openRecord(this.#topic, record.partition, record.offset, this.uncommitted);
    const headers = `${record.headers} ${record.headers === 1 ? "header" : "headers"}`;
    const time = record.ms >= 0 && record.ms !== null ? new Date(record.ms).toLocaleString() : null;
    const button = h(
      "button",
      { type: "button", class: "record", tabindex: "-1", click: open },
      h("span", { class: "when", title: time }, clock(record.ms)),
      h("span", { class: "place", title: `partition ${record.partition}, offset ${record.offset}` },
        `${record.partition}`, h("span", { class: "dim" }, ":"), `${record.offset}`),
      h("span", { class: "key" }, shown(record.key, "no key")),
      h("span", { class: "text" }, shown(record.value, "tombstone")),
      h("span", { class: "notes" }, sizeOf(record.value), record.headers ? tag(headers, record.headerText) : null),
    );
    const row = h("li", {}, button);
    row.record = record;
    this.#markRow(row);
    return row;
  }

  /** The list is one stop of the Tab key: at the row that had the focus last. */
  #makeCurrent(button) {
    if (!button) return;
    for (const other of this.#place.querySelectorAll("button[tabindex='0']")) other.tabIndex = -1;
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
