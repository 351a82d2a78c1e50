// Figures over time: what polls saw, in bounded memory, and rates between them.

const KEPT = 300;
const RATE_WINDOW_MS = 10_000;

/** The last figures of something, each with its time. */
export class Series {
  points = [];

  add(value, at = performance.now()) {
    this.points.push({ at, value });
    if (this.points.length > KEPT) this.points.shift();
  }

  get last() {
    return this.points.at(-1)?.value ?? null;
  }
}

/** How fast a counter rises, from its readings over some seconds; and that over time. */
export class Rate {
  #readings = [];
  history = new Series();

  /** A reading. One that is smaller than the last (of a topic that was created again) begins a new series. */
  add(value, at = performance.now()) {
    if (this.#readings.length && value < this.#readings.at(-1).value) this.#readings = [];
    this.#readings.push({ at, value });
    while (this.#readings.length > 2 && at - this.#readings[1].at >= RATE_WINDOW_MS) this.#readings.shift();
    if (this.perSecond !== null) this.history.add(this.perSecond, at);
  }

  /** Per second over the window; null before there are two readings. */
  get perSecond() {
    if (this.#readings.length < 2) return null;
    const first = this.#readings[0];
    const last = this.#readings.at(-1);
    return ((last.value - first.value) * 1000) / (last.at - first.at);
  }
}
