"""A program with the Python client that openapi-python-client makes of our OpenAPI document.

It does what `program.ts` does, and prints the same JSON: what happened. mypy checks it under strict settings, so
each attribute that it reads has a type. Started with the gateway's URL and a name for its topic.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from typing import Any

from sluice_client import Client
from sluice_client.api.consumers import ack_consumer, create_consumer, delete_consumer, poll_consumer
from sluice_client.api.groups import get_group, get_group_lag, reset_group_offsets
from sluice_client.api.members import heartbeat, join_group, leave_group, sync_group
from sluice_client.api.records import get_record, produce_records, read_records, read_topic_records
from sluice_client.api.rest_proxy import proxy_get_topic, proxy_produce, proxy_read_partition
from sluice_client.api.topics import create_topic, get_topic_offsets
from sluice_client.models import (
    Ack,
    Acks,
    ConfigValues,
    ConsumerDetail,
    ConsumerToCreate,
    EncodingRead,
    EncodingToWrite,
    GroupDetail,
    GroupLag,
    HeaderFilter,
    HeaderToWrite,
    HeartbeatBody,
    MemberJoined,
    MemberSynced,
    MemberToJoin,
    MergedPage,
    Poll,
    PolledBatch,
    ProblemDocument,
    RecordError,
    RecordPage,
    RecordRead,
    RecordsToWrite,
    RecordsWritten,
    RecordToWrite,
    ResetRequest,
    ResetResult,
    ResetTarget,
    StreamedRecord,
    SyncBody,
    TopicDetail,
    TopicOffsets,
    TopicToCreate,
    V2BinaryProduceRecord,
    V2BinaryProduceRequest,
    V2ConsumerRecord,
    V2ErrorMessage,
    V2ProduceResponse,
)
from sluice_client.types import UNSET, File, Unset

told: dict[str, Any] = {}


def problem(answer: object) -> list[Any]:
    """What a typed refusal says: its status, its type, whether trying again helps."""
    assert isinstance(answer, ProblemDocument), answer
    return [answer.status, answer.type_, answer.retriable]


def topics(client: Client, topic: str) -> None:
    """Create, confirm, be refused."""
    configs = ConfigValues()
    configs["retention.ms"] = 3_600_000
    wanted = TopicToCreate(partitions=2, configs=configs)
    first = create_topic.sync_detailed(topic, client=client, body=wanted)
    assert isinstance(first.parsed, TopicDetail)
    told["created"] = [int(first.status_code), first.parsed.partitions, first.parsed.configs["retention.ms"]]
    told["confirmed"] = int(create_topic.sync_detailed(topic, client=client, body=wanted).status_code)
    told["differs"] = problem(create_topic.sync(topic, client=client, body=TopicToCreate(partitions=3)))


def writes(client: Client, topic: str) -> None:
    """One record, once; many; some of which are refused; all of which are refused; bare bytes."""
    one = RecordToWrite(
        key="ann", value={"n": 1}, partition=0, headers=[HeaderToWrite(name="trace", value="7f")]
    )
    first, again = (
        produce_records.sync_detailed(topic, client=client, body=one, idempotency_key="one", acks=Acks.ALL)
        for _ in range(2)
    )
    assert isinstance(first.parsed, RecordsWritten) and isinstance(again.parsed, RecordsWritten)
    told["one"] = [(r.partition, r.offset) for r in first.parsed.records]
    told["again"] = [again.headers["Idempotent-Replayed"], first.parsed.to_dict() == again.parsed.to_dict()]
    many = RecordsToWrite([RecordToWrite(value=f"value {n}", partition=0) for n in range(3)])
    written = produce_records.sync(topic, client=client, body=many)
    assert isinstance(written, RecordsWritten)
    told["many"] = [r.offset for r in written.records]
    some = RecordsToWrite([RecordToWrite(value=None, partition=1), RecordToWrite(value="lost", partition=7)])
    mixed = produce_records.sync_detailed(topic, client=client, body=some)
    assert isinstance(mixed.parsed, RecordsWritten)
    errors = [r.error.kafka_error if isinstance(r.error, RecordError) else None for r in mixed.parsed.records]
    told["mixed"] = [int(mixed.status_code), errors]
    wrong = RecordToWrite(value="not base64!", value_encoding=EncodingToWrite.BASE64)
    refused = produce_records.sync(topic, client=client, body=RecordsToWrite([wrong]))
    assert isinstance(refused, ProblemDocument) and refused.errors
    told["refused"] = [*problem(refused), refused.errors[0].pointer]
    raw = produce_records.sync(topic, client=client, body=File(io.BytesIO(b"\xff")), key="raw", partition=1)
    assert isinstance(raw, RecordsWritten)
    told["raw"] = raw.records[0].offset


def shown(records: list[RecordRead]) -> list[Any]:
    """Partition, offset and value of records."""
    return [[r.partition, r.offset, r.value] for r in records]


def reads(client: Client, topic: str) -> None:
    """One partition, all of them with a cursor, one record, and what is refused."""
    page = read_records.sync(topic, 0, client=client, offset="1", limit=2)
    assert isinstance(page, RecordPage)
    told["page"] = [shown(page.records), page.next_offset, page.high_watermark, page.caught_up]
    since = read_records.sync(topic, 0, client=client, timestamp="2001-01-01T00:00:00Z")
    assert isinstance(since, RecordPage)
    told["since"] = len(since.records)
    told["beyond"] = problem(read_records.sync(topic, 0, client=client, offset="99"))
    found: list[RecordRead] = []
    cursor: str | Unset = UNSET
    while True:
        merged = read_topic_records.sync(topic, client=client, limit=2, cursor=cursor)
        assert isinstance(merged, MergedPage)
        found += merged.records
        cursor = merged.next_cursor
        if merged.caught_up:
            break
    told["merged"] = sorted(shown(found))
    wanted = HeaderFilter()
    wanted["header.trace"] = "7f"
    filtered = read_topic_records.sync(topic, client=client, header_filter=wanted)
    assert isinstance(filtered, MergedPage)
    told["filtered"] = [[h.name, h.value] for r in filtered.records for h in r.headers]
    record = get_record.sync_detailed(topic, 0, 0, client=client)
    assert isinstance(record.parsed, RecordRead)
    told["record"] = [
        record.parsed.key,
        record.parsed.value,
        record.parsed.value_encoding is EncodingRead.JSON,
    ]
    known = get_record.sync_detailed(topic, 0, 0, client=client, if_none_match=record.headers["ETag"])
    told["known"] = int(known.status_code)
    offsets = get_topic_offsets.sync(topic, client=client, at="latest")
    assert isinstance(offsets, TopicOffsets)
    told["offsets"] = [one.offset for one in offsets.partitions]
    told["missing"] = problem(read_records.sync("nothing-here", 0, client=client))


def consumers(client: Client, topic: str) -> None:
    """A managed consumer: poll, the same again, acknowledge, lag, reset."""
    group = f"{topic}-readers"
    made = create_consumer.sync(
        group, client=client, body=ConsumerToCreate(name="one", topics=[topic], start="earliest")
    )
    assert isinstance(made, ConsumerDetail)
    batch = poll_consumer.sync(group, "one", client=client, body=Poll(wait_ms=10_000))
    again = poll_consumer.sync(group, "one", client=client, body=Poll(wait_ms=0))
    assert isinstance(batch, PolledBatch) and isinstance(again, PolledBatch) and batch.ack
    told["polled"] = [len(batch.records), again.redelivered, again.ack == batch.ack, batch.state.value]
    acked = ack_consumer.sync_detailed(group, "one", client=client, body=Ack(batch.ack))
    told["acked"] = int(acked.status_code)
    lag = get_group_lag.sync(group, client=client)
    assert isinstance(lag, GroupLag)
    told["lag"] = lag.total_lag
    detail = get_group.sync(group, client=client)
    assert isinstance(detail, GroupDetail)
    told["group"] = [detail.state.value, len(detail.members)]
    told["deleted"] = int(delete_consumer.sync_detailed(group, "one", client=client).status_code)
    told["gone"] = problem(poll_consumer.sync(group, "one", client=client))
    reset = reset_group_offsets.sync(
        group, client=client, body=ResetRequest(to=ResetTarget.EARLIEST, dry_run=True)
    )
    assert isinstance(reset, ResetResult)
    told["reset"] = [[r.partition, r.before, r.after] for r in reset.offsets]


def members(client: Client, topic: str) -> None:
    """A member by hand: join, sync, heartbeat, leave."""
    group = f"{topic}-members"
    joined = join_group.sync(group, client=client, body=MemberToJoin(topics=[topic]))
    assert isinstance(joined, MemberJoined) and isinstance(joined.generation_id, int)
    member, generation = joined.member_id, joined.generation_id
    synced = sync_group.sync(group, member, client=client, body=SyncBody(generation_id=generation))
    assert isinstance(synced, MemberSynced) and isinstance(synced.partitions, list)
    told["synced"] = [[p.topic == topic, p.partition] for p in synced.partitions]
    alive = HeartbeatBody(generation_id=generation)
    told["alive"] = int(heartbeat.sync_detailed(group, member, client=client, body=alive).status_code)
    stale = HeartbeatBody(generation_id=generation + 7)
    told["stale"] = problem(heartbeat.sync(group, member, client=client, body=stale))
    told["left"] = int(leave_group.sync_detailed(group, member, client=client).status_code)
    told["dead"] = problem(heartbeat.sync(group, member, client=client, body=alive))


def lines(client: Client, topic: str, cursor: str | None) -> Iterator[StreamedRecord]:
    """The records of a topic as they come. The client's connection and the generated types do it."""
    query = {"cursor": cursor} if cursor else {"from": "earliest"}
    http = client.get_httpx_client()
    accept = {"Accept": "application/x-ndjson"}
    with http.stream("GET", f"/api/v1/topics/{topic}/records", params=query, headers=accept) as answer:
        for line in answer.iter_lines():
            if line:
                yield StreamedRecord.from_dict(json.loads(line))


def streams(client: Client, topic: str) -> None:
    """A stream that is cut off after two records and continues: no record is missing or repeated."""
    found: list[StreamedRecord] = []
    for most in (2, 6):
        for record in lines(client, topic, found[-1].cursor if found else None):
            found.append(record)
            if len(found) == most:
                break
    told["streamed"] = sorted([r.partition, r.offset, r.value] for r in found)


def proxy(client: Client, topic: str) -> None:
    """The REST Proxy v2 surface has types as well."""
    body = V2BinaryProduceRequest([V2BinaryProduceRecord(key="a2V5", value="AAE=")])
    written = proxy_produce.sync(f"{topic}-v2", client=client, body=body)
    assert isinstance(written, V2ProduceResponse)
    told["v2_written"] = [[o.partition, o.offset, o.error_code] for o in written.offsets]
    binary = client.with_headers({"Accept": "application/vnd.kafka.binary.v2+json"})
    read = proxy_read_partition.sync(f"{topic}-v2", 0, client=binary, offset=0)
    assert isinstance(read, list) and isinstance(read[0], V2ConsumerRecord)
    told["v2_read"] = [[r.offset, r.key, r.value] for r in read]
    missing = proxy_get_topic.sync("nothing-here", client=client)
    assert isinstance(missing, V2ErrorMessage)
    told["v2_missing"] = missing.error_code


def main(url: str, topic: str) -> None:
    """All of it."""
    with Client(base_url=url, raise_on_unexpected_status=True) as client:
        for step in (topics, writes, reads, consumers, members, streams, proxy):
            step(client, topic)
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
