// The live tail: one stream of server-sent events, and its position.
//
// The id of each event is a cursor over all partitions. A stream that was cut is opened again with the last cursor,
// so no record is missed and none is repeated. A pause closes the stream and keeps the cursor: records that are
// written meanwhile wait in the log and not in this page.
//
//     state          meaning
//     connecting     the first answer is not there yet
//     reading        older records are coming
//     live           caught up: every record comes as it is written
//     paused         closed by the reader
//     reconnecting   cut; continues by itself at the cursor
//     failed         refused for good

import { path, Refusal, stream } from "./api.js";

const SHORTEST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 15_000;
// The position is outside of the log: records were deleted between the question for it and the stream.
const MOVED = [410, 416];

export class Tail {
  state = "connecting";
  #cursor = null;
  #end = null;
  #topic;
  #query;
  #begin;
  #told;

  /**
   * `query`: the parameters of the route that filter. `begin(signal)`: asked for the parameters that say where to
   * begin. `told`: `{ record(data), problem(document), state(state, error) }`, called with what happens.
   */
  constructor(topic, query, begin, told) {
    this.#topic = topic;
    this.#query = query;
    this.#begin = begin;
    this.#told = told;
    this.#open();
  }

  /** Close the stream and keep the position. */
  pause() {
    this.stop();
    this.#become("paused");
  }

  /** Continue at the position. */
  resume() {
    this.#become(this.#cursor === null ? "connecting" : "reconnecting");
    this.#open();
  }

  /** Close the stream. */
  stop() {
    this.#end?.abort();
  }

  #open() {
    this.#end = new AbortController();
    this.#run(this.#end.signal);
  }

  async #run(signal) {
    let wait = 0;
    while (!signal.aborted) {
      let error = null;
      try {
        for await (const events of await this.#events(signal)) {
          if (signal.aborted) return;
          wait = 0;
          for (const event of events) this.#take(event);
        }
      } catch (caught) {
        error = caught;
      }
      if (signal.aborted) return;
      if (error instanceof Refusal && !error.passes && !MOVED.includes(error.status)) {
        this.#become("failed", error);
        return;
      }
      this.#become("reconnecting", error instanceof Refusal ? error : null);
      wait = Math.min(Math.max(2 * wait, SHORTEST_WAIT_MS), LONGEST_WAIT_MS);
      await passed(wait, signal);
    }
  }

  async #events(signal) {
    const begin = this.#cursor === null ? await this.#begin(signal) : {};
    // Text as it was written: JSON would come as values, and a browser rounds numbers above 2^53.
    const query = { encoding: "utf8", ...this.#query, ...begin };
    return stream(path("topics", this.#topic, "records"), { query, signal, lastEventId: this.#cursor });
  }

  #take({ event, data, id }) {
    if (id) this.#cursor = id;
    if (this.state !== "live") this.#become("reading");
    if (event === "record") this.#told.record(data);
    else if (event === "caught_up") this.#become("live");
    else if (event === "problem") this.#told.problem(JSON.parse(data));
  }

  #become(state, error = null) {
    if (state === this.state && !error) return;
    this.state = state;
    this.#told.state(state, error);
  }
}

/** Wait; less if the signal comes before. */
function passed(ms, signal) {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });
}
