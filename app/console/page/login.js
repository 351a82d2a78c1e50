// The form that logs in. It is shown in place of a view while the gateway asks for a login.

import { logIn, session } from "./api.js";
import { sayOrHide, stamp } from "./dom.js";
import { showProblem } from "./problem.js";

/** Show the form in `place`; returns a function that ends it. */
export function showLogin(place) {
  const at = stamp("login-view", place);
  const { user, password } = at.login.elements;
  sayOrHide(at.reason, session.reason);

  at.login.addEventListener("submit", async (event) => {
    event.preventDefault();
    showProblem(at.trouble, null);
    at.enter.disabled = true;
    try {
      await logIn(user.value, password.value);
    } catch (error) {
      sayOrHide(at.reason, null);
      showProblem(at.trouble, error, "The gateway cannot be reached; try again.");
      password.select();
    } finally {
      at.enter.disabled = false;
    }
  });
  user.focus();
  return () => at.login.reset();
}
