"""The broker's refusals in the words of the line protocol.

The protocol has five codes. What a client can do nothing about but ask differently is BAD_REQUEST; what it can
do nothing about at all (a disk, a full broker) keeps Kafka's own name as its code, for none of the five is true.
The message begins with Kafka's name, so that nothing is lost in the translation.
"""

from __future__ import annotations

from core.errors import BrokerError, ErrorCode
from core.line_protocol import codec as text

_CODES: dict[ErrorCode, str] = {
    ErrorCode.REQUEST_TIMED_OUT: text.REPLICATION_TIMEOUT,
    ErrorCode.NOT_ENOUGH_REPLICAS: text.REPLICATION_TIMEOUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: text.REPLICATION_TIMEOUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: text.NOT_LEADER,
    ErrorCode.LEADER_NOT_AVAILABLE: text.NOT_LEADER,
    ErrorCode.FENCED_LEADER_EPOCH: text.NOT_LEADER,
    ErrorCode.ILLEGAL_GENERATION: text.GENERATION_MISMATCH,
    ErrorCode.UNKNOWN_MEMBER_ID: text.GENERATION_MISMATCH,
    ErrorCode.FENCED_INSTANCE_ID: text.GENERATION_MISMATCH,
    ErrorCode.REBALANCE_IN_PROGRESS: text.GENERATION_MISMATCH,
}
# Nothing in the request is wrong.
_OURS = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)


def code_of(error: BrokerError) -> str:
    """The code of a refusal."""
    if error.code in _OURS:
        return error.code.name
    return _CODES.get(error.code, text.BAD_REQUEST)


def refusal(correlation_id: bytes, error: BrokerError) -> bytes:
    """The line of a refusal."""
    code = code_of(error)
    message = error.message if code == error.code.name else f"{error.code.name}: {error.message}"
    return text.refused(correlation_id, code, message)
