// The form that logs in. It is shown in place of a view while the gateway asks for a login.

import { logIn, logInAtProvider, session } from "./api.js";
import { sayOrHide, stamp } from "./dom.js";
import { showProblem } from "./problem.js";

const REFUSED = "#/login-refused";

/** Show the form in `place`; returns a function that ends it. */
export function showLogin(place) {
  const at = stamp("login-view", place);
  const { user, password } = at.login.elements;
  const refused = location.hash === REFUSED;
  if (refused) history.replaceState(null, "", "#/topics");
  sayOrHide(at.reason, refused ? "The provider's login was refused; the log of the gateway says why." : session.reason);
  at.provider.hidden = !session.ways.provider;
  at["with-password"].hidden = !session.ways.password;

  async function attempt(button, work) {
    showProblem(at.trouble, null);
    button.disabled = true;
    try {
      await work();
    } catch (error) {
      sayOrHide(at.reason, null);
      showProblem(at.trouble, error, "The gateway cannot be reached; try again.");
    } finally {
      button.disabled = false;
    }
  }

  at.provider.addEventListener("click", () => attempt(at.provider, logInAtProvider));
  at.login.addEventListener("submit", async (event) => {
    event.preventDefault();
    await attempt(at.enter, () => logIn(user.value, password.value));
    password.select();
  });
  if (session.ways.password) user.focus();
  return () => at.login.reset();
}
