"""Dead letters of queues: look at them, deliver them again (redrive), forget them.

curl …/queues/mail/dead-letters                                      {"items":[{"cause":"limit",…}],…}
curl --json '{"cause":"limit"}' …/queues/mail/dead-letters:redrive   202, Location
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated
from urllib.parse import quote

import msgspec
from fastapi import Path, Query, Response

from app.errors import Problem
from app.formats import Reader
from app.http.parameters import PATH_NAME
from app.http.request import invalid_parameter
from app.native import pages
from app.native.consumer_schemas import EncodingName
from app.native.dependencies import BrokerDep, SharedDep
from app.native.queue_schemas import RedriveDetail, RedriveList, RedriveToBegin
from app.native.queues import QueueName
from app.native.record_json import iso_time, record_texts
from core.errors import ErrorCode
from core.vocabulary.queues import Cause, DeadRecord, Redrive, RedriveTask

RedriveId = Annotated[
    str, Path(description="The redrive's id.", examples=["1f"], max_length=100, json_schema_extra=PATH_NAME)
]
_encode = msgspec.json.Encoder().encode


async def list_dead_letters(
    broker: BrokerDep,
    shared: SharedDep,
    queue: QueueName,
    encoding: Annotated[EncodingName, Query(description="The form of keys and values in the JSON.")] = "auto",
    page_size: Annotated[int | None, Query(ge=1, description="Records on one page.")] = None,
    page_token: Annotated[str | None, Query(description="`next_page_token` of the page before.")] = None,
) -> Response:
    """The records that the queue has given up, oldest first in each partition, without those that were moved back."""
    asked = pages.asked(shared.config, page_size, page_token)
    after = None if asked.after is None else _offsets_of(asked.after)
    page = await broker.queues.dead_letters.list(queue, after=after, limit=asked.size)
    reader = Reader(encoding, shared.config.http_max_json_depth)
    token = None
    if page.after is not None:
        token = pages.token(
            ",".join(f"{partition}:{offset}" for partition, offset in sorted(page.after.items()))
        )
    items = b",".join(_dead_letter(one, reader) for one in page.records)
    return Response(
        b'{"items":[%b],"next_page_token":%b}' % (items, _encode(token)), media_type="application/json"
    )


async def redrive_dead_letters(
    broker: BrokerDep, response: Response, queue: QueueName, wanted: RedriveToBegin | None = None
) -> RedriveDetail:
    """Append dead letters again: to the topics that they came from, or to another one.

    Each is appended exactly once, also if the broker is killed in between. A dry run ends before it is answered. 409
    while another redrive of the queue is under way.
    """
    wanted = wanted or RedriveToBegin()
    redrive = Redrive(
        topic=wanted.topic,
        partition=wanted.partition,
        cause=None if wanted.cause is None else Cause(wanted.cause),
        to=wanted.to,
        rate=None if wanted.rate is None else float(wanted.rate),
        dry_run=wanted.dry_run,
    )
    task = await broker.queues.dead_letters.redrive(queue, redrive)
    response.headers["location"] = (
        f"/api/v1/queues/{quote(queue, safe='')}/redrives/{quote(task.id, safe='')}"
    )
    return _detail(task)


async def purge_dead_letters(broker: BrokerDep, queue: QueueName) -> Response:
    """Forget all dead letters of a queue. The records stay in the dead-letter topic until its retention."""
    await broker.queues.dead_letters.purge(queue)
    return Response(status_code=204)


async def list_redrives(broker: BrokerDep, queue: QueueName) -> RedriveList:
    """The redrives of a queue, the newest first; of those that ended the last ones."""
    return RedriveList(items=[_detail(one) for one in broker.queues.dead_letters.tasks(queue)])


async def get_redrive(broker: BrokerDep, queue: QueueName, redrive: RedriveId) -> RedriveDetail:
    """A redrive: how many records it has moved, and whether it has ended."""
    for task in broker.queues.dead_letters.tasks(queue):
        if task.id == redrive:
            return _detail(task)
    raise Problem(
        "resource-not-found",
        f"Queue {queue!r} has no redrive {redrive[:40]!r}.",
        code=ErrorCode.RESOURCE_NOT_FOUND,
    )


async def cancel_redrive(broker: BrokerDep, queue: QueueName, redrive: RedriveId) -> RedriveDetail:
    """End a redrive. What it has moved stays moved."""
    return _detail(await broker.queues.dead_letters.cancel(queue, redrive))


# --- shapes -------------------------------------------------------------------------------------------------


def _offsets_of(text: str) -> Mapping[int, int]:
    """Return the offsets by partition that a page token names."""
    offsets: dict[int, int] = {}
    for part in text.split(",") if text else ():
        numbers = part.split(":")
        if len(numbers) != 2 or not all(
            one.isascii() and one.isdigit() and len(one) <= 19 for one in numbers
        ):
            raise invalid_parameter("page_token", "page_token is not one that was handed out here.")
        offsets[int(numbers[0])] = int(numbers[1])
    return offsets


def _dead_letter(one: DeadRecord, reader: Reader) -> bytes:
    (record,) = record_texts(one.dead, [one.record], reader)
    return _encode(
        {
            "topic": one.tp.topic,
            "partition": one.tp.partition,
            "offset": one.offset,
            "delivery_count": one.delivery_count,
            "cause": one.cause.value,
            "reason": one.reason,
            "pointer": one.pointer,
            "dead_letter": {
                "topic": one.dead.topic,
                "partition": one.dead.partition,
                "offset": one.dead_offset,
            },
            "record": msgspec.Raw(record),
        }
    )


def _detail(task: RedriveTask) -> RedriveDetail:
    redrive = task.redrive
    return RedriveDetail(
        id=task.id,
        state=task.state,  # type: ignore[arg-type]
        topic=redrive.topic,
        partition=redrive.partition,
        cause=None if redrive.cause is None else redrive.cause.value,
        to=redrive.to,
        rate=redrive.rate,
        dry_run=redrive.dry_run,
        moved=task.moved,
        skipped=task.skipped,
        created=iso_time(task.created_ms),
        created_ms=task.created_ms,
        error=task.error,
    )
