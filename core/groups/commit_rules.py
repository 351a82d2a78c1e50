"""Which commits and fetches of offsets a consumer group of KIP-848 accepts.

A commit without a member and with epoch −1 is that of a simple consumer or an admin tool: only an empty group takes
it. A member commits in its epoch. An older epoch is accepted for the partitions that the member has had since then
(KIP-1251): between two heartbeats it cannot know of its new epoch. All else is STALE_MEMBER_EPOCH, or
ILLEGAL_GENERATION for members of the classic protocol, whose generation is their epoch.
"""

from __future__ import annotations

from core.errors import BrokerError, ErrorCode
from core.groups.consumer_member import ConsumerMember
from core.groups.consumer_roster import ConsumerRoster
from core.vocabulary.groups import NO_MEMBER, Commit, CommitRequest


def check_commit(
    roster: ConsumerRoster, request: CommitRequest
) -> tuple[ConsumerMember | None, ErrorCode | list[ErrorCode]]:
    """Return the member that commits, and the error of the request, or one for each of its commits."""
    epoch = request.generation
    if epoch < 0 and not roster.members:
        return None, ErrorCode.NONE
    try:
        member = roster.known(request.member_id, request.group_instance_id)
    except BrokerError as error:
        return None, error.code
    if epoch == member.epoch:
        return member, ErrorCode.NONE
    if member.classic is not None:
        return member, ErrorCode.ILLEGAL_GENERATION
    if epoch < 0 or epoch > member.epoch:
        return member, ErrorCode.STALE_MEMBER_EPOCH
    errors = [_of_partition(roster, member, epoch, one) for one in request.commits]
    return member, errors if errors else ErrorCode.STALE_MEMBER_EPOCH


def check_staged(roster: ConsumerRoster, request: CommitRequest) -> ErrorCode | list[ErrorCode]:
    """As `check_commit` for a transaction. A producer that names no member is accepted, as before KIP-447.

    Producers know no STALE_MEMBER_EPOCH: it is ILLEGAL_GENERATION to them, as in Kafka.
    """
    if request.generation < 0 and request.member_id == NO_MEMBER and request.group_instance_id is None:
        return ErrorCode.NONE
    _, found = check_commit(roster, request)
    return [_for_producer(error) for error in found] if isinstance(found, list) else _for_producer(found)


def check_fetch(roster: ConsumerRoster, member_id: str | None, member_epoch: int) -> ErrorCode:
    """Return the error of an OffsetFetch: a member must name its epoch; any other client names neither."""
    if not member_id and member_epoch < 0:
        return ErrorCode.NONE
    member = roster.members.get(member_id or NO_MEMBER)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member_epoch == member.epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _of_partition(roster: ConsumerRoster, member: ConsumerMember, epoch: int, commit: Commit) -> ErrorCode:
    shape = roster.catalog.shape(commit.topic)
    if shape is not None:
        for owned in (member.assigned, member.revoking):
            since = owned.get(shape[0], {}).get(commit.partition)
            if since is not None and since <= epoch:
                return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH


def _for_producer(error: ErrorCode) -> ErrorCode:
    return ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.STALE_MEMBER_EPOCH else error
