// The card of records: the live tail or the browser, with their filters and the search.

import { path } from "./api.js";
import { Browse } from "./browse.js";
import { debounced, say, stamp } from "./dom.js";
import { Live } from "./live.js";
import { RecordList } from "./record_list.js";

const HOUR_MS = 3_600_000;

/** Show the records of a topic; returns `{ stop, revive, update(details), browse(partition) }`. */
export function showRecords(place, topic) {
  return new RecordsView(place, topic);
}

class RecordsView {
  #at;
  #list;
  #live;
  #browse;
  #mode = null;

  constructor(place, topic) {
    const at = (this.#at = stamp("records-part", place));
    say(at.curl, `curl -d 'hello' ${location.origin}${path("topics", topic, "records")}`);
    this.#list = new RecordList(at.list, topic, () => this.#settle());
    this.#live = new Live(at, topic, this.#list);
    this.#browse = new Browse(at, topic, this.#list);
    at.pause.addEventListener("click", () => this.#live.pauseOrContinue());
    at.clear.addEventListener("click", () => this.#live.clear());
    at.filter.addEventListener("click", () => this.#openFilters(at.filters.hidden));
    at.form.addEventListener("submit", (event) => (event.preventDefault(), this.apply()));
    at.form.addEventListener("reset", () => setTimeout(() => this.apply()));
    at.form.elements.start.addEventListener("change", () => this.#showFields());
    at.form.elements.isolation_level.addEventListener("change", () => this.apply());
    for (const one of at.modes.querySelectorAll("input")) one.addEventListener("change", () => this.apply());
    at.search.addEventListener("input", debounced(() => this.#mode.search(at.search.value.trim().toLowerCase()), 150));
    this.apply();
  }

  /** Begin again, as the form says. */
  apply() {
    const at = this.#at;
    const browsing = at.modes.querySelector(":checked").value === "browse";
    this.#mode = browsing ? this.#browse : this.#live;
    (browsing ? this.#live : this.#browse).stop();
    for (const part of at.form.querySelectorAll("[data-mode]")) part.hidden = part.dataset.mode === "live" && browsing;
    for (const part of [at.browsing, at.pager, at.show]) part.hidden = !browsing;
    for (const part of [at.state, at.pause, at.clear]) part.hidden = browsing;
    at.list.setAttribute("aria-label", `Records, ${browsing ? "oldest" : "newest"} first. Arrow keys move, Enter opens.`);
    this.#showFields();
    const filters = filtersOf(at.form.elements);
    const set = Object.keys(filters).filter((name) => !["partitions", "isolation_level"].includes(name)).length;
    this.#list.uncommitted = "isolation_level" in filters;
    say(at.filter, set ? `Filter (${set})` : "Filter");
    this.#mode.search(at.search.value.trim().toLowerCase());
    if (browsing) this.#browse.start(startOf(at.form.elements), filters);
    else this.#live.start(filters);
  }

  /** Browse one partition, at its newest records. */
  browse(partition) {
    const { form, modes } = this.#at;
    form.elements.partitions.value = String(partition);
    form.elements.start.value = "newest";
    modes.querySelector("[value=browse]").checked = true;
    this.apply();
    modes.querySelector(":checked").focus();
  }

  /** The topic is there (again). */
  revive() {
    if (this.#mode === this.#live) this.#live.revive();
  }

  /** Note what the topic says about its partitions: records that are not committed yet are marked. */
  update(details) {
    this.#list.mark(details);
  }

  stop() {
    this.#live.end();
    this.#browse.stop();
  }

  #openFilters(open) {
    this.#at.filters.hidden = !open;
    this.#at.filter.setAttribute("aria-expanded", String(open));
  }

  #showFields() {
    const { start, time } = this.#at.form.elements;
    this.#at.offset.hidden = start.value !== "offset";
    this.#at.time.hidden = start.value !== "time";
    // Most questions for a time are about what happened just now.
    if (start.value === "time" && !time.value) time.value = localTime(Date.now() - HOUR_MS);
  }

  /** What follows from the rows that are there: the count, and the text in place of rows. */
  #settle() {
    const at = this.#at;
    const empty = this.#list.length ? null : this.#mode?.empty;
    at.list.hidden = this.#list.length === 0;
    at.empty.hidden = !empty;
    say(at["empty-text"], empty?.text ?? "");
    at.command.hidden = !empty?.curl;
    say(at.count, this.#mode?.summary ?? "");
  }
}

/** A time as a `datetime-local` field has it: in the reader's zone, to the second. */
function localTime(ms) {
  return new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

function startOf({ start, offset, time }) {
  // A field that was cleared is for the gateway to refuse.
  const moment = time.value ? new Date(time.value).toISOString() : "";
  return { at: start.value, offset: Math.max(0, Math.trunc(Number(offset.value) || 0)), time: moment };
}

function filtersOf({ partitions, isolation_level, key_mode, key_text, header_name, header_value }) {
  const filters = {};
  if (isolation_level.value !== "read_committed") filters.isolation_level = isolation_level.value;
  if (partitions.value.trim()) filters.partitions = partitions.value.replaceAll(" ", "");
  if (key_text.value) filters[key_mode.value] = key_text.value;
  if (header_name.value) filters[`header.${header_name.value}`] = header_value.value;
  return filters;
}
