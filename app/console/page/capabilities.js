// What the gateway can do, as `GET /api/v1/` lists it. A gateway over another cluster can do less.

import { API, get } from "./api.js";

let known = null;

/** Whether the gateway can do something; true as long as it has not said what it can do. */
export function can(name) {
  return known === null || known.has(name);
}

/** Ask once, and hide what has a `data-needs` that the gateway does not offer. Without an answer all of it stays. */
export async function learnCapabilities() {
  if (known !== null) return;
  try {
    known = new Set((await get(`${API}/`)).capabilities);
  } catch {
    return;
  }
  for (const element of document.querySelectorAll("[data-needs]")) element.hidden = !can(element.dataset.needs);
}
