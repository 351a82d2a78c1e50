// A refusal on the page, as the API says it: title, detail, each error, and the page that says what to do.

import { reasonOf, Refusal, session } from "./api.js";
import { h, say } from "./dom.js";

const MOST_ERRORS = 5;

/** Show why something failed, or hide `place` when `error` is null. `otherwise` is said when no answer came. */
export function showProblem(place, error, otherwise = null) {
  place.hidden = !error;
  place.dataset.kind = "bad";
  if (!(error instanceof Refusal)) {
    place.problem = null;
    say(place, error ? (otherwise ?? reasonOf(error)) : "");
    return;
  }
  // A poll that fails again and again says the same: screen readers stay calm.
  const text = JSON.stringify(error.problem);
  if (place.problem === text) return;
  place.problem = text;
  place.replaceChildren(...parts(error));
}

/** Say what was done, in the place of problems. */
export function showDone(place, text, kind = "good") {
  place.hidden = false;
  place.problem = null;
  place.dataset.kind = kind;
  say(place, text);
}

function parts({ message, problem }) {
  const { title, type, errors = [] } = problem;
  const details = errors.map(({ detail }) => detail).filter((detail) => detail && !message.includes(detail));
  const repeated = title === message || `${title}.` === message;
  const told = [title && !repeated ? h("strong", {}, `${title}. `) : null, h("span", {}, message)];
  if (/-authorization-failed$/.test(type ?? "")) told.push(` The access rules do not allow this to ${asker()}.`);
  told.push(...details.slice(0, MOST_ERRORS).map((detail) => h("span", { class: "problem-error" }, detail)));
  // The type is the address of a page of this gateway. Anything else does not become a link.
  if (/^\/problems\/[\w-]+$/.test(type ?? "")) {
    told.push(" ", h("a", { href: type, target: "_blank", rel: "noopener" }, "What to do"));
  }
  return told.filter(Boolean);
}

function asker() {
  return session.user === null ? "a client that is not logged in" : `user ${session.user}`;
}
