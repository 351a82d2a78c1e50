// The console's frame: which view is shown, the theme, and whether the gateway answers.

import { connection } from "./api.js";
import { say } from "./dom.js";
import { showGroup, showGroups } from "./groups.js";
import { showTopic } from "./topic.js";
import { showTopics } from "./topics.js";

const main = document.getElementById("main");
const VIEWS = { topics: [showTopics, showTopic], groups: [showGroups, showGroup] };
let leave = () => {};
let first = true;

function partsOfAddress() {
  const [room = "topics", ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  try {
    return [room, decodeURIComponent(rest.join("/"))];
  } catch {
    return ["topics", ""];
  }
}

function show() {
  const [asked, name] = partsOfAddress();
  const room = VIEWS[asked] ? asked : "topics";
  leave();
  const [list, one] = VIEWS[room];
  leave = name ? one(main, name) : list(main);
  document.title = `${name || (room === "topics" ? "Topics" : "Groups")} – Sluice`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${room}`) link.setAttribute("aria-current", name ? "true" : "page");
    else link.removeAttribute("aria-current");
  }
  // Who follows a link with the keyboard goes on at the new view's title.
  if (!first) main.querySelector("h1")?.focus();
  first = false;
  scrollTo(0, 0);
}

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
    // It holds until the page is left.
  }
}

const theme = document.getElementById("theme");
theme.value = document.documentElement.dataset.theme ?? "system";
theme.addEventListener("change", () => setTheme(theme.value));

connection.listeners.add(showConnection);
// The address after the # is the view's; so the skip link moves the focus by itself.
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", show);
// A browser keeps pages that were left, with their streams; and has but six connections for one gateway.
addEventListener("pagehide", () => (leave(), (leave = () => {})));
addEventListener("pageshow", (event) => event.persisted && show());
show();
