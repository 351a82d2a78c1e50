"""The shapes of queues, but for `:receive` and `:settle`: see `app.native.queue_bodies`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from app.native.consumer_schemas import EncodingName
from app.native.schemas import Offset, Partition, Shape
from core.config import Config
from core.vocabulary.queues import (
    MAX_DELAY_MS,
    MAX_DELIVERIES,
    MAX_LOCK_MS,
    MAX_RECEIVE,
    MIN_LOCK_MS,
    QueueSettings,
)

_LIMITS = Config()
_DEFAULT = QueueSettings()
_TIME = "a time: milliseconds since 1970 or ISO 8601"
TopicText = Annotated[StrictStr, Field(min_length=1, max_length=249)]
Delay = Annotated[StrictInt, Field(ge=0, le=MAX_DELAY_MS)]
OrderName = Literal["none", "key"]
RecordStateName = Literal["available", "leased", "delayed", "archiving", "settled"]
CauseName = Literal["rejected", "limit", "expired", "lost"]
RedriveStateName = Literal["running", "done", "cancelled", "failed"]


def _example(*examples: dict[str, Any]) -> ConfigDict:
    return ConfigDict(extra="forbid", json_schema_extra={"examples": list(examples)})


# --- settings -----------------------------------------------------------------------------------------------


class StartAtGroup(Shape):
    """The committed offsets of a consumer group, as the place where a queue begins."""

    group: Annotated[StrictStr, Field(min_length=1, max_length=1000)]


StartText = Annotated[StrictStr, Field(max_length=60)]
StartPlace = StartText | Offset | StartAtGroup


class BackoffSettings(Shape):
    """The pause before the next delivery: `first_ms` · `factor`^(n−1), at most `max_ms`, ± `jitter` of it."""

    first_ms: Delay = _DEFAULT.backoff.first_ms
    factor: Annotated[StrictInt | StrictFloat, Field(ge=1, le=100)] = _DEFAULT.backoff.factor
    max_ms: Delay = _DEFAULT.backoff.max_ms
    jitter: Annotated[StrictInt | StrictFloat, Field(ge=0, le=1)] = _DEFAULT.backoff.jitter


class DeadLetterSettings(Shape):
    """Where records go that are given up."""

    topic: TopicText
    copy_record: StrictBool = Field(
        default=True,
        alias="copy",
        description="Copy key, value and headers; false writes a pointer to the record alone (KIP-1191).",
    )


class QueueToPut(Shape):
    """The settings of a queue: exactly one of `topics` and `pattern`, and what differs from the defaults."""

    model_config = _example(
        {"topics": ["orders"], "start": "earliest"},
        {
            "topics": ["orders"], "lock_ms": 60000, "delivery_limit": 5,
            "backoff": {"first_ms": 1000, "factor": 2, "max_ms": 60000},
            "dead_letter": {"topic": "orders-dead"}, "order": "key",
        },
    )  # fmt: skip

    topics: list[TopicText] | None = Field(
        default=None, min_length=1, max_length=_LIMITS.max_subscription, description="The topics to read."
    )
    pattern: Annotated[StrictStr, Field(min_length=1, max_length=10_000)] | None = Field(
        default=None,
        description="An RE2 expression: all topics whose whole name it matches, also later ones.",
    )
    start: StartPlace = Field(
        default="latest",
        description=f"Where the queue begins: `earliest`, `latest`, {_TIME}, or the committed offsets of a consumer "
        "group. Partitions that are added to a topic later begin at their first record.",
        examples=["earliest", "2025-01-31T12:00:00Z"],
    )
    lock_ms: Annotated[StrictInt, Field(ge=MIN_LOCK_MS, le=MAX_LOCK_MS)] = Field(
        default=_DEFAULT.lock_ms, description="For how long received records are the receiver's."
    )
    delivery_limit: Annotated[StrictInt, Field(ge=1, le=MAX_DELIVERIES)] | None = Field(
        default=_DEFAULT.delivery_limit,
        description="Give a record up after this number of deliveries, if there is a dead-letter topic or `drop`; "
        "null: never.",
    )
    backoff: BackoffSettings = Field(
        default_factory=BackoffSettings,
        description="The pause after a lock that ran out, and after a release without `delay_ms`.",
    )
    dead_letter: DeadLetterSettings | None = Field(
        default=None,
        description="Where records go that are given up. Without it a record is kept and delivered again, with the "
        "back-off.",
    )
    drop: StrictBool = Field(
        default=False, description="Without a dead-letter topic: settle records that are given up."
    )
    order: OrderName = Field(
        default="none",
        description="`key`: records of one key are delivered one at a time, in the order of their offsets.",
    )
    max_in_flight: Annotated[StrictInt, Field(ge=1, le=1_000_000)] = Field(
        default=_DEFAULT.max_in_flight, description="Leased and delayed records of one partition at most."
    )
    max_delay_ms: Delay = Field(default=MAX_DELAY_MS, description="The longest delay of a release.")
    isolation_level: Literal["read_committed", "read_uncommitted"] = Field(
        default="read_committed",
        description="`read_uncommitted` also delivers records of open and of aborted transactions.",
    )


class QueueSummary(BaseModel):
    """A queue in a listing, with its counts."""

    queue: str
    topics: list[str] | None
    pattern: str | None
    paused: bool
    available: int = Field(
        description="Records that can be received now, or from where the log is read next."
    )
    in_flight: int = Field(description="Records that are leased.")
    delayed: int = Field(description="Records that wait for their delay or back-off.")
    archiving: int = Field(description="Records on their way to the dead letters.")


class QueuePage(BaseModel):
    """Some queues; with `next_page_token` there are more."""

    items: list[QueueSummary]
    next_page_token: str | None


class QueueDetail(BaseModel):
    """A queue: its settings, and what it is. `version` rises with each change; it is the ETag."""

    queue: str
    version: int
    paused: bool
    created: str | None
    created_ms: int
    topics: list[str] | None
    pattern: str | None
    start: StartPlace
    lock_ms: int
    delivery_limit: int | None
    backoff: BackoffSettings
    dead_letter: DeadLetterSettings | None
    drop: bool
    order: OrderName
    max_in_flight: int
    max_delay_ms: int
    isolation_level: Literal["read_committed", "read_uncommitted"]


class QueueSeek(Shape):
    """Where to begin, in all partitions."""

    model_config = _example(
        {"start": "earliest"},
        {"start": "2025-01-31T12:00:00Z", "force": True},
        {"start": {"group": "billing"}},
    )

    start: StartPlace = Field(
        description=f"`earliest`, `latest`, {_TIME}, or the committed offsets of a consumer group."
    )
    force: StrictBool = Field(
        default=False, description="Also while leases live: their receipts are `gone` from then on."
    )


# --- what a queue holds -------------------------------------------------------------------------------------


class QueuePartition(BaseModel):
    """The counts of one partition. From `start` on records are tracked, up to, without, `end`."""

    topic: str
    partition: int
    start: int = Field(description="The first record that is not settled.")
    end: int = Field(description="The first record that was never delivered.")
    available: int
    in_flight: int
    delayed: int
    archiving: int
    oldest_unsettled: str | None
    oldest_unsettled_ms: int | None
    served: bool = Field(description="false: another broker leads the partition.")


class QueueCounts(BaseModel):
    """The counts of a queue: in all, and in each partition."""

    queue: str
    paused: bool
    available: int
    in_flight: int
    delayed: int
    archiving: int
    oldest_unsettled: str | None = Field(
        description="When the oldest record was written that is not settled."
    )
    oldest_unsettled_age_ms: int | None
    waiting_receivers: int
    totals: dict[str, int] = Field(description="What happened since the start of this process, by name.")
    partitions: list[QueuePartition]


class RecordInFlight(BaseModel):
    """A record that is leased, delayed, or on its way to the dead letters."""

    topic: str
    partition: int
    offset: int
    state: RecordStateName
    delivery_count: int
    lease: str | None
    until: str | None = Field(description="When its lock ends, or its delay.")
    until_ms: int | None
    cause: CauseName | None = Field(description="Why it is given up.")


class InFlightPage(BaseModel):
    """Some records in flight; with `next_page_token` there are more."""

    items: list[RecordInFlight]
    next_page_token: str | None


class Peek(Shape):
    """How many records to show, and how."""

    model_config = _example({"max": 10}, {})

    max: Annotated[StrictInt, Field(ge=1, le=MAX_RECEIVE)] = Field(default=10, description="Records at most.")
    encoding: EncodingName = Field(default="auto", description="The form of keys and values in the JSON.")


# --- dead letters -------------------------------------------------------------------------------------------


class RedriveToBegin(Shape):
    """Which dead letters to deliver again: all, or those that fit; and how fast."""

    model_config = _example({}, {"cause": "limit", "rate": 100}, {"topic": "orders", "dry_run": True})

    topic: TopicText | None = Field(default=None, description="Only records that came from this topic.")
    partition: Partition | None = Field(
        default=None, description="Only records that came from this partition."
    )
    cause: CauseName | None = Field(
        default=None, description="Only records that were given up for this reason."
    )
    to: TopicText | None = Field(
        default=None, description="Append them to this topic, in place of the topic of each record."
    )
    rate: Annotated[StrictInt | StrictFloat, Field(gt=0, le=1_000_000)] | None = Field(
        default=None, description="Records per second; without it as fast as possible."
    )
    dry_run: StrictBool = Field(default=False, description="Count the records and append none.")


class RedriveDetail(BaseModel):
    """A redrive, which is under way or has ended."""

    id: str
    state: RedriveStateName
    topic: str | None
    partition: int | None
    cause: CauseName | None
    to: str | None
    rate: float | None
    dry_run: bool
    moved: int = Field(description="Records that were appended; of a dry run, those that would be.")
    skipped: int = Field(
        description="Records that fit and cannot be moved: pointers to records that are no more."
    )
    created: str | None
    created_ms: int
    error: str = Field(description="Why it failed; else empty.")


class RedriveList(BaseModel):
    """The redrives of a queue, the newest first."""

    items: list[RedriveDetail]
