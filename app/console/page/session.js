// The login of this page: the user, and a bearer token of five minutes that is kept in the memory of the page alone.
//
//     state      meaning
//     unknown    the gateway has not answered yet
//     open       this listener asks for no login; `user` is the name in the client's certificate, or null
//     in         logged in
//     out        the gateway asks for a login; `reason` says what ended the last one
//
// The cookie of the session belongs to the browser: no script can read it, and the gateway reads it on two routes only.

const SESSION = "/console/session";
const ENDED = "You were logged out: the session has ended, or the gateway was restarted. Log in again.";
// A token is replaced when a fifth of its time is left.
const SHARE_OF_TIME = 0.8;

/** `ask(method, url, headers)` sends a request without a token and returns the response; api.js has it. */
class Session {
  state = "unknown";
  user = null;
  reason = null;
  token = null;
  // Whether the gateway offers a login at its provider, and one with a password or token.
  ways = { provider: false, password: true };
  listeners = new Set();
  #renewAt = 0;
  #renewing = null;

  /** The header of requests to the API. */
  get headers() {
    return this.token ? { Authorization: `Bearer ${this.token}` } : {};
  }

  /** Replace the token if it ends soon. */
  async fresh(ask) {
    if (this.token && performance.now() > this.#renewAt) await this.renew(ask, this.token);
  }

  /** Get another token than `refused`; returns whether there is one. All requests that need one wait for the same. */
  async renew(ask, refused) {
    if (this.token === refused) await (this.#renewing ??= this.#renew(ask).finally(() => (this.#renewing = null)));
    return this.token !== null && this.token !== refused;
  }

  /** Log in. Returns null, or the response that refuses. */
  async logIn(ask, user, password) {
    const bytes = new TextEncoder().encode(`${user}:${password}`);
    const credentials = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
    const response = await ask("POST", SESSION, { Authorization: `Basic ${credentials}` });
    if (!response.ok) return response;
    return this.#renew(ask);
  }

  /** Log out; the gateway ends the session and all its tokens. Returns null, or the response that refuses. */
  async logOut(ask) {
    const response = await ask("DELETE", SESSION, {});
    if (!response.ok) return response;
    this.#become("out", null, null, "You are logged out.");
    return null;
  }

  /** Begin a login at the provider. Returns the response, which names the address to go to. */
  beginAtProvider(ask) {
    return ask("POST", `${SESSION}/oidc`, {});
  }

  async #renew(ask) {
    const response = await ask("POST", `${SESSION}/token`, {});
    if (!response.ok && response.status !== 401) return response;
    const answer = await response.clone().json();
    const { token, user, expires_in_seconds: seconds, provider = false, password = true } = answer;
    this.ways = { provider, password };
    if (!response.ok) {
      this.#become("out", null, null, this.state === "in" ? ENDED : this.reason);
      return response;
    }
    this.#renewAt = performance.now() + SHARE_OF_TIME * seconds * 1000;
    this.#become(token === null ? "open" : "in", token, user, null);
    return null;
  }

  #become(state, token, user, reason) {
    const changed = state !== this.state || user !== this.user;
    Object.assign(this, { state, token, user, reason });
    if (changed) for (const tell of this.listeners) tell();
  }
}

export const session = new Session();
