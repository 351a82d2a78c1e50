// A program with the TypeScript types that openapi-typescript makes of our OpenAPI document, and openapi-fetch.
//
// It does what `program.py` does, and prints the same JSON: what happened. tsc checks it under strict settings, so
// each member that it reads has a type. Node runs it as it stands. Started with the gateway's URL and a name for
// its topic.
import createClient from "openapi-fetch";
import type { components, paths } from "./sluice.ts";

type Problem = components["schemas"]["ProblemDocument"];
type RecordRead = components["schemas"]["RecordRead"];

const [baseUrl = "", topic = ""] = process.argv.slice(2);
// Of the forms in which some routes answer, the typed ones; streams are asked for with `parseAs`.
type Media = "application/json" | "application/problem+json" | `application/vnd.kafka.${string}`;
// `header.<name>=<value>`: the filter's members are parameters of their own.
const client = createClient<paths, Media>({
  baseUrl,
  querySerializer: { object: { style: "form", explode: true } },
});
const told: Record<string, unknown> = {};

/** What a typed refusal says: its status, its type, whether trying again helps. */
function problem(error: Problem | undefined): unknown[] {
  if (error === undefined) throw new Error("it was not refused");
  return [error.status, error.type, error.retriable];
}

/** What was answered, or an error with the refusal. */
function good<T>(answer: { data?: T; error?: unknown }): NonNullable<T> {
  if (answer.data === undefined || answer.data === null) throw new Error(JSON.stringify(answer.error));
  return answer.data;
}

const shown = (records: RecordRead[]) => records.map((r) => [r.partition, r.offset, r.value]);
const sorted = (rows: unknown[][]) =>
  rows.sort(([p, o], [q, u]) => Number(p) - Number(q) || Number(o) - Number(u));

async function topics() {
  const path = { topic };
  const body = { partitions: 2, configs: { "retention.ms": 3_600_000 } };
  const first = await client.PUT("/api/v1/topics/{topic}", { params: { path }, body });
  const made = good(first);
  told.created = [first.response.status, made.partitions, made.configs["retention.ms"]];
  told.confirmed = (await client.PUT("/api/v1/topics/{topic}", { params: { path }, body })).response.status;
  const other = await client.PUT("/api/v1/topics/{topic}", { params: { path }, body: { partitions: 3 } });
  told.differs = problem(other.error);
}

async function writes() {
  const path = { topic };
  const one = { key: "ann", value: { n: 1 }, partition: 0, headers: [{ name: "trace", value: "7f" }] };
  const once = () =>
    client.POST("/api/v1/topics/{topic}/records", {
      params: { path, query: { acks: "all" }, header: { "Idempotency-Key": "one" } },
      body: one,
    });
  const first = await once();
  const again = await once();
  told.one = good(first).records.map((r) => [r.partition, r.offset]);
  told.again = [
    again.response.headers.get("Idempotent-Replayed"),
    JSON.stringify(first.data) === JSON.stringify(again.data),
  ];
  const write = (records: components["schemas"]["RecordToWrite"][]) =>
    client.POST("/api/v1/topics/{topic}/records", { params: { path }, body: { records } });
  const many = await write([0, 1, 2].map((n) => ({ value: `value ${n}`, partition: 0 })));
  told.many = good(many).records.map((r) => r.offset);
  const mixed = await write([{ value: null, partition: 1 }, { value: "lost", partition: 7 }]);
  told.mixed = [mixed.response.status, good(mixed).records.map((r) => r.error?.kafka_error ?? null)];
  const refused = await write([{ value: "not base64!", value_encoding: "base64" }]);
  told.refused = [...problem(refused.error), refused.error?.errors?.[0]?.pointer];
  const raw = await client.POST("/api/v1/topics/{topic}/records", {
    params: { path, query: { key: "raw", partition: 1 } },
    headers: { "Content-Type": "application/octet-stream" },
    body: "",
    bodySerializer: () => new Uint8Array([0xff]),
  });
  told.raw = good(raw).records[0]?.offset;
}

async function reads() {
  const path = { topic, partition: 0 };
  const route = "/api/v1/topics/{topic}/partitions/{partition}/records";
  const page = good(await client.GET(route, { params: { path, query: { offset: "1", limit: 2 } } }));
  told.page = [shown(page.records), page.next_offset, page.high_watermark, page.caught_up];
  const since = await client.GET(route, { params: { path, query: { timestamp: "2001-01-01T00:00:00Z" } } });
  told.since = good(since).records.length;
  told.beyond = problem((await client.GET(route, { params: { path, query: { offset: "99" } } })).error);
  const all = "/api/v1/topics/{topic}/records";
  const found: RecordRead[] = [];
  let query: { limit: number; cursor?: string } = { limit: 2 };
  for (let caughtUp = false; !caughtUp; ) {
    const merged = good(await client.GET(all, { params: { path, query } }));
    found.push(...merged.records);
    query = { limit: 2, cursor: merged.next_cursor };
    caughtUp = merged.caught_up;
  }
  told.merged = sorted(shown(found));
  const wanted = { header_filter: { "header.trace": "7f" } };
  const filtered = good(await client.GET(all, { params: { path, query: wanted } }));
  told.filtered = filtered.records.flatMap((r) => r.headers.map((h) => [h.name, h.value]));
  const one = "/api/v1/topics/{topic}/partitions/{partition}/records/{offset}";
  const record = await client.GET(one, { params: { path: { ...path, offset: 0 } } });
  const { key, value, value_encoding } = good(record);
  told.record = [key, value, value_encoding === "json"];
  const header = { "If-None-Match": record.response.headers.get("ETag") ?? "" };
  told.known = (await client.GET(one, { params: { path: { ...path, offset: 0 }, header } })).response.status;
  const offsets = "/api/v1/topics/{topic}/offsets";
  const latest = good(await client.GET(offsets, { params: { path: { topic }, query: { at: "latest" } } }));
  told.offsets = latest.partitions.map((p) => p.offset);
  const missing = await client.GET(route, { params: { path: { topic: "nothing-here", partition: 0 } } });
  told.missing = problem(missing.error);
}

async function consumers() {
  const group = `${topic}-readers`;
  const path = { group, consumer: "one" };
  const body = { name: "one", topics: [topic], start: "earliest" };
  good(await client.POST("/api/v1/groups/{group}/consumers", { params: { path: { group } }, body }));
  const poll = (wait_ms: number) =>
    client.POST("/api/v1/groups/{group}/consumers/{consumer}:poll", { params: { path }, body: { wait_ms } });
  const batch = good(await poll(10_000));
  const again = good(await poll(0));
  told.polled = [batch.records.length, again.redelivered, again.ack === batch.ack, batch.state];
  if (batch.ack === null) throw new Error("there is nothing to acknowledge");
  const ack = { ack: batch.ack };
  const acked = await client.POST("/api/v1/groups/{group}/consumers/{consumer}:ack", { params: { path }, body: ack });
  told.acked = acked.response.status;
  told.lag = good(await client.GET("/api/v1/groups/{group}/lag", { params: { path: { group } } })).total_lag;
  const detail = good(await client.GET("/api/v1/groups/{group}", { params: { path: { group } } }));
  told.group = [detail.state, detail.members.length];
  const gone = await client.DELETE("/api/v1/groups/{group}/consumers/{consumer}", { params: { path } });
  told.deleted = gone.response.status;
  told.gone = problem((await poll(0)).error);
  const reset = await client.POST("/api/v1/groups/{group}/offsets:reset", {
    params: { path: { group } },
    body: { to: "earliest", dry_run: true },
  });
  told.reset = good(reset).offsets.map((o) => [o.partition, o.before, o.after]);
}

async function members() {
  const group = `${topic}-members`;
  const join = { params: { path: { group } }, body: { topics: [topic] } };
  const joined = good(await client.POST("/api/v1/groups/{group}/members", join));
  const params = { path: { group, member: joined.member_id } };
  const generation_id = joined.generation_id ?? -1;
  const sync = { params, body: { generation_id } };
  const synced = good(await client.POST("/api/v1/groups/{group}/members/{member}:sync", sync));
  told.synced = (synced.partitions ?? []).map((p) => [p.topic === topic, p.partition]);
  const beat = (generation_id: number) =>
    client.POST("/api/v1/groups/{group}/members/{member}:heartbeat", { params, body: { generation_id } });
  told.alive = (await beat(generation_id)).response.status;
  told.stale = problem((await beat(generation_id + 7)).error);
  told.left = (await client.DELETE("/api/v1/groups/{group}/members/{member}", { params })).response.status;
  told.dead = problem((await beat(generation_id)).error);
}

/** Server-sent events as they come: the id of each, which is the cursor after it, and the record. */
async function* events(cursor: string | undefined): AsyncGenerator<[string, RecordRead]> {
  const { data } = await client.GET("/api/v1/topics/{topic}/records", {
    params: {
      path: { topic },
      query: { from: "earliest" },
      ...(cursor === undefined ? {} : { header: { "Last-Event-ID": cursor } }),
    },
    headers: { Accept: "text/event-stream" },
    parseAs: "stream",
  });
  let text = "";
  for await (const piece of data!.pipeThrough(new TextDecoderStream())) {
    text += piece;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const event = new Map(text.slice(0, end).split("\n").map((line) => [line.split(": ", 1)[0]!, line] as const));
      text = text.slice(end + 2);
      if (event.get("event") === "event: record") {
        yield [event.get("id")!.slice(4), JSON.parse(event.get("data")!.slice(6)) as RecordRead];
      }
    }
  }
}

async function streams() {
  const found: [string, RecordRead][] = [];
  for (const most of [2, 6]) {
    for await (const event of events(found.at(-1)?.[0])) {
      if (found.push(event) === most) break;
    }
  }
  told.streamed = sorted(shown(found.map(([, record]) => record)));
}

async function proxy() {
  const binary = "application/vnd.kafka.binary.v2+json";
  const headers = { "Content-Type": binary };
  const body = { records: [{ key: "a2V5", value: "AAE=" }] };
  const params = { path: { topic: `${topic}-v2` } };
  const written = good(await client.POST("/topics/{topic}", { params, headers, body }));
  told.v2_written = written.offsets.map((o) => [o.partition, o.offset, o.error_code]);
  const place = { path: { topic: `${topic}-v2`, partition: 0 }, query: { offset: 0 } };
  const ask = { params: place, headers: { Accept: binary } };
  const read = good(await client.GET("/topics/{topic}/partitions/{partition}/records", ask));
  told.v2_read = read.map((r) => [r.offset, r.key, r.value]);
  const missing = await client.GET("/topics/{topic}", { params: { path: { topic: "nothing-here" } } });
  told.v2_missing = missing.error?.error_code;
}

for (const step of [topics, writes, reads, consumers, members, streams, proxy]) await step();
console.log(JSON.stringify(told));
