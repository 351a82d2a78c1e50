"""A group that has members changes its type: classic to consumer group (upgrade) and back (downgrade), KIP-848.

The members stay, and keep their partitions. An upgrade is caused by the first ConsumerGroupHeartbeat of a new member,
a downgrade by the end of the last member of the consumer protocol. The generation continues as the epoch.

An upgrade needs a group of consumers: protocol type `consumer`, subscriptions and assignments that can be read, no
user data of an assignor of its own, as in Kafka. Requests that wait in a round get REBALANCE_IN_PROGRESS, so that
their clients join again, then with the broker as assignor.
"""

from __future__ import annotations

from functools import partial

from core.errors import BrokerError, ErrorCode
from core.groups.consumer_group import ConsumerGroup, ConsumerGroupSettings, Downgrade
from core.groups.consumer_member import ConsumerMember
from core.groups.effects import Moment, StoredGroup, StoredMember
from core.groups.group import Group, GroupSettings
from core.groups.machines import Catalog, Effects
from core.groups.member import Member
from core.protocol.consumer_protocol import decode_assignment, decode_subscription
from core.protocol.primitives import ProtocolError
from core.vocabulary.groups import JoinRequest, State
from core.vocabulary.member_metadata import CONSUMER_PROTOCOL_TYPE

# The hosts of members of the line protocol begin with this.
LINE_HOST = "line:"


def upgrade(
    group: Group, settings: ConsumerGroupSettings, catalog: Catalog, downgrade: Downgrade, now: float
) -> ConsumerGroup:
    """Return the consumer group that a classic group becomes; the classic group does not change.

    Raises GROUP_ID_NOT_FOUND if it may not, or cannot.
    """
    found = ConsumerGroup(group.group_id, settings, catalog, downgrade, converted=True)
    found.epoch = found.target_epoch = group.generation
    found.empty_since_ms = group.empty_since_ms
    if group.is_empty:
        return found
    if not settings.may_upgrade:
        raise _refused(group, "the setting group_consumer_upgrade forbids it")
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _refused(group, f"its members are of the type {group.protocol_type!r}")
    if any(one.client_host.startswith(LINE_HOST) for one in group.roster.members.values()):
        raise _refused(group, "it has members of the line protocol, which read the rounds of a classic group")
    if len(group.roster) >= settings.max_size:
        raise _refused(group, "it has as many members as a group may have")
    # A client that does not know its member id yet joins again as another member.
    members = [_upgraded(one, group, catalog) for one in group.roster.members.values() if one.id_told]
    found.admit(members, now)
    return found


def _upgraded(one: Member, group: Group, catalog: Catalog) -> ConsumerMember:
    try:
        subscription = decode_subscription(one.metadata(group.protocol) or one.protocols[0][1])
        assignment = decode_assignment(one.assignment)
    except ProtocolError as error:
        raise _refused(group, f"the metadata of the member {one.member_id!r} cannot be read") from error
    if assignment.user_data:
        raise _refused(group, f"the member {one.member_id!r} uses an assignor of its own, with user data")
    member = ConsumerMember(one.member_id)
    member.update_classic(_request(one), subscription.topics, subscription.rack_id)
    member.epoch = member.previous_epoch = group.generation
    for topic in assignment.assigned_partitions:
        shape = catalog.shape(topic.topic)
        if shape is not None:
            member.assigned.setdefault(shape[0], {}).update(
                (number, group.generation) for number in topic.partitions if 0 <= number < shape[1]
            )
    return member


def _request(one: Member) -> JoinRequest:
    return JoinRequest(
        one.member_id,
        CONSUMER_PROTOCOL_TYPE,
        one.protocols,
        one.session_timeout_ms,
        one.rebalance_timeout_ms,
        one.client_id,
        one.client_host,
        one.group_instance_id,
    )


def downgrade_to(settings: GroupSettings) -> Downgrade:
    """Return what makes a classic group with these settings of a consumer group."""
    return partial(_downgrade, settings)


def _downgrade(settings: GroupSettings, group: ConsumerGroup, now: Moment) -> Effects:
    """Return the effects that make a consumer group a classic group, which begins a round at once."""
    rows = []
    for member in group.roster.members.values():
        classic = member.classic
        assert classic is not None, "only a group without members of the consumer protocol becomes classic"
        rows.append(
            StoredMember(
                group.group_id,
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                classic.session_timeout_ms,
                member.rebalance_timeout_ms,
                classic.protocols,
                group.encoded(member),
            )
        )
    row = StoredGroup(
        group.group_id,
        State.STABLE.value,
        CONSUMER_PROTOCOL_TYPE,
        group.epoch,
        None,
        rows[0].member_id,
        -1,
    )
    return Group.restored(row, rows, settings, now.monotonic).begin_again(now)


def _refused(group: Group, reason: str) -> BrokerError:
    return BrokerError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {group.group_id!r} is a classic group and does not become a consumer group: {reason}.",
        group=group.group_id,
    )
