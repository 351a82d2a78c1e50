// The live tail on the page: the newest records of the topic, then every record as it is written, newest first.

import { Refusal } from "./api.js";
import { say } from "./dom.js";
import { count } from "./format.js";
import { listOf, merge, newest } from "./positions.js";
import { showProblem } from "./problem.js";
import { contains, recordOf } from "./record.js";
import { Tail } from "./tail.js";

/** This many records are kept and shown; the log has the others. */
export const KEPT_RECORDS = 300;
// New rows come in groups: a thousand records a second must not be a thousand layouts.
const DRAW_MS = 120;
// The newest records are shown at once, in the order of their times, when all of them are there or after this time.
const OPENING_MS = 1500;
// A page that is not visible gives its connection back, and continues at its position when it is visible again.
const OUT_OF_SIGHT_MS = 30_000;

const SAID = {
  connecting: "Connecting",
  reading: "Reading the newest records",
  live: "Live",
  paused: "Paused",
  reconnecting: "Reconnecting",
  failed: "Stopped",
};

export class Live {
  #at;
  #topic;
  #list;
  #tail = null;
  #filters = {};
  #fresh = [];
  #opening = false;
  #cleared = false;
  #seen = 0;
  #timer = 0;
  #search = "";
  #sleep = 0;
  #asleep = false;
  #excused = false;
  #end = new AbortController();

  constructor(at, topic, list) {
    this.#at = at;
    this.#topic = topic;
    this.#list = list;
    document.addEventListener("visibilitychange", () => this.#sleepOrWake(), { signal: this.#end.signal });
  }

  /** Begin again, with the filters of the form: `{ partitions, key, … }`. */
  start(filters) {
    this.stop();
    this.#filters = filters;
    this.#seen = 0;
    this.#opening = true;
    this.#cleared = false;
    this.#list.replace([]);
    showProblem(this.#at.notice, null);
    const begin = (signal) => newest(this.#topic, filters, KEPT_RECORDS, signal);
    this.#tail = new Tail(this.#topic, filters, begin, {
      record: (data) => this.#take(data),
      problem: (document) => showProblem(this.#at.notice, new Refusal(document.status, document)),
      state: (state, error) => this.#show(state, error),
    });
    this.#show("connecting");
  }

  /** The topic is there (again): begin again if the stream was refused. */
  revive() {
    if (this.#tail?.state === "failed") this.start(this.#filters);
  }

  /** Close the stream. */
  stop() {
    this.#tail?.stop();
    this.#tail = null;
    clearTimeout(this.#timer);
    clearTimeout(this.#sleep);
    this.#timer = 0;
    this.#fresh = [];
    this.#asleep = false;
  }

  /** Close the stream for good. */
  end() {
    this.stop();
    this.#end.abort();
  }

  pauseOrContinue() {
    if (this.#tail.state === "failed") this.start(this.#filters);
    else if (this.#tail.state === "paused") this.#tail.resume();
    else this.#tail.pause();
  }

  clear() {
    this.#fresh = [];
    this.#cleared = true;
    this.#list.replace([]);
  }

  search(text) {
    this.#search = text;
    if (text) this.#list.keep((record) => contains(record, text));
    else this.#list.keep(() => true);
  }

  /** What is said beside the search. */
  get summary() {
    return `${count(this.#seen)} read, ${count(this.#list.length)} shown`;
  }

  /** What is said in place of rows; null while it is not known that there are none. `curl`: whether a command helps. */
  get empty() {
    if (this.#tail?.state !== "live" && this.#tail?.state !== "paused") return null;
    if (this.#cleared || this.#seen) return { text: "Records appear here when they are written.", curl: false };
    const filtered = Object.keys(this.#filters).some((name) => name !== "isolation_level");
    if (filtered) {
      return { text: "None of the newest records match. New ones appear here; Browse looks at all records.", curl: false };
    }
    return { text: "This topic has no records. Write one with the form, or from a shell:", curl: true };
  }

  // --- what happens --------------------------------------------------------------------------------------

  #take(data) {
    this.#seen += 1;
    const record = recordOf(JSON.parse(data), this.#search);
    if (record) this.#fresh.push(record);
    // Only the last ones are ever shown, however long the page was not visible.
    if (this.#fresh.length > 2 * KEPT_RECORDS) this.#fresh = this.#fresh.slice(-KEPT_RECORDS);
    this.#timer ||= setTimeout(() => this.#draw(), this.#opening ? OPENING_MS : DRAW_MS);
  }

  #draw() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    const fresh = this.#opening ? byTime(this.#fresh) : this.#fresh;
    this.#opening = false;
    this.#fresh = [];
    this.#list.prepend(fresh, KEPT_RECORDS);
  }

  #show(state, error = null) {
    const { state: place, pause, notice } = this.#at;
    place.dataset.state = state;
    say(place, SAID[state]);
    say(pause, { paused: "Resume", failed: "Start again" }[state] ?? "Pause");
    // Why the stream was cut is of interest until it continues; what was lost (a problem) stays.
    if (error || this.#excused) showProblem(notice, error);
    this.#excused = Boolean(error);
    if (state === "live" && this.#opening) this.#draw();
    else this.#list.keep(() => true);
  }

  #sleepOrWake() {
    clearTimeout(this.#sleep);
    const sleep = () => {
      this.#asleep = this.#tail !== null && this.#tail.state !== "paused" && this.#tail.state !== "failed";
      if (this.#asleep) this.#tail.pause();
    };
    if (document.hidden) this.#sleep = setTimeout(sleep, OUT_OF_SIGHT_MS);
    else if (this.#asleep) {
      this.#asleep = false;
      this.#tail.resume();
    }
  }
}

/** The records of several partitions, which come partition by partition, by time. */
function byTime(records) {
  const lists = Map.groupBy(records, ({ partition }) => partition);
  return merge([...lists.values()].map((one) => listOf(one)), records.length);
}
