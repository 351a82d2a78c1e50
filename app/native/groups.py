"""Groups: list, describe, delete; their positions: read, set, reset, forget; their lag."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from typing import Annotated

from fastapi import Path, Query, Response
from pydantic import AfterValidator

from app.errors import Problem, field_error
from app.http.parameters import PATH_NAME, parse_moment
from app.http.request import invalid_parameter
from app.native import pages
from app.native.dependencies import BrokerDep, NamedTransactionsDep, SharedDep, TransactionHeader
from app.native.group_schemas import (
    AssignedPartition,
    BytePosition,
    CommittedPosition,
    GroupConsumer,
    GroupDetail,
    GroupLag,
    GroupMember,
    GroupPage,
    GroupPositionList,
    GroupSummary,
    GroupToTakeOver,
    PartitionLagDetail,
    PositionReset,
    PositionsToSet,
    ResetRequest,
    ResetResult,
)
from app.native.record_json import iso_time
from app.native.topics import TopicName
from core.errors import ErrorCode
from core.facade import Facade
from core.vocabulary.consumer_groups import ConsumerGroupView, MemberKind, TopicShare
from core.vocabulary.consumers import ConsumerInfo
from core.vocabulary.foreign_groups import ZOOKEEPER, ForeignGroup
from core.vocabulary.groups import (
    NO_GENERATION,
    Commit,
    CommitRequest,
    GroupListing,
    GroupView,
    MemberView,
    Target,
)
from core.vocabulary.member_metadata import CONSUMER_PROTOCOL_TYPE, owned_partitions, wanted_topics


def _with_a_path(name: str) -> str:
    """Refuse names with which no client's URL would arrive; the v2 surface does as well."""
    if name in (".", ".."):
        raise invalid_parameter("group", "A group of that name has no path: '.' and '..' lead elsewhere.")
    return name


GroupId = Annotated[
    str,
    AfterValidator(_with_a_path),
    Path(description="The group's id.", examples=["billing"], max_length=1000, json_schema_extra=PATH_NAME),
]


# --- groups ------------------------------------------------------------------------------------------------


async def list_groups(
    broker: BrokerDep,
    shared: SharedDep,
    prefix: Annotated[str, Query(description="Only groups whose id begins so.", max_length=1000)] = "",
    state: Annotated[
        str, Query(description="Only groups in these states, with commas: `stable,empty`.", max_length=200)
    ] = "",
    group_type: Annotated[
        str, Query(alias="type", description="Only groups of these types: `consumer,share`.", max_length=200)
    ] = "",
    page_size: Annotated[int | None, Query(ge=1, description="Groups on one page.")] = None,
    page_token: Annotated[str | None, Query(description="`next_page_token` of the page before.")] = None,
) -> GroupPage:
    """The groups by id, one page at a time."""
    asked = pages.asked(shared.config, page_size, page_token)
    await broker.look_at_groups()
    groups = _all_groups(broker, _parts(state), _parts(group_type))
    found = [group for group in groups if group.group_id.startswith(prefix)]
    page, token = asked.of(found, lambda group: group.group_id)
    return GroupPage(items=[_summary(group) for group in page], next_page_token=token)


async def get_group(broker: BrokerDep, group: GroupId) -> GroupDetail:
    """A group with its members, what they subscribe to and what they own."""
    await broker.look_at_group(group)
    foreign = broker.foreign_groups.get(group)
    if foreign is not None and broker.groups.describe(group) is None:
        return _foreign_detail(foreign)
    view = _view(broker, group)
    consumers = [_consumer(info) for info in broker.consumers.of_group(group)]
    if (assigned := broker.groups.describe_consumer(group)) is not None:
        return _consumer_group_detail(assigned, consumers)
    return GroupDetail(
        group_id=view.group_id,
        state=view.state,
        type=view.group_type,
        protocol_type=view.protocol_type,
        generation_id=view.generation,
        leader_id=view.leader_id or None,
        protocol=view.protocol or None,
        members=[_member(member, known=bool(view.protocol)) for member in view.members],
        consumers=consumers,
    )


async def take_over_group(broker: BrokerDep, group: GroupId, wanted: GroupToTakeOver) -> GroupDetail:
    """Take over a group of another broker. Its members use the line protocol and need not rejoin.

    Nothing changes where the group has come as far already; 409 where it has members in an older generation.
    """
    members = {one.member_id: one.partitions for one in wanted.members}
    if len(members) < len(wanted.members):
        detail = "A member is named more than once."
        raise Problem("invalid-request", detail, errors=[field_error(detail, pointer="#/members")])
    await broker.groups.lines.take_over(group, wanted.topic, wanted.generation_id, wanted.assignor, members)
    return await get_group(broker, group)


async def delete_group(broker: BrokerDep, group: GroupId) -> Response:
    """Delete a group without members, and its positions."""
    await broker.groups.delete(group)
    return Response(status_code=204)


# --- positions ---------------------------------------------------------------------------------------------


async def get_group_offsets(broker: BrokerDep, group: GroupId) -> GroupPositionList:
    """The committed positions of a group: in each partition the next offset to read."""
    await broker.look_at_group(group)
    if broker.foreign_groups.get(group) is None:
        _view(broker, group)
    return _positions(broker, group)


async def set_group_offsets(
    broker: BrokerDep,
    transactions: NamedTransactionsDep,
    group: GroupId,
    wanted: PositionsToSet,
    transaction: TransactionHeader = None,
) -> GroupPositionList:
    """Commit positions, all or none. As a member: fenced by its generation. By hand: only an empty group.

    In a transaction they are committed with it. The answer has what is committed now.
    """
    commits = [Commit(one.topic, one.partition, one.next_offset, -1, one.metadata) for one in wanted.offsets]
    generation = NO_GENERATION if wanted.generation_id is None else wanted.generation_id
    request = CommitRequest(commits, wanted.member_id, generation, wanted.group_instance_id)
    if transaction is None:
        await broker.groups.positions.set(group, request)
    else:
        errors = await transactions().commit_offsets(transaction, group, request)
        if (error := next(filter(None, errors), None)) is not None:
            raise broker.groups.refusal(error, group, wanted.member_id)
    await broker.look_at_group(group)
    return _positions(broker, group)


async def delete_topic_offsets(broker: BrokerDep, group: GroupId, topic: TopicName) -> Response:
    """Forget the positions in a topic that no member reads."""
    await broker.groups.positions.forget(group, topic)
    return Response(status_code=204)


async def delete_partition_offset(
    broker: BrokerDep, group: GroupId, topic: TopicName, partition: Annotated[int, Path(ge=0, lt=2**31)]
) -> Response:
    """Forget the position in one partition."""
    await broker.groups.positions.forget(group, topic, partition)
    return Response(status_code=204)


async def reset_group_offsets(broker: BrokerDep, group: GroupId, wanted: ResetRequest) -> ResetResult:
    """Move the positions of a group that has no members; `dry_run` shows before and after, and changes nothing."""
    resets = await broker.groups.positions.reset(
        group, _target(wanted), wanted.topics or (), dry_run=wanted.dry_run
    )
    return ResetResult(
        group_id=group,
        dry_run=wanted.dry_run,
        offsets=[
            PositionReset(topic=r.topic, partition=r.partition, before=r.before, after=r.after)
            for r in resets
        ],
    )


async def get_group_lag(broker: BrokerDep, group: GroupId) -> GroupLag:
    """The lag of a group: in total, and in each partition that it has a position in or that a member owns."""
    await broker.look_at_group(group)
    partitions = [
        PartitionLagDetail(
            topic=one.topic,
            partition=one.partition,
            next_offset=one.next_offset,
            log_start_offset=one.offsets and one.offsets.log_start_offset,
            high_watermark=one.offsets and one.offsets.high_watermark,
            last_stable_offset=one.offsets and one.offsets.last_stable_offset,
            lag=one.lag,
            member_id=one.member_id,
        )
        for one in broker.groups.positions.lag(group)
    ]
    return GroupLag(group_id=group, total_lag=sum(p.lag or 0 for p in partitions), partitions=partitions)


# --- shapes ------------------------------------------------------------------------------------------------


def _view(broker: Facade, group: str) -> GroupView:
    view = broker.groups.describe(group)
    if view is None:
        raise broker.groups.refusal(ErrorCode.GROUP_ID_NOT_FOUND, group)
    return view


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _all_groups(broker: Facade, states: list[str], types: list[str]) -> list[GroupListing]:
    """Our own groups, and those of Kafka 0.7 whose id none of ours has."""
    own = {group.group_id for group in broker.groups.list()} if broker.foreign_groups.list() else set()
    foreign = [
        GroupListing(group.group_id, "", group.state, ZOOKEEPER)
        for group in broker.foreign_groups.list(states)
        if group.group_id not in own and (not types or ZOOKEEPER in (one.lower() for one in types))
    ]
    return [*broker.groups.list(states, types), *foreign]


def _consumer_group_detail(group: ConsumerGroupView, consumers: list[GroupConsumer]) -> GroupDetail:
    return GroupDetail(
        group_id=group.group_id,
        state=group.state,
        type=group.group_type,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation_id=group.group_epoch,
        leader_id=None,
        protocol=group.assignor or None,
        assignment_epoch=group.assignment_epoch,
        members=[
            GroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                topics=list(member.topics),
                partitions=_assigned(member.assignment),
                metadata="",
                assignment="",
                kind="classic" if member.kind is MemberKind.CLASSIC else "consumer",
                epoch=member.member_epoch,
                pattern=member.pattern or None,
                target=_assigned(member.target),
            )
            for member in group.members
        ],
        consumers=consumers,
    )


def _assigned(shares: Iterable[TopicShare]) -> list[AssignedPartition]:
    return [AssignedPartition(topic=one.topic, partition=p) for one in shares for p in one.partitions]


def _foreign_detail(group: ForeignGroup) -> GroupDetail:
    return GroupDetail(
        group_id=group.group_id,
        state=group.state,
        type=ZOOKEEPER,
        protocol_type="",
        generation_id=NO_GENERATION,
        leader_id=None,
        protocol=None,
        members=[
            GroupMember(
                member_id=member.member_id,
                group_instance_id=None,
                client_id="",
                client_host="",
                topics=None,
                partitions=[AssignedPartition(topic=t, partition=p) for t, p in member.owned],
                metadata=b64encode(member.subscription.encode()).decode(),
                assignment="",
            )
            for member in group.members
        ],
    )


def _summary(group: GroupListing) -> GroupSummary:
    return GroupSummary(
        group_id=group.group_id, state=group.state, type=group.group_type, protocol_type=group.protocol_type
    )


def _consumer(info: ConsumerInfo) -> GroupConsumer:
    return GroupConsumer(
        name=info.name,
        state=info.state,
        member_id=info.member_id or None,
        topics=list(info.subscription.topics) or None,
        pattern=info.subscription.pattern,
        partitions=[AssignedPartition(topic=p.topic, partition=p.partition) for p in info.partitions],
    )


def _member(member: MemberView, *, known: bool) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=wanted_topics(member.metadata) if known else None,
        partitions=[AssignedPartition(topic=t, partition=p) for t, p in owned_partitions(member.assignment)],
        metadata=b64encode(member.metadata).decode(),
        assignment=b64encode(member.assignment).decode(),
    )


def _positions(broker: Facade, group: str) -> GroupPositionList:
    offsets = [
        CommittedPosition(
            topic=topic,
            partition=partition,
            next_offset=found.offset,
            leader_epoch=None if found.leader_epoch < 0 else found.leader_epoch,
            metadata=found.metadata,
            committed=iso_time(found.commit_ms),
            committed_ms=found.commit_ms,
        )
        for topic, partition, found in sorted(broker.groups.all_committed(group))
    ]
    foreign = broker.foreign_groups.get(group)
    byte_offsets = [
        BytePosition(
            topic=one.topic, broker_id=one.broker_id, partition=one.partition, byte_offset=one.offset
        )
        for one in (foreign.offsets if foreign is not None else ())
    ]
    return GroupPositionList(group_id=group, offsets=offsets, byte_offsets=byte_offsets)


def _target(wanted: ResetRequest) -> Target:
    given = [name for name in ("to", "time", "offset", "shift") if getattr(wanted, name) is not None]
    if len(given) != 1:
        detail = (
            f"One of to, time, offset and shift says where to go; {' and '.join(given) or 'none'} is given."
        )
        raise Problem("invalid-request", detail, errors=[field_error(detail, pointer="#")])
    time = None if wanted.time is None else parse_moment("time", str(wanted.time))
    return Target(wanted.to == "earliest", wanted.to == "latest", time, wanted.offset, wanted.shift)
