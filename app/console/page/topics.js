// The list of topics, with sizes, and rates between successive polls.

import { each, get, path, repeat, send } from "./api.js";
import { sparkline } from "./chart.js";
import { debounced, h, keyed, row, say, stamp } from "./dom.js";
import { count, rate, size } from "./format.js";
import { Pages } from "./pages.js";
import { showDone, showProblem } from "./problem.js";
import { Rate } from "./series.js";

const PAGE = 25;

/** The sums over a topic's partitions. */
export function sums(detail) {
  const total = { records: 0, written: 0, bytes: 0 };
  for (const { earliest, latest, size_bytes } of detail.partition_details) {
    total.records += latest - earliest;
    total.written += latest;
    // A gateway over another cluster does not know sizes.
    total.bytes = size_bytes === null || total.bytes === null ? null : total.bytes + size_bytes;
  }
  return total;
}

const COLUMNS = [
  ["name", "Topic"], ["number", "Partitions"], ["number", "Records"], ["number", "Size"],
  ["number strong", "Records/s"], ["spark", ""],
];

function topicRow() {
  const link = h("a");
  const line = sparkline();
  const element = row(COLUMNS, (cells, { name, detail, speed }) => {
    say(link, name);
    link.href = `#/topics/${encodeURIComponent(name)}`;
    const total = sums(detail);
    say(cells[1], count(detail.partitions));
    say(cells[2], count(total.records));
    say(cells[3], size(total.bytes));
    say(cells[4], rate(speed.perSecond));
    line.update(speed.history);
  });
  element.firstChild.append(link);
  element.lastChild.append(line);
  return element;
}

/** Show the list in `place`; returns a function that ends it. */
export function showTopics(place) {
  const at = stamp("topics-view", place);
  // By topic id: a topic that was deleted and created again is another one.
  let speeds = new Map();
  const pages = new Pages(at, () => poll.now());

  async function round(signal) {
    const query = { page_size: PAGE, ...pages.query };
    if (at.prefix.value) query.prefix = at.prefix.value;
    const [cluster, list] = await Promise.all([
      get(path("cluster"), { signal }),
      get(path("topics"), { query, signal }),
    ]);
    const found = [];
    await each(list.items, async ({ name }) => {
      try {
        const detail = await get(path("topics", name), { signal });
        const speed = speeds.get(detail.topic_id) ?? new Rate();
        speed.add(sums(detail).written);
        found.push({ name, detail, speed });
      } catch (error) {
        // It was deleted between the two requests: then it is not in the list.
        if (error.status !== 404) throw error;
      }
    });
    speeds = new Map(found.map(({ detail, speed }) => [detail.topic_id, speed]));
    found.sort((a, b) => (a.name < b.name ? -1 : 1));
    keyed(at.rows, found, ({ detail }) => detail.topic_id, topicRow);
    const filtered = Boolean(at.prefix.value);
    at.card.hidden = !found.length;
    at.empty.hidden = found.length > 0 || filtered;
    at.none.hidden = found.length > 0 || !filtered;
    pages.update(list.next_page_token);
    say(at.facts, facts(cluster));
    showProblem(at.trouble, null);
  }

  const poll = repeat(round, (error) => showProblem(at.trouble, error));
  say(at.curl, `curl -d 'hello' ${location.origin}${path("topics", "greetings", "records")}`);
  at.prefix.addEventListener("input", debounced(() => (pages.restart(), poll.now())));
  newTopic(at, poll);
  return poll.stop;
}

function facts({ topics, partitions, brokers }) {
  const kafka = brokers.map((broker) => broker.kafka).filter(Boolean);
  const held = `${count(topics)} ${topics === 1 ? "topic" : "topics"}, ${count(partitions)} ${partitions === 1 ? "partition" : "partitions"}`;
  return kafka.length ? `${held}. Kafka clients connect to ${kafka.join(", ")}.` : `${held}.`;
}

function newTopic(at, poll) {
  at.new.addEventListener("click", () => {
    at.form.hidden = !at.form.hidden;
    at.new.setAttribute("aria-expanded", String(!at.form.hidden));
    if (!at.form.hidden) at.form.elements.name.focus();
  });
  at.form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const { name, partitions } = at.form.elements;
    try {
      await send("PUT", path("topics", name.value), { partitions: Number(partitions.value) || 1 });
      showDone(at.outcome, `Topic ${name.value} exists.`);
      name.value = "";
      poll.now();
    } catch (error) {
      showProblem(at.outcome, error, "The gateway cannot be reached. Create the topic again: if it exists already, nothing changes.");
    }
  });
}
