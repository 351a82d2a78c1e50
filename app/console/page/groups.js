// Consumer groups: the list, and one group with members, positions and its lag over time.

import { each, get, path, repeat } from "./api.js";
import { chart, sparkline } from "./chart.js";
import { debounced, h, keyed, keyedFirst, row, say, stamp } from "./dom.js";
import { count } from "./format.js";
import { resetOffsets } from "./group_reset.js";
import { Pages } from "./pages.js";
import { showProblem } from "./problem.js";
import { Series } from "./series.js";

const PAGE = 25;
// Lag over time is kept when the view is left, so that its chart is not empty when the reader comes back.
const MOST_SERIES = 200;
const lags = new Map();
const TYPES = { classic: "Classic", consumer: "Consumer", share: "Share", "kafka07-zookeeper": "Kafka 0.7" };

/** The lag of a group over time, and now; null where the group has no committed offset. */
function lagOf(groupId, { total_lag, partitions }) {
  const known = partitions.some(({ lag }) => lag !== null);
  const series = lags.get(groupId) ?? new Series();
  lags.delete(groupId);
  lags.set(groupId, series);
  if (lags.size > MOST_SERIES) lags.delete(lags.keys().next().value);
  if (known) series.add(total_lag);
  return { series, now: known ? total_lag : null };
}

function showState(place, state) {
  place.dataset.state = state;
  say(place, { PreparingRebalance: "Rebalancing", CompletingRebalance: "Rebalancing", Assigning: "Rebalancing", Reconciling: "Rebalancing" }[state] ?? state);
}

// --- the list --------------------------------------------------------------------------------------------

const COLUMNS = [["name", "Group"], ["", "State"], ["", "Type"], ["number", "Members"], ["number strong", "Lag"], ["spark", ""]];

function groupRow() {
  const link = h("a");
  const line = sparkline();
  const state = h("span", { class: "group-state" });
  const element = row(COLUMNS, (cells, { group, lag }) => {
    say(link, group.group_id);
    link.href = `#/groups/${encodeURIComponent(group.group_id)}`;
    showState(state, group.state);
    say(cells[2], TYPES[group.type] ?? group.type);
    say(cells[3], count(group.members.length));
    say(cells[4], count(lag.now));
    line.update(lag.series);
  });
  element.children[0].append(link);
  element.children[1].append(state);
  element.lastChild.append(line);
  return element;
}

/** Show the list in `place`; returns a function that ends it. */
export function showGroups(place) {
  const at = stamp("groups-view", place);
  const pages = new Pages(at, () => poll.now());

  async function round(signal) {
    const query = { page_size: PAGE, ...pages.query };
    if (at.prefix.value) query.prefix = at.prefix.value;
    const list = await get(path("groups"), { query, signal });
    const found = [];
    await each(list.items, async ({ group_id }) => {
      try {
        const group = await get(path("groups", group_id), { signal });
        const lag = await get(`${path("groups", group_id)}/lag`, { signal });
        found.push({ group, lag: lagOf(group_id, lag) });
      } catch (error) {
        if (error.status !== 404) throw error;
      }
    });
    found.sort((a, b) => (a.group.group_id < b.group.group_id ? -1 : 1));
    keyed(at.rows, found, ({ group }) => group.group_id, groupRow);
    const filtered = Boolean(at.prefix.value);
    at.card.hidden = !found.length;
    at.empty.hidden = found.length > 0 || filtered;
    at.none.hidden = found.length > 0 || !filtered;
    pages.update(list.next_page_token);
    showProblem(at.trouble, null);
  }

  const poll = repeat(round, (error) => showProblem(at.trouble, error));
  at.prefix.addEventListener("input", debounced(() => (pages.restart(), poll.now())));
  return poll.stop;
}

// --- one group -------------------------------------------------------------------------------------------

const MEMBER_COLUMNS = [["strong", "Client"], ["", "Host"], ["", "Partitions"], ["code", "Member id"]];
const POSITION_COLUMNS = [
  ["", "Topic"], ["number", "Partition"], ["number strong", "Lag"], ["number", "Committed offset"], ["number", "Log end offset"], ["", "Client"],
];

/** Partitions of several topics, short: "orders 0–2, 5; users 0". */
export function ranges(partitions) {
  const byTopic = new Map();
  for (const { topic, partition } of partitions) {
    if (!byTopic.has(topic)) byTopic.set(topic, []);
    byTopic.get(topic).push(partition);
  }
  const told = [...byTopic].map(([topic, numbers]) => {
    const runs = [];
    for (const number of numbers.sort((a, b) => a - b)) {
      const run = runs.at(-1);
      if (run && run[1] === number - 1) run[1] = number;
      else runs.push([number, number]);
    }
    return `${topic} ${runs.map(([from, to]) => (from === to ? from : `${from}–${to}`)).join(", ")}`;
  });
  return told.join("; ") || "none";
}

function memberRow() {
  return row(MEMBER_COLUMNS, (cells, member) => {
    say(cells[0], member.group_instance_id ? `${member.client_id} (${member.group_instance_id})` : member.client_id);
    say(cells[1], member.client_host);
    const [now, then] = [ranges(member.partitions), ranges(member.target ?? member.partitions)];
    say(cells[2], now === then ? now : `${now} → ${then}`);
    say(cells[3], member.member_id);
  });
}

function positionRow() {
  return row(POSITION_COLUMNS, (cells, { position, client }) => {
    say(cells[0], position.topic);
    say(cells[1], count(position.partition));
    say(cells[2], count(position.lag));
    say(cells[3], position.next_offset === null ? "none" : count(position.next_offset));
    say(cells[4], count(position.high_watermark));
    say(cells[5], client ?? "–");
  });
}

/** Show one group in `place`; returns a function that ends it. */
export function showGroup(place, groupId) {
  const at = stamp("group-view", place);
  say(at.name, groupId);
  const drawing = chart("Lag");
  at.chart.append(drawing);
  let topics = [];
  at.reset.addEventListener("click", () => resetOffsets(groupId, topics, () => poll.now()));

  async function round(signal) {
    const [group, lag] = await Promise.all([
      get(path("groups", groupId), { signal }),
      get(`${path("groups", groupId)}/lag`, { signal }),
    ]);
    showState(at.state, group.state);
    say(at["member-count"], count(group.members.length));
    say(at.generation, count(group.generation_id));
    say(at.type, TYPES[group.type] ?? group.type);
    say(at.protocol, group.protocol || "–");
    topics = [...new Set(lag.partitions.map(({ topic }) => topic))];
    const { series, now } = lagOf(groupId, lag);
    say(at.lag, count(now));
    drawing.update(series);
    keyedFirst(at.members, at["members-rest"], group.members, (member) => member.member_id, memberRow);
    at["no-members"].hidden = group.members.length > 0;
    at["members-table"].hidden = !group.members.length;
    const clients = new Map(group.members.map((member) => [member.member_id, member.client_id]));
    const rows = lag.partitions.map((position) => ({ position, client: clients.get(position.member_id) }));
    keyedFirst(at.positions, at["positions-rest"], rows, ({ position }) => `${position.topic}/${position.partition}`, positionRow);
    at["no-positions"].hidden = rows.length > 0;
    at["positions-table"].hidden = !rows.length;
    showProblem(at.trouble, null);
  }

  const poll = repeat(round, (error) => showProblem(at.trouble, error));
  return poll.stop;
}
