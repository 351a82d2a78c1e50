// Transactions: the list of transactional ids, and one of them with the partitions that its open transaction holds up.

import { get, path, repeat, send } from "./api.js";
import { openDialog } from "./dialog.js";
import { debounced, h, keyed, keyedFirst, row, say, stamp } from "./dom.js";
import { clock, count, duration } from "./format.js";
import { Pages } from "./pages.js";
import { showProblem } from "./problem.js";

const PAGE = 25;
const OPEN = "Ongoing,PrepareCommit,PrepareAbort";
const SAID = {
  Empty: "None yet", Ongoing: "Open", PrepareCommit: "Committing", PrepareAbort: "Aborting",
  CompleteCommit: "Committed", CompleteAbort: "Aborted",
};

function showState(place, state) {
  place.dataset.state = state;
  say(place, SAID[state] ?? state);
}

/** For how long a transaction is open: whole seconds, so that the text is calm. */
function age({ age_ms }) {
  return age_ms === null ? "–" : duration(age_ms < 1000 ? age_ms : age_ms - (age_ms % 1000));
}

// --- the list --------------------------------------------------------------------------------------------

const COLUMNS = [
  ["name", "Transactional id"], ["", "State"], ["number strong", "Age"], ["number", "Timeout"],
  ["number", "Partitions"], ["number", "Producer id"],
];

function idRow() {
  const link = h("a");
  const state = h("span", { class: "group-state" });
  const element = row(COLUMNS, (cells, one) => {
    say(link, one.transactional_id);
    link.href = `#/transactions/${encodeURIComponent(one.transactional_id)}`;
    showState(state, one.state);
    say(cells[2], age(one));
    say(cells[3], duration(one.timeout_ms));
    say(cells[4], count(one.partitions));
    say(cells[5], String(one.producer_id));
  });
  element.children[0].append(link);
  element.children[1].append(state);
  return element;
}

/** Show the list in `place`; returns a function that ends it. */
export function showTransactions(place) {
  const at = stamp("transactions-view", place);
  const pages = new Pages(at, () => poll.now());

  async function round(signal) {
    const query = { page_size: PAGE, ...pages.query };
    if (at.prefix.value) query.prefix = at.prefix.value;
    if (at.which.value === "open") query.state = OPEN;
    const list = await get(path("transactions"), { query, signal });
    keyed(at.rows, list.items, ({ transactional_id }) => transactional_id, idRow);
    const found = list.items.length > 0;
    const chosen = Boolean(at.prefix.value);
    at.card.hidden = !found;
    at.empty.hidden = found || chosen || at.which.value === "open";
    at["none-open"].hidden = found || chosen || at.which.value !== "open";
    at.none.hidden = found || !chosen;
    pages.update(list.next_page_token);
    showProblem(at.trouble, null);
  }

  const poll = repeat(round, (error) => showProblem(at.trouble, error));
  const again = () => (pages.restart(), poll.now());
  at.prefix.addEventListener("input", debounced(again));
  at.which.addEventListener("change", again);
  return poll.stop;
}

// --- one id ----------------------------------------------------------------------------------------------

const PARTITION_COLUMNS = [["", "Topic"], ["number", "Partition"], ["number", "First offset"]];

function partitionRow() {
  return row(PARTITION_COLUMNS, (cells, { topic, partition, first_offset }) => {
    say(cells[0], topic);
    say(cells[1], count(partition));
    say(cells[2], first_offset === null ? "none" : count(first_offset));
  });
}

/** Show one transactional id in `place`; returns a function that ends it. */
export function showTransaction(place, transactionalId) {
  const at = stamp("transaction-view", place);
  say(at.name, transactionalId);
  at.abort.addEventListener("click", () => abort(transactionalId, () => poll.now()));

  async function round(signal) {
    const one = await get(path("transactions", transactionalId), { signal });
    const open = one.age_ms !== null;
    showState(at.state, one.state);
    say(at.age, age(one));
    say(at.started, clock(one.started_ms));
    say(at.expires, clock(one.expires_ms));
    say(at.timeout, duration(one.timeout_ms));
    say(at.producer, `${one.producer_id}, epoch ${one.producer_epoch}`);
    at.abort.hidden = !open;
    const key = ({ topic, partition }) => `${topic}/${partition}`;
    keyedFirst(at.partitions, at["partitions-rest"], one.partition_details, key, partitionRow);
    at["partitions-table"].hidden = !one.partition_details.length;
    at["no-partitions"].hidden = one.partition_details.length > 0;
    at["groups-part"].hidden = !one.groups.length;
    say(at.groups, one.groups.join(", "));
    showProblem(at.trouble, null);
  }

  const poll = repeat(round, (error) => showProblem(at.trouble, error));
  return poll.stop;
}

/** Ask, and abort the open transaction of an id; `aborted()` is called then. */
function abort(transactionalId, aborted) {
  const { at, close } = openDialog("abort-dialog", `Abort the transaction of ${transactionalId}`);
  at.form.addEventListener("submit", async (event) => {
    event.preventDefault();
    at.yes.disabled = true;
    try {
      await send("DELETE", path("transactions", transactionalId));
    } catch (error) {
      at.yes.disabled = false;
      showProblem(at.trouble, error, "The gateway cannot be reached. Whether the transaction was aborted is not known.");
      aborted();
      return;
    }
    close();
    aborted();
  });
  at.cancel.focus();
}
