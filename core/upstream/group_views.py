"""The cluster's groups as they are shown: ListGroups, DescribeGroups and those of the newer types, DeleteGroups.

A group of KIP-848 or KIP-932 is unknown to DescribeGroups; ConsumerGroupDescribe or ShareGroupDescribe shows it. Its
members are then shown with a subscription and an assignment in the form of classic members.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection
from typing import Any

from core.client.cluster import ClusterClient
from core.client.failures import error_code
from core.errors import BrokerError, ErrorCode
from core.groups.refusals import refusal
from core.protocol.consumer_protocol import Subscription, encode_subscription
from core.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from core.protocol.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from core.protocol.messages.consumer_group_describe import Member as ConsumerMember
from core.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from core.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from core.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from core.protocol.messages.share_group_describe import DescribedGroup as ShareGroup
from core.protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from core.protocol.schema import Message
from core.types import TopicPartition
from core.upstream.group_offsets import PATIENCE_MS
from core.vocabulary.consumer_groups import ConsumerGroupView, ConsumerMemberView, MemberKind, TopicShare
from core.vocabulary.groups import GroupListing, GroupView, MemberView, State
from core.vocabulary.member_metadata import CONSUMER_PROTOCOL_TYPE, assignment_of

# Groups that are remembered between a look and its use.
MAX_GROUPS = 1_000
# Brokers before ListGroups 4 and 5 do not say state and type.
_UNKNOWN, _CLASSIC = "Unknown", "classic"


class GroupViews:
    """What is at hand of the cluster's groups."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._views: OrderedDict[str, GroupView | None] = OrderedDict()
        # Those of KIP-848 among them, with what only they have.
        self._consumer_groups: dict[str, ConsumerGroupView] = {}
        self._listings: list[GroupListing] = []

    # --- one group -----------------------------------------------------------------------------------------

    async def look(self, group_id: str) -> GroupView | None:
        """Ask the coordinator for a group; None if there is none. Raises GROUP_AUTHORIZATION_FAILED, and others."""
        answer: DescribeGroupsResponse = await self._cluster.ask_coordinator(
            group_id, DescribeGroupsRequest(groups=[group_id]), patience_ms=PATIENCE_MS
        )
        found = answer.groups[0]
        error = error_code(found.error_code)
        if error and error is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise refusal(error, group_id)
        view: GroupView | None
        self._consumer_groups.pop(group_id, None)
        if error or found.group_state == State.DEAD:
            view = await self._look_at_consumer_group(group_id) or await self._look_at_share_group(group_id)
        else:
            members = tuple(
                MemberView(
                    one.member_id,
                    one.group_instance_id,
                    one.client_id,
                    one.client_host,
                    one.member_metadata,
                    one.member_assignment,
                )
                for one in found.members
            )
            view = GroupView(group_id, found.group_state, found.protocol_type, found.protocol_data, members)
        self._views[group_id] = view
        self._views.move_to_end(group_id)
        if len(self._views) > MAX_GROUPS:
            forgotten, _ = self._views.popitem(last=False)
            self._consumer_groups.pop(forgotten, None)
        return view

    async def _look_at_consumer_group(self, group_id: str) -> GroupView | None:
        answer: ConsumerGroupDescribeResponse | None = await self._ask(
            group_id, ConsumerGroupDescribeRequest(group_ids=[group_id])
        )
        found = _found(answer)
        if found is None:
            return None
        self._consumer_groups[group_id] = _consumer_group(found)
        return _as_classic(found, "consumer")

    async def _look_at_share_group(self, group_id: str) -> GroupView | None:
        answer: ShareGroupDescribeResponse | None = await self._ask(
            group_id, ShareGroupDescribeRequest(group_ids=[group_id])
        )
        found = _found(answer)
        return None if found is None else _as_classic(found, "share")

    async def _ask(self, group_id: str, request: Message) -> Any:
        """Ask the coordinator; None if it is of a release before this request, or keeps no such groups."""
        try:
            return await self._cluster.ask_coordinator(group_id, request, patience_ms=PATIENCE_MS)
        except BrokerError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                return None
            raise

    def describe(self, group_id: str) -> GroupView | None:
        """Return the group as the last look has shown it; None if there is none."""
        return self._views.get(group_id)

    def describe_consumer(self, group_id: str) -> ConsumerGroupView | None:
        """Return a group of KIP-848 as the last look has shown it; None if there is none."""
        return self._consumer_groups.get(group_id)

    async def delete(self, group_id: str) -> None:
        """Delete a group and its offsets. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, and others."""
        answer: DeleteGroupsResponse = await self._cluster.ask_coordinator(
            group_id, DeleteGroupsRequest(groups_names=[group_id]), patience_ms=PATIENCE_MS
        )
        self._views.pop(group_id, None)
        self._consumer_groups.pop(group_id, None)
        error = error_code(answer.results[0].error_code)
        if error:
            raise refusal(error, group_id)

    # --- all groups ----------------------------------------------------------------------------------------

    async def look_at_all(self) -> None:
        """Ask all brokers for their groups. Raises LinkLost if one of them cannot be reached."""
        await self._cluster.refresh((), max_age_ms=1_000)
        answers = await asyncio.gather(*(self._list(broker_id) for broker_id in self._cluster.brokers))
        found = {listing.group_id: listing for answer in answers for listing in answer}
        self._listings = [found[group_id] for group_id in sorted(found)]

    async def _list(self, broker_id: int) -> list[GroupListing]:
        answer: ListGroupsResponse = await self._cluster.ask(broker_id, ListGroupsRequest())
        error = error_code(answer.error_code)
        if error:
            raise BrokerError(error, f"Broker {broker_id} does not list its groups: {error.name}.")
        return [
            GroupListing(
                one.group_id,
                one.protocol_type,
                one.group_state or _UNKNOWN,
                (one.group_type or _CLASSIC).lower(),
            )
            for one in answer.groups
        ]

    def list(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """Return the groups of the last look at all, or those in one of `states` and of one of `types`."""
        wanted_states = {state.lower() for state in states}
        wanted_types = {group_type.lower() for group_type in types}
        return [
            one
            for one in self._listings
            if (not wanted_states or one.state.lower() in wanted_states)
            and (not wanted_types or one.group_type in wanted_types)
        ]


def _consumer_group(found: ConsumerGroup) -> ConsumerGroupView:
    return ConsumerGroupView(
        found.group_id,
        found.group_state,
        found.group_epoch,
        found.assignment_epoch,
        found.assignor_name,
        tuple(
            ConsumerMemberView(
                one.member_id,
                one.instance_id,
                one.rack_id,
                one.member_epoch,
                one.client_id,
                one.client_host,
                tuple(sorted(one.subscribed_topic_names)),
                one.subscribed_topic_regex or None,
                _shares(one.assignment),
                _shares(one.target_assignment),
                # Brokers before Kafka 4.1 do not say it.
                MemberKind.CLASSIC if one.member_type == MemberKind.CLASSIC else MemberKind.CONSUMER,
            )
            for one in found.members
        ),
    )


def _shares(assignment: Assignment) -> tuple[TopicShare, ...]:
    return tuple(
        TopicShare(one.topic_id, one.topic_name, tuple(one.partitions)) for one in assignment.topic_partitions
    )


def _found(answer: Any) -> Any:
    """The group of an answer; None if there is none of this type. Raises what the coordinator refuses."""
    if answer is None:
        return None
    found = answer.groups[0]
    if found.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    if found.error_code:
        raise refusal(error_code(found.error_code), found.group_id)
    return found


def _as_classic(found: ConsumerGroup | ShareGroup, group_type: str) -> GroupView:
    members = tuple(
        MemberView(
            one.member_id,
            one.instance_id if isinstance(one, ConsumerMember) else None,
            one.client_id,
            one.client_host,
            encode_subscription(Subscription(sorted(one.subscribed_topic_names)), 0),
            assignment_of(
                TopicPartition(topic.topic_name, partition)
                for topic in one.assignment.topic_partitions
                for partition in topic.partitions
            ),
        )
        for one in found.members
    )
    return GroupView(
        found.group_id,
        found.group_state,
        CONSUMER_PROTOCOL_TYPE if group_type == "consumer" else group_type,
        found.assignor_name,
        members,
        found.group_epoch,
        group_type=group_type,
    )
