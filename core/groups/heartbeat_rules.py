"""What a ConsumerGroupHeartbeat must look like, and which epochs are accepted (KIP-848). Raises BrokerError."""

from __future__ import annotations

from collections.abc import Collection

from core.errors import BrokerError, ErrorCode
from core.groups.consumer_member import ConsumerMember
from core.vocabulary.consumer_groups import AWAY, JOINING, LEAVING, ConsumerHeartbeat, Partitions


def check_heartbeat(request: ConsumerHeartbeat, assignors: Collection[str]) -> None:
    """Raise INVALID_REQUEST, UNSUPPORTED_ASSIGNOR for a request that is wrong whatever the group is."""
    epoch = request.member_epoch
    if (
        epoch > JOINING
        and request.member_id
        and request.group_instance_id is None
        and request.assignor is None
    ):
        # By far the most.
        return
    if not request.member_id and (epoch != JOINING or not request.new_member_id):
        raise _invalid("The member id must not be empty.")
    if request.group_instance_id == "":
        raise _invalid("The instance id must not be empty; leave it out for a dynamic member.")
    if request.rack_id == "":
        raise _invalid("The rack id must not be empty; leave it out if there is none.")
    if epoch < AWAY:
        raise _invalid(
            f"The member epoch is {epoch}; it is 0 to join, −1 or −2 to leave, else the member's own."
        )
    if epoch == AWAY and request.group_instance_id is None:
        raise _invalid("Only a static member can leave for a while (epoch −2); an instance id is missing.")
    if epoch == JOINING:
        _check_join(request)
    if epoch > LEAVING and request.assignor is not None and request.assignor not in assignors:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"There is no assignor {request.assignor!r}; there are: {', '.join(assignors)}.",
            assignors=list(assignors),
        )


def _check_join(request: ConsumerHeartbeat) -> None:
    if request.rebalance_timeout_ms < 0:
        raise _invalid("A member that joins must say its rebalance timeout.")
    if request.owned is None or any(request.owned.values()):
        raise _invalid(
            "A member that joins must give up all partitions: its list of partitions must be empty."
        )
    if request.topics is None and request.pattern is None:
        raise _invalid("A member that joins must subscribe to topics or to a pattern; the list may be empty.")


def check_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> None:
    """Raise FENCED_MEMBER_EPOCH unless a member may send a heartbeat with this epoch.

    The previous epoch is accepted from a member that shows no partition that it does not have: the answer that named
    the present epoch was lost.
    """
    if member.classic is None:
        if epoch == member.epoch:
            return
        if epoch < member.epoch and epoch == member.previous_epoch and member.holds(owned):
            return
    raise BrokerError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The member {member.member_id!r} is in epoch {member.epoch}, not in {epoch}; give up all partitions and"
        " join again with epoch 0.",
    )


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, message)
