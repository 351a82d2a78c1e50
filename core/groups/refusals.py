"""The errors of group members, with messages for people."""

from __future__ import annotations

from core.errors import BrokerError, ErrorCode
from core.vocabulary.groups import NO_MEMBER

_SENTENCES = {
    ErrorCode.GROUP_ID_NOT_FOUND: "There is no group {group!r}.",
    ErrorCode.NON_EMPTY_GROUP: "Group {group!r} has members; stop them first, or name one of them.",
    ErrorCode.UNKNOWN_MEMBER_ID: "Group {group!r} has no member {member!r}: it never joined, has left, or sent "
    "no heartbeat for its session timeout. Join again without a member id.",
    ErrorCode.ILLEGAL_GENERATION: "This is not the present generation of group {group!r}; join again.",
    ErrorCode.REBALANCE_IN_PROGRESS: "Group {group!r} is rebalancing; join again with the same member id.",
    ErrorCode.FENCED_INSTANCE_ID: "The instance id has moved on to another member of group {group!r}; {member!r} is "
    "fenced.",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "The members of group {group!r} have no protocol in common with this one.",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "Group {group!r} is full.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "Members of group {group!r} read this topic; stop them first.",
    ErrorCode.INVALID_GROUP_ID: "A group id must not be empty.",
    ErrorCode.INVALID_SESSION_TIMEOUT: "The session timeout is outside of the bounds that the broker sets.",
    ErrorCode.INVALID_REQUEST: "The metadata or the assignment of a member is larger than the broker takes.",
    ErrorCode.POLICY_VIOLATION: "There are too many groups already; delete some of them.",
}


def refusal(error: ErrorCode, group_id: str, member_id: str = NO_MEMBER) -> BrokerError:
    """Return the error of a member as a BrokerError that says what happened and what to do."""
    sentence = _SENTENCES.get(error, "The group coordinator does not serve group {group!r} now; try again.")
    return BrokerError(error, sentence.format(group=group_id, member=member_id), group=group_id)
