"""Queues for operators: create, describe, pause, seek, delete; what they hold. `queue_receiving` has the hot calls.

    curl -X PUT --json '{"topics":["orders"],"dead_letter":{"topic":"orders-dead"}}' …/queues/mail      201
    curl …/queues/mail/stats                                                      {"available":12,"in_flight":3,…}

A queue is a share group (KIP-932) of the same name: share consumers on the Kafka port draw from the same records.
"""

from __future__ import annotations

import contextlib
from dataclasses import fields
from typing import Annotated
from urllib.parse import quote

from fastapi import Header, Path, Query, Response
from pydantic import AfterValidator

from app.errors import Problem, field_error
from app.formats import Reader
from app.http.parameters import PATH_NAME, parse_moment
from app.http.request import invalid_parameter
from app.native import pages
from app.native.dependencies import BrokerDep, SharedDep
from app.native.queue_schemas import (
    BackoffSettings,
    DeadLetterSettings,
    InFlightPage,
    Peek,
    QueueCounts,
    QueueDetail,
    QueuePage,
    QueuePartition,
    QueueSeek,
    QueueSummary,
    QueueToPut,
    RecordInFlight,
    StartAtGroup,
    StartPlace,
)
from app.native.receipts import lease_text
from app.native.record_json import iso_time, record_texts
from app.native.topics import TopicName
from core.errors import BrokerError, ErrorCode
from core.types import TopicPartition
from core.vocabulary.queues import (
    EARLIEST,
    LATEST,
    Backoff,
    DeadLetter,
    InFlight,
    Order,
    PartitionStats,
    Queues,
    QueueSettings,
    QueueStats,
    QueueView,
    Start,
)


def _with_a_path(name: str) -> str:
    """Refuse names with which no client's URL would arrive."""
    if name in (".", ".."):
        raise invalid_parameter("queue", "A queue of that name has no path: '.' and '..' lead elsewhere.")
    return name


QueueName = Annotated[
    str,
    AfterValidator(_with_a_path),
    Path(
        description="The queue's name, which is that of a share group.",
        examples=["mail"],
        max_length=1000,
        json_schema_extra=PATH_NAME,
    ),
]
Force = Annotated[bool, Query(description="Also while leases live: their receipts are `gone` from then on.")]


# --- life ---------------------------------------------------------------------------------------------------


async def list_queues(
    broker: BrokerDep,
    shared: SharedDep,
    prefix: Annotated[str, Query(description="Only queues whose name begins so.", max_length=1000)] = "",
    page_size: Annotated[int | None, Query(ge=1, description="Queues on one page.")] = None,
    page_token: Annotated[str | None, Query(description="`next_page_token` of the page before.")] = None,
) -> QueuePage:
    """The queues by name with their counts, one page at a time."""
    asked = pages.asked(shared.config, page_size, page_token)
    names = (name for name in broker.queues.names() if name.startswith(prefix))
    page, token = asked.of(names, str)
    queues = broker.queues
    items = []
    for name in page:
        # It may be deleted while another one is brought to hand.
        with contextlib.suppress(BrokerError):
            await queues.look(name)
            items.append(_summary(queues, name))
    return QueuePage(items=items, next_page_token=token)


async def put_queue(
    broker: BrokerDep,
    response: Response,
    queue: QueueName,
    wanted: QueueToPut,
    if_match: Annotated[
        str | None, Header(description="The ETag of the version that the change is meant for; else 412.")
    ] = None,
    if_none_match: Annotated[str | None, Header(description="`*` creates only; 412 if it is there.")] = None,
) -> QueueDetail:
    """Create a queue (201), or give it these settings (200). What the body leaves out has its default.

    The same again changes nothing. Records in flight keep their locks. `start` is for partitions that the queue has
    not begun to read; use `:seek` to move one that it reads.
    """
    settings = _settings(wanted)
    known = _known(broker.queues, queue)
    expected = _expected(queue, known, if_match, if_none_match)
    try:
        view = await broker.queues.put(queue, settings, if_version=expected)
    except BrokerError as error:
        now = _known(broker.queues, queue)
        if expected is not None and (0 if now is None else now.version) != expected:
            raise _changed(queue, now) from error
        raise
    if known is None:
        response.status_code = 201
        response.headers["location"] = f"/api/v1/queues/{quote(queue, safe='')}"
    return _detail(view, response)


async def get_queue(broker: BrokerDep, response: Response, queue: QueueName) -> QueueDetail:
    """A queue with its settings. The ETag names its version; `/stats` has its counts."""
    return _detail(broker.queues.get(queue), response)


async def delete_queue(broker: BrokerDep, queue: QueueName, force: Force = False) -> Response:
    """Delete a queue. Its topics stay, and so do dead letters. 409 while leases live or members are there."""
    await broker.queues.delete(queue, force=force)
    return Response(status_code=204)


async def pause_queue(broker: BrokerDep, response: Response, queue: QueueName) -> QueueDetail:
    """Deliver nothing until `:resume`. Leases live on, and can be settled."""
    return _detail(await broker.queues.pause(queue), response)


async def resume_queue(broker: BrokerDep, response: Response, queue: QueueName) -> QueueDetail:
    """Deliver again."""
    return _detail(await broker.queues.resume(queue), response)


async def seek_queue(broker: BrokerDep, queue: QueueName, wanted: QueueSeek) -> QueueCounts:
    """Begin at another place in all partitions: replay, or skip. Counts of deliveries begin at 0.

    409 while leases live, unless `force`.
    """
    await broker.queues.seek(queue, _start(wanted.start), force=wanted.force)
    return _counts(broker.queues, queue, broker.clock.wall_ms())


# --- what it holds ------------------------------------------------------------------------------------------


async def peek_queue(
    broker: BrokerDep, shared: SharedDep, queue: QueueName, wanted: Peek | None = None
) -> Response:
    """Show the records that would be delivered next. They are not locked, and no delivery is counted."""
    wanted, config = wanted or Peek(), shared.config
    found = await broker.queues.peek(queue, wanted.max, config.http_default_read_bytes)
    reader = Reader(wanted.encoding, config.http_max_json_depth)
    texts = [text for one in found for text in record_texts(one.tp, [one.record], reader)]
    return Response(b'{"records":[%b]}' % b",".join(texts), media_type="application/json")


async def get_queue_stats(broker: BrokerDep, queue: QueueName) -> QueueCounts:
    """The counts of a queue: in all, and in each partition."""
    await broker.queues.look(queue)
    return _counts(broker.queues, queue, broker.clock.wall_ms())


async def list_in_flight(
    broker: BrokerDep,
    shared: SharedDep,
    queue: QueueName,
    page_size: Annotated[int | None, Query(ge=1, description="Records on one page.")] = None,
    page_token: Annotated[str | None, Query(description="`next_page_token` of the page before.")] = None,
) -> InFlightPage:
    """The records that are leased, delayed or on their way to the dead letters, by partition and offset."""
    asked = pages.asked(shared.config, page_size, page_token)
    after = None if asked.after is None else _place_of(asked.after)
    await broker.queues.look(queue)
    found = list(broker.queues.in_flight(queue, after=after, limit=asked.size + 1))
    more = len(found) > asked.size
    del found[asked.size :]
    token = pages.token(f"{found[-1].tp.topic}/{found[-1].tp.partition}/{found[-1].offset}") if more else None
    return InFlightPage(items=[_in_flight(one) for one in found], next_page_token=token)


async def get_queue_record(
    broker: BrokerDep,
    queue: QueueName,
    topic: TopicName,
    partition: Annotated[int, Path(ge=0, lt=2**31, description="The partition, from 0.")],
    offset: Annotated[int, Path(ge=0, lt=2**63, description="The record's offset.")],
) -> RecordInFlight:
    """What the queue knows of one record: its state, and how often it was delivered."""
    await broker.queues.look(queue)
    return _in_flight(broker.queues.record(queue, TopicPartition(topic, partition), offset))


# --- shapes -------------------------------------------------------------------------------------------------


def _known(queues: Queues, name: str) -> QueueView | None:
    try:
        return queues.get(name)
    except BrokerError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND or error.details.get("reason") == "group-type":
            raise
    return None


def _expected(
    name: str, known: QueueView | None, if_match: str | None, if_none_match: str | None
) -> int | None:
    """Return the version that a change is meant for, 0 for a queue that is not there. Raises Problem (412)."""
    if if_none_match is not None:
        if if_none_match.strip() != "*":
            raise invalid_parameter("If-None-Match", "If-None-Match of a PUT takes * alone: create only.")
        if known is not None:
            raise _changed(name, known)
        return 0
    if if_match is None:
        return None
    if known is None:
        raise _changed(name, None)
    tags = [part.strip().removeprefix("W/") for part in if_match.split(",")]
    if if_match.strip() != "*" and _etag(known) not in tags:
        raise _changed(name, known)
    return known.version


def _changed(name: str, known: QueueView | None) -> Problem:
    if known is None:
        return Problem("precondition-failed", f"There is no queue {name!r}.")
    return Problem(
        "precondition-failed",
        f"Queue {name!r} is at version {_etag(known)} now.",
        extra={"current_etag": _etag(known)},
    )


def _etag(view: QueueView) -> str:
    return f'"{view.created_ms:x}.{view.version}"'


def _invalid(detail: str, pointer: str) -> Problem:
    return Problem("invalid-request", detail, errors=[field_error(detail, pointer=pointer)])


def _settings(wanted: QueueToPut) -> QueueSettings:
    if (wanted.topics is None) is (wanted.pattern is None):
        raise _invalid("A queue reads either topics or a pattern.", "#/topics")
    if wanted.drop and wanted.dead_letter is not None:
        raise _invalid("A queue with a dead-letter topic drops nothing; leave drop out.", "#/drop")
    dead, back = wanted.dead_letter, wanted.backoff
    return QueueSettings(
        topics=tuple(dict.fromkeys(wanted.topics or ())),
        pattern=wanted.pattern,
        start=_start(wanted.start),
        lock_ms=wanted.lock_ms,
        delivery_limit=wanted.delivery_limit,
        backoff=Backoff(back.first_ms, float(back.factor), back.max_ms, float(back.jitter)),
        dead_letter=None if dead is None else DeadLetter(dead.topic, dead.copy_record),
        drop=wanted.drop,
        order=Order(wanted.order),
        max_in_flight=wanted.max_in_flight,
        max_delay_ms=wanted.max_delay_ms,
        read_committed=wanted.isolation_level == "read_committed",
    )


def _start(place: StartPlace) -> Start:
    if isinstance(place, StartAtGroup):
        return Start(group=place.group)
    if place in (EARLIEST, LATEST):
        return Start(str(place))
    return Start(time_ms=parse_moment("start", str(place)))


def _start_shown(start: Start) -> StartPlace:
    if start.group is not None:
        return StartAtGroup(group=start.group)
    return start.at if start.time_ms is None else iso_time(start.time_ms) or start.time_ms


def _detail(view: QueueView, response: Response) -> QueueDetail:
    response.headers["etag"] = _etag(view)
    settings, dead = view.settings, view.settings.dead_letter
    return QueueDetail(
        queue=view.name,
        version=view.version,
        paused=view.paused,
        created=iso_time(view.created_ms),
        created_ms=view.created_ms,
        topics=list(settings.topics) or None,
        pattern=settings.pattern,
        start=_start_shown(settings.start),
        lock_ms=settings.lock_ms,
        delivery_limit=settings.delivery_limit,
        backoff=BackoffSettings(
            **{one.name: getattr(settings.backoff, one.name) for one in fields(settings.backoff)}
        ),
        dead_letter=None if dead is None else DeadLetterSettings(topic=dead.topic, copy=dead.copy),
        drop=settings.drop,
        order=settings.order.value,
        max_in_flight=settings.max_in_flight,
        max_delay_ms=settings.max_delay_ms,
        isolation_level="read_committed" if settings.read_committed else "read_uncommitted",
    )


def _summary(queues: Queues, name: str) -> QueueSummary:
    view = queues.get(name)
    parts = queues.stats(name).partitions
    return QueueSummary(
        queue=name,
        topics=list(view.settings.topics) or None,
        pattern=view.settings.pattern,
        paused=view.paused,
        available=sum(one.available for one in parts),
        in_flight=sum(one.in_flight for one in parts),
        delayed=sum(one.delayed for one in parts),
        archiving=sum(one.archiving for one in parts),
    )


def _counts(queues: Queues, name: str, now_ms: int) -> QueueCounts:
    stats: QueueStats = queues.stats(name)
    parts = stats.partitions
    oldest = min(
        (one.oldest_unsettled_ms for one in parts if one.oldest_unsettled_ms is not None), default=None
    )
    return QueueCounts(
        queue=name,
        paused=queues.get(name).paused,
        available=sum(one.available for one in parts),
        in_flight=sum(one.in_flight for one in parts),
        delayed=sum(one.delayed for one in parts),
        archiving=sum(one.archiving for one in parts),
        oldest_unsettled=None if oldest is None else iso_time(oldest),
        oldest_unsettled_age_ms=None if oldest is None else max(0, now_ms - oldest),
        waiting_receivers=stats.waiting_receivers,
        totals=dict(stats.totals),
        partitions=[_partition(one) for one in parts],
    )


def _partition(one: PartitionStats) -> QueuePartition:
    oldest = one.oldest_unsettled_ms
    return QueuePartition(
        topic=one.tp.topic,
        partition=one.tp.partition,
        start=one.start,
        end=one.end,
        available=one.available,
        in_flight=one.in_flight,
        delayed=one.delayed,
        archiving=one.archiving,
        oldest_unsettled=None if oldest is None else iso_time(oldest),
        oldest_unsettled_ms=oldest,
        served=one.served,
    )


def _in_flight(one: InFlight) -> RecordInFlight:
    return RecordInFlight(
        topic=one.tp.topic,
        partition=one.tp.partition,
        offset=one.offset,
        state=one.state,  # type: ignore[arg-type]
        delivery_count=one.delivery_count,
        lease=None if one.lease is None else lease_text(one.lease),
        until=None if one.until_ms is None else iso_time(one.until_ms),
        until_ms=one.until_ms,
        cause=None if one.cause is None else one.cause.value,
    )


def _place_of(text: str) -> tuple[TopicPartition, int]:
    """Return the place that a page token names: topic, partition and offset."""
    topic, *numbers = text.split("/")
    if len(numbers) != 2 or not all(one.isascii() and one.isdigit() and len(one) <= 19 for one in numbers):
        raise invalid_parameter("page_token", "page_token is not one that was handed out here.")
    return TopicPartition(topic, int(numbers[0])), int(numbers[1])
