// Pages of records from any place in a topic, forwards and backwards, over its partitions by time.
//
// The records of a partition have an order, those of several partitions do not. So a page is made here: records of
// each partition are read a few at a time and merged by their times.
//
// A place in a partition is `{ offset, cursor }`. The cursor is the API's, where there is one: a filter has passed
// over records up to there. None of those between the offset and the cursor match, so that the way back begins at
// the offset.

import { each, get, path } from "./api.js";
import { listOf, merge, MOST_PARTITIONS, readable, selection } from "./positions.js";
import { recordOf } from "./record.js";

const PAGE = 50;
// Requests at the same time, and how often the lists of one page are filled at most.
const AT_ONCE = 5;
const ROUNDS = 8;
// A filter may match nothing for long: one step looks at this many pages of the API, or windows, at most.
const SEARCHES = 10;
// The way back is read in windows of offsets: this many where a filter or compaction leaves few records in them.
const WIDEST = 1000;

export class History {
  #topic;
  #filters;
  #isolation;
  #earliest = new Map();
  #latest = new Map();
  #begin = new Map();
  #end = new Map();

  /** `filters`: the parameters `key`, `key_prefix`, `header.<name>` and `isolation_level` of the route. */
  constructor(topic, { isolation_level, ...filters }) {
    this.#topic = topic;
    this.#filters = filters;
    this.#isolation = isolation_level ? { isolation_level } : {};
  }

  /**
   * Read the first page. `start`: `{ at: "newest" | "earliest" | "offset" | "time", offset, time }`. `partitions`: a
   * list like "0,2,5-7", empty for all. Returns `{ records, older, newer }`: records from old to new, and whether
   * there may be more on either side. Throws as `get` does, and RangeError for too many partitions.
   */
  async begin(start, partitions, signal) {
    const detail = await get(path("topics", this.#topic), { signal });
    const details = readable(detail.partition_details, this.#isolation.isolation_level);
    const chosen = details.filter(({ partition }) => selection(partitions)(partition));
    // The gateway says what is wrong with a list that names no partition.
    if (!chosen.length) await this.#page({ partitions, limit: 1 }, signal);
    const held = chosen.filter(({ earliest, latest }) => latest > earliest);
    if (held.length > MOST_PARTITIONS) {
      throw new RangeError(`${held.length} partitions have records: name at most ${MOST_PARTITIONS} of them in Partitions.`);
    }
    const offsets = start.at === "time" ? await this.#offsetsAt(start.time, signal) : new Map();
    const aim = ({ partition, earliest, latest }) => {
      if (start.at === "earliest") return earliest;
      if (start.at === "offset") return Math.min(Math.max(start.offset, earliest), latest);
      return offsets.get(partition) ?? latest;
    };
    this.#earliest = new Map(held.map(({ partition, earliest }) => [partition, earliest]));
    this.#latest = new Map(held.map(({ partition, latest }) => [partition, latest]));
    this.#end = new Map(held.map((one) => [one.partition, { offset: aim(one), cursor: null }]));
    this.#begin = this.#end;
    return start.at === "newest" ? this.older(signal) : this.newer(signal);
  }

  /** Read the page after this one. */
  async newer(signal) {
    const most = this.#most(this.#end.size);
    const sources = [...this.#end].map(([partition, place]) => new Forwards(partition, place, most, this.#reader(signal)));
    const records = await collect(sources, 1);
    this.#begin = this.#end;
    this.#end = new Map(sources.map((source) => [source.partition, source.place]));
    return this.#shown(records, sources.some((source) => source.left));
  }

  /** Read the page before this one. */
  async older(signal) {
    const most = this.#most(this.#begin.size);
    const sources = [...this.#begin].map(([partition, { offset }]) => {
      return new Backwards(partition, offset, this.#earliest.get(partition), most, this.#reader(signal));
    });
    const records = await collect(sources, -1);
    this.#end = this.#begin;
    this.#begin = new Map(sources.map((source) => [source.partition, source.place]));
    const newer = [...this.#end].some(([partition, { offset }]) => offset < this.#latest.get(partition));
    return this.#shown(records.reverse(), newer);
  }

  #shown(records, newer) {
    const older = [...this.#begin].some(([partition, { offset }]) => offset > this.#earliest.get(partition));
    return { records, older, newer };
  }

  /** How many records of each partition are read at once. */
  #most(partitions) {
    return Math.min(PAGE, Math.max(10, Math.ceil((2 * PAGE) / partitions)));
  }

  async #offsetsAt(time, signal) {
    const found = await get(`${path("topics", this.#topic)}/offsets`, { query: { at: time, ...this.#isolation }, signal });
    return new Map(found.partitions.map(({ partition, offset }) => [partition, offset]));
  }

  #page(query, signal) {
    return get(`${path("topics", this.#topic)}/records`, { query: { encoding: "utf8", ...this.#isolation, ...query }, signal });
  }

  /** The two ways to read a partition: forwards through the filters, and a range of offsets. */
  #reader(signal) {
    return {
      forwards: (partition, { offset, cursor }, limit) => {
        const place = cursor ? { cursor } : { partitions: partition, offsets: `${partition}:${offset}` };
        return this.#page({ ...this.#filters, ...place, limit }, signal);
      },
      range: (partition, offset, limit) => {
        const url = `${path("topics", this.#topic, "partitions", String(partition))}/records`;
        return get(url, { query: { offset, limit, encoding: "utf8", ...this.#isolation }, signal });
      },
      filters: this.#filters,
    };
  }
}

/** Fill the lists of sources and take from them, until there is a page. */
async function collect(sources, direction) {
  const records = [];
  for (let round = 0; round < ROUNDS && records.length < PAGE; round += 1) {
    const empty = sources.filter(({ list }) => list.used === list.records.length && !list.whole);
    await each(empty, (source) => source.fill(), AT_ONCE);
    records.push(...merge(sources.map(({ list }) => list), PAGE - records.length, direction));
    const starved = sources.some(({ list }) => list.used === list.records.length && !list.whole);
    // Filled and empty all the same: the search of this step is over.
    if (!starved || empty.some(({ list }) => !list.records.length && !list.whole)) break;
  }
  return records;
}

/** The records of a partition from a place on. */
class Forwards {
  list = listOf([], false);
  #place;

  constructor(partition, place, most, reader) {
    this.partition = partition;
    this.most = most;
    this.reader = reader;
    this.#place = place;
  }

  /** Where the next page begins. */
  get place() {
    const next = this.list.records[this.list.used];
    return next ? { offset: next.offset, cursor: null } : this.#place;
  }

  /** Whether there may be more. */
  get left() {
    return this.list.used < this.list.records.length || !this.list.whole;
  }

  async fill() {
    const found = [];
    let whole = false;
    for (let search = 0; search < SEARCHES && !found.length && !whole; search += 1) {
      const page = await this.reader.forwards(this.partition, this.#place, this.most);
      found.push(...page.records.map((record) => recordOf(record)));
      whole = page.caught_up;
      this.#place = { offset: found.length ? found.at(-1).offset + 1 : this.#place.offset, cursor: page.next_cursor };
    }
    this.list = { ...listOf(found, whole), reached: this.list.reached };
  }
}

/** The records of a partition below an offset, from new to old. */
class Backwards {
  list = listOf([], false);
  #low;

  constructor(partition, offset, earliest, most, reader) {
    this.partition = partition;
    this.earliest = earliest;
    this.most = most;
    this.reader = reader;
    this.#low = offset;
    this.list.whole = offset <= earliest;
  }

  /** Where the page begins: at the last record that was taken, or where the search has come to. */
  get place() {
    const { records, used } = this.list;
    const offset = used < records.length ? records[used].offset + 1 : this.#low;
    return { offset, cursor: null };
  }

  async fill() {
    const filtered = Object.keys(this.reader.filters).length > 0;
    let width = filtered ? WIDEST : this.most;
    let found = [];
    for (let search = 0; search < SEARCHES && !found.length && this.#low > this.earliest; search += 1) {
      const low = Math.max(this.earliest, this.#low - width);
      found = await this.#range(low, this.#low);
      this.#low = low;
      width = Math.min(2 * width, WIDEST);
    }
    this.list = { ...listOf(found.reverse(), this.#low <= this.earliest), reached: this.list.reached };
  }

  /** The records from `low` up to `high`, those that pass the filters. */
  async #range(low, high) {
    const found = [];
    for (let offset = low; offset < high; ) {
      const page = await this.reader.range(this.partition, offset, high - offset);
      const below = page.records.filter((record) => record.offset < high && passes(record, this.reader.filters));
      found.push(...below.map((record) => recordOf(record)));
      if (page.next_offset <= offset) break;
      offset = page.next_offset;
    }
    return found;
  }
}

/** Whether a record passes the filters of the route; keys and headers are compared as text. */
function passes({ key, headers }, filters) {
  return Object.entries(filters).every(([name, wanted]) => {
    if (name === "key") return key === wanted;
    if (name === "key_prefix") return key?.startsWith(wanted);
    return headers.some((header) => `header.${header.name}` === name && header.value === wanted);
  });
}
