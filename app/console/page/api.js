// The public HTTP API as the console calls it: requests, streams, refusals, and whether the gateway answers.
//
// Every request of the console is sent by `request` below, streams included: what all of them need has one place.
// No other module calls fetch, and none uses EventSource, which cannot send headers.

import { EventParser } from "./events.js";
import { session } from "./session.js";

export { session };
export const API = "/api/v1";
const POLL_MS = 2000;
// The gateway sends a comment every 15 s. A stream that is silent for longer has lost its connection.
const SILENCE_MS = 45_000;

/** What the gateway refused, as its problem document says it (RFC 9457). */
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

/** "ok" or "down", by the last request; listeners are called when it changes. */
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

function address(url, query) {
  const text = query ? String(new URLSearchParams(query)) : "";
  return text ? `${url}?${text}` : url;
}

/** Send a request and return `{ body, etag }` of its answer. Throws Refusal, TypeError (no answer) or AbortError. */
export async function exchange(method, url, { query, body, headers, signal } = {}) {
  const sent = { Accept: "application/json", ...headers };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  const options = { method, headers: sent, signal, body: body === undefined ? undefined : JSON.stringify(body) };
  const response = await request(address(url, query), options);
  return { body: await bodyOf(response), etag: response.headers.get("ETag") };
}

/** Return the JSON at a path. Throws as `exchange` does. */
export async function get(url, options) {
  return (await exchange("GET", url, options)).body;
}

/** Send JSON and return the JSON of the answer. Throws as `exchange` does. */
export async function send(method, url, body, headers) {
  return (await exchange(method, url, { body, headers })).body;
}

/** Return the bare bytes at a path. Throws as `exchange` does. */
export async function getBytes(url) {
  const response = await request(url, { headers: { Accept: "application/octet-stream" } });
  if (!response.ok) await bodyOf(response);
  return response.blob();
}

/**
 * Yield the server-sent events at a path, as lists of `{ event, data, id }`. Ends when the stream does, or when it
 * has been silent for too long. With `lastEventId` the gateway continues after that event. Throws as `exchange`.
 */
export async function* stream(url, { query, signal, lastEventId }) {
  const headers = { Accept: "text/event-stream" };
  if (lastEventId) headers["Last-Event-ID"] = lastEventId;
  const response = await request(address(url, query), { headers, signal, cache: "no-store" });
  if (!response.headers.get("Content-Type")?.startsWith("text/event-stream")) {
    await bodyOf(response);
    throw new Refusal(502, { detail: "The answer is not a stream of events: is this the gateway?" });
  }
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  const parser = new EventParser();
  let watch = 0;
  try {
    for (;;) {
      watch = setTimeout(() => reader.cancel(), SILENCE_MS);
      const { done, value } = await reader.read();
      clearTimeout(watch);
      if (done) return;
      yield parser.push(decoder.decode(value, { stream: true }));
    }
  } finally {
    clearTimeout(watch);
    reader.cancel().catch(() => {});
  }
}

/** Ask whether this page has a login, or needs one; `session` knows it then. */
export async function begin() {
  try {
    await session.renew(ask, null);
  } catch {
    // The gateway cannot be reached: the views say so, and the first 401 asks again.
  }
}

/** Log in. Throws as `exchange` does. */
export async function logIn(user, password) {
  const refused = await session.logIn(ask, user, password);
  if (refused) await bodyOf(refused);
}

/** Leave the page for the provider of logins, which leads back to it. Throws as `exchange` does. */
export async function logInAtProvider() {
  const { location: there } = await bodyOf(await session.beginAtProvider(ask));
  location.assign(there);
}

/** Log out. Throws as `exchange` does. */
export async function logOut() {
  const refused = await session.logOut(ask);
  if (refused) await bodyOf(refused);
}

function ask(method, url, headers) {
  return answerTo(url, { method, headers, cache: "no-store" });
}

async function request(url, options) {
  await session.fresh(ask);
  const token = session.token;
  const response = await answerTo(url, withToken(options));
  // The token may have ended early: the gateway was restarted, or the user has logged out in another window.
  if (response.status !== 401 || !(await session.renew(ask, token))) return response;
  return answerTo(url, withToken(options));
}

function withToken(options) {
  if (!session.token) return options;
  // Without credentials of its own, the browser opens no dialog of its own after a refusal.
  return { credentials: "omit", ...options, headers: { ...options.headers, ...session.headers } };
}

async function answerTo(url, options) {
  let response;
  try {
    // `no-cache`: the browser asks again for what it has stored, and gets a 304 when that is still right.
    response = await fetch(url, { cache: "no-cache", credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name !== "AbortError") connection.set("down");
    throw error;
  }
  connection.set(response.status === 503 ? "down" : "ok");
  return response;
}

async function bodyOf(response) {
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

/** What to say about an error of the functions above, in one sentence. */
export function reasonOf(error) {
  return error instanceof Refusal ? error.message : "The gateway cannot be reached; trying again.";
}

/**
 * Call `work(signal)` now, and again some time after it has ended, while the page is visible. Work that takes long
 * is repeated less often: a console must not keep a large cluster busy. `failed(error)` is called with what it
 * throws. Returns `{ now, stop }`.
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

/** Call `work(item)` for each item, a few at a time: a page of topics must not be a burst of requests. */
export async function each(items, work, atOnce = 3) {
  const left = [...items];
  const run = async () => {
    while (left.length) await work(left.shift());
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, left.length) }, run));
}
