"""Translate the broker's errors into codes of the line protocol.

The protocol has five codes. An error in the request is BAD_REQUEST. An error on the broker's side, such as a full
disk, keeps Kafka's name as its code, because none of the five is true. Otherwise the message begins with Kafka's
name, so that the translation loses nothing.
"""

from __future__ import annotations

from core.errors import BrokerError, ErrorCode
from core.line_protocol import codec

_CODES: dict[ErrorCode, str] = {
    ErrorCode.REQUEST_TIMED_OUT: codec.REPLICATION_TIMEOUT,
    ErrorCode.NOT_ENOUGH_REPLICAS: codec.REPLICATION_TIMEOUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: codec.REPLICATION_TIMEOUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: codec.NOT_LEADER,
    ErrorCode.LEADER_NOT_AVAILABLE: codec.NOT_LEADER,
    ErrorCode.FENCED_LEADER_EPOCH: codec.NOT_LEADER,
    ErrorCode.ILLEGAL_GENERATION: codec.GENERATION_MISMATCH,
    ErrorCode.UNKNOWN_MEMBER_ID: codec.GENERATION_MISMATCH,
    ErrorCode.FENCED_INSTANCE_ID: codec.GENERATION_MISMATCH,
    ErrorCode.REBALANCE_IN_PROGRESS: codec.GENERATION_MISMATCH,
}
# Errors on the broker's side: nothing in the request is wrong.
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
    """Return the code of an error."""
    if error.code in _OURS:
        return error.code.name
    return _CODES.get(error.code, codec.BAD_REQUEST)


def refusal(correlation_id: bytes, error: BrokerError) -> bytes:
    """Return the line of an error."""
    code = code_of(error)
    message = error.message if code == error.code.name else f"{error.code.name}: {error.message}"
    return codec.refused(correlation_id, code, message)
