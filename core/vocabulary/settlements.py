"""What a decision commits besides the records of transactions: offsets of groups, batches of managed consumers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from core.errors import BrokerError, ErrorCode
from core.vocabulary.consumers import Range
from core.vocabulary.groups import NO_GENERATION, NO_MEMBER, NO_OFFSET
from core.vocabulary.transactions import Settlement

# `expected` of an offset that is committed whatever was committed before.
ANY_OFFSET = -2
# `details["reason"]` of the BrokerError when a batch cannot be acknowledged in a decision.
ACK_STAGED = "ack-staged"
ALREADY_ACKNOWLEDGED = "already-acknowledged"
BATCH_CHANGED = "batch-changed"


class OffsetToSettle(NamedTuple):
    """An offset that a decision commits: the next one to read of a partition.

    `expected` is the offset that must be committed before it: `NO_OFFSET` for none, `ANY_OFFSET` for whatever it is.
    With a generation it is the commit of that member; without one the group must have no members.
    """

    group_id: str
    topic: str
    partition: int
    offset: int
    expected: int = ANY_OFFSET
    metadata: str = ""
    generation: int = NO_GENERATION
    member_id: str = NO_MEMBER
    group_instance_id: str | None = None


Path = tuple[str | int, ...]


class Fault(NamedTuple):
    """What is wrong with one part of a request. `path` leads to the part: names and indexes."""

    path: Path
    error: BrokerError


class RefusedError(BrokerError):
    """The refusal of a request of which nothing was done. It has the code and the message of the first fault."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        first = faults[0].error
        super().__init__(first.code, first.message, **first.details)
        self.faults = tuple(faults)

    def under(self, *path: str | int) -> RefusedError:
        """Return the same faults in a part of a larger request."""
        return RefusedError([Fault((*path, *one.path), one.error) for one in self.faults])


def unexpected(one: OffsetToSettle, actual: int) -> BrokerError:
    """Return the refusal of an offset before which another one is committed than expected."""

    def said(offset: int) -> str:
        return "none" if offset == NO_OFFSET else str(offset)

    return BrokerError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Group {one.group_id!r} has committed offset {said(actual)} of {one.topic}-{one.partition}, not "
        f"{said(one.expected)}.",
        group=one.group_id,
        topic=one.topic,
        partition=one.partition,
        expected=None if one.expected == NO_OFFSET else one.expected,
        actual=None if actual == NO_OFFSET else actual,
    )


class StagedAck(Protocol):
    """The acknowledgement of a batch by a decision. Until `release` nothing else moves its consumer."""

    @property
    def ranges(self) -> Sequence[Range]:
        """What the batch holds."""
        ...

    def settle(self) -> Settlement:
        """Check that the batch may still be acknowledged, and return the change, for `commit_together`.

        Raises INVALID_RECORD_STATE with reason `already-acknowledged` or `batch-changed`, RESOURCE_NOT_FOUND,
        FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID. The batch stays as it is.
        """
        ...

    def release(self) -> None:
        """Let the consumer continue: the decision is made, or will not be."""
        ...
