// The console's frame: which view is shown, the login, the theme, and whether the gateway answers.

import { begin, connection, logOut, session } from "./api.js";
import { can, learnCapabilities } from "./capabilities.js";
import { closeDialogs } from "./dialog.js";
import { say } from "./dom.js";
import { showGroup, showGroups } from "./groups.js";
import { showLogin } from "./login.js";
import { showQueue, showQueues } from "./queues.js";
import { showTopic } from "./topic.js";
import { showTopics } from "./topics.js";
import { showTransaction, showTransactions } from "./transactions.js";

const main = document.getElementById("main");
const VIEWS = {
  topics: [showTopics, showTopic, "Topics"],
  groups: [showGroups, showGroup, "Groups"],
  queues: [showQueues, showQueue, "Queues"],
  transactions: [showTransactions, showTransaction, "Transactions"],
};
let leave = () => {};
let first = true;

function partsOfAddress() {
  const [area = "topics", ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  try {
    return [area, decodeURIComponent(rest.join("/"))];
  } catch {
    return ["topics", ""];
  }
}

/** Hide what the gateway cannot do. The page does not wait for that; an old bookmark then leads to the topics. */
async function hideMissing() {
  await learnCapabilities();
  const [asked] = partsOfAddress();
  if (VIEWS[asked] && !can(asked)) show();
}

function show() {
  const [asked, name] = partsOfAddress();
  const area = VIEWS[asked] && can(asked) ? asked : "topics";
  leave();
  closeDialogs();
  showUser();
  if (session.state === "out") {
    leave = showLogin(main);
    document.title = "Log in – Sluice";
    return;
  }
  const [list, one, title] = VIEWS[area];
  leave = name ? one(main, name) : list(main);
  document.title = `${name || title} – Sluice`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${area}`) link.setAttribute("aria-current", name ? "true" : "page");
    else link.removeAttribute("aria-current");
  }
  // After a link was followed with the keyboard, the focus is at the title of the new view.
  if (!first) main.querySelector("h1")?.focus();
  first = false;
  scrollTo(0, 0);
}

function showUser() {
  document.getElementById("account").hidden = session.user === null;
  say(document.getElementById("user"), session.user ?? "");
  document.getElementById("log-out").hidden = session.state !== "in";
}

// Without an answer the page stays logged in, and says that the gateway cannot be reached.
document.getElementById("log-out").addEventListener("click", () => logOut().catch(() => {}));

const SAID = { unknown: "Connecting", ok: "Connected", down: "Not reachable, trying again" };

function showConnection(state) {
  const place = document.getElementById("connection");
  place.dataset.state = state;
  say(place, SAID[state]);
}

function setTheme(chosen) {
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  try {
    localStorage.setItem("sluice-theme", chosen);
  } catch {
    // The browser stores nothing for pages: the choice holds until the page is left.
  }
}

const theme = document.getElementById("theme");
theme.value = document.documentElement.dataset.theme ?? "system";
theme.addEventListener("change", () => setTheme(theme.value));

connection.listeners.add(showConnection);
// The part of the address after # names the view, so the skip link moves the focus by script.
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", show);
// A browser keeps pages that were left, with their streams, and opens six connections to one gateway at most.
addEventListener("pagehide", () => (leave(), (leave = () => {})));
addEventListener("pageshow", (event) => event.persisted && show());
await begin();
session.listeners.add(() => {
  show();
  if (session.state !== "out") hideMissing();
});
show();
await hideMissing();
