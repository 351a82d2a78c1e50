"""Topics: list, create, describe, change, delete, truncate, offsets by time."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import Header, Path, Query, Response

from app.errors import Problem, field_error, from_broker
from app.http.parameters import TOPIC_NAME, parse_moment
from app.native import pages
from app.native.dependencies import BrokerDep, SharedDep
from app.native.record_json import iso_time
from app.native.schemas import (
    ConfigDetail,
    ConfigValue,
    PartitionDetail,
    PartitionOffset,
    PartitionTruncated,
    TopicChange,
    TopicDetail,
    TopicOffsets,
    TopicPage,
    TopicSummary,
    TopicToCreate,
    Truncated,
    Truncation,
)
from core.errors import BrokerError, ErrorCode
from core.facade import Facade
from core.security.authorizer import is_denial
from core.types import TopicPartition
from core.vocabulary.consumers import READ_COMMITTED
from core.vocabulary.topic import TopicInfo

TopicName = Annotated[
    str,
    Path(
        description="The topic's name.",
        examples=["orders"],
        max_length=1000,
        # What is longer or has other characters is for the broker to refuse, with its own words.
        json_schema_extra=TOPIC_NAME,
    ),
]
IfMatch = Annotated[
    str | None, Header(description="The ETag of the version that the change is meant for; else 412.")
]
# The levels of the broker's own settings are one here.
_SOURCES = {"topic": "topic", "default": "default"}
_NAMED_TIMES = {"latest": -1, "earliest": -2, "max_timestamp": -3}


async def list_topics(
    broker: BrokerDep,
    shared: SharedDep,
    response: Response,
    prefix: Annotated[str, Query(description="Only topics whose name begins so.", max_length=249)] = "",
    include_internal: Annotated[bool, Query(description="Also the broker's own topics.")] = False,
    page_size: Annotated[int | None, Query(ge=1, description="Topics on one page.")] = None,
    page_token: Annotated[str | None, Query(description="`next_page_token` of the page before.")] = None,
    if_none_match: Annotated[str | None, Header(description="The ETag of the page that is known.")] = None,
) -> TopicPage | Response:
    """The topics by name, one page at a time."""
    asked = pages.asked(shared.config, page_size, page_token)
    await broker.look(None)
    listed, token = asked.of(broker.topics.list(prefix, include_internal), lambda topic: topic.name)
    names = [topic.name for topic in listed]
    await broker.look(names, configs=True)
    page = [found for name in names if (found := _find(broker, name)) is not None]
    seed = "\n".join(f"{t.topic_id.hex} {t.version}" for t in page) + f"\n{token is not None}"
    etag = f'"{hashlib.blake2b(seed.encode(), digest_size=12).hexdigest()}"'
    if if_none_match is not None and _matches(if_none_match, etag):
        return Response(status_code=304, headers={"etag": etag})
    response.headers["etag"] = etag
    return TopicPage(items=[_summary(topic) for topic in page], next_page_token=token)


async def create_topic(
    broker: BrokerDep,
    shared: SharedDep,
    response: Response,
    topic: TopicName,
    wanted: TopicToCreate | None = None,
    validate_only: Annotated[bool, Query(description="Check everything and create nothing.")] = False,
) -> TopicDetail:
    """Create a topic, or confirm that it is as asked: 201 when new, 200 when it was there, 409 when it differs."""
    wanted = wanted or TopicToCreate()
    dry = validate_only or wanted.validate_only
    configs = _texts(wanted.configs or {})
    async with shared.topic_changes:
        await broker.look((topic,), configs=True)
        info = _find(broker, topic)
        if info is None:
            try:
                info = await broker.topics.create(
                    topic,
                    partitions=wanted.partitions,
                    replication_factor=-1 if wanted.replication_factor is None else wanted.replication_factor,
                    configs=configs,
                    validate_only=dry,
                )
            except BrokerError as error:
                # A Kafka client may have created it while this request waited.
                await broker.look((topic,), configs=True)
                found = _find(broker, topic)
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or found is None:
                    raise
                info = found
            else:
                response.status_code = 200 if dry else 201
                if dry:
                    return _planned(info)
                response.headers["location"] = f"/api/v1/topics/{topic}"
                return await _detail(broker, topic, response)
    _compare(info, wanted, configs)
    return await _detail(broker, topic, response)


async def get_topic(broker: BrokerDep, response: Response, topic: TopicName) -> TopicDetail:
    """A topic with the bounds and size of each partition and all settings. The ETag names its version."""
    return await _detail(broker, topic, response)


async def change_topic(
    broker: BrokerDep,
    shared: SharedDep,
    response: Response,
    topic: TopicName,
    change: TopicChange,
    validate_only: Annotated[bool, Query(description="Check everything and change nothing.")] = False,
    if_match: IfMatch = None,
) -> TopicDetail:
    """Grow a topic, or change its settings: a merge patch, all of it or nothing."""
    configs = _texts(change.configs or {})
    async with shared.topic_changes:
        await broker.look((topic,), configs=True)
        info = broker.topics.get(topic)
        _check_match(info, if_match)
        grow = change.partitions is not None and change.partitions != info.partitions
        # Everything is checked before anything is done.
        changed = await broker.topics.alter_configs(topic, configs, validate_only=True)
        if grow:
            await broker.topics.create_partitions(topic, change.partitions or 0, validate_only=True)
        if validate_only:
            return _planned(changed, change.partitions)
        if configs:
            await broker.topics.alter_configs(topic, configs)
        if grow:
            await broker.topics.create_partitions(topic, change.partitions or 0)
        return await _detail(broker, topic, response)


async def delete_topic(
    broker: BrokerDep, shared: SharedDep, topic: TopicName, if_match: IfMatch = None
) -> None:
    """Delete a topic with all its records."""
    async with shared.topic_changes:
        await broker.look((topic,), configs=if_match is not None)
        _check_match(broker.topics.get(topic), if_match)
        await broker.topics.delete(topic)


async def truncate_topic(
    broker: BrokerDep,
    topic: TopicName,
    truncation: Truncation,
    dry_run: Annotated[bool, Query(description="Say what would be deleted, and delete nothing.")] = False,
) -> Truncated:
    """Delete the records below an offset, for good. Everything is checked before anything is deleted."""
    await broker.look(
        (topic,), partitions=[TopicPartition(topic, one.partition) for one in truncation.partitions]
    )
    broker.topics.get(topic)
    dry = dry_run or truncation.dry_run
    targets = {}
    for index, one in enumerate(truncation.partitions):
        bounds = broker.partitions.info(TopicPartition(topic, one.partition)).offsets
        before = bounds.high_watermark if one.before_offset is None else one.before_offset
        pointer = f"#/partitions/{index}"
        if one.partition in targets:
            detail = f"Partition {one.partition} is given more than once."
            raise Problem("invalid-request", detail, errors=[field_error(detail, pointer=pointer)])
        if before > bounds.high_watermark:
            error = BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Partition {one.partition} ends at offset {bounds.high_watermark}; {before} lies beyond that.",
                log_start_offset=bounds.log_start_offset,
                high_watermark=bounds.high_watermark,
            )
            problem = from_broker(error, offset=before)
            problem.errors = [field_error(error.message, pointer=f"{pointer}/before_offset")]
            raise problem
        targets[one.partition] = (bounds, before)
    starts: list[int | BrokerError] = [
        max(bounds.log_start_offset, before) for bounds, before in targets.values()
    ]
    if not dry:
        asked = [(TopicPartition(topic, partition), before) for partition, (_, before) in targets.items()]
        starts = await broker.partitions.delete_records(asked)
    done = []
    for (partition, (bounds, _)), start in zip(targets.items(), starts, strict=True):
        if isinstance(start, BrokerError):
            raise start
        done.append(
            PartitionTruncated(
                partition=partition,
                earliest_before=bounds.log_start_offset,
                earliest=start,
                latest=bounds.high_watermark,
                deleted=max(start - bounds.log_start_offset, 0),
            )
        )
    return Truncated(topic=topic, dry_run=dry, partitions=done)


async def get_topic_offsets(
    broker: BrokerDep,
    topic: TopicName,
    at: Annotated[
        str,
        Query(
            description="`earliest`, `latest`, `max_timestamp`, or a time: milliseconds since 1970 or ISO 8601.",
            examples=["earliest", "2025-01-31T12:00:00Z"],
            max_length=60,
        ),
    ] = "latest",
    isolation_level: Annotated[
        Literal["read_committed", "read_uncommitted"],
        Query(
            description="`latest` is the last stable offset for `read_committed`, and the high watermark for "
            "`read_uncommitted`. No record from there on is found."
        ),
    ] = "read_committed",
) -> TopicOffsets:
    """The offset at one moment, for all partitions: of the first record that is not older."""
    committed = isolation_level == READ_COMMITTED
    moment = _NAMED_TIMES.get(at)
    await broker.look((topic,))
    info = broker.topics.get(topic)
    if moment is None:
        moment = parse_moment("at", at)
    await broker.look((topic,), moment=moment, committed=committed)
    partitions = []
    for partition in range(info.partitions):
        found = broker.partitions.offset_for_time(
            TopicPartition(topic, partition), moment, committed=committed
        )
        partitions.append(
            PartitionOffset(
                partition=partition,
                offset=found.offset if found.offset >= 0 else None,
                timestamp=iso_time(found.timestamp),
                timestamp_ms=found.timestamp if found.timestamp >= 0 else None,
            )
        )
    return TopicOffsets(topic=topic, at=at, partitions=partitions)


# --- topics as JSON -----------------------------------------------------------------------------------------


def _find(broker: Facade, name: str) -> TopicInfo | None:
    try:
        return broker.topics.get(name)
    except BrokerError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return None


def _summary_members(info: TopicInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "topic_id": str(info.topic_id),
        "partitions": info.partitions,
        "internal": info.internal,
        "created": iso_time(info.created_ms),
        "configs": dict(sorted(info.overrides.items())),
        "version": info.version,
    }


def _summary(info: TopicInfo) -> TopicSummary:
    return TopicSummary(**_summary_members(info))


async def _detail(broker: Facade, name: str, response: Response) -> TopicDetail:
    await broker.look((name,), bounds=True, configs=True)
    info = broker.topics.get(name)
    response.headers["etag"] = _etag(info)
    partitions = []
    for partition in range(info.partitions):
        found = broker.partitions.info(TopicPartition(info.name, partition))
        partitions.append(
            PartitionDetail(
                partition=partition,
                earliest=found.offsets.log_start_offset,
                latest=found.offsets.last_stable_offset,
                high_watermark=found.offsets.high_watermark,
                size_bytes=found.size,
            )
        )
    try:
        entries = broker.topics.describe_configs(info.name)
    except BrokerError as error:
        if not is_denial(error):
            raise
        entries = []  # the topic may be described, its settings may not
    configs = {
        one.name: ConfigDetail(
            value=one.value or "",
            source=_SOURCES.get(one.source, "broker"),
            type=one.type,
            doc=one.doc,
        )
        for one in entries
    }
    return TopicDetail(**_summary_members(info), partition_details=partitions, effective_configs=configs)


def _planned(info: TopicInfo, partitions: int | None = None) -> TopicDetail:
    """A topic that was checked only."""
    members = _summary_members(info)
    if partitions is not None:
        members["partitions"] = partitions
    return TopicDetail(**members, partition_details=[], effective_configs={})


def _compare(info: TopicInfo, wanted: TopicToCreate, configs: Mapping[str, str | None]) -> None:
    """Raise 409 unless an existing topic has all that is wanted."""
    errors = []
    if wanted.partitions is not None and wanted.partitions != info.partitions:
        errors.append(
            field_error(
                f"It has {info.partitions} partitions, not {wanted.partitions}.", pointer="#/partitions"
            )
        )
    factor = max(len(info.replicas), 1)
    if wanted.replication_factor not in (None, -1, factor):
        errors.append(field_error(f"Its replication factor is {factor}.", pointer="#/replication_factor"))
    if wanted.configs is not None:
        ours = {name: value for name, value in configs.items() if value is not None}
        for name in sorted(ours.keys() | info.overrides.keys()):
            if ours.get(name) != info.overrides.get(name):
                is_now = info.overrides.get(name, "its default")
                errors.append(field_error(f"{name} is {is_now} here.", pointer=f"#/configs/{name}"))
    if errors:
        raise Problem(
            "topic-differs",
            f"Topic {info.name!r} exists with another shape; PATCH changes it.",
            code=None,
            errors=errors,
        )


def _texts(configs: Mapping[str, ConfigValue]) -> dict[str, str | None]:
    """Settings as the broker keeps them: text."""
    texts: dict[str, str | None] = {}
    for name, value in configs.items():
        if isinstance(value, bool):
            texts[name] = "true" if value else "false"
        elif isinstance(value, float):
            texts[name] = str(int(value)) if math.isfinite(value) and value.is_integer() else repr(value)
        else:
            texts[name] = None if value is None else str(value)
    return texts


# --- versions and pages -------------------------------------------------------------------------------------


def _etag(info: TopicInfo) -> str:
    """Names the version of a topic's definition; a topic that was deleted and created again has another id."""
    return f'"{info.topic_id.hex[:12]}-{info.version}"'


def _matches(header: str, etag: str) -> bool:
    return header.strip() == "*" or etag in (part.strip().removeprefix("W/") for part in header.split(","))


def _check_match(info: TopicInfo, if_match: str | None) -> None:
    if if_match is not None and not _matches(if_match, _etag(info)):
        raise Problem(
            "precondition-failed",
            f"Topic {info.name!r} is at version {_etag(info)} now, not at {if_match[:80]}.",
            extra={"current_etag": _etag(info)},
        )
