"""What can go wrong on the way to a broker, in words that name the broker, topic, partition and offset."""

from __future__ import annotations

from core.errors import ErrorCode


class WireError(Exception):
    """A broker could not be reached, or refused; the message names the broker, the request and the reason."""


class ConnectionLostError(WireError):
    """The connection could not be made, or ended; another try may help."""


class AuthenticationError(WireError):
    """The broker or this client could not prove its identity, or a file that it needs for that is not usable.

    Another try does not help.
    """


class KafkaError(WireError):
    """A broker answered with a Kafka error. `code` is its ErrorCode, `retriable` whether to ask again."""

    def __init__(self, code: int, what: str, message: str | None = None) -> None:
        self.code = error_code(code)
        self.retriable = self.code in RETRIABLE
        super().__init__(f"{what}: {self.code.name} ({code}){f', {message}' if message else ''}")


class DataLossError(WireError):
    """Records that should have been read are lost: aged out, truncated, or the topic was deleted."""


class CorruptDataError(WireError):
    """A record batch is corrupt: checksum, length or records. Names topic, partition and offset."""


RETRIABLE = {
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_ID,
    # Another request of the same transactional id is under way.
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
"""Errors after which the same request, perhaps to another broker, may succeed."""


def error_code(code: int) -> ErrorCode:
    """The ErrorCode of a number; UNKNOWN_SERVER_ERROR for one that is not known here."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def refuse(code: int, what: str, message: str | None = None) -> None:
    """Raise KafkaError unless `code` is 0."""
    if code:
        raise KafkaError(code, what, message)
