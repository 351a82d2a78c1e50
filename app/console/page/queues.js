// Queues: the list with counts, and one queue with its partitions, its records in flight and its settings.

import { get, path, repeat, send } from "./api.js";
import { openDialog } from "./dialog.js";
import { debounced, h, keyed, keyedFirst, row, say, stamp } from "./dom.js";
import { clock, count, duration } from "./format.js";
import { Pages } from "./pages.js";
import { showProblem } from "./problem.js";

const PAGE = 25;
// Records in flight that one view shows; the API has all.
const IN_FLIGHT = 100;
const LETTERS = 25;
const UNKNOWN = "The gateway cannot be reached. Whether it has happened is not known.";

function reads({ topics, pattern }) {
  return topics === null ? `pattern ${pattern}` : topics.join(", ");
}

function showState(place, paused) {
  place.dataset.state = paused ? "Paused" : "Stable";
  say(place, paused ? "Paused" : "Delivering");
}

// --- the list --------------------------------------------------------------------------------------------

const COLUMNS = [
  ["name", "Queue"], ["", "State"], ["", "Reads"], ["number strong", "Available"], ["number", "In flight"], ["number", "Delayed"],
  ["number", "To dead letters"],
];

function queueRow() {
  const link = h("a");
  const state = h("span", { class: "group-state" });
  const element = row(COLUMNS, (cells, one) => {
    say(link, one.queue);
    link.href = `#/queues/${encodeURIComponent(one.queue)}`;
    showState(state, one.paused);
    say(cells[2], reads(one));
    say(cells[3], count(one.available));
    say(cells[4], count(one.in_flight));
    say(cells[5], count(one.delayed));
    say(cells[6], count(one.archiving));
  });
  element.children[0].append(link);
  element.children[1].append(state);
  return element;
}

/** Show the list in `place`; returns a function that ends it. */
export function showQueues(place) {
  const at = stamp("queues-view", place);
  const pages = new Pages(at, () => poll.now());

  async function round(signal) {
    const query = { page_size: PAGE, ...pages.query };
    if (at.prefix.value) query.prefix = at.prefix.value;
    const list = await get(path("queues"), { query, signal });
    keyed(at.rows, list.items, ({ queue }) => queue, queueRow);
    const found = list.items.length > 0;
    const filtered = Boolean(at.prefix.value);
    at.card.hidden = !found;
    at.empty.hidden = found || filtered;
    at.none.hidden = found || !filtered;
    pages.update(list.next_page_token);
    showProblem(at.trouble, null);
  }

  say(at.curl, `curl --json '{"topics":["orders"],"start":"earliest"}' ${location.origin}/api/v1/queues/mail:receive`);
  const poll = repeat(round, (error) => showProblem(at.trouble, error));
  at.prefix.addEventListener("input", debounced(() => (pages.restart(), poll.now())));
  return poll.stop;
}

// --- one queue -------------------------------------------------------------------------------------------

const PARTITION_COLUMNS = [
  ["", "Topic"], ["number", "Partition"], ["number strong", "Available"], ["number", "In flight"], ["number", "Delayed"],
  ["number", "To dead letters"], ["number", "Start"], ["number", "End"],
];
const FLIGHT_COLUMNS = [
  ["", "Topic"], ["number", "Partition"], ["number", "Offset"], ["", "State"], ["number", "Delivery"], ["", "Until"], ["code", "Lease"],
];
const LETTER_COLUMNS = [["", "Topic"], ["number", "Partition"], ["number", "Offset"], ["", "Cause"], ["", "Reason"], ["code", "Value"]];
const CAUSES = { rejected: "Rejected", limit: "Too many deliveries", expired: "Lock ran out", lost: "Deleted from the log" };
const FLIGHT = { leased: "Leased", delayed: "Delayed", archiving: "To the dead letters" };

function partitionRow() {
  return row(PARTITION_COLUMNS, (cells, one) => {
    say(cells[0], one.topic);
    say(cells[1], count(one.partition));
    say(cells[2], one.served ? count(one.available) : "led elsewhere");
    say(cells[3], count(one.in_flight));
    say(cells[4], count(one.delayed));
    say(cells[5], count(one.archiving));
    say(cells[6], count(one.start));
    say(cells[7], count(one.end));
  });
}

function flightRow() {
  return row(FLIGHT_COLUMNS, (cells, one) => {
    say(cells[0], one.topic);
    say(cells[1], count(one.partition));
    say(cells[2], count(one.offset));
    say(cells[3], FLIGHT[one.state] ?? one.state);
    say(cells[4], count(one.delivery_count));
    say(cells[5], one.until_ms === null ? "–" : clock(one.until_ms));
    say(cells[6], one.lease ?? "–");
  });
}

/** A value in one short line. */
function short({ pointer, record: { value } }) {
  if (pointer) return "–";
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}

function letterRow() {
  return row(LETTER_COLUMNS, (cells, one) => {
    say(cells[0], one.topic);
    say(cells[1], count(one.partition));
    say(cells[2], count(one.offset));
    say(cells[3], CAUSES[one.cause] ?? one.cause);
    say(cells[4], one.reason || "–");
    say(cells[5], short(one));
  });
}

/** What the newest redrive has done. */
function redriveText([task]) {
  if (!task) return "";
  const moved = `${count(task.moved)} moved`;
  return { running: `${moved} …`, done: `${moved}.`, cancelled: `Cancelled: ${moved}.` }[task.state] ?? `Failed: ${task.error}`;
}

/** Show one queue in `place`; returns a function that ends it. */
export function showQueue(place, queue) {
  const at = stamp("queue-view", place);
  const here = path("queues", queue);
  say(at.name, queue);
  let paused = false;

  async function press(button, work) {
    button.disabled = true;
    try {
      await work();
      poll.now();
    } catch (error) {
      showProblem(at.refused, error, UNKNOWN);
    }
    button.disabled = false;
  }

  at.pause.addEventListener("click", () =>
    press(at.pause, async () => {
      await send("POST", `${here}:${paused ? "resume" : "pause"}`);
      showProblem(at.refused, null);
    }),
  );
  at.remove.addEventListener("click", () => remove(queue));
  at.redrive.addEventListener("click", () =>
    press(at.redrive, async () => {
      await send("POST", `${here}/dead-letters:redrive`);
      showProblem(at.refused, null);
    }),
  );
  at.purge.addEventListener("click", () => purge(queue, () => poll.now()));

  async function round(signal) {
    const [detail, counts, flight] = await Promise.all([
      get(here, { signal }),
      get(`${here}/stats`, { signal }),
      get(`${here}/in-flight`, { query: { page_size: IN_FLIGHT }, signal }),
    ]);
    paused = detail.paused;
    showState(at.state, paused);
    say(at.pause, paused ? "Resume" : "Pause");
    at.pause.hidden = false;
    say(at.available, count(counts.available));
    say(at["in-flight"], count(counts.in_flight));
    say(at.delayed, count(counts.delayed));
    say(at.archiving, count(counts.archiving));
    const age = counts.oldest_unsettled_age_ms;
    say(at.oldest, age === null ? "–" : duration(age < 1000 ? age : age - (age % 1000)));
    say(at.reads, reads(detail));
    say(at.lock, duration(detail.lock_ms));
    say(at.limit, detail.delivery_limit === null ? "none" : count(detail.delivery_limit));
    say(at.order, detail.order === "key" ? "by key" : "none");
    await showDead(detail, signal);
    const key = ({ topic, partition, offset }) => `${topic}/${partition}/${offset ?? ""}`;
    keyedFirst(at.partitions, at["partitions-rest"], counts.partitions, key, partitionRow);
    at["partitions-table"].hidden = !counts.partitions.length;
    at["no-partitions"].hidden = counts.partitions.length > 0;
    keyed(at.flight, flight.items, key, flightRow);
    at["flight-table"].hidden = !flight.items.length;
    at["no-flight"].hidden = flight.items.length > 0;
    at["flight-rest"].hidden = !flight.next_page_token;
    showProblem(at.trouble, null);
  }

  async function showDead({ dead_letter, drop }, signal) {
    at["dead-topic"].hidden = dead_letter === null;
    at["no-dead"].hidden = dead_letter !== null;
    say(at["no-dead"], drop ? "Records that are given up are dropped." : "No record is given up: it is delivered again.");
    if (dead_letter === null) return;
    say(at["dead-link"], dead_letter.topic);
    at["dead-link"].href = `#/topics/${encodeURIComponent(dead_letter.topic)}`;
    const [letters, redrives] = await Promise.all([
      get(`${here}/dead-letters`, { query: { page_size: LETTERS }, signal }),
      get(`${here}/redrives`, { signal }),
    ]);
    const found = letters.items.length > 0;
    keyed(at.letters, letters.items, ({ dead_letter: { partition, offset } }) => `${partition}/${offset}`, letterRow);
    at["letters-table"].hidden = !found;
    at["no-letters"].hidden = found;
    at["letters-rest"].hidden = !letters.next_page_token;
    at.redrive.hidden = !found;
    at.purge.hidden = !found;
    say(at.redriven, redriveText(redrives.items));
  }

  const poll = repeat(round, (error) => showProblem(at.trouble, error));
  return poll.stop;
}

/** Ask, and forget the dead letters of a queue; `purged()` is called then. */
function purge(queue, purged) {
  const { at, close } = openDialog("purge-dialog", `Forget the dead letters of ${queue}`);
  at.form.addEventListener("submit", async (event) => {
    event.preventDefault();
    at.yes.disabled = true;
    try {
      await send("POST", `${path("queues", queue)}/dead-letters:purge`);
    } catch (error) {
      at.yes.disabled = false;
      showProblem(at.trouble, error, UNKNOWN);
      return;
    }
    close();
    purged();
  });
  at.cancel.focus();
}

/** Ask, and delete a queue; the view is left then. */
function remove(queue) {
  const { at, close } = openDialog("queue-dialog", `Delete queue ${queue}`);
  at.form.addEventListener("submit", async (event) => {
    event.preventDefault();
    at.yes.disabled = true;
    try {
      await send("DELETE", `${path("queues", queue)}?force=${at.force.checked}`);
    } catch (error) {
      at.yes.disabled = false;
      showProblem(at.trouble, error, UNKNOWN);
      return;
    }
    close();
    location.hash = "#/queues";
  });
  at.cancel.focus();
}
