// Positions in a topic: an offset in each of some partitions, and how far to go back for the newest records.

import { get, path } from "./api.js";

/** At most this many partitions are named in one request. */
export const MOST_PARTITIONS = 300;
// Records are read whole: a few large ones must not make the page wait.
const OPENING_BYTES = 4 * 1024 * 1024;
const FEWEST = 10;

/** Return a test for the partitions in "0,2,5-7"; an empty text means all. The gateway refuses other texts. */
export function selection(text) {
  const ranges = text.split(",").filter((part) => part.trim()).map((part) => part.split("-").map(Number));
  return (partition) => !ranges.length || ranges.some(([low, high = low]) => partition >= low && partition <= high);
}

/** How many each may give at most, so that all together give `budget`: those that have less give all they have. */
export function fairShare(available, budget) {
  const sorted = available.filter((one) => one > 0).sort((a, b) => a - b);
  let left = budget;
  for (const [index, one] of sorted.entries()) {
    const share = Math.floor(left / (sorted.length - index));
    if (one > share) return Math.max(share, 1);
    left -= one;
  }
  return Infinity;
}

/** The `offsets` parameter of a position, a list of `[partition, offset]`: "0:17,2:4". */
export function offsetsText(position) {
  return position.map(([partition, offset]) => `${partition}:${offset}`).join(",");
}

/** The partitions of a topic as a read sees them: `latest` is where it ends, the high watermark if not all is committed. */
export function readable(details, isolationLevel) {
  if (isolationLevel !== "read_uncommitted") return details;
  return details.map((one) => ({ ...one, latest: one.high_watermark }));
}

/** How many records, at most `wanted`, so that a page of them is not too large. */
function budgetOf(details, wanted) {
  const records = details.reduce((sum, one) => sum + one.latest - one.earliest, 0);
  const bytes = details.reduce((sum, one) => sum + one.size_bytes, 0);
  // Without sizes the page may be large.
  if (details.some((one) => one.size_bytes === null)) return wanted;
  const fitting = Math.floor((OPENING_BYTES * records) / Math.max(bytes, 1));
  return Math.min(wanted, Math.max(fitting, FEWEST));
}

/** The parameters with which a stream begins at about the newest `wanted` records. Throws as `get` does. */
export async function newest(topic, { partitions = "", isolation_level }, wanted, signal) {
  const detail = await get(path("topics", topic), { signal });
  const details = readable(detail.partition_details, isolation_level);
  const chosen = details.filter(({ partition }) => selection(partitions)(partition));
  const named = chosen.length > MOST_PARTITIONS ? await lastWritten(topic, chosen, signal) : chosen;
  const share = fairShare(named.map(({ earliest, latest }) => latest - earliest), budgetOf(named, wanted));
  const position = named.map(({ partition, earliest, latest }) => [partition, Math.max(earliest, latest - share)]);
  return position.length ? { from: "latest", offsets: offsetsText(position) } : { from: "latest" };
}

/** Of very many partitions, those whose newest records are the newest. */
async function lastWritten(topic, details, signal) {
  const { partitions } = await get(`${path("topics", topic)}/offsets`, { query: { at: "max_timestamp" }, signal });
  const times = new Map(partitions.map(({ partition, timestamp_ms }) => [partition, timestamp_ms ?? -1]));
  return details.toSorted((a, b) => times.get(b.partition) - times.get(a.partition)).slice(0, MOST_PARTITIONS);
}

/** Records of one partition in the order in which they are merged. `whole`: no more follow. */
export function listOf(records, whole = true) {
  return { records, used: 0, whole, reached: -Infinity };
}

/**
 * Take records from lists by time, each list in its own order, and return at most `wanted`. Stops where a list has
 * no more and is not whole, since its next record is not known. `direction` -1 takes from new to old.
 */
export function merge(lists, wanted, direction = 1) {
  // The times of a partition may run back; its order is kept all the same.
  const key = (list) => Math.max(list.reached, direction * (list.records[list.used].ms ?? 0));
  const taken = [];
  while (taken.length < wanted) {
    if (lists.some((list) => list.used === list.records.length && !list.whole)) break;
    const left = lists.filter((list) => list.used < list.records.length);
    if (!left.length) break;
    const next = left.reduce((least, list) => (key(list) < key(least) ? list : least));
    next.reached = key(next);
    taken.push(next.records[next.used]);
    next.used += 1;
  }
  return taken;
}
