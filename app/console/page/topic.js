// One topic: its figures and partitions, the live tail, the form to produce.

import { get, path, reasonOf, repeat } from "./api.js";
import { sparkline } from "./chart.js";
import { h, keyed, keyedFirst, row, say, sayOrHide, stamp } from "./dom.js";
import { count, rate, size } from "./format.js";
import { showProduce } from "./produce.js";
import { Rate } from "./series.js";
import { showTail } from "./tail_view.js";
import { sums } from "./topics.js";

const COLUMNS = [
  ["number", "Number"], ["number", "First"], ["number", "Next"], ["number", "Size"], ["number", "Records/s"],
];

function partitionRow() {
  return row(COLUMNS, (cells, { detail, speed }) => {
    say(cells[0], count(detail.partition));
    say(cells[1], count(detail.earliest));
    say(cells[2], count(detail.latest));
    say(cells[3], size(detail.size_bytes));
    say(cells[4], rate(speed.perSecond));
  });
}

/** Show a topic in `place`; gives a function that ends it. */
export function showTopic(place, name) {
  const at = stamp("topic-view", place);
  say(at.name, name);
  const line = sparkline();
  at.spark.append(line);
  let topicId = null;
  let speed = new Rate();
  let speeds = new Map();

  const tail = showTail(at.tail, name);
  showProduce(at.produce, name, () => poll.now());

  async function round(signal) {
    const detail = await get(path("topics", name), { signal });
    if (detail.topic_id !== topicId) {
      topicId = detail.topic_id;
      tail.revive();
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
      its.add(one.latest);
      return { detail: one, speed: its };
    });
    keyedFirst(at["partition-rows"], at["partitions-rest"], rows, (one) => one.detail.partition, partitionRow);
    showSettings(at, detail.configs);
    sayOrHide(at.trouble, null);
  }

  const poll = repeat(round, (error) => sayOrHide(at.trouble, reasonOf(error)));
  return () => {
    poll.stop();
    tail.stop();
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
