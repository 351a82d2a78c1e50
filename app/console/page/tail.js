// The live tail: one EventSource, and where it stands.
//
// The browser connects again by itself and sends the id of the last event; the id is a cursor over all
// partitions, so nothing is missed and nothing comes twice. It gives up on an answer that is no stream (the
// gateway is starting, has too many streams, or refuses): then the same page is asked for as JSON to learn why,
// and the stream is opened again from the last cursor. A pause closes the stream and keeps the cursor: what
// comes meanwhile waits in the log and not in this page.
//
//     state          meaning
//     connecting     the first answer is not there yet
//     reading        behind: older records are coming
//     live           caught up: every record comes as it is written
//     paused         closed by the reader
//     reconnecting   cut off; goes on by itself at the cursor
//     failed         refused for good

import { get, path, Refusal } from "./api.js";

const SHORTEST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 15_000;

export class Tail {
  state = "connecting";
  #source = null;
  #cursor = null;
  #timer = 0;
  #wait = 0;
  #topic;
  #query;
  #told;

  /** `query`: the route's parameters. `told`: `{ record(data), notice(text), state(state, reason) }`, called with what happens. */
  constructor(topic, query, told) {
    this.#topic = topic;
    this.#query = query;
    this.#told = told;
    this.#open();
  }

  /** Close the stream and keep the place. */
  pause() {
    this.#close();
    this.#become("paused");
  }

  /** Go on where it was left. */
  resume() {
    this.#wait = 0;
    this.#become(this.#cursor === null ? "connecting" : "reconnecting");
    this.#open();
  }

  /** Close it for good. */
  stop() {
    this.#close();
  }

  #url() {
    return path("topics", this.#topic, "records");
  }

  #open() {
    const place = this.#cursor === null ? {} : { last_event_id: this.#cursor };
    const { from, ...filters } = this.#query;
    const start = this.#cursor === null && from ? { from } : {};
    // Text as it was written: JSON would come as values, and a browser rounds numbers beyond 2^53.
    const query = new URLSearchParams({ encoding: "utf8", ...filters, ...start, ...place });
    const source = new EventSource(`${this.#url()}?${query}`);
    this.#source = source;
    source.addEventListener("open", () => {
      this.#wait = 0;
      if (this.state !== "live") this.#become("reading");
    });
    source.addEventListener("record", (event) => {
      this.#cursor = event.lastEventId;
      this.#told.record(event.data);
    });
    source.addEventListener("caught_up", (event) => {
      this.#cursor = event.lastEventId;
      this.#become("live");
    });
    source.addEventListener("problem", (event) => {
      this.#cursor = event.lastEventId || this.#cursor;
      this.#told.notice(JSON.parse(event.data).detail);
    });
    source.addEventListener("bye", (event) => (this.#cursor = event.lastEventId || this.#cursor));
    source.addEventListener("error", () => {
      this.#become("reconnecting");
      if (source.readyState === EventSource.CLOSED) this.#later();
    });
  }

  #later() {
    this.#close();
    this.#timer = setTimeout(() => this.#ask(), this.#wait);
    this.#wait = Math.min(Math.max(2 * this.#wait, SHORTEST_WAIT_MS), LONGEST_WAIT_MS);
  }

  async #ask() {
    const { from, ...filters } = this.#query;
    const place = this.#cursor !== null ? { cursor: this.#cursor } : from ? { from } : {};
    const timer = this.#timer;
    try {
      await get(this.#url(), { query: { limit: 1, encoding: "utf8", ...filters, ...place } });
    } catch (error) {
      // Positions that are no more there (410, 416) are the stream's to tell: it goes on behind the gap.
      const final = error instanceof Refusal && !error.passes && error.status !== 410 && error.status !== 416;
      if (timer !== this.#timer) return;
      if (final) {
        this.#become("failed", error.message);
        return;
      }
      if (!(error instanceof Refusal) || error.passes) {
        this.#become("reconnecting", error instanceof Refusal ? error.message : "");
        this.#later();
        return;
      }
    }
    // Paused or stopped while the answer was on its way.
    if (timer === this.#timer) this.#open();
  }

  #close() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#source?.close();
    this.#source = null;
  }

  #become(state, reason = "") {
    if (state === this.state && !reason) return;
    this.state = state;
    this.#told.state(state, reason);
  }
}
