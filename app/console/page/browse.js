// Browsing on the page: pages of records from an offset or a time on, and the way to older and newer ones.

import { say } from "./dom.js";
import { count } from "./format.js";
import { History } from "./history.js";
import { showProblem } from "./problem.js";
import { contains } from "./record.js";

export class Browse {
  #at;
  #topic;
  #list;
  #history = null;
  #page = null;
  #search = "";
  #end = new AbortController();

  constructor(at, topic, list) {
    this.#at = at;
    this.#topic = topic;
    this.#list = list;
    at.older.addEventListener("click", () => this.#turn((history, signal) => history.older(signal)));
    at.newer.addEventListener("click", () => this.#turn((history, signal) => history.newer(signal)));
  }

  /** Show the first page. `start`: as `History.begin` takes it; `filters`: `{ partitions, key, … }`. */
  start(start, { partitions = "", ...filters }) {
    this.stop();
    this.#history = new History(this.#topic, filters);
    this.#list.replace([]);
    return this.#turn((history, signal) => history.begin(start, partitions, signal));
  }

  /** Forget the page; a request that is under way ends. */
  stop() {
    this.#end.abort();
    this.#end = new AbortController();
    this.#page = null;
    this.#at.older.disabled = this.#at.newer.disabled = true;
    say(this.#at.range, "");
  }

  search(text) {
    this.#search = text;
    if (this.#page) this.#draw();
  }

  get summary() {
    if (!this.#page) return "";
    return `${count(this.#list.length)} of ${count(this.#page.records.length)} shown`;
  }

  /** What is said in place of rows; null while it is not known that there are none. */
  get empty() {
    if (!this.#page) return null;
    if (this.#page.records.length) return { text: "No record on this page contains that text.", curl: false };
    const { older, newer } = this.#page;
    if (newer) return { text: "No record matched so far. Newer continues the search.", curl: false };
    if (older) return { text: "There are no records from here on. Older shows those before.", curl: false };
    return { text: "There are no such records in this topic.", curl: false };
  }

  async #turn(read) {
    const { older, newer, notice, range } = this.#at;
    const end = this.#end;
    const focused = document.activeElement;
    older.disabled = newer.disabled = true;
    say(range, "Reading");
    try {
      const page = await read(this.#history, end.signal);
      if (end.signal.aborted) return;
      this.#page = page;
      showProblem(notice, null);
      this.#draw();
    } catch (error) {
      if (end.signal.aborted) return;
      const otherwise = error instanceof RangeError ? error.message : "The gateway cannot be reached. Try again.";
      showProblem(notice, error, otherwise);
    }
    older.disabled = !this.#page?.older;
    newer.disabled = !this.#page?.newer;
    say(range, this.#page ? rangeOf(this.#page.records) : "");
    // A button that is disabled loses the focus; it comes back, or moves to the other one at an end.
    if (focused === older || focused === newer) (focused.disabled ? [older, newer].find((one) => !one.disabled) : focused)?.focus();
  }

  #draw() {
    const { records } = this.#page;
    this.#list.replace(this.#search ? records.filter((record) => contains(record, this.#search)) : records);
  }
}

/** "50 records, offsets 0 to 49 of partition 3". */
function rangeOf(records) {
  if (!records.length) return "No records";
  const told = `${count(records.length)} ${records.length === 1 ? "record" : "records"}`;
  const [{ partition, offset }, last] = [records[0], records.at(-1)];
  if (records.some((record) => record.partition !== partition)) return told;
  return `${told} of partition ${partition}, offsets ${count(offset)} to ${count(last.offset)}`;
}
