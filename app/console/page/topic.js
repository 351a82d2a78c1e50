// One topic: its figures and partitions, its records, the form to produce, and what changes it.

import { get, path, repeat } from "./api.js";
import { sparkline } from "./chart.js";
import { h, keyed, keyedFirst, row, say, stamp } from "./dom.js";
import { count, rate, size } from "./format.js";
import { showProblem } from "./problem.js";
import { showProduce } from "./produce.js";
import { showRecords } from "./records_view.js";
import { Rate } from "./series.js";
import { addPartitions, deleteTopic, editSettings } from "./topic_admin.js";
import { sums } from "./topics.js";

const COLUMNS = [
  ["number", "Partition"], ["number", "Log start offset"], ["number", "Log end offset"], ["number", "Size"],
  ["number", "Records/s"],
];

/** A row of the table of partitions; its number browses the partition. */
function partitionRow(browse) {
  let partition = 0;
  const button = h("button", { type: "button", class: "plain", click: () => browse(partition) });
  const element = row(COLUMNS, (cells, { detail, speed }) => {
    partition = detail.partition;
    say(button, count(partition));
    button.setAttribute("aria-label", `Partition ${partition}: browse its records`);
    say(cells[1], count(detail.earliest));
    const held = detail.latest < detail.high_watermark ? ` (stable ${count(detail.latest)})` : "";
    say(cells[2], count(detail.high_watermark) + held);
    say(cells[3], size(detail.size_bytes));
    say(cells[4], rate(speed.perSecond));
  });
  element.firstChild.append(button);
  return element;
}

/** Show a topic in `place`; returns a function that ends it. */
export function showTopic(place, name) {
  const at = stamp("topic-view", place);
  say(at.name, name);
  const line = sparkline();
  at.spark.append(line);
  let topicId = null;
  let speed = new Rate();
  let speeds = new Map();

  const records = showRecords(at["records-card"], name);
  showProduce(at.produce, name, () => poll.now());
  at.edit.addEventListener("click", () => editSettings(name, () => poll.now()));
  at.grow.addEventListener("click", () => addPartitions(name, () => poll.now()));
  at.remove.addEventListener("click", () => deleteTopic(name, () => (location.hash = "#/topics")));

  async function round(signal) {
    const detail = await get(path("topics", name), { signal });
    if (detail.topic_id !== topicId) {
      topicId = detail.topic_id;
      records.revive();
      speed = new Rate();
      speeds = new Map();
    }
    const total = sums(detail);
    speed.add(total.written);
    say(at.partitions, count(detail.partitions));
    say(at.records, count(total.records));
    say(at.size, size(total.bytes));
    say(at.rate, rate(speed.perSecond));
    line.update(speed.history);
    const rows = detail.partition_details.map((one) => {
      const its = speeds.get(one.partition) ?? new Rate();
      speeds.set(one.partition, its);
      its.add(one.high_watermark);
      return { detail: one, speed: its };
    });
    const newRow = () => partitionRow((partition) => records.browse(partition));
    keyedFirst(at["partition-rows"], at["partitions-rest"], rows, (one) => one.detail.partition, newRow);
    records.update(detail.partition_details);
    showSettings(at, detail.configs);
    showProblem(at.trouble, null);
  }

  const poll = repeat(round, (error) => showProblem(at.trouble, error));
  return () => {
    poll.stop();
    records.stop();
  };
}

function showSettings(at, configs) {
  const own = Object.entries(configs);
  at["no-settings"].hidden = own.length > 0;
  keyed(at.settings, own, ([name]) => name, () => {
    const [name, value] = [h("dt"), h("dd")];
    const element = h("div", {}, name, value);
    element.update = ([key, text]) => (say(name, key), say(value, text));
    return element;
  });
}
