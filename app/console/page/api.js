// The public HTTP API as the console calls it: requests, refusals, repeated requests, and whether anybody answers.

export const API = "/api/v1";
const POLL_MS = 2000;

/** What the server refused, as its problem document says it. */
export class Refusal extends Error {
  constructor(status, problem) {
    super(problem.detail ?? problem.title ?? `The gateway answered with status ${status}.`);
    this.status = status;
    this.problem = problem;
  }

  /** Whether the same request may succeed later. */
  get passes() {
    return this.status >= 500 || this.status === 429 || this.status === 408;
  }
}

/** "ok" or "down", by the last request; listeners hear of changes alone. */
export const connection = {
  state: "unknown",
  listeners: new Set(),
  set(state) {
    if (state === this.state) return;
    this.state = state;
    for (const tell of this.listeners) tell(state);
  },
};

/** A path below the API, its parts escaped: `path("topics", "a b")`. */
export function path(...parts) {
  return [API, ...parts.map(encodeURIComponent)].join("/");
}

/** The JSON at a path. Throws Refusal, TypeError (nobody answers) or AbortError. */
export async function get(url, { query, signal } = {}) {
  const text = query ? String(new URLSearchParams(query)) : "";
  return answer(await request(text ? `${url}?${text}` : url, { signal, headers: { Accept: "application/json" } }));
}

/** Send JSON and give the JSON that comes back. Throws as `get` does. */
export async function send(method, url, body, more = {}) {
  const headers = { "Content-Type": "application/json", Accept: "application/json", ...more };
  return answer(await request(url, { method, headers, body: JSON.stringify(body) }));
}

/** The bare bytes at a path. Throws as `get` does. */
export async function getBytes(url) {
  const response = await request(url, { headers: { Accept: "application/octet-stream" } });
  if (!response.ok) await answer(response);
  return response.blob();
}

async function request(url, options) {
  let response;
  try {
    // `no-cache`: what the browser keeps is asked for again, and comes as a 304 when it is still right.
    response = await fetch(url, { cache: "no-cache", credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name !== "AbortError") connection.set("down");
    throw error;
  }
  connection.set(response.status === 503 ? "down" : "ok");
  return response;
}

async function answer(response) {
  const text = await response.text();
  let body = null;
  try {
    body = text ? JSON.parse(text) : null;
  } catch {
    if (response.ok) throw new Refusal(response.status, { detail: "The answer is not JSON: is this the gateway?" });
  }
  if (!response.ok) throw new Refusal(response.status, body ?? {});
  return body;
}

/** What to say about an error of the functions above. */
export function reasonOf(error) {
  return error instanceof Refusal ? error.message : "The gateway cannot be reached; trying again.";
}

/**
 * Call `work(signal)` now and again some time after it has ended, while the page is in sight. What takes long
 * comes less often: a large cluster shall not be kept busy by those who look at it. `failed(error)` hears of what
 * it throws. Gives `{ now, stop }`.
 */
export function repeat(work, failed) {
  const end = new AbortController();
  let timer = 0;
  let busy = false;
  let again = false;

  async function round() {
    clearTimeout(timer);
    if (end.signal.aborted) return;
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    const begun = performance.now();
    try {
      await work(end.signal);
    } catch (error) {
      if (!end.signal.aborted) failed(error);
    }
    busy = false;
    if (again) {
      again = false;
      await round();
    } else if (!document.hidden && !end.signal.aborted) {
      timer = setTimeout(round, Math.max(POLL_MS, 4 * (performance.now() - begun)));
    }
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : round()), {
    signal: end.signal,
  });
  round();
  return { now: round, stop: () => (clearTimeout(timer), end.abort()) };
}

/** Call `work(item)` for each item, a few at a time: a page of topics shall not be a burst of requests. */
export async function each(items, work, atOnce = 3) {
  const left = [...items];
  const run = async () => {
    while (left.length) await work(left.shift());
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, left.length) }, run));
}
