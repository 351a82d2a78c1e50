"""Managed consumers over HTTP: the broker joins, assigns and heartbeats; a client only polls and acknowledges.

    curl -d '{"topics":["orders"]}' …/groups/g/consumers                   201, Location
    curl -d '{}' …/groups/g/consumers/$name:poll                           {"ack": "8c2f01aa.1", "records": [...]}
    curl -d '{"ack":"8c2f01aa.1"}' …/groups/g/consumers/$name:poll         the next ones

A batch is delivered until it is acknowledged: a lost answer, a dead client or a restart loses no record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated
from urllib.parse import quote

import msgspec
from fastapi import Path, Request, Response

from app.errors import Problem, field_error, from_broker
from app.formats import Reader
from app.http.parameters import PATH_NAME, parse_moment
from app.http.waiting import check_share, share, while_connected
from app.native.consumer_schemas import (
    Ack,
    Acked,
    ConsumerDetail,
    ConsumerList,
    ConsumerToCreate,
    OutstandingBatch,
    PartitionOf,
    PartitionToSeek,
    Poll,
    PositionDetail,
    RangeDetail,
    SeekTo,
    SomePartitions,
)
from app.native.dependencies import BrokerDep, NamedTransactionsDep, SharedDep, TransactionHeader
from app.native.groups import GroupId
from app.native.one_shot import commit_with_batch
from app.native.record_json import iso_time, record_texts
from core.errors import BrokerError
from core.types import TopicPartition
from core.vocabulary.consumers import (
    EARLIEST,
    LATEST,
    NONE,
    Batch,
    ConsumerInfo,
    ConsumerOptions,
    Range,
    Seek,
    Subscription,
)

ConsumerName = Annotated[
    str,
    Path(
        description="The consumer's name in the group.",
        examples=["audit-1"],
        max_length=1000,
        json_schema_extra=PATH_NAME,
    ),
]
_ENCODING = "encoding"
_encode = msgspec.json.Encoder().encode


# --- life ---------------------------------------------------------------------------------------------------


async def create_consumer(
    broker: BrokerDep, response: Response, group: GroupId, wanted: ConsumerToCreate
) -> ConsumerDetail:
    """Make a consumer, which begins to join its group. The Location is where to poll it."""
    if sum(one is not None for one in (wanted.topics, wanted.pattern, wanted.assignments)) != 1:
        raise _invalid("A consumer names exactly one of topics, pattern and assignments.", "#/topics")
    options = ConsumerOptions(
        start=_start(wanted.start),
        ttl_ms=wanted.ttl_ms or 0,
        session_timeout_ms=wanted.session_timeout_ms,
        rebalance_timeout_ms=wanted.rebalance_timeout_ms,
        group_instance_id=wanted.group_instance_id,
        assignor=wanted.assignor or "",
        settings={_ENCODING: wanted.encoding},
        isolation_level=wanted.isolation_level,
    )
    subscription = Subscription(
        tuple(dict.fromkeys(wanted.topics or ())), wanted.pattern, tuple(_tps(wanted.assignments or ()))
    )
    made = await broker.consumers.create(group, wanted.name, subscription=subscription, options=options)
    response.headers["location"] = (
        f"/api/v1/groups/{quote(group, safe='')}/consumers/{quote(made.name, safe='')}"
    )
    return _detail(made)


async def list_consumers(broker: BrokerDep, group: GroupId) -> ConsumerList:
    """The managed consumers of a group. The group itself lists its other members."""
    return ConsumerList(items=[_detail(info) for info in broker.consumers.of_group(group)])


async def get_consumer(broker: BrokerDep, group: GroupId, consumer: ConsumerName) -> ConsumerDetail:
    """A consumer with its partitions, positions and outstanding batch. Asking for it keeps it alive."""
    return _detail(broker.consumers.get(group, consumer))


async def delete_consumer(broker: BrokerDep, group: GroupId, consumer: ConsumerName) -> Response:
    """Leave the group and forget the consumer. What was not acknowledged is delivered to others."""
    await broker.consumers.delete(group, consumer)
    return Response(status_code=204)


# --- reading ------------------------------------------------------------------------------------------------


async def poll_consumer(
    broker: BrokerDep,
    shared: SharedDep,
    request: Request,
    group: GroupId,
    consumer: ConsumerName,
    wanted: Poll | None = None,
) -> Response:
    """Acknowledge the batch before, and get the next one: as soon as there is a record, or when the time is up.

    The first poll waits for the group as well. A client that closes its connection has been given nothing. With
    `records`, the output of the batch before is written and the batch acknowledged in one transaction; if that is
    refused, nothing has moved, and the batch can be polled again.
    """
    wanted = wanted or Poll()
    if wanted.wait_ms:
        check_share(request.scope)
    options = broker.consumers.get(group, consumer).options
    committed, ack = None, wanted.ack
    if wanted.records is not None or wanted.offsets is not None:
        if ack is None:
            raise _invalid(
                "Records and offsets are committed with the batch before; `ack` names it.", "#/ack"
            )
        committed = await commit_with_batch(
            shared.config, broker, request.scope, await request.body(), group, consumer, ack
        )
        ack = None
    batch = await while_connected(
        request,
        broker.consumers.poll(
            group,
            consumer,
            limit=wanted.limit,
            max_bytes=wanted.max_bytes,
            wait_ms=wanted.wait_ms,
            ack=ack,
        ),
    )
    reader = Reader(options.settings.get(_ENCODING, "auto"), shared.config.http_max_json_depth)
    answer = _batch_json(batch, reader)
    if committed is None:
        return Response(answer, media_type="application/json")
    answer = b'%b,"committed":%b}' % (answer[:-1], committed.answer or b"null")
    headers = {"idempotent-replayed": "true"} if committed.replayed else None
    return Response(answer, media_type="application/json", headers=headers)


async def ack_consumer(
    broker: BrokerDep,
    transactions: NamedTransactionsDep,
    group: GroupId,
    consumer: ConsumerName,
    wanted: Ack,
    transaction: TransactionHeader = None,
) -> Acked:
    """Acknowledge a batch without a poll: its offsets are committed when this answers.

    In a transaction they are committed with it, and nothing is `acknowledged` yet. Until it ends, other polls and
    acknowledgements of the consumer are refused (409).
    """
    if transaction is not None:
        transactions().ack(transaction, group, consumer, wanted.ack)
        return Acked(acknowledged=[], revoked=[])
    done = await broker.consumers.ack(group, consumer, wanted.ack)
    return Acked(acknowledged=_ranges(done.committed), revoked=_ranges(done.revoked))


async def seek_consumer(
    broker: BrokerDep, request: Request, group: GroupId, consumer: ConsumerName, wanted: SeekTo
) -> ConsumerDetail:
    """Set the position. Outstanding records of these partitions are forgotten; nothing is committed."""
    consumers = broker.consumers
    if (wanted.at is None) == (wanted.partitions is None):
        raise _invalid("Set where to continue: at, or partitions.", "#/at")
    seeks = [_seek(one, f"#/partitions/{index}") for index, one in enumerate(wanted.partitions or ())]
    try:
        with share(request.scope):
            if wanted.at is not None:
                to, time_ms = _place("at", wanted.at)
                await consumers.seek_everywhere(group, consumer, to, time_ms=time_ms, wait_ms=wanted.wait_ms)
            else:
                await consumers.seek(group, consumer, seeks, wait_ms=wanted.wait_ms)
    except BrokerError as error:
        offset = error.details.get("offset")
        raise from_broker(error, offset=offset if isinstance(offset, int) else None) from None
    return _detail(consumers.get(group, consumer))


async def pause_consumer(
    broker: BrokerDep, group: GroupId, consumer: ConsumerName, wanted: SomePartitions | None = None
) -> ConsumerDetail:
    """Deliver nothing new from some partitions, or from any."""
    await broker.consumers.pause(group, consumer, _some(wanted))
    return _detail(broker.consumers.get(group, consumer))


async def resume_consumer(
    broker: BrokerDep, group: GroupId, consumer: ConsumerName, wanted: SomePartitions | None = None
) -> ConsumerDetail:
    """Deliver again from some partitions, or from all."""
    await broker.consumers.resume(group, consumer, _some(wanted))
    return _detail(broker.consumers.get(group, consumer))


# --- shapes -------------------------------------------------------------------------------------------------


def _start(text: str | int) -> str | int:
    if isinstance(text, int) or text in (EARLIEST, LATEST, NONE):
        return text
    return parse_moment("start", text)


def _invalid(detail: str, pointer: str) -> Problem:
    return Problem("invalid-request", detail, errors=[field_error(detail, pointer=pointer)])


def _seek(wanted: PartitionToSeek, pointer: str) -> Seek:
    if (wanted.offset is None) == (wanted.at is None):
        raise _invalid("A partition is sought by its offset, or by at.", pointer)
    if wanted.offset is not None:
        return Seek(wanted.topic, wanted.partition, wanted.offset)
    return Seek(wanted.topic, wanted.partition, *_place("at", wanted.at or ""))


def _place(name: str, text: str) -> tuple[str, int | None]:
    """Where to seek: `earliest`, `latest`, or a time in milliseconds."""
    if text in (EARLIEST, LATEST):
        return text, None
    return EARLIEST, parse_moment(name, text)


def _tps(partitions: Iterable[PartitionOf]) -> list[TopicPartition]:
    return sorted({TopicPartition(one.topic, one.partition) for one in partitions})


def _some(wanted: SomePartitions | None) -> list[TopicPartition] | None:
    return None if wanted is None or wanted.partitions is None else _tps(wanted.partitions)


def _ranges(ranges: Iterable[Range]) -> list[RangeDetail]:
    return [
        RangeDetail(topic=o.topic, partition=o.partition, first_offset=o.first, next_offset=o.next_offset)
        for o in ranges
    ]


def _batch_json(batch: Batch, reader: Reader) -> bytes:
    texts = [text for tp, records in batch.records for text in record_texts(tp, records, reader)]
    ranges = [
        {"topic": o.topic, "partition": o.partition, "first_offset": o.first, "next_offset": o.next_offset}
        for o in batch.ranges
    ]
    return b'{"ack":%b,"records":[%b],"redelivered":%b,"state":"%b","partitions":%b}' % (
        _encode(batch.token),
        b",".join(texts),
        b"true" if batch.redelivered else b"false",
        batch.state.encode(),
        _encode(ranges),
    )


def _detail(info: ConsumerInfo) -> ConsumerDetail:
    subscription, options = info.subscription, info.options
    start = options.start
    outstanding = None
    if info.token is not None:
        outstanding = OutstandingBatch(ack=info.token, partitions=_ranges(info.outstanding))
    return ConsumerDetail(
        group_id=info.group_id,
        name=info.name,
        state=info.state,  # type: ignore[arg-type]
        member_id=info.member_id or None,
        generation_id=info.generation if info.generation >= 0 else None,
        topics=list(subscription.topics) or None,
        pattern=subscription.pattern,
        assignments=[PartitionOf(topic=t, partition=p) for t, p in subscription.assignments] or None,
        partitions=[
            PositionDetail(topic=p.topic, partition=p.partition, next_offset=p.position, paused=p.paused)
            for p in info.partitions
        ],
        outstanding=outstanding,
        start=start if isinstance(start, str) else iso_time(start) or str(start),
        encoding=options.settings.get(_ENCODING),
        group_instance_id=options.group_instance_id,
        created=iso_time(info.created_ms),
        expires_in_ms=info.expires_in_ms,
    )
